"""A trainer at its random start: its weights, and its logits when single tokens of a packed row are changed."""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
from pathlib import Path

import torch
import torch.distributed
from safetensors.torch import save_file

from trncheck.trainers.job import parse
from trncheck.trainers.recorder import named_weights


@torch.no_grad()
def start(flags: list[str], changes: dict[str, list[int]], out: Path) -> None:
    """Build the trainer that ``flags`` describe and write what it has before any step to ``out``, as safetensors.

    ``weights`` are under Hugging Face names. ``logits`` holds, fp32 (B, L, V), those of the first batch as ``batch``
    and, for each of ``changes``, those after the token of every row at the column that it gives has become another.
    """
    trainer = parse(flags).build()
    try:
        save_file(named_weights(trainer), out / "weights.safetensors")
        input_dict, labels = next(iter(trainer.dataloader))
        logits = {"batch": _logits(trainer, input_dict, labels)}
        for name, columns in changes.items():
            tokens_BL = input_dict["input"].clone()
            rows = torch.arange(len(tokens_BL))
            other_B = (tokens_BL[rows, columns] + 1) % logits["batch"].shape[-1]
            tokens_BL[rows, columns] = other_B
            logits[name] = _logits(trainer, input_dict | {"input": tokens_BL}, labels)
        save_file(logits, out / "logits.safetensors")
    finally:
        trainer.close()
        torch.distributed.destroy_process_group()


def _logits(trainer, input_dict: dict[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    device = next(trainer.model_parts[0].parameters()).device
    on_device = {name: tensor.to(device) for name, tensor in input_dict.items()}
    inputs, _, extra = trainer.post_dataloading_process(on_device, labels.to(device))
    return trainer.model_parts[0](inputs, **extra).float().cpu().contiguous()
