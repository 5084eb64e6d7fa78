"""Errors of a kernel against fp64 truth, held against the errors that plain torch makes in the same dtype."""

from typing import NamedTuple

from trncheck.conformance.bars import KERNEL_CAP, KERNEL_FACTOR, KERNEL_FLOOR_ULPS, Bar
from trncheck.conformance.judge import Judge


class Error(NamedTuple):
    """How far a tensor is from the truth."""

    relative: float
    """||got - truth|| / ||truth||, fp64."""
    worst: float
    """Largest |got - truth| of an element."""
    index: tuple[int, ...]
    """Where that is."""


def error(got, truth) -> Error:
    """Compare a tensor of any dtype with its fp64 truth; a NaN is the worst element."""
    difference = (got.double() - truth).abs()
    norm = truth.norm().item()
    total = difference.norm().item()
    flat = difference.flatten().nan_to_num(nan=float("inf"))
    position = int(flat.argmax()) if flat.numel() else 0
    index = []
    for size in reversed(truth.shape):
        position, at = divmod(position, size)
        index.insert(0, at)
    relative = total / norm if norm else (0.0 if total == 0 else float("inf"))
    return Error(relative, flat.max().item() if flat.numel() else 0.0, tuple(index))


def hold(judge: Judge, name: str, got, reference, truth) -> None:
    """Hold a kernel's result against the truth; ``reference`` is plain torch's in the same dtype.

    Two measurements: the relative error of the whole tensor, and the worst element, so that one wrong row of many
    cannot hide. What is exactly zero in truth and in plain torch (rows of no expert, say) has to be exactly zero.
    """
    import torch

    if got.shape != truth.shape or got.dtype != reference.dtype:
        judge.fail(f"{name}: {got.dtype} {list(got.shape)} for {reference.dtype} {list(truth.shape)}")
        return
    if zeros := int((zero := (truth == 0) & (reference == 0)).sum()):
        judge.equal(f"{name}, elements that must be zero and are not", int((got[zero] != 0).sum()), 0, elements=zeros)
    eps = torch.finfo(reference.dtype).eps
    largest = truth.abs().max().item()
    ours, theirs = error(got, truth), error(reference, truth)
    floor = KERNEL_FLOOR_ULPS * eps
    judge.at_most(
        f"{name}, relative error",
        ours.relative,
        Bar(
            max(KERNEL_FACTOR * theirs.relative, floor),
            f"{KERNEL_FACTOR:g} x plain torch's {theirs.relative:.2g} against fp64, at least {KERNEL_FLOOR_ULPS:g} ulp",
        ),
        elements=truth.numel(),
    )
    allowed = max(KERNEL_CAP * theirs.worst, floor * largest)
    at = ", ".join(map(str, ours.index))
    found, wanted = got[ours.index].item(), truth[ours.index].item()
    judge.at_most(
        f"{name}, worst element",
        ours.worst,
        Bar(
            allowed,
            f"[{at}] is {found:.6g}, not {wanted:.6g}; {KERNEL_CAP:g} x plain torch's {theirs.worst:.2g}, "
            f"at least {KERNEL_FLOOR_ULPS:g} ulp of {largest:.3g}",
        ),
    )
