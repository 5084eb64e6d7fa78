"""Numbers of one check over runs: which values belong together, and where they changed level."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .change_points import ChangePoint, change_points
from .drift import Drift, drifts
from .history import Number, Run
from .schema import Measurement
from .trend_outcomes import executed


@dataclass(eq=False)
class Track:
    """One number; ``points`` are by position of the run, in time order."""

    latest: Number
    points: dict[int, Number] = field(default_factory=dict)

    def shifts(self) -> list[tuple[int, int, Drift, float]]:
        """Change points: the positions of the runs before and after, the move of the median, and the noise."""
        finite = [(position, n.value) for position, n in self.points.items() if math.isfinite(n.value)]
        bar = self.latest.bar
        scale = None if bar is None or not math.isfinite(bar) else abs(bar)
        found = change_points([value for _, value in finite], scale)
        return [(finite[p.index - 1][0], finite[p.index][0], self._drift(p), p.noise) for p in found]

    def _drift(self, point: ChangePoint) -> Drift:
        before, after = (as_measurement(self.latest._replace(value=v)) for v in (point.before, point.after))
        return drifts([before], [after])[0]


def tracks(runs: Sequence[Run], id: str) -> list[Track]:
    """The numbers of check ``id`` over ``runs``, of its newest version only, in the order of the newest run.

    Numbers belong together by name; a name may end in where the worst was found, so that what is left is paired by
    place where two runs have equally many, if it is of one kind.
    """
    found: list[Track] = []
    by_name: dict[tuple[str, int], Track] = {}
    layout: list[Track] = []
    version = None
    for position in range(len(runs) - 1, -1, -1):
        result = runs[position].results.get(id)
        if not executed(result):
            continue
        version = result.version if version is None else version
        if result.version != version or not result.numbers:
            continue
        keys = _keys(result.numbers)
        row = [by_name.get(key) for key in keys]
        for place, number in enumerate(result.numbers):
            in_place = layout[place] if len(layout) == len(row) else None
            if row[place] is None:
                if in_place is None or in_place in row or _kind(in_place.latest) != _kind(number):
                    in_place = Track(number)
                    found.append(in_place)
                row[place] = by_name[keys[place]] = in_place
            row[place].points[position] = number
        layout = row
    for track in found:
        track.points = dict(reversed(track.points.items()))
    return found


def as_measurement(number: Number) -> Measurement:
    """``number`` as the renderers take it."""
    return Measurement(**number._asdict())


def _keys(numbers: Sequence[Number]) -> list[tuple[str, int]]:
    """Names, and for a name that is there again its count."""
    seen: Counter[str] = Counter()
    keys = []
    for number in numbers:
        keys.append((number.name, seen[number.name]))
        seen[number.name] += 1
    return keys


def _kind(number: Number) -> tuple[str, str]:
    return number.relation, number.unit
