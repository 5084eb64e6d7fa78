"""Runs catalogued kernels, and what they are held against, on generated inputs; each once per session."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from trncheck.conformance.runs import once
from trncheck.kernels import catalogue
from trncheck.kernels.catalogue import Entry

SEED = 20261130


class Result(NamedTuple):
    """Outputs of a call, and the gradient of each differentiable input (None where there is none)."""

    outputs: list
    gradients: dict


class Sample(NamedTuple):
    """What a kernel is tried on."""

    kernel: str
    shape: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


class OperatorCall(NamedTuple):
    """One call of a torch operator during a forward and backward pass."""

    operator: object
    before: tuple
    """Its arguments, copied before the call."""
    after: tuple
    """The arguments themselves."""
    results: list


class Recording(NamedTuple):
    """What a forward and a backward pass called and executed."""

    calls: list[OperatorCall]
    executions: dict
    """Kernel launches by ``counters.Key``."""


class KernelRuns:
    """Kernels by name; ``device`` holds the tensors, ``degrees`` are the numbers of cores to launch on."""

    def __init__(self, level: str, device: str, degrees: tuple[int, ...]):
        import torch

        torch.set_num_threads(1)  # a thread pool would not survive the forks that train
        self._level, self.device, self.degrees = level, device, degrees

    @once
    def entry(self, kernel: str) -> Entry:
        return catalogue.load(kernel)

    def firsts(self, kernel: str) -> list[Sample]:
        """The first of ``samples`` in each dtype."""
        return [*{sample.dtype: sample for sample in reversed(self.samples(kernel))}.values()][::-1]

    def samples(self, kernel: str) -> list[Sample]:
        """The first shape at level smoke, all at standard, the large ones too at full; in every dtype."""
        entry = self.entry(kernel)
        shapes = [*entry.shapes]
        if self._level == "smoke":
            shapes = shapes[:1]
        if self._level == "full":
            shapes += entry.large_shapes
        return [Sample(kernel, shape, dtype) for shape in shapes for dtype in entry.dtypes]

    def inputs(self, sample: Sample, seed: int = SEED) -> dict:
        """Fresh inputs, the same ones for the same seed."""
        import torch

        entry = self.entry(sample.kernel)
        sizes = (entry.shapes | entry.large_shapes)[sample.shape]
        made = entry.inputs(sizes, getattr(torch, sample.dtype), torch.Generator().manual_seed(seed))
        return {name: value.to(self.device) for name, value in made.items()}

    @once
    def truth(self, sample: Sample, seed: int = SEED) -> Result:
        """Plain torch in fp64."""
        inputs = {n: v.double() if v.is_floating_point() else v for n, v in self._on_cpu(sample, seed).items()}
        return gradients(self.entry(sample.kernel).reference, inputs, self._wanted(sample), self.upstream(sample))

    @once
    def reference(self, sample: Sample, seed: int = SEED) -> Result:
        """Plain torch in the sample's dtype."""
        entry = self.entry(sample.kernel)
        return gradients(entry.reference, self._on_cpu(sample, seed), self._wanted(sample), self.upstream(sample))

    def kernel(self, sample: Sample, degree: int) -> Result:
        """The operator, on ``degree`` cores."""
        return self.observed(sample, degree)[0]

    @once
    def observed(self, sample: Sample, degree: int) -> tuple[Result, list]:
        """The same, and what each ``counters.Launch`` of it did."""
        from trncheck.kernels import runtime

        with runtime.observing() as launches:
            return self.run(sample, degree), launches

    def run(self, sample: Sample, degree: int, seed: int = SEED, wanted: tuple[str, ...] | None = None) -> Result:
        """The same, again; what it leaves unwritten is NaN. ``wanted``: inputs that get a gradient, unless all do."""
        entry = self.entry(sample.kernel)
        wanted = self._wanted(sample) if wanted is None else wanted
        with logical_cores(degree), nan_in_fresh_memory(self.device):
            return gradients(entry.call, self.inputs(sample, seed), wanted, self.upstream(sample))

    @once
    def simulated(self, sample: Sample) -> Result:
        """The operator on CPU tensors, whatever the device is."""
        entry = self.entry(sample.kernel)
        with logical_cores(self.degrees[-1]), nan_in_fresh_memory("cpu"):
            return gradients(entry.call, self._on_cpu(sample), self._wanted(sample), self.upstream(sample))

    @once
    def recorded(self, sample: Sample) -> Recording:
        """The same once more, with every call of an operator of the entry's namespace kept."""
        from torch.utils._python_dispatch import TorchDispatchMode

        from trncheck.kernels import counters

        namespace = self.entry(sample.kernel).operator.partition("::")[0]
        calls = []

        class Recorder(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if function.namespace != namespace:
                    return function(*args, **(kwargs or {}))
                before = tuple(arg.clone() if hasattr(arg, "clone") else arg for arg in args)
                results = function(*args, **(kwargs or {}))
                calls.append(OperatorCall(function, before, args, listed(results)))
                return results

        with counters.counting() as executions, Recorder():
            self.run(sample, self.degrees[-1])
        return Recording(calls, dict(executions))

    @once
    def upstream(self, sample: Sample) -> list:
        """Random gradients of the outputs, no two elements alike."""
        import torch

        generator = torch.Generator().manual_seed(SEED + 1)
        results = outputs(self.entry(sample.kernel).reference, self._on_cpu(sample))
        return [torch.randn(result.shape, generator=generator).to(result.dtype) for result in results]

    def _wanted(self, sample: Sample) -> tuple[str, ...]:
        return self.entry(sample.kernel).differentiable

    def _on_cpu(self, sample: Sample, seed: int = SEED) -> dict:
        return {name: value.cpu() for name, value in self.inputs(sample, seed).items()}


@contextlib.contextmanager
def logical_cores(degree: int) -> Iterator[None]:
    """Launch kernels on ``degree`` cores inside the context."""
    before = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    os.environ["NEURON_LOGICAL_NC_CONFIG"] = str(degree)
    try:
        yield
    finally:
        if before is None:
            del os.environ["NEURON_LOGICAL_NC_CONFIG"]
        else:
            os.environ["NEURON_LOGICAL_NC_CONFIG"] = before


@contextlib.contextmanager
def nan_in_fresh_memory(device: str) -> Iterator[None]:
    """Let fresh CPU tensors hold NaN inside the context, and not the right result of a call before; else nothing."""
    import torch

    before = torch.get_deterministic_debug_mode()
    if device == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)  # fills what torch.empty gives
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def outputs(call: Callable, inputs: dict) -> list:
    """What ``call`` returns, as a list of tensors."""
    return listed(call(**inputs))


def listed(result) -> list:
    return list(result) if isinstance(result, tuple | list) else [result]


def gradients(call: Callable, inputs: dict, wanted: tuple[str, ...], gradient_of: list) -> Result:
    """Outputs of ``call`` and gradients of the inputs ``wanted``, on the CPU.

    An input that is not wanted must not need one: a gradient of a table or of counts is none that training may use.
    """
    import torch

    leaves = {name: value.detach() for name, value in inputs.items()}
    for name in wanted:
        leaves[name].requires_grad_()
    results = outputs(call, leaves)
    pairs = [
        (result, gradient.to(result.device, result.dtype))
        for result, gradient in zip(results, gradient_of, strict=True)
        if result.requires_grad
    ]
    if not pairs:
        return Result([result.cpu() for result in results], dict.fromkeys(wanted))
    found = torch.autograd.grad(
        [result for result, _ in pairs],
        [leaves[name] for name in wanted],
        [gradient for _, gradient in pairs],
        allow_unused=True,
    )
    by_name = {name: None if value is None else value.cpu() for name, value in zip(wanted, found, strict=True)}
    return Result([result.detach().cpu() for result in results], by_name)


def layouts(tensor) -> dict[str, object]:
    """Views with the values of ``tensor`` in other memory layouts."""
    padded = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), 7)
    sliced = padded[..., 1::2]
    sliced.copy_(tensor)
    made = {"sliced": sliced}
    if tensor.ndim >= 2:
        made["transposed"] = tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
        shifted = tensor.new_full((tensor.shape[0] + 1, *tensor.shape[1:]), 7)[1:]
        shifted.copy_(tensor)
        made["offset in its storage"] = shifted
    return made
