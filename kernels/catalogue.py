"""The catalogue of kernels: one entry per operator, from which the conformance suite derives its checks.

An entry is found through the entry point group ``trncheck.kernels``; its name there is its name in reports.
"""

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trncheck.kernels import blame, runtime

GROUP = "trncheck.kernels"


@dataclass(frozen=True)
class Refusal:
    """Inputs that an operator must refuse with a ValueError."""

    change: Callable[[dict], dict]
    """From good inputs to bad ones."""
    says: str
    """Part of the error's text."""
    by_value: bool = False
    """Whether only values tell, which an operator does not read back from a device."""


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
    """The entry ``name``; ValueError in one line where its entry point gives none, or one that says nothing."""
    points = [point for point in importlib.metadata.entry_points(group=GROUP) if point.name == name]
    if not points:
        raise ValueError(f"no kernel is named {name!r}; known kernels: {', '.join(names())}")
    if len(points) > 1:
        found = ", ".join(sorted(f"{point.dist.name if point.dist else '?'} ({point.value})" for point in points))
        raise ValueError(f"kernel {name!r} is announced more than once: by {found}; rename one, or uninstall it")
    point = points[0]
    where = f"kernel {name!r} ({point.value})"
    found = _imported(point, where)
    if not isinstance(found, Entry):
        raise ValueError(f"{where} is {type(found).__name__}, not a catalogue entry; decorate it with catalogue.entry")
    if problem := _problem(found):
        raise ValueError(f"{where}: {problem}")
    return found


def _imported(point: importlib.metadata.EntryPoint, where: str):
    """What ``point`` names; ValueError with the line of the error in the author's code."""
    try:
        with runtime.importing():
            found = importlib.import_module(point.module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{point.module}.".startswith(f"{error.name}."):
            raise ValueError(f"{where}: there is no module {error.name}; correct the entry point") from error
        if isinstance(error, ValueError) and blame.raised_in(error, "trncheck.kernels"):
            raise ValueError(f"{where}: {error}") from error
        place = blame.author_line(error)
        raise ValueError(f"{where}: {place + ': ' if place else ''}{blame.one_line(error)}") from error
    for part in filter(None, point.attr.split(".")):
        if not hasattr(found, part):
            raise ValueError(f"{where}: {point.module} has no {point.attr}; correct the entry point")
        found = getattr(found, part)
    return found


def _problem(entry: Entry) -> str:
    """What keeps checks from being derived of ``entry``, or nothing."""
    import torch

    if not entry.shapes:
        return "shapes is empty; give at least one"
    if not entry.dtypes:
        return "dtypes is empty; give at least one"
    if unknown := [dtype for dtype in entry.dtypes if not isinstance(getattr(torch, str(dtype), None), torch.dtype)]:
        return f"dtypes: {unknown[0]!r} is no dtype's name; write 'bfloat16' for torch.bfloat16"
    parameters = inspect.signature(entry.reference).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if not takes_any and (unknown := [name for name in entry.differentiable if name not in parameters]):
        return f"differentiable names {unknown[0]!r}, and the reference takes {', '.join(parameters) or 'nothing'}"
    namespace, separator, operator = entry.operator.partition("::")
    if not (separator and namespace and operator):
        return f"operator {entry.operator!r} needs a name of the form namespace::operator"
    if not hasattr(getattr(torch.ops, namespace), operator):
        return f"operator {entry.operator!r} is not registered in torch.ops; define it under that name"
    return ""
