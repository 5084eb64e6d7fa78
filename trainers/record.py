"""Reads what a run wrote down about itself (see ``recorder``), whatever launched it."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file

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
    def mesh(self) -> dict[str, int]:
        """Mesh dimensions larger than 1 that the parameters lay on, by size, e.g. ``{"ep": 2, "fsdp": 2}``."""
        return json.loads((self.folder / "record" / "mesh.json").read_text())

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
