"""The seam to NKI: which one there is, how a kernel source is imported, and how a kernel is launched.

On a Neuron device a kernel goes through torch-neuronx, written against its documented interface and never run there
yet. CPU tensors go through ``nki.simulate`` where the official NKI is installed, else through our simulator.
"""

import contextlib
import functools
import importlib
import os
from types import ModuleType

from trncheck.kernels import counters
from trncheck.kernels.simulator.modules import as_nki, official_nki


def lnc() -> int:
    """Physical cores of a logical one (``NEURON_LOGICAL_NC_CONFIG``); 2, Trainium2's default, unless set."""
    value = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "2")
    if value not in ("1", "2"):
        raise ValueError(f"NEURON_LOGICAL_NC_CONFIG={value!r} must be 1 or 2")
    return int(value)


@functools.cache
def load(module: str) -> ModuleType:
    """Import an NKI source: against the official NKI where it is installed, else against the simulator."""
    with importing():
        return importlib.import_module(module)


def importing() -> contextlib.AbstractContextManager:
    """Inside the context ``import nki`` works: it gives the official NKI, or else the simulator."""
    return contextlib.nullcontext() if official_nki() else as_nki()


def cpu_backend() -> str:
    """What executes kernels on CPU tensors."""
    return "nki.simulate" if official_nki() else "simulator"


def launch(operator: str, direction: str, kernel, *args, cores: int | None = None, **kwargs):
    """Execute ``kernel`` on tensors and count it under ``operator`` and ``direction``; returns what the kernel does.

    Tensor arguments must be contiguous, and those that the kernel writes are updated in place. ``cores`` is the LNC
    degree; :func:`lnc` unless given.
    """
    import torch

    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if strided := [tuple(tensor.shape) for tensor in tensors if not tensor.is_contiguous()]:
        raise ValueError(f"{operator} {direction}: tensors {strided} are not contiguous; call .contiguous() first")
    device, dtype = tensors[0].device.type, str(tensors[0].dtype).removeprefix("torch.")
    cores = cores or lnc()
    if device == "cpu":
        result = _simulate(kernel, cores, args, kwargs)
        backend = cpu_backend()
    else:
        result = _on_device(kernel, cores, args, kwargs)
        backend = device
    counters.bump(operator, direction, dtype, backend)
    return result


def _simulate(kernel, cores: int, args, kwargs):
    if official_nki():
        return _simulate_officially(kernel[cores], args, kwargs)
    from trncheck.kernels.simulator import launch as simulator

    return simulator.run(kernel[cores], args, kwargs, orders=_orders(kernel, cores, args, kwargs))[0]


def _simulate_officially(kernel, args, kwargs):
    """``nki.simulate`` as documented for NKI 0.7; never run. Its results may be NumPy arrays or tensors."""
    import torch

    def shared(value):
        # NumPy pins the storage of a tensor that it has seen, and FSDP resizes it; an alias takes the blow.
        return torch.from_dlpack(value.detach()) if isinstance(value, torch.Tensor) else value

    def tensor(value):
        if isinstance(value, tuple | list):
            return type(value)(map(tensor, value))
        return value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)

    nki = importlib.import_module("nki")
    return tensor(nki.simulate(kernel)(*map(shared, args), **{name: shared(value) for name, value in kwargs.items()}))


_seen: set = set()


def _orders(kernel, cores: int, args, kwargs) -> int:
    """Both core orders for the first launch of a signature in this process, then one."""
    values = (*args, *kwargs.items())
    signature = (kernel.__module__, kernel.__name__, cores, *(str(getattr(v, "shape", v)) for v in values))
    if signature in _seen:
        return 1
    _seen.add(signature)
    return 2


def _on_device(kernel, cores: int, args, kwargs):
    import torch_neuronx

    return torch_neuronx.wrap_nki(kernel)[cores](*args, **kwargs)
