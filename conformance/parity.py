"""Errors of a kernel against fp64 truth, held against the errors that plain torch makes in the same dtype."""

from typing import NamedTuple

from trncheck.conformance.bars import (
    CONDITION_SHARE,
    CONDITION_ULPS,
    KERNEL_CAP,
    KERNEL_FACTOR,
    KERNEL_FLOOR_ULPS,
    Bar,
)
from trncheck.conformance.judge import Judge


class Error(NamedTuple):
    """How far a tensor is from the truth."""

    relative: float
    """||got - truth|| / ||truth||, fp64."""
    worst: float
    """Largest |got - truth| of an element."""


def error(got, truth) -> Error:
    """Compare a tensor of any dtype with its fp64 truth; a NaN is the worst element."""
    difference = (got.double() - truth).abs()
    norm = truth.norm().item()
    total = difference.norm().item()
    flat = difference.flatten().nan_to_num(nan=float("inf"))
    relative = total / norm if norm else (0.0 if total == 0 else float("inf"))
    return Error(relative, flat.max().item() if flat.numel() else 0.0)


def hold(judge: Judge, name: str, got, reference, truth) -> None:
    """Hold a kernel's result against the truth; ``reference`` is plain torch's in the same dtype.

    Two measurements: the relative error of the whole tensor, and the worst element, so that one wrong row of many
    cannot hide. What is exactly zero in truth and in plain torch (rows of no expert, say) has to be exactly zero.
    Where plain torch itself is too far off, nothing is held against it: a wider bar would pass what is wrong.
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
    if bad := _ill_conditioned(theirs, largest, eps):
        _leave_open(judge, name, got, reference, ours, bad)
        return
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
    places = _worst(got, truth, 1 if ours.worst <= allowed else 3)
    judge.at_most(
        f"{name}, worst element",
        ours.worst,
        Bar(
            allowed,
            f"{places}; {KERNEL_CAP:g} x plain torch's {theirs.worst:.2g}, "
            f"at least {KERNEL_FLOOR_ULPS:g} ulp of {largest:.3g}",
        ),
    )


def _ill_conditioned(theirs: Error, largest: float, eps: float) -> str:
    """In words, if plain torch's own error is too large for a bar that is made of it; else nothing."""
    limit = min(CONDITION_ULPS * eps, CONDITION_SHARE)
    worst = theirs.worst / largest if largest else theirs.worst
    if theirs.relative <= limit and worst <= limit:
        return ""
    return (
        f"plain torch itself is off by {theirs.relative:.2g} of the whole and {worst:.2g} of the largest element "
        f"against fp64, and from {limit:.2g} on a bar made of that passes what is wrong"
    )


def _leave_open(judge: Judge, name: str, got, reference, ours: Error, bad: str) -> None:
    """Say that ``got`` cannot be judged. What is finite in plain torch has to be finite all the same."""
    judge.report(f"{name}, relative error, not judged", ours.relative, source=bad)
    if lost := int((reference.isfinite() & ~got.isfinite()).sum()):
        judge.fail(f"{name}: {lost} elements are not finite, and plain torch's are")
    judge.inconclusive(f"{name}: ill-conditioned: {bad}; judge it on other inputs")


def _worst(got, truth, count: int) -> str:
    """The elements that are furthest off, the worst one first."""
    difference = (got.double() - truth).abs().flatten().nan_to_num(nan=float("inf"))
    _, places = difference.topk(min(count, difference.numel()))
    texts = []
    for place in places.tolist():
        index = []
        for size in reversed(truth.shape):
            place, at = divmod(place, size)
            index.insert(0, at)
        found, wanted = got[tuple(index)].item(), truth[tuple(index)].item()
        texts.append(f"[{', '.join(map(str, index))}] is {found:.6g}, not {wanted:.6g}")
    return ", ".join(texts)
