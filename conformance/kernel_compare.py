"""What the checks of kernels share: bits and layouts of results, and the sabotage of launches."""

from unittest import mock

from trncheck.conformance.judge import Judge
from trncheck.conformance.kernel_runs import listed, outputs
from trncheck.conformance.parity import hold

OWN = ("rope", "experts")
"""Kernels of the kit itself, by their names in the catalogue."""


def needs_gradient(entry, inputs: dict) -> bool:
    """Whether any result does where no input does."""
    leaves = {name: value.detach().clone() for name, value in inputs.items()}
    return any(result.requires_grad for result in outputs(entry.call, leaves))


def gets_gradient(entry, inputs: dict, name: str) -> bool:
    """Whether the input ``name`` does where it alone asks for one; a ValueError or None is none."""
    import torch

    leaves = {n: value.detach().clone().requires_grad_(n == name) for n, value in inputs.items()}
    try:
        results = [result for result in outputs(entry.call, leaves) if result.requires_grad]
        if not results:
            return False
        ones = [torch.ones_like(result) for result in results]
        return torch.autograd.grad(results, leaves[name], ones, allow_unused=True)[0] is not None
    except ValueError:
        return False


def hold_cores(judge: Judge, name: str, launches: list, degree: int) -> None:
    """Demand that both directions ran on ``degree`` cores, and that each of these executed instructions."""
    cores = {launch.direction: launch.cores for launch in launches}
    judge.equal(f"{name}, cores", cores, dict.fromkeys(("forward", "backward"), degree))
    idle = []
    for launch in launches:
        unknown = [0] * launch.cores if launch.backend == "simulator" else []  # which knows what it has executed
        counts = launch.instructions or unknown
        idle += [f"core {core}, {launch.direction}" for core, count in enumerate(counts) if not count]
    judge.equal(f"{name}, cores that executed nothing", idle, [])


def hold_dtype(judge: Judge, sample, inputs: dict) -> None:
    """Demand that inputs were made in the dtype asked for: in another one, that dtype would not be tried at all."""
    made = sorted({str(value.dtype).removeprefix("torch.") for value in inputs.values() if value.is_floating_point()})
    if sample.dtype not in made:
        judge.fail(f"{sample}: inputs are {', '.join(made) or 'integers alone'}, asked {sample.dtype}")


def copied(result):
    """``result`` in memory of its own."""
    gradients = {name: value if value is None else value.clone() for name, value in result.gradients.items()}
    return type(result)([output.clone() for output in result.outputs], gradients)


def hold_result(judge: Judge, sample, got, kernels) -> None:
    """Hold outputs and gradients of ``sample``, whatever computed them, against fp64 and plain torch."""
    truth, reference = kernels.truth(sample), kernels.reference(sample)
    for i, tensors in enumerate(zip(got.outputs, reference.outputs, truth.outputs, strict=True)):
        hold(judge, f"{sample}, output {i}", *tensors)
    for name, gradient in got.gradients.items():
        hold(judge, f"{sample}, gradient of {name}", gradient, reference.gradients[name], truth.gradients[name])


def hold_bits(judge: Judge, name: str, got, want) -> None:
    """Demand that two runs of a kernel gave the same bits."""
    judge.bit_equal(f"{name}: outputs", _numbered(got.outputs), _numbered(want.outputs))
    judge.bit_equal(f"{name}: gradients", present(got.gradients), present(want.gradients))


def _numbered(tensors) -> dict:
    return {str(i): tensor for i, tensor in enumerate(tensors)}


def present(tensors: dict) -> dict:
    """Without those that are None."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def tensors_of(args: tuple) -> dict:
    """The tensors among arguments, by their position."""
    return {str(i): arg for i, arg in enumerate(args) if hasattr(arg, "stride")}


def layout_of(tensor) -> tuple:
    """Shape, strides, dtype and kind of device."""
    return tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype), tensor.device.type


def sabotaged(direction: str):
    """Double whatever kernels of ``direction`` return, as a context manager."""
    from trncheck.kernels import runtime

    honest = runtime.launch

    def launch(operator, of, *args, **kwargs):
        results = honest(operator, of, *args, **kwargs)
        if of == direction:
            for result in listed(results):
                result.mul_(2)
        return results

    return mock.patch.object(runtime, "launch", launch)
