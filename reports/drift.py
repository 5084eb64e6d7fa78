"""How far a measured number moved between two runs: in units of its budget, and of the noise where that is known."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from .schema import Measurement, Strict

MIN_REPEATS = 3
"""Runs, the old one among them, from which a standard deviation says something."""
_NOTABLE_BUDGET = 0.1
_NOTABLE_EFFECT = 3.0
_NEGLIGIBLE = 0.01
"""Of the budget, or of the old value where there is no bar: below this nothing is notable."""


class Drift(Strict):
    """One measurement in two runs."""

    name: str
    unit: str = ""
    old: float
    new: float
    bar: float | None = None
    """The limit in the new run."""
    relation: Literal["<=", ">=", "=="] = "<="
    worse: bool = False
    """Whether the number moved towards its bar or beyond it."""
    of_bar: float | None = None
    """|new - old| / bar; None where the bar is no budget."""
    runs: int = 1
    """Runs of the old state behind the noise estimate, the old run among them."""
    effect: float | None = None
    """(new - mean) / standard deviation over ``runs``; None without a noise estimate."""
    notable: bool = False
    """Whether the move is worth a look: much of the budget, or out of the noise and not negligible."""


def drifts(
    old: Sequence[Measurement], new: Sequence[Measurement], repeats: Iterable[Sequence[Measurement]] = ()
) -> list[Drift]:
    """The measurements that ``old`` and ``new`` share, in the order of ``new``; ``repeats`` of ``old`` for noise."""
    samples: dict[int, list[float]] = {}
    for repeat in repeats:
        for position, again in pairs(old, repeat):
            samples.setdefault(position, []).append(again.value)
    found = []
    for position, after in pairs(old, new):
        before = old[position]
        values = [before.value, *samples.get(position, [])]
        effect = _effect(values, after.value)
        of_bar = _of_bar(before.value, after)
        found.append(
            Drift(
                name=after.name,
                unit=after.unit,
                old=before.value,
                new=after.value,
                bar=after.bar,
                relation=after.relation,
                worse=_is_worse(before.value, after),
                of_bar=of_bar,
                runs=len(values),
                effect=effect,
                notable=_is_notable(before.value, after.value, of_bar, effect),
            )
        )
    return found


def weight(drift: Drift) -> tuple[bool, bool, float, float]:
    """Sort key, the drift to look at first last: notable, for the worse, its part of the budget, out of the noise."""
    return drift.notable, drift.worse, -1.0 if drift.of_bar is None else drift.of_bar, abs(drift.effect or 0.0)


def moved(drift: Drift) -> bool:
    """Whether the number is another one."""
    return _gap(drift.old, drift.new) > 0


def pairs(old: Sequence[Measurement], new: Sequence[Measurement]) -> Iterator[tuple[int, Measurement]]:
    """Positions in ``old`` with their counterparts in ``new``, in the order of ``new``.

    By name; a name may end in where the worst was found, so that what is left is paired by place, if it is of one kind.
    """
    names = [m.name for m in old]
    in_place = len(old) == len(new)
    free = set(range(len(old)))
    partner: dict[int, int] = {}
    for place, measurement in enumerate(new):
        match = next((p for p in sorted(free) if names[p] == measurement.name), None)
        if match is not None:
            partner[place] = match
            free.discard(match)
    for place, measurement in enumerate(new):
        if in_place and place not in partner and place in free and _kind(old[place]) == _kind(measurement):
            partner[place] = place
    for place in sorted(partner):
        yield partner[place], new[place]


def _kind(measurement: Measurement) -> tuple[str, str, str]:
    return measurement.relation, measurement.unit, measurement.source


def _gap(old: float, new: float) -> float:
    """|new - old|; infinite where one of them is no number."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    gap = abs(new - old)
    return math.inf if math.isnan(gap) else gap


def _of_bar(old: float, new: Measurement) -> float | None:
    if new.bar is None or new.relation == "==" or not math.isfinite(new.bar):
        return None
    gap = _gap(old, new.value)
    return gap / abs(new.bar) if new.bar else math.inf if gap else 0.0


def _effect(values: Sequence[float], new: float) -> float | None:
    if len(values) < MIN_REPEATS or not all(map(math.isfinite, [*values, new])):
        return None
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    if deviation == 0:
        return 0.0 if new == values[0] else math.copysign(math.inf, new - mean)
    return (new - mean) / deviation


def _is_worse(old: float, new: Measurement) -> bool:
    if new.bar is None or _gap(old, new.value) == 0 or math.isnan(old):
        return False
    if math.isnan(new.value):
        return True
    if new.relation == "==":
        return abs(new.value - new.bar) > abs(old - new.bar)
    return new.value > old if new.relation == "<=" else new.value < old


def _is_notable(old: float, new: float, of_bar: float | None, effect: float | None) -> bool:
    out_of_noise = effect is not None and abs(effect) >= _NOTABLE_EFFECT
    if of_bar is not None:
        return of_bar >= _NOTABLE_BUDGET or (out_of_noise and of_bar >= _NEGLIGIBLE)
    gap = _gap(old, new)
    large = gap > 0 and (not math.isfinite(old) or gap >= _NEGLIGIBLE * abs(old))
    return large and (out_of_noise or effect is None)
