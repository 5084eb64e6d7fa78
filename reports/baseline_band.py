"""The one rule by which a baseline's band follows from repeated runs."""

import math
from typing import Literal

RULE = (
    "mean +- the largest of: the 99.9 % prediction interval of one more run (Student's t for n runs, times the "
    "standard deviation, times sqrt(1 + 1/n)); a tenth of the bar, because smaller moves of a budget are not worth a "
    "look; 64 ulp of float32 at the mean, because kernels order their sums differently; the farthest run itself"
)
"""Said in every baseline file, so that its bands can be judged without this code.

99.9 %: some hundred numbers are compared at once, and one false alarm in ten runs is what people still look at. Few
runs give wide bands, because their standard deviation is hardly known: 36 of them for 3 runs, 9 for 5, 5 for 10.
"""
PART_OF_BAR = 0.1
"""Of a budget. As much as makes a move notable for ``trncheck diff``."""
ULPS = 64
_ULP = 2.0**-23
"""Of float32, relative; the trained models' own arithmetic."""
_STUDENT = {
    2: 31.599,
    3: 12.924,
    4: 8.610,
    5: 6.869,
    6: 5.959,
    7: 5.408,
    8: 5.041,
    9: 4.781,
    10: 4.587,
    12: 4.318,
    15: 4.073,
    20: 3.850,
    30: 3.646,
    60: 3.460,
    120: 3.373,
}
"""Two-sided 99.9 % quantiles of Student's t, by degrees of freedom."""


def band(
    *,
    n: int,
    mean: float,
    std: float,
    least: float,
    most: float,
    bar: float | None,
    relation: Literal["<=", ">=", "=="],
) -> tuple[float, float]:
    """Lowest and highest accepted value after ``n`` >= 3 runs from ``least`` to ``most``, all in the number's unit.

    ``bar`` and ``relation`` are the measurement's; a bar that is no budget (none, infinite or ``==``) gives no width.
    """
    half = max(spread_factor(n) * std, floor(mean, bar, relation), mean - least, most - mean)
    # Rounding must not put a run outside that was there.
    return min(mean - half, least), max(mean + half, most)


def spread_factor(n: int) -> float:
    """Standard deviations from the mean of ``n`` runs within which one more falls in 999 of 1000 cases."""
    assert n >= 3
    known = max(degrees for degrees in _STUDENT if degrees <= n - 1)
    return _STUDENT[known] * math.sqrt(1 + 1 / n)


def floor(mean: float, bar: float | None, relation: Literal["<=", ">=", "=="]) -> float:
    """The narrowest half band, for runs that do not vary."""
    is_budget = bar is not None and math.isfinite(bar) and relation != "=="
    return max(PART_OF_BAR * abs(bar) if is_budget else 0.0, ULPS * _ULP * abs(mean))
