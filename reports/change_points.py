"""Where a series of numbers moved to another level and stayed there."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

MIN_SEGMENT = 5
"""Values before and after a change point, at least."""
WINDOW = 10
"""Values before and after that are looked at, at most."""
TIMES_NOISE = 3.0
NEGLIGIBLE = 0.01
"""Of the scale: a smaller shift is none, however quiet the series is."""
RULE = (
    f"A change point is where the median of the {MIN_SEGMENT} to {WINDOW} values from a run on differs from that of "
    f"the {MIN_SEGMENT} to {WINDOW} before it by more than {TIMES_NOISE:g} times the noise and by more than "
    f"{100 * NEGLIGIBLE:g} % of the bar (of the old median where there is no bar), with the middle halves of both "
    "sides apart. The noise is the larger of two estimates of a standard deviation: from the median absolute deviation "
    "around both medians, and from the mean step between neighbours in the whole series, the tenth with the largest "
    f"steps left out. A change therefore shows up with the {MIN_SEGMENT}th value after it."
)
_DEVIATION_OF_MEDIAN = 1.4826
"""From the median absolute deviation of normal noise to its standard deviation."""
_DEVIATION_OF_STEP = math.sqrt(math.pi) / 2
"""From the mean absolute step of normal noise to its standard deviation."""


class ChangePoint(NamedTuple):
    """``index`` is the first value of the new level."""

    index: int
    before: float
    """Median of the values before; ``after`` of those from ``index`` on."""
    after: float
    noise: float
    """Standard deviation of one value, estimated."""


def change_points(values: Sequence[float], scale: float | None = None) -> list[ChangePoint]:
    """Change points of finite ``values`` in time order, by ``RULE``; ``scale`` is the size of the bar.

    The clearest one, by shift over noise, splits the series, and both parts are searched in the same way. In
    simulations of 60 values, under 1 % of series of independent noise have one (7 % where two values alternate at
    random, 9 % at an autocorrelation of 0.5), and a shift of 5 standard deviations is found at its run in over 99 %.
    """
    if len(values) < 2 * MIN_SEGMENT or min(values) == max(values):
        return []
    steps = sorted(abs(b - a) for a, b in pairwise(values))
    # An outlier makes two large steps.
    steps = steps[: -max(2, len(steps) // 10)]
    return _split(values, 0, len(values), _DEVIATION_OF_STEP * sum(steps) / len(steps), scale)


def _split(values: Sequence[float], start: int, end: int, noise: float, scale: float | None) -> list[ChangePoint]:
    candidates = []
    for index in range(start + MIN_SEGMENT, end - MIN_SEGMENT + 1):
        before = sorted(values[max(start, index - WINDOW) : index])
        after = sorted(values[index : min(end, index + WINDOW)])
        old, new = _median(before), _median(after)
        shift = abs(new - old)
        if shift <= NEGLIGIBLE * (abs(old) if scale is None else scale) or not _apart(before, after):
            continue
        gaps = sorted([abs(value - old) for value in before] + [abs(value - new) for value in after])
        deviation = max(noise, _DEVIATION_OF_MEDIAN * _median(gaps))
        clear = shift / deviation if deviation else math.inf
        if clear > TIMES_NOISE:
            candidates.append((clear, ChangePoint(index, old, new, deviation)))
    for _, point in sorted(candidates, key=lambda pair: -pair[0]):
        index = _sharpest(values, start, end, point)
        # Too near to an end, it is a change that has not lasted long enough yet.
        if start + MIN_SEGMENT <= index <= end - MIN_SEGMENT:
            parts = [_split(values, *part, noise, scale) for part in ((start, index), (index, end))]
            return [*parts[0], point._replace(index=index), *parts[1]]
    return []


def _sharpest(values: Sequence[float], start: int, end: int, point: ChangePoint) -> int:
    """The split near ``point`` from which values lie closest to their side's median: many have the same medians."""
    low, high = max(start + 1, point.index - MIN_SEGMENT), min(end - 1, point.index + MIN_SEGMENT)

    def misfit(index: int) -> float:
        left = sum(abs(value - point.before) for value in values[low:index])
        return left + sum(abs(value - point.after) for value in values[index:high])

    return min(range(low, high + 1), key=misfit)


def _apart(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the middle halves of two sorted windows do not overlap."""
    (low, high), (new_low, new_high) = (
        (window[len(window) // 4], window[-1 - len(window) // 4]) for window in (before, after)
    )
    return high < new_low or new_high < low


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
