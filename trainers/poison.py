"""NaN in all memory that is fresh, and the names of what still holds it where a value is due.

Fresh memory is often zero on a CPU, so that what was never written looks right there, and is garbage on a device.
"""

import functools
import json
from collections.abc import Iterable
from pathlib import Path

import torch


def fill_fresh_memory(device: str) -> None:
    """From now on, and for good: let what ``torch.empty`` and a module's ``to_empty`` give hold NaN.

    Integers get their largest value. On another device than a CPU, modules alone.
    """
    if device == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
    to_empty = torch.nn.Module.to_empty

    @functools.wraps(to_empty)
    def filled(self, **kwargs):
        module = to_empty(self, **kwargs)
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                getattr(tensor, "_local_tensor", tensor).fill_(_poison(tensor.dtype))
        return module

    torch.nn.Module.to_empty = filled


def note(tensors: Iterable[tuple[str, torch.Tensor]], file: Path) -> None:
    """Write the names of ``tensors`` that hold poison, as a JSON list."""
    left = [name for name, tensor in tensors if _is_poisoned(tensor)]
    file.write_text(json.dumps(left) + "\n")


def _poison(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def _is_poisoned(tensor: torch.Tensor) -> bool:
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.isnan().any())
    return tensor.dtype != torch.bool and bool((tensor == _poison(tensor.dtype)).any())
