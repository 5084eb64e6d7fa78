"""Reads what a run wrote down about itself (see ``recorder``), whatever launched it."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file

from trncheck.neuron.device import Fallbacks, Memory
from trncheck.trainers.activations import Activation
from trncheck.trainers.activations import load as load_activations


@dataclass(frozen=True)
class Step:
    step: int
    loss: float
    """Mean cross-entropy over all labels of the global batch, nats."""
    grad_norm: float
    lr: float
    tokens: str
    """Hash of the global batch (inputs, positions, labels), the same for every number of ranks."""
    kernel_counts: dict[str, int]
    """Executions of kernels by ``operator direction dtype backend``, over all ranks; empty without kernels."""


@dataclass(frozen=True)
class Circumstances:
    """What a run was made with; of rank 0."""

    device: str
    """``cpu``, ``neuron`` or ``cuda``"""
    device_name: str
    """As the device calls itself."""
    attention: str
    """That of the model: ``FlexAttention`` as torchtitan has it, or what stood in for it (see ``substitutes``)."""
    substitutes: dict[str, str]
    """What the device got instead of what torchtitan asks for, by subject (attention, reductions), and why."""
    mesh: dict[str, int]
    """Mesh dimensions larger than 1 that the parameters lay on, by size, e.g. ``{"ep": 2, "fsdp": 2}``."""


@dataclass(frozen=True)
class RunRecord:
    """One finished run in its dump folder."""

    folder: Path
    world_size: int

    @cached_property
    def steps(self) -> list[Step]:
        """Every logged step (``metrics.log_freq``), in order."""
        ranks = [self._entries(rank) for rank in range(self.world_size)]
        steps = []
        for entries in zip(*ranks, strict=True):
            first = entries[0]
            if "loss" not in first:
                continue
            rows = "".join(row for entry in entries for row in entry["rows"])
            tokens = hashlib.sha256(rows.encode()).hexdigest()[:16]
            counts = dict(sum((Counter(entry["kernel_counts"]) for entry in entries), Counter()))
            steps.append(Step(first["step"], first["loss"], first["grad_norm"], first["lr"], tokens, counts))
        return steps

    @property
    def losses(self) -> list[float]:
        return [step.loss for step in self.steps]

    @property
    def kernel_counts(self) -> list[dict[str, int]]:
        """Executions of kernels in every logged step."""
        return [step.kernel_counts for step in self.steps]

    @cached_property
    def seconds_per_step(self) -> float:
        """Median wall time between two recorded steps, seconds; NaN for fewer than two."""
        times = torch.tensor([entry["time"] for entry in self._entries(0)], dtype=torch.float64)
        return times.diff().median().item() if len(times) > 1 else float("nan")

    @cached_property
    def memory(self) -> Memory:
        """Largest peaks of one rank in one logged step."""
        entries = [entry for rank in range(self.world_size) for entry in self._entries(rank)]
        noted = [Memory(**entry["memory"]) for entry in entries if "memory" in entry]
        peaks = ([getattr(one, name) for one in noted] for name in ("peak", "reserved_peak"))
        why_not = next((one.why_not for one in noted if one.why_not), "" if noted else "no step was logged")
        return Memory(*(max(peak) if peak and None not in peak else None for peak in peaks), why_not)

    @cached_property
    def operators(self) -> Fallbacks:
        """Operators that ran on the device, and on the CPU instead, in the steps of any rank."""
        noted = [Fallbacks(**execution["operators"]) for execution in self._executions]
        executed, fallen_back = (
            tuple(sorted({name for one in noted for name in getattr(one, which)}))
            for which in ("executed", "fallen_back")
        )
        why_not = next((one.why_not for one in noted if not one.measurable), "")
        return Fallbacks(not why_not, executed, fallen_back, why_not)

    @cached_property
    def compiled(self) -> tuple[list[int] | None, str]:
        """Most that one rank compiled in each step, and an empty text; or None, and why that is not known."""
        if why_not := next((one["compiled_why_not"] for one in self._executions if one["compiled"] is None), ""):
            return None, why_not
        return [max(counts) for counts in zip(*(one["compiled"] for one in self._executions), strict=True)], ""

    @property
    def backends(self) -> list[str]:
        """Backend of the process group, by rank."""
        return [one["backend"] for one in self._executions]

    @property
    def cores(self) -> list[str]:
        """NeuronCores that each rank could see; empty where it was not told."""
        return [one["core"] for one in self._executions]

    @cached_property
    def circumstances(self) -> Circumstances:
        return Circumstances(**json.loads((self.folder / "record" / "run.json").read_text()))

    @property
    def mesh(self) -> dict[str, int]:
        return self.circumstances.mesh

    def poisoned(self, when: Literal["drawn", "loaded"]) -> list[str]:
        """Parameters and buffers that a rank had not written by then; of a run with ``--record.poison``."""
        files = [self.folder / "record" / f"poison-{when}-rank{rank}.json" for rank in range(self.world_size)]
        return sorted({name for file in files for name in json.loads(file.read_text())})

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        """``input``, ``positions`` and ``labels`` of the global batch, int64 (B, L)."""
        return self._joined("batch", step)

    def logits(self, step: int) -> torch.Tensor:
        """Logits of the global batch, fp32 (B, L, V), before the step's update."""
        return self._joined("logits", step)["logits"]

    def activations(self, step: int) -> dict[str, Activation]:
        """What left each module, and its gradient, over the global batch; in the order of execution."""
        return load_activations([self._path(f"activations-{step}-rank{rank}") for rank in range(self.world_size)])

    def gradients(self, step: int) -> dict[str, torch.Tensor]:
        """Whole gradients under Hugging Face names."""
        return load_file(self._path(f"gradients-{step}"))

    def weights(self, step: int) -> dict[str, torch.Tensor]:
        """Whole weights under Hugging Face names after ``step``; 0 is what was loaded."""
        return load_file(self._path(f"weights-{step}"))

    def final_batch(self) -> dict[str, torch.Tensor]:
        """The last micro-batch of every rank, in the form of ``batch``."""
        return self._joined("batch", "final")

    def final_logits(self) -> torch.Tensor:
        """Logits of ``final_batch`` after the last update, fp32 (B, L, V)."""
        return self._joined("logits", "final")["logits"]

    @cached_property
    def export(self) -> Path:
        """The exported Hugging Face folder, that of the last checkpointed step."""
        exports = list(self.folder.glob("checkpoint/step-*/config.json"))
        if not exports:
            raise FileNotFoundError(f"{self.folder} holds no exported model")
        return max((path.parent for path in exports), key=lambda folder: int(folder.name.removeprefix("step-")))

    @cached_property
    def _executions(self) -> list[dict]:
        files = [self.folder / "record" / f"execution-rank{rank}.json" for rank in range(self.world_size)]
        return [json.loads(file.read_text()) for file in files]

    def _entries(self, rank: int) -> list[dict]:
        lines = (self.folder / "record" / f"steps-rank{rank}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def _joined(self, kind: str, step: int | str) -> dict[str, torch.Tensor]:
        parts = [load_file(self._path(f"{kind}-{step}-rank{rank}")) for rank in range(self.world_size)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _path(self, name: str) -> Path:
        return self.folder / "record" / f"{name}.safetensors"


def fingerprint(tensor: torch.Tensor) -> str:
    """Hash of dtype, shape and bytes; equal exactly where two tensors are equal bit for bit."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
