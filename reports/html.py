"""``report.html``: one self-contained page that works from disk, without any request."""

import base64
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import summary, text
from .curve_bands import Bands, curve_bands, key
from .kernels import kernels
from .plots import Style, curve_styles, loss_plot
from .schema import Curve, Report, count_outcomes

if TYPE_CHECKING:
    from jinja2 import Environment

    from .baseline import Baseline

_TEMPLATES = Path(__file__).parent / "templates"
# The scale of a measurement is logarithmic: 1e-4 to 1e2 of its bar.
_DECADES_BELOW, _DECADES_ABOVE = 4, 2


@dataclass(frozen=True)
class _CurveRow:
    """One curve in the table beside its plot."""

    curve: Curve
    style: Style
    first: float | None
    last: float | None
    distance: float | None


@dataclass(frozen=True)
class _CurveGroup:
    name: str
    svg: str
    rows: list[_CurveRow]
    steps: list[int]
    losses: list[dict[int, float]]
    banded: bool


def render_html(report: Report, baseline: "Baseline | None" = None) -> str:
    """The page of ``report``, with the bands of ``baseline`` around its loss curves.

    Raises ValueError where Jinja2 or matplotlib is not installed.
    """
    bands = curve_bands(report, baseline) if baseline else {}
    try:
        environment = page_environment()
        groups = [_curve_group(name, curves, bands) for name, curves in _curves_by_group(report).items()]
    except ModuleNotFoundError as error:
        raise ValueError(
            f"report.html needs {error.name}: pip install 'trncheck[report]', then trncheck report"
        ) from error
    failures = summary.failures(report)
    places = {id(result): place for place, result in enumerate(failures, start=1)}
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    return environment.get_template("report.html.j2").render(
        report=report,
        tally=summary.tally(report),
        failures=failures,
        failure_place=lambda result: places[id(result)],
        subjects=summary.group_by(report.results, lambda r: r.subject),
        not_run=summary.not_run_by_reason(report),
        kernels=kernels(report),
        outcomes=[(o, n) for o, n in count_outcomes(report.results).items() if n],
        curve_groups=groups,
        baseline_says=_baseline_says(baseline) if baseline else "",
        not_finished=summary.NOT_FINISHED,
        script=_verbatim(script),
        # The one script that the page may run; it may load nothing.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def page_environment() -> "Environment":
    """Templates of the pages, with the filters and the style that they share."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": text.number,
        "duration": text.duration,
        "moment": text.moment,
        "share": text.share,
        "plural": text.plural,
        "one_line": text.one_line,
        "head_and_rest": text.head_and_rest,
        "compared": summary.compared_text,
        "against_bar": summary.against_bar,
        "budget_used": summary.budget_used,
        "message_beside_table": summary.message_beside_table,
        "most_used": summary.most_used,
        "folded": summary.folded_text,
        "runs_of_source": summary.runs_of_source,
        "on_scale": on_scale,
    }
    environment.globals |= {
        "reproduce": summary.reproduce,
        "from_bundle": summary.from_bundle,
        "status": summary.status,
        "status_word": summary.status_word,
        "verdict_word": summary.verdict_word,
        "bar_position": on_scale(1.0),
        "style": _verbatim((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
    }
    return environment


def on_scale(fraction: float) -> float:
    """Where a fraction of the budget lies on the page's logarithmic scale, in percent of its width."""
    if fraction <= 0:
        return 0.0
    decades = min(math.log10(fraction), _DECADES_ABOVE) + _DECADES_BELOW
    return round(min(max(100 * decades / (_DECADES_BELOW + _DECADES_ABOVE), 0.0), 100.0), 1)


def _harmless(value: Any) -> Any:
    """What Jinja2 escapes and prints: outside text without control characters. Markup is the page's own."""
    return text.clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _verbatim(own: str) -> Any:
    """``own`` as it is: text of this package, not from outside."""
    from markupsafe import Markup

    return Markup(own)


def _curves_by_group(report: Report) -> dict[str, list[Curve]]:
    return summary.group_by((c for c in report.curves if c.steps and c.losses), lambda c: c.group)


def _baseline_says(baseline: "Baseline") -> str:
    from .baseline_view import provenance_line

    return f"the band of the baseline, {provenance_line(baseline.provenance)}."


def _curve_group(name: str, curves: list[Curve], bands: Bands) -> _CurveGroup:
    references = [summary.reference_of(curve, curves) for curve in curves]
    rows = [
        _CurveRow(
            curve=curve,
            style=style,
            first=curve.losses[0],
            last=curve.losses[-1],
            distance=summary.distance(curve, reference) if reference else None,
        )
        for curve, style, reference in zip(curves, curve_styles(curves), references, strict=True)
    ]
    losses = [dict(zip(c.steps, c.losses, strict=False)) for c in curves]
    steps = sorted(set().union(*losses))
    title = f"Loss over {text.plural(len(steps), 'step')}, {name}: {', '.join(c.name for c in curves)}"
    return _CurveGroup(
        name, _verbatim(loss_plot(curves, title, bands)), rows, steps, losses, any(key(c) in bands for c in curves)
    )
