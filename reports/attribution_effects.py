"""The 2x2 behind an attribution: effects of two changes on one number, and what has to be noise.

Cells are a (old kit, old stack), b (new kit, old stack), c (old kit, new stack), d (new kit, new stack).
"""

import math
from collections.abc import Hashable, Sequence
from enum import StrEnum

from .drift import MIN_REPEATS
from .schema import Measurement, Strict
from .text import number, plural

_NOISE_STD = 3.0
_OF_BAR = 0.01
"""Of the bar: what ``diff`` does not call notable either."""
_ULP = 2.0**-23
"""Of a float32, relative: the losses and gradients that are measured are no finer."""


class Cause(StrEnum):
    """Which side moved a number or an outcome."""

    KIT = "kit"
    STACK = "stack"
    BOTH = "both"
    INTERACTION = "interaction"
    """Only together, or one undoes what the other does: neither change has an effect of its own."""
    CHANGED = "check changed"
    """The kits hold different versions of the check; nothing can be said."""
    NOT_COMPARED = "not compared"
    NOISE = "noise"
    SAME = "same"

    @property
    def is_move(self) -> bool:
        """Whether something moved, and it is known by what."""
        return self in (Cause.KIT, Cause.STACK, Cause.BOTH, Cause.INTERACTION)


class Effects(Strict):
    """Factorial effects, in the unit of the number; each has the standard deviation of a single run."""

    kit: float
    """(b - a + d - c) / 2"""
    stack: float
    """(c - a + d - b) / 2"""
    interaction: float
    """((d - c) - (b - a)) / 2: how much the effect of one change depends on the other."""

    @property
    def largest(self) -> float:
        """Of the magnitudes."""
        return max(abs(self.kit), abs(self.stack), abs(self.interaction))


class Limit(Strict):
    """What an effect has to exceed to be one."""

    value: float
    source: str
    """Where the limit comes from, e.g. ``3 std of 12 runs``."""


def effects(values: Sequence[float]) -> Effects | None:
    """Of the values of the four cells; None where one of them is no finite number."""
    if not all(map(math.isfinite, values)):
        return None
    a, b, c, d = values
    return Effects(kit=(b - a + d - c) / 2, stack=(c - a + d - b) / 2, interaction=((d - c) - (b - a)) / 2)


def limit(cells: Sequence[Measurement], runs: Sequence[Sequence[float]]) -> Limit:
    """From ``runs``, all values per cell, the cell's own among them; else a floor from the bar or the number format.

    The noise of the cells is pooled. It counts once some cell has three runs, and the format stays the least.
    """
    finite = [abs(cell.value) for cell in cells if math.isfinite(cell.value)]
    ulp = _ULP * max(finite, default=0.0)
    groups = [group for group in runs if len(group) > 1 and all(map(math.isfinite, group))]
    if any(len(group) >= MIN_REPEATS for group in groups):
        squares = sum((value - sum(group) / len(group)) ** 2 for group in groups for value in group)
        noise = _NOISE_STD * math.sqrt(squares / sum(len(group) - 1 for group in groups))
        source = f"{_NOISE_STD:.0f} std of {plural(sum(map(len, groups)), 'run')}"
        return (
            Limit(value=noise, source=source)
            if noise > ulp
            else Limit(value=ulp, source=f"1 float32 ulp; {source} is less")
        )
    budgets = [abs(cell.bar) for cell in cells if cell.bar and cell.relation != "==" and math.isfinite(cell.bar)]
    if budgets and _OF_BAR * min(budgets) > ulp:
        return Limit(
            value=_OF_BAR * min(budgets),
            source=f"{_OF_BAR:.0%} of the bar {number(min(budgets))}; no repeats to tell the noise",
        )
    return Limit(value=ulp, source="1 float32 ulp; no repeats to tell the noise")


def cause_of_numbers(values: Sequence[float], limit: float) -> Cause:
    """Which side moved a number.

    Where the changes interact, one counts as a cause only if it moves the number the same way, and by more than
    ``limit``, with and without the other.
    """
    if len({_key(value) for value in values}) == 1:
        return Cause.SAME
    found = effects(values)
    if found is None:
        return cause_of_kinds([_key(value) if not math.isfinite(value) else "finite" for value in values])
    shared = abs(found.interaction) if abs(found.interaction) > limit else 0.0
    kit, stack = (abs(effect) - shared > limit for effect in (found.kit, found.stack))
    if kit or stack:
        return Cause.BOTH if kit and stack else Cause.KIT if kit else Cause.STACK
    return Cause.INTERACTION if found.largest > limit else Cause.NOISE


def cause_of_kinds(kinds: Sequence[Hashable]) -> Cause:
    """Which side changed what is no number, such as an outcome. ``both`` is where either change is enough."""
    a, b, c, d = kinds
    if a == b == c == d:
        return Cause.SAME
    if a == c and b == d:
        return Cause.KIT
    if a == b and c == d:
        return Cause.STACK
    return Cause.BOTH if a not in (b, c, d) else Cause.INTERACTION


def _key(value: float) -> float | str:
    return "NaN" if math.isnan(value) else value
