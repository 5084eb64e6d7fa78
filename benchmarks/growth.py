"""Report pages, the difference of two runs and the trend of many: how their time grows with checks and runs."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import report
import trend
from measure import Benchmark, Figure, alternate

from trncheck.reports.diff import diff_reports
from trncheck.reports.history import read_history
from trncheck.reports.html import render_html
from trncheck.reports.store import RunFolder
from trncheck.reports.trend import trend as judge

TIMES = 4
ALLOWED = 1.5
"""Time per check or run at the larger size, over that at the smaller."""
SECONDS = 5.0
"""For the trend of the larger store."""


def run(options) -> Iterator[Benchmark]:
    """``growth.report``, ``growth.diff`` and ``growth.trend``."""
    few, many = (report.synthetic(checks, 42) for checks in (250, 250 * TIMES))
    yield _compare("report", "checks", lambda: render_html(many), lambda: render_html(few), options)
    yield _compare("diff", "checks", lambda: diff_reports(many, many), lambda: diff_reports(few, few), options)
    with ExitStack() as folders:
        small, large = (
            _store(Path(folders.enter_context(tempfile.TemporaryDirectory())), n) for n in (100, 100 * TIMES)
        )
        yield _compare("trend", "runs of 100 checks", _trend(large), _trend(small), options)


def _compare(name: str, what: str, larger: Callable, smaller: Callable, options) -> Benchmark:
    benchmark = Benchmark(
        f"growth.{name}", f"The time of a {name} grows as the number of {what.split(' of ')[0]} does."
    )
    seconds = alternate(larger, smaller, max(3, options.repeats // 2))
    per_unit = tuple(large / small / TIMES for large, small in zip(*seconds, strict=True))
    benchmark.add(Figure(f"{name}, {TIMES} times the {what}: time per unit of it", per_unit, bar=ALLOWED))
    benchmark.add(Figure(f"{name} of the larger", tuple(seconds[0]), "s", bar=SECONDS))
    return benchmark


def _store(root: Path, runs: int) -> Path:
    for number in range(runs):
        RunFolder.create(root, trend.synthetic(number, runs, 100))
    return root


def _trend(root: Path) -> Callable:
    return lambda: judge(read_history([root]))
