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
from trncheck.kernels.counters import observing
from trncheck.kernels.simulator.modules import as_nki, official_nki
from trncheck.neuron import cores as neuron_cores
from trncheck.neuron import device as neuron

__all__ = ["cpu_backend", "importing", "launch", "lnc", "load", "observing"]


def lnc() -> int:
    """Physical cores of a logical one (``NEURON_LOGICAL_NC_CONFIG``); 2, Trainium2's default, unless set."""
    return neuron_cores.lnc(os.environ)


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
    degree; :func:`lnc` unless given. What the launch did is shown to :func:`observing`.

    Raises:
        ValueError: Tensors that are not contiguous, a kernel that returns no tensor, or one that returns an argument
            which it has not written (known of the simulator alone); whatever the simulator refuses is an NkiError.
        RuntimeError: The simulator has executed no instruction on any core, so there is nothing to count.
        KernelFailed: A device, or its compiler, has refused; one line that names the file with the whole text.
    """
    import torch

    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if not tensors:
        raise ValueError(f"{operator} {direction}: no argument of the launch is a tensor")
    if strided := [tuple(tensor.shape) for tensor in tensors if not tensor.is_contiguous()]:
        raise ValueError(f"{operator} {direction}: tensors {strided} are not contiguous; call .contiguous() first")
    device, dtype = tensors[0].device.type, str(tensors[0].dtype).removeprefix("torch.")
    cores, report = cores or lnc(), None
    if device == "cpu":
        result, report = _simulate(kernel, cores, args, kwargs)
        backend = cpu_backend()
    else:
        result = neuron.launch(kernel, cores, args, kwargs)
        backend = device
    done = counters.Launch(operator, direction, dtype, backend, cores, None)
    if report is not None:
        instructions = tuple(core.total() for core in report.by_core)
        done = done._replace(cores=len(instructions), instructions=instructions, warnings=tuple(report.warnings))
    _check(done, kernel, result, report)
    counters.bump(operator, direction, dtype, backend)
    counters.record(done)
    return result


def _check(done: counters.Launch, kernel, result, report) -> None:
    """Refuse what is no execution, or no result of one."""
    import torch

    name = f"{done.operator} {done.direction}: kernel {getattr(kernel, '__name__', kernel)}"
    if done.instructions is not None and not any(done.instructions):
        idle = " and ".join(f"core {core}" for core in range(done.cores))
        raise RuntimeError(f"{name} has executed no instruction on {idle}, so the launch does not count")
    if not any(isinstance(leaf, torch.Tensor) for leaf in _leaves(result)):
        raise ValueError(f"{name} returns no tensor but {type(result).__name__}; return the outputs")
    if report is not None and (untouched := [name for name in report.returned if name not in report.mutated]):
        raise ValueError(
            f"{name} returns its argument {untouched[0]!r}, which it has not written; return an output of its own"
        )


def _leaves(result):
    if isinstance(result, tuple | list):
        return [leaf for item in result for leaf in _leaves(item)]
    return [result]


def _simulate(kernel, cores: int, args, kwargs):
    """The kernel's result, and the simulator's report; None for that of the official one, which gives none."""
    if official_nki():
        return _simulate_officially(kernel[cores], args, kwargs), None
    from trncheck.kernels.simulator import launch as simulator

    result, report = simulator.run(kernel[cores], args, kwargs, orders=_orders(kernel, cores, args, kwargs))
    simulator.show(report)
    return result, report


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
    values = (*enumerate(args), *kwargs.items())
    signature = (kernel.__module__, kernel.__name__, cores, *((name, _kind(value)) for name, value in values))
    if signature in _seen:
        return 1
    _seen.add(signature)
    return 2


def _kind(value) -> str:
    """All of an argument that a kernel's control flow may depend on."""
    return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)
