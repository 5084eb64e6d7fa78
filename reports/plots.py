"""Loss curves as inline SVG. Text and grid take the colour of the page, so that one drawing suits light and dark."""

import io
import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from .curve_bands import Bands, key
from .schema import Curve
from .summary import reference_of
from .text import number, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What matplotlib is told to draw with, replaced by the text colour of the page.
_INK = "#010203"
_HALF_ULP = 2.0**-24
"""Of float32, relative."""
_TICKS = 4
# Mid-tones with a contrast of 3:1 and more on white and on near-black.
_COLOURS = ("#2f7fc1", "#e0701f", "currentColor", "#2f9a6b", "#a865c9", "#c94f7c")


@dataclass(frozen=True)
class Style:
    """How one curve is drawn, in points; ``dash`` is () for a solid line."""

    colour: str
    width: float
    dash: tuple[float, ...] = ()


_REFERENCE = Style("#a3acb6", 10.0)
# From wide to narrow: where curves coincide, each is still seen on the one beneath it.
_PATTERNS: tuple[tuple[float, tuple[float, ...]], ...] = ((5.6, ()), (3.4, (9, 7)), (1.5, ()), (1.5, (2, 4)))


def curve_styles(curves: list[Curve]) -> list[Style]:
    """One style per curve: a wide pale band for a reference, narrower and narrower lines for the others."""
    others = iter(range(len(curves)))
    styles = []
    for curve in curves:
        if curve.reference:
            styles.append(_REFERENCE)
        else:
            position = next(others)
            width, dash = _PATTERNS[min(position, len(_PATTERNS) - 1)]
            styles.append(Style(_COLOURS[position % len(_COLOURS)], width, dash))
    return styles


def loss_plot(curves: list[Curve], title: str, bands: Bands | None = None) -> str:
    """An ``<svg>`` of loss over step and, below it, of the distance from the reference where there is one.

    Names are not in the drawing: it goes beside a table that shows ``curve_styles``. ``title`` is its label for
    screen readers. Losses that are not finite leave a gap; distances below what float32 can tell lie on the floor of
    their axis. ``bands`` are shaded, by ``curve_bands.key``. The same arguments give the same text.
    """
    with _quiet_matplotlib():
        svg = _draw_svg(curves, bands or {})
    return _inline(svg, title)


@contextmanager
def _quiet_matplotlib() -> Iterator[None]:
    # It warns on stderr where it finds no writable cache folder or builds its font cache; neither matters here.
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _draw_svg(curves: list[Curve], bands: Bands) -> str:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    styled = sorted(zip(curves, curve_styles(curves), strict=True), key=lambda pair: -pair[1].width)
    smallest = _smallest(curves)
    gaps = _gaps(curves, smallest)
    settings = {
        "svg.hashsalt": "trncheck",
        "svg.fonttype": "none",
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(6.8, 4.8 if gaps else 3.4), layout="constrained")
        ratios = [2, 1] if gaps else [1]
        axes = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        axes[0].set_ylabel("loss")
        for curve, style in styled:
            _draw(axes[0], dict(zip(curve.steps, curve.losses, strict=False)), style)
            if band := bands.get(key(curve)):
                _shade(axes[0], band.steps, band.low, band.high, style)
        if gaps:
            axes[1].set_ylabel("|Δ reference|")
            for curve, points, style in gaps:
                _draw(axes[1], points, style)
                if band := bands.get(key(curve)):
                    ends = [max(end, _floor(smallest)) for end in (band.nearest, band.farthest)]
                    _shade(axes[1], band.steps, *([end] * len(band.steps) for end in ends), style)
            _log_axis(axes[1], smallest)
        axes[-1].set_xlabel("step")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        for panel in axes:
            panel.grid(color=_INK, alpha=0.12, linewidth=0.7)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return buffer.getvalue()


def _smallest(curves: list[Curve]) -> float:
    """Half a unit in the last place of float32 at the largest loss: distances below that say nothing."""
    finite = [abs(loss) for curve in curves for loss in curve.losses if math.isfinite(loss)]
    return _HALF_ULP * (max(finite, default=0.0) or 1.0)


def _floor(smallest: float) -> float:
    """Where on a logarithmic axis everything below ``smallest`` is drawn, zero included."""
    return smallest / 3


def _gaps(curves: list[Curve], smallest: float) -> list[tuple[Curve, dict[int, float], Style]]:
    """Curves with their distances from their references by step, and their styles."""
    gaps = []
    for curve, style in zip(curves, curve_styles(curves), strict=True):
        reference = reference_of(curve, curves)
        if reference is None:
            continue
        expected = dict(zip(reference.steps, reference.losses, strict=False))
        pairs = zip(curve.steps, curve.losses, strict=False)
        points = {step: abs(loss - expected[step]) for step, loss in pairs if step in expected}
        if any(map(math.isfinite, points.values())):
            shown = {step: _floor(smallest) if gap < smallest else gap for step, gap in points.items()}
            gaps.append((curve, shown, Style(style.colour, 1.5, style.dash)))
    return gaps


def _log_axis(panel: "Axes", smallest: float) -> None:
    """A logarithmic axis whose lowest tick stands for everything below ``smallest``."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    panel.set_yscale("log")
    floor = _floor(smallest)
    top = max(panel.get_ylim()[1], 100 * smallest)
    first, last = math.ceil(math.log10(smallest)), math.floor(math.log10(top))
    stride = max(1, math.ceil((last - first + 1) / _TICKS))
    panel.set_ylim(floor / 1.8, top)
    panel.yaxis.set_major_locator(FixedLocator([floor, *(10.0**k for k in range(first, last + 1, stride))]))
    panel.yaxis.set_minor_locator(NullLocator())
    below = f"< {number(smallest, 1)}"
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: below if value <= floor else number(value)))


def _shade(panel: "Axes", steps: Sequence[int], low: Sequence[float], high: Sequence[float], style: Style) -> None:
    colour = _INK if style.colour == "currentColor" else style.colour
    panel.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)


def _draw(panel: "Axes", points: dict[int, float], style: Style) -> None:
    steps = sorted(points)
    values = [points[step] if math.isfinite(points[step]) else math.nan for step in steps]
    padded = [math.nan, *values, math.nan]
    # A point between two gaps is no line, so it gets a dot.
    alone = [i for i in range(len(values)) if math.isnan(padded[i]) and math.isnan(padded[i + 2])]
    panel.plot(
        steps,
        values,
        color=_INK if style.colour == "currentColor" else style.colour,
        linewidth=style.width,
        linestyle=(0, tuple(length / style.width for length in style.dash)) if style.dash else "solid",
        marker="o",
        markersize=style.width + 2,
        markevery=alone,
        solid_capstyle="round",
    )


def _inline(svg: str, title: str) -> str:
    """``svg`` in the colour of the page, without what it must not get: prolog, size, ids of groups, styles for all."""
    svg = svg[svg.index("<svg") :]
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" class="plot" role="img" '
        f'stroke-linejoin="round" viewBox="0 0 {width} {height}" aria-label={quoteattr(one_line(title))}>'
    )
    svg = root + svg[svg.index(">") + 1 :]
    svg = re.sub(r"<g id=\"[^\"]*\">", "<g>", svg)
    svg = re.sub(r"\s*<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    # Hundredths of a point are beneath what is seen; half of the drawing would be digits.
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), svg)
    return svg.replace(_INK, "currentColor").strip()
