"""Where a difference starts: the first module whose output and the first whose gradient departs from a reference's."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from trncheck.conformance import bars
from trncheck.conformance.judge import Judge

PLAIN = "plain Transformers"


class _Seen(NamedTuple):
    module: str
    error: float


def say_where(judge: Judge, got: Callable[[], Mapping], want: Callable[[], Mapping], against: str = PLAIN) -> None:
    """Add to the failure of a check, if there is one, where it starts; ``got`` and ``want`` are not called otherwise.

    Both give ``trainers.activations.Activation`` by module, in the order of execution. What goes wrong here hides
    nothing: it becomes a line of the message.
    """
    if not judge.failures:
        return
    try:
        text = departure(got(), want(), against)
    except Exception as error:
        text = f"not localised: {type(error).__name__}: {' '.join(str(error).split())}"
    judge.note("starts at", text)
    # Behind the first failure, because reports show the first lines of a message.
    judge.failures.insert(1, text)


def departure(got: Mapping, want: Mapping, against: str = PLAIN) -> str:
    """One line: where outputs depart from those of ``against``, in the order of execution, and where their gradients.

    A gradient is that of a module's output, so a backward pass that is wrong shows at the module before it.
    """
    both = [name for name in got if name in want]
    outputs = [_Seen(name, _error(got[name].output, want[name].output)) for name in both]
    gradients = [
        _Seen(name, _error(got[name].gradient, want[name].gradient))
        for name in reversed(both)
        if got[name].gradient is not None and want[name].gradient is not None
    ]
    forward, backward = _first(outputs, bars.OUTPUT_DEPARTS), _first(gradients, bars.GRADIENT_DEPARTS)
    if forward:
        text = f"starts at {forward}; backward {f'starts at {backward}' if backward else _agreement(gradients)}"
    elif backward:
        text = f"backward starts at {backward}; forward {_agreement(outputs)}"
    else:
        text = (
            f"nothing departs from {against} in step 1: outputs {_largest(outputs)}, gradients {_largest(gradients)}; "
            "what is behind them is left: gradients of weights, their sum over ranks, the optimizer"
        )
    sides = {
        "only here": [name for name in got if name not in want],
        f"only in {against}": [name for name in want if name not in got],
        "without a gradient here": [n for n in both if got[n].gradient is None and want[n].gradient is not None],
        f"without a gradient in {against}": [
            n for n in both if want[n].gradient is None and got[n].gradient is not None
        ],
    }
    return "; ".join([text, *(f"{side}: {', '.join(names)}" for side, names in sides.items() if names)])


def _first(seen: list[_Seen], bar: bars.Bar) -> str:
    """The first module above the bar, its error, and the module before it; empty for none."""
    for i, (module, error) in enumerate(seen):
        if not error <= bar.value:
            before = f"{seen[i - 1].module} before it {seen[i - 1].error:.1e}" if i else "no module before it"
            return f"{module} (relative error {error:.1e}; {before})"
    return ""


def _agreement(seen: list[_Seen]) -> str:
    return f"nothing departs ({_largest(seen)})"


def _largest(seen: list[_Seen]) -> str:
    if not seen:
        return "of no module were compared"
    module, error = max(seen, key=lambda of: of.error)
    return f"of {len(seen)} modules within {error:.1e}, {module}" if error else f"of {len(seen)} modules the same"


def _error(got, want) -> float:
    """||got - want|| / ||want|| in fp64; infinite for NaN and for another shape."""
    if got.shape != want.shape:
        return math.inf
    size, difference = want.double().norm().item(), (got.double() - want.double()).norm().item()
    if math.isnan(difference):
        return math.inf
    return difference / size if size else (math.inf if difference else 0.0)
