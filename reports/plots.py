"""Loss curves as inline SVG. Text and grid take the colour of the page, so that one drawing suits light and dark."""

import io
import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from .schema import Curve
from .summary import reference_of
from .text import number, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What matplotlib is told to draw with, replaced by the text colour of the page.
_INK = "#010203"
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


def loss_plot(curves: list[Curve], title: str) -> str:
    """An ``<svg>`` of loss over step and, below it, of the distance from the reference where there is one.

    Names are not in the drawing: it goes beside a table that shows ``curve_styles``. ``title`` is its label for
    screen readers. Losses that are not finite leave a gap. The same curves give the same text.
    """
    with _quiet_matplotlib():
        svg = _draw_svg(curves)
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


def _draw_svg(curves: list[Curve]) -> str:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    styled = sorted(zip(curves, curve_styles(curves), strict=True), key=lambda pair: -pair[1].width)
    gaps = _gaps(curves)
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
        if gaps:
            axes[1].set_yscale("log")
            axes[1].yaxis.set_major_locator(LogLocator(numticks=5))
            axes[1].yaxis.set_minor_locator(NullLocator())
            axes[1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
            axes[1].set_ylabel("|Δ reference|")
            for points, style in gaps:
                _draw(axes[1], points, style)
        axes[-1].set_xlabel("step")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        for panel in axes:
            panel.grid(color=_INK, alpha=0.12, linewidth=0.7)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return buffer.getvalue()


def _gaps(curves: list[Curve]) -> list[tuple[dict[int, float], Style]]:
    """Per curve its distance from its reference by step, without zeros, which a log scale cannot show."""
    gaps = []
    for curve, style in zip(curves, curve_styles(curves), strict=True):
        reference = reference_of(curve, curves)
        if reference is None:
            continue
        expected = dict(zip(reference.steps, reference.losses, strict=False))
        pairs = zip(curve.steps, curve.losses, strict=False)
        points = {step: abs(loss - expected[step]) for step, loss in pairs if step in expected}
        if any(math.isfinite(gap) and gap > 0 for gap in points.values()):
            gaps.append(({step: gap or math.nan for step, gap in points.items()}, Style(style.colour, 1.5, style.dash)))
    return gaps


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
    return svg.replace(_INK, "currentColor").strip()
