"""What a run writes down about itself, below ``<dump_folder>/record``; ``record`` reads it back."""

from trncheck.trainers.devices import DEVICE_TYPE  # sets the device before torchtitan reads it

# isort: split
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

from trncheck.neuron import device
from trncheck.trainers import poison
from trncheck.trainers.activations import Activations
from trncheck.trainers.substitutes import attention_of


@dataclass(kw_only=True, slots=True)
class RecordConfig:
    enable: bool = False
    """Write losses, gradient norms, learning rates, token hashes and kernel executions of every logged step."""

    batches: bool = False
    """Keep the batches themselves (inputs, positions, labels)."""

    logit_steps: list[int] = field(default_factory=list)
    """Steps whose logits (B, L, V) are kept."""

    gradient_steps: list[int] = field(default_factory=list)
    """Steps whose gradients are kept, as the optimizer sees them (after clipping), under Hugging Face names."""

    weight_steps: list[int] = field(default_factory=list)
    """Steps after which all weights are kept, under Hugging Face names; 0 is what was loaded."""

    activations: bool = False
    """Keep what leaves the modules, and its gradient, in every step (see ``activations``)."""

    final_logits: bool = False
    """Run the last micro-batch through the finished model once more, and keep both."""

    poison: bool = False
    """Let fresh memory hold NaN, and keep the names of what holds it when weights are drawn, and when they are loaded.
    """


class Recorder:
    """Writes the record of one rank. Gathering is collective: every rank calls every method."""

    def __init__(self, trainer, config: RecordConfig):
        self._trainer = trainer
        self._config = config
        self._rank = torch.distributed.get_rank()
        self._folder = Path(trainer.config.dump_folder) / "record"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._steps = (self._folder / f"steps-rank{self._rank}.jsonl").open("a", buffering=1)
        self._micro_batches: list[tuple[dict[str, torch.Tensor], torch.Tensor]] = []
        self._logits: list[torch.Tensor] = []
        self._logged: dict[str, float] = {}
        self._listen_to_metrics(trainer.metrics_processor)
        self._last_call: tuple = ()
        self._compilations = device.Compilations()
        self._activations = Activations(trainer.model_parts) if config.activations else None
        self.note_poison("drawn")
        if config.logit_steps or config.final_logits:
            trainer.model_parts[-1].register_forward_hook(self._note_forward, with_kwargs=True)

    def note_poison(self, when: str) -> None:
        """What is still unwritten, if fresh memory holds NaN."""
        if self._config.poison:
            file = self._folder / f"poison-{when}-rank{self._rank}.json"
            poison.note(local_tensors(self._trainer.model_parts), file)

    def note_start(self) -> None:
        """After loading, before the first step."""
        if self._rank == 0:
            (self._folder / "run.json").write_text(json.dumps(self._circumstances(), indent=2) + "\n")
        if 0 in self._config.weight_steps and self._trainer.step == 0:
            self._save(named_weights(self._trainer), "weights", 0)
        device.clear_fallbacks()
        self._compilations = device.Compilations()

    def _circumstances(self) -> dict:
        trainer = self._trainer
        return {
            "device": DEVICE_TYPE,
            "device_name": trainer.metrics_processor.device_memory_monitor.device_name,
            "attention": attention_of(trainer.model_parts),
            "substitutes": trainer.substitutes,
            "mesh": mesh_sizes(trainer.model_parts),
        }

    def note_batch(self, input_dict: dict[str, torch.Tensor], labels: torch.Tensor) -> None:
        self._micro_batches.append((input_dict, labels))

    def note_step(self) -> None:
        """After the optimizer's step; gradients are still there."""
        step = self._trainer.step
        self._compilations.end_step()
        if step >= self._trainer.config.training.steps:
            self._note_execution()
        rows = [row for inputs, labels in self._micro_batches for row in _row_hashes(inputs, labels)]
        entry = {"step": step, "time": time.time(), "rows": rows, **self._logged}
        entry["kernel_counts"] = self._trainer.kernel_counts
        self._steps.write(json.dumps(entry) + "\n")
        if self._config.batches:
            self._save_local(self._batch(self._micro_batches), "batch", step)
        if step in self._config.logit_steps:
            self._save_local({"logits": torch.cat(self._logits)}, "logits", step)
        if self._activations:
            self._activations.save(self._folder / f"activations-{step}-rank{self._rank}.safetensors")
        if step in self._config.gradient_steps:
            self._save(named_gradients(self._trainer), "gradients", step)
        if step in self._config.weight_steps:
            self._save(named_weights(self._trainer), "weights", step)
        self._last_micro_batch = self._micro_batches[-1]
        self._micro_batches.clear()
        self._logits.clear()
        self._logged = {}

    def _note_execution(self) -> None:
        """What ran where in all steps, and what was compiled in which; before anything of the record runs."""
        compiled, why_not = self._compilations.by_step()
        noted = {"operators": asdict(device.fallbacks()), "compiled": compiled, "compiled_why_not": why_not}
        noted |= {"backend": torch.distributed.get_backend(), "core": os.environ.get("NEURON_RT_VISIBLE_CORES", "")}
        (self._folder / f"execution-rank{self._rank}.json").write_text(json.dumps(noted) + "\n")

    @torch.no_grad()
    def note_end(self) -> None:
        """After the last step and its checkpoint."""
        if self._config.final_logits:
            args, kwargs = self._last_call
            logits = self._trainer.model_parts[-1](*args, **kwargs)
            self._save_local({"logits": logits.float().cpu().contiguous()}, "logits", "final")
            self._save_local(self._batch([self._last_micro_batch]), "batch", "final")

    def _listen_to_metrics(self, metrics_processor) -> None:
        log = metrics_processor.log

        def listen(step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
            rates = {name: value for name, value in (extra_metrics or {}).items() if name.startswith("lr/")}
            self._logged = {"loss": global_avg_loss, "grad_norm": grad_norm, "lr": max(rates.values())}
            self._logged["memory"] = asdict(device.memory())  # before torchtitan resets the peak
            log(step, global_avg_loss, global_max_loss, grad_norm, extra_metrics)

        metrics_processor.log = listen

    def _note_forward(self, _module, args, kwargs, output: torch.Tensor) -> None:
        self._last_call = args, kwargs
        if self._trainer.step in self._config.logit_steps:
            self._logits.append(output.detach().float().cpu())

    def _batch(self, micro_batches) -> dict[str, torch.Tensor]:
        columns = [inputs | {"labels": labels} for inputs, labels in micro_batches]
        return {name: torch.cat([column[name] for column in columns]).cpu() for name in columns[0]}

    def _save_local(self, tensors: dict[str, torch.Tensor], kind: str, step: int | str) -> None:
        save_file(tensors, self._folder / f"{kind}-{step}-rank{self._rank}.safetensors")

    def _save(self, tensors: dict[str, torch.Tensor], kind: str, step: int) -> None:
        if self._rank == 0:
            save_file(tensors, self._folder / f"{kind}-{step}.safetensors")


def local_tensors(model_parts) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and this rank's part of every parameter and persistent or temporary buffer."""
    for model in model_parts:
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            yield name, tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def mesh_sizes(model_parts) -> dict[str, int]:
    """Mesh dimensions larger than 1 that parameters lie on, sharded or replicated, by size."""
    meshes = [p.device_mesh for model in model_parts for p in model.parameters() if isinstance(p, DTensor)]
    sizes = [size for mesh in meshes for size in zip(mesh.mesh_dim_names or (), mesh.shape, strict=False)]
    return {name: size for name, size in sorted(sizes) if size > 1}


def named_weights(trainer) -> dict[str, torch.Tensor]:
    """All weights, gathered to whole CPU tensors under Hugging Face names. Collective."""
    state = {name: tensor for model in trainer.model_parts for name, tensor in model.state_dict().items()}
    whole = {name: _whole(tensor) for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
    spec = trainer.config.model_spec
    # A fresh adapter: the checkpointer's own keeps placements from its last conversion.
    adapter = spec.state_dict_adapter(trainer.model_config, trainer.config.hf_assets_path)
    return {name: tensor.clone() for name, tensor in adapter.to_hf(whole).items()}


@torch.no_grad()
def named_gradients(trainer) -> dict[str, torch.Tensor]:
    """All gradients, in the form of ``named_weights``. Collective.

    Gradients stand in for the weights while these are read, so that every conversion on the way (fused QKV, grouped
    experts) treats both alike; the weights are put back bit for bit.
    """
    parameters = [p for model in trainer.model_parts for p in model.parameters()]
    weights = [p.detach().clone() for p in parameters]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.zero_()
        else:
            parameter.copy_(parameter.grad)
    gradients = named_weights(trainer)
    for parameter, weight in zip(parameters, weights, strict=True):
        parameter.copy_(weight)
    return gradients


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def _row_hashes(inputs: dict[str, torch.Tensor], labels: torch.Tensor) -> list[str]:
    """One hash per row (inputs, positions, labels), so that ranks and micro-batches can be put together."""
    columns = [*(inputs[name] for name in sorted(inputs)), labels]
    return [
        hashlib.sha256(b"".join(column[i].cpu().numpy().tobytes() for column in columns)).hexdigest()[:16]
        for i in range(len(labels))
    ]
