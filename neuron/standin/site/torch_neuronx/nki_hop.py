"""How the stand-in registers and runs NKI kernels: trncheck's simulator on the memory of the device tensors."""

import functools
from collections.abc import Callable, Iterable

import torch

from torch_neuronx import _standin


def nki_op(name: str, fn: Callable | None = None, mutates_args: str | Iterable[str] = {}) -> Callable:
    """A ``torch.library`` operator of a function that calls kernels; the function is its fake implementation too."""
    if fn is None:
        return functools.partial(nki_op, name, mutates_args=mutates_args)
    arguments = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
    operator = torch.library.custom_op(name, fn, mutates_args=arguments)
    operator.register_fake(fn)
    return operator


def wrap_nki(nki_kernel, **kwargs):
    """A caller of ``nki_kernel`` on device tensors; ``[cores]`` is the launch on that many."""
    return _Wrapped(nki_kernel, kwargs)


class _Wrapped:
    def __init__(self, kernel, options: dict, cores: int = 1):
        self._kernel, self._options, self._cores = kernel, options, cores

    def __getitem__(self, cores: int) -> "_Wrapped":
        return _Wrapped(self._kernel, self._options, cores)

    def __call__(self, *args, **kwargs):
        compile_kernel(self._kernel)
        return _execute(self._kernel[self._cores], args, self._options | kwargs)


def compile_kernel(kernel) -> None:
    """Where a compiler would be; a variant makes it fail."""


def _execute(kernel, args: tuple, kwargs: dict):
    from trncheck.kernels.simulator import launch

    pairs = []

    def host(value):
        if not isinstance(value, torch.Tensor) or value.device.type != "neuron":
            return value
        pairs.append((value, _standin.host_alias(value.detach())))
        return pairs[-1][1]

    def device(value):
        if isinstance(value, tuple | list):
            return type(value)(map(device, value))
        if not isinstance(value, torch.Tensor):
            return value
        ours = [ours for ours, alias in pairs if alias is value]
        return ours[0] if ours else _standin.device_alias(value)

    args, kwargs = tuple(map(host, args)), {name: host(value) for name, value in kwargs.items()}
    # One order of the cores: whether the order matters is the simulator's question, and asked on the CPU.
    result, report = launch.run(kernel, args, kwargs, orders=1)
    launch.show(report)
    return device(result)
