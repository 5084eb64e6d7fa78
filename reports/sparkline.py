"""One number over runs as a small inline SVG, written by hand: a page may hold hundreds. Its colours are the page's."""

import math
from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

from .text import number, one_line, plural
from .trend_models import RunRef, Series

WIDTH, HEIGHT = 240, 40
_MARGIN = 4
_NEAR = 3.0
"""A bar within so many heights of the values is part of the scale; a farther one is drawn at the edge."""


def sparkline(series: Series, runs: list[RunRef]) -> str:
    """An ``<svg>`` of ``series`` over ``runs``, with its bar (dashed, dotted where it is beyond) and change points.

    Values that are not finite leave a gap. The label for screen readers says the same in words.
    """
    finite = [value for value in series.values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    bars = [bar for bar in series.bars if bar is not None and math.isfinite(bar)]
    far = bool(bars) and not _is_near(bars, low, high)
    if bars and not far:
        low, high = min(low, *bars), max(high, *bars)
    size = max(abs(low), abs(high)) or 1.0

    def x(run: int) -> float:
        return _MARGIN + (WIDTH - 2 * _MARGIN) * run / max(len(runs) - 1, 1)

    def y(value: float) -> float:
        # Numbers are divided before they are subtracted: near the largest float a difference is infinite.
        height = high / size - low / size
        part = (value / size - low / size) / height if height else 0.5
        return HEIGHT - _MARGIN - (HEIGHT - 2 * _MARGIN) * min(max(part, 0.0), 1.0)

    positions = {run.run_id: position for position, run in enumerate(runs)}
    marks = "".join(
        f"M{x(positions[shift.first_after.run_id]) - WIDTH / max(len(runs) - 1, 1) / 2:.1f} 0v{HEIGHT}"
        for shift in series.shifts
    )
    if far:
        edge = HEIGHT - 1 if bars[-1] < low else 1
        limit = f'<path class="far" d="M0 {edge}H{WIDTH}"/>'
    else:
        points = [(x(run), y(bar)) for run, bar in zip(series.runs, series.bars, strict=True) if bar in bars]
        limit = (
            f'<path class="bar" d="{_path([(0, points[0][1]), *points, (WIDTH, points[-1][1])])}"/>' if points else ""
        )
    line = _path(
        (x(run), y(value) if math.isfinite(value) else None)
        for run, value in zip(series.runs, series.values, strict=True)
    )
    return (
        f'<svg class="spark" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label={quoteattr(_label(series))}>'
        f'{limit}{f"""<path class="shift" d="{marks}"/>""" if marks else ""}<path class="line" d="{line}"/></svg>'
    )


def _is_near(bars: list[float], low: float, high: float) -> bool:
    reach = _NEAR * ((high - low) or 0.1 * abs(high))
    return all(low - reach <= bar <= high + reach for bar in bars)


def _path(points: Iterable[tuple[float, float | None]]) -> str:
    """Path data through ``points``; None breaks it, and a point alone is a dot."""
    parts, pen_down = [], False
    for x, y in points:
        if y is not None:
            # A line of no length, with round ends, is a dot.
            parts.append(f"L{x:.1f} {y:.1f}" if pen_down else f"M{x:.1f} {y:.1f}h0")
        pen_down = y is not None
    return "".join(parts)


def _label(series: Series) -> str:
    finite = [value for value in series.values if math.isfinite(value)]
    span = f" from {number(min(finite))} to {number(max(finite))}" if finite else ""
    bar = series.bars[-1]
    limit = f", bar {number(bar)}" if bar is not None else ""
    marks = f", {plural(len(series.shifts), 'change point')}" if series.shifts else ""
    return one_line(f"{plural(len(series.values), 'value')}{span}, now {number(series.values[-1])}{limit}{marks}")
