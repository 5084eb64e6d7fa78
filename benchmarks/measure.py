"""Ratios of two things measured in turns, and the report that ``trncheck trend`` reads."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from trncheck.conformance.environment import describe_environment, kit_commit
from trncheck.reports.schema import CheckResult, Measurement, Outcome, Report, Verdict, VerdictStatus
from trncheck.reports.store import RunFolder, new_run_id

SHORTEST = 0.05
"""Seconds that one measurement takes at least, by repeating what is measured."""


@dataclass(frozen=True)
class Figure:
    """A number of which there is one for each repeat; the median is held to ``bar``."""

    name: str
    values: tuple[float, ...]
    unit: str = "times"
    bar: float | None = None
    relation: str = "<="

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def ok(self) -> bool:
        if self.bar is None:
            return True
        return self.median <= self.bar if self.relation == "<=" else self.median >= self.bar

    def __str__(self) -> str:
        bar = "" if self.bar is None else f"   {'ok' if self.ok else 'MISSED'}: {self.relation} {self.bar:g}"
        spread = f" ({min(self.values):.3g} to {max(self.values):.3g})" if len(self.values) > 1 else ""
        return f"{self.name}: {self.median:.3g} {self.unit}{spread}{bar}"


@dataclass
class Benchmark:
    """The figures of one benchmark, and what they were measured on."""

    id: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    version: str = ""
    """Of the benchmark's code: numbers of different ones are not compared."""

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(f"  {figure}", flush=True)


def alternate(
    ours: Callable, rival: Callable, repeats: int, clock: Callable[[], float] = time.process_time
) -> tuple[list[float], list[float]]:
    """Seconds per call of both, measured in turns after one call of each; who goes first changes every time.

    The default ``clock`` counts this process alone: on a busy machine the time of day says little. It is the sum over
    threads, so both sides must have one. What starts processes needs ``time.perf_counter``.
    """
    calls = [_calls(ours, clock), _calls(rival, clock)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats):
        for which in (0, 1) if repeat % 2 == 0 else (1, 0):
            seconds[which].append(_seconds((ours, rival)[which], calls[which], clock))
    return seconds


def ratio(name: str, ours: Sequence[float], rival: Sequence[float], **bar) -> Figure:
    """How many times as long as the rival, by pairs of neighbouring measurements."""
    return Figure(name, tuple(a / b for a, b in zip(ours, rival, strict=True)), **bar)


def _calls(function: Callable, clock: Callable[[], float]) -> int:
    """How often to call in one measurement. The first call, which warms up, does not count."""
    function()
    return max(1, round(SHORTEST / _seconds(function, 1, clock)))


def _seconds(function: Callable, calls: int, clock: Callable[[], float]) -> float:
    with _without_collector():
        start = clock()
        for _ in range(calls):
            function()
        return (clock() - start) / calls


@contextmanager
def _without_collector():
    """The garbage of one side must not be collected in the other's time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def save(root: Path, benchmarks: Sequence[Benchmark], command: str, started: datetime) -> Path:
    """Write ``report.json`` below ``root``; returns its path. The release is called ``benchmarks``."""
    failed = [benchmark.id for benchmark in benchmarks if not all(figure.ok for figure in benchmark.figures)]
    now = datetime.now(UTC)
    report = Report(
        run_id=new_run_id(),
        kit_version="0",
        kit_commit=kit_commit(),
        release="benchmarks",
        release_date=f"{started:%Y-%m-%d}",
        target="cpu",
        level="standard",
        command=command,
        seed=0,
        started=started.isoformat(),
        finished=now.isoformat(),
        duration_s=(now - started).total_seconds(),
        complete=True,
        verdict=Verdict(
            status=VerdictStatus.NOT_CONFORMANT if failed else VerdictStatus.INCOMPLETE,
            headline=f"Bars missed by {', '.join(failed)}." if failed else "No bar was missed.",
        ),
        environment=describe_environment(),
        results=[_result(benchmark) for benchmark in benchmarks],
    )
    folder = RunFolder.create(root, report)
    folder.write(report)
    return folder.page.with_name("report.json")


def _result(benchmark: Benchmark) -> CheckResult:
    missed = [str(figure) for figure in benchmark.figures if not figure.ok]
    return CheckResult(
        id=benchmark.id,
        subject=benchmark.id.partition(".")[0],
        title=benchmark.title,
        outcome=Outcome.FAIL if missed else Outcome.PASS if benchmark.figures else Outcome.NOT_RUN,
        message="\n".join(missed) or benchmark.notes.get("not run", ""),
        level="standard",
        target="cpu",
        required=False,
        measurements=[part for figure in benchmark.figures for part in _measurements(figure)],
        evidence=benchmark.notes,
        version=benchmark.version,
    )


def _measurements(figure: Figure) -> list[Measurement]:
    repeats = len(figure.values)
    median = Measurement(
        name=figure.name,
        value=figure.median,
        bar=figure.bar,
        relation=figure.relation,
        unit=figure.unit,
        source=f"median of {repeats}" if repeats > 1 else "",
        ok=figure.ok,
    )
    if repeats == 1:
        return [median]
    ends = (("least", min(figure.values)), ("most", max(figure.values)))
    return [median, *(Measurement(name=f"{figure.name}, {end}", value=v, unit=figure.unit) for end, v in ends)]
