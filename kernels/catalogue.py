"""The catalogue of kernels: one entry per operator, from which the conformance suite derives its checks.

An entry is found through the entry point group ``trncheck.kernels``; its name there is its name in reports.
"""

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trncheck.kernels import runtime

GROUP = "trncheck.kernels"


@dataclass(frozen=True)
class Refusal:
    """Inputs that an operator must refuse with a ValueError."""

    change: Callable[[dict], dict]
    """From good inputs to bad ones."""
    says: str
    """Part of the error's text."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An operator and what it is held against."""

    operator: str
    """``namespace::name`` in torch.ops, and in the counters of ``runtime.launch``."""
    call: Callable
    """The operator for users: takes the inputs by keyword, returns a tensor or a tuple of tensors."""
    reference: Callable
    """The same in plain differentiable torch, in the dtype of its inputs; float64 inputs give the truth."""
    inputs: Callable
    """``inputs(shape, dtype, generator)`` -> dict of tensors; the decorated function."""
    shapes: Mapping[str, Mapping[str, int]]
    """By name, what ``inputs`` makes them of."""
    differentiable: tuple[str, ...]
    """Names of the inputs that get a gradient; all others must get none."""
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    large_shapes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Shapes for level full alone."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    provider: Callable[[], str] = lambda: "trncheck"
    """Whose kernel runs."""


def entry(**fields) -> Callable[[Callable], Entry]:
    """Make an :class:`Entry` of the decorated function, which generates its inputs."""
    return lambda inputs: Entry(inputs=inputs, **fields)


def names() -> list[str]:
    """Names of all entries; imports none of them."""
    return sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)})


def load(name: str) -> Entry:
    """The entry ``name``; ValueError where its entry point gives none."""
    points = [point for point in importlib.metadata.entry_points(group=GROUP) if point.name == name]
    if not points:
        raise ValueError(f"no kernel is named {name!r}; known kernels: {', '.join(names())}")
    with runtime.importing():
        found = points[0].load()
    if not isinstance(found, Entry):
        raise ValueError(f"entry point {name!r} ({points[0].value}) is {type(found).__name__}, not a catalogue entry")
    return found
