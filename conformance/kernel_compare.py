"""What the checks of kernels share: bits and layouts of results, and the sabotage of launches."""

from unittest import mock

from trncheck.conformance.judge import Judge
from trncheck.conformance.kernel_runs import listed, outputs


def needs_gradient(entry, inputs: dict, name: str | None) -> bool:
    """Whether any result does when the input ``name`` alone does."""
    leaves = {n: value.detach().clone().requires_grad_(n == name) for n, value in inputs.items()}
    return any(result.requires_grad for result in outputs(entry.call, leaves))


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
