"""A trend as one self-contained page, in the style of ``report.html``."""

import base64
import hashlib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from . import trend_view as view
from .change_points import RULE
from .html import page_environment
from .schema import Measurement, Outcome
from .sparkline import sparkline
from .summary import against_bar
from .trend_models import CheckTrend, Group, Series, Trend
from .trend_outcomes import FLAKY_RULE

_SHIFTS = 50
"""Change points listed per group; those of the numbers shown are marked there as well."""
_NUMBERS = 1000
"""Numbers shown per group, the worst first; JSON has all."""
_SCRIPT = Path(__file__).parent / "templates" / "trend.js"


@dataclass(frozen=True)
class _Number:
    """One row of the table of numbers."""

    check: CheckTrend
    series: Series
    svg: str
    value: str
    limit: str


@dataclass(frozen=True)
class _Section:
    """What the page shows of one group."""

    group: Group
    releases: list[tuple[str, int]]
    """Consecutive runs of one release, with their number."""
    rows: list[CheckTrend]
    numbers: list[_Number]
    left_out: int


def render_html(trend: Trend) -> str:
    """The page of ``trend``. Raises ValueError where Jinja2 is not installed."""
    try:
        environment = page_environment()
        from markupsafe import Markup
    except ModuleNotFoundError as error:
        raise ValueError(f"an HTML page needs {error.name}: pip install 'trncheck[report]'") from error
    script = _SCRIPT.read_text(encoding="utf-8")
    return environment.get_template("trend.html.j2").render(
        trend=trend,
        view=view,
        word=view.result_word(trend),
        conclusion=view.conclusion(trend),
        sections=[_section(group, Markup) for group in trend.groups],
        shown_shifts=_SHIFTS,
        rules=(RULE, FLAKY_RULE),
        script=Markup(script),
        # The one script that the page may run; it may load nothing.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        outcomes=list(Outcome),
    )


def _section(group: Group, markup: type[Any]) -> _Section:
    pairs = [(check, series) for check in group.checks if not check.gone for series in check.series]
    pairs.sort(key=lambda pair: _urgency(pair[1]), reverse=True)
    idle = {check.id for check in view.never_ran(group)}
    return _Section(
        group=group,
        releases=[(release, len(list(runs))) for release, runs in groupby(run.release for run in group.runs)],
        rows=[check for check in group.checks if check.id not in idle],
        numbers=[
            _Number(check, series, markup(sparkline(series, group.runs)), *_against_bar(series))
            for check, series in pairs[:_NUMBERS]
        ],
        left_out=max(len(pairs) - _NUMBERS, 0),
    )


def _urgency(series: Series) -> tuple[bool, bool, float]:
    """Sort key, what to look at first last: a change for the worse, any change, most of its budget used."""
    used = series.used[-1]
    return any(shift.drift.worse for shift in series.shifts), bool(series.shifts), -1.0 if used is None else used


def _against_bar(series: Series) -> tuple[str, str]:
    return against_bar(
        Measurement(
            name=series.name,
            value=series.values[-1],
            bar=series.bars[-1],
            relation=series.relation,
            unit=series.unit,
        )
    )
