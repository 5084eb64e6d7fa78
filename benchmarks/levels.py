"""The suite's levels with one worker and with two; and where their time goes."""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import footprint
from measure import Benchmark, Figure, ratio

from trncheck.conformance.options import ISOLATED
from trncheck.reports.schema import Report
from trncheck.reports.store import load_report

SECONDS = {"smoke": 45, "standard": 360}
"""With two workers."""
FASTER = 1.6
PEAK_GIB = 8


def run(options) -> Iterator[Benchmark]:
    """``levels.LEVEL`` for each of ``--levels``, after a run that warms the cache."""
    for level in options.levels.split(","):
        benchmark = Benchmark(f"levels.{level}", f"Level {level} takes its time, and two workers halve it.")
        _run(level, 2)
        (one, report, _), (two, shared, peak) = _run(level, 1), _run(level, 2)
        benchmark.add(Figure("2 workers", (two,), "s", bar=SECONDS.get(level)))
        benchmark.add(Figure("1 worker", (one,), "s"))
        benchmark.add(ratio("1 worker against 2", [one], [two], bar=FASTER, relation=">="))
        benchmark.add(Figure("2 workers, peak memory", (peak,), "GiB", bar=PEAK_GIB))
        checks = sum(result.duration_s for result in report.results)
        benchmark.add(
            Figure("1 worker, start of processes, collection and fixtures of the session", (one - checks,), "s")
        )
        busy = sum(result.duration_s for result in shared.results)
        benchmark.add(Figure("2 workers, checks with their fixtures, both workers", (busy,), "s"))
        for subject, seconds in _by_subject(report):
            benchmark.add(Figure(f"1 worker, {subject}", (seconds,), "s"))
        slowest = sorted(report.results, key=lambda result: -result.duration_s)[:10]
        benchmark.notes["slowest checks"] = "; ".join(f"{result.id} {result.duration_s:.1f} s" for result in slowest)
        print(f"  slowest: {benchmark.notes['slowest checks']}")
        yield benchmark


def _by_subject(report: Report) -> list[tuple[str, float]]:
    """Seconds by subject, the longest first; fixtures count for the check that first asks for them."""
    seconds: Counter = Counter()
    for result in report.results:
        seconds[result.subject] += result.duration_s
    return seconds.most_common()


def _run(level: str, workers: int) -> tuple[float, Report, float]:
    """Seconds, report, and peak memory in GiB."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "pytest", "--pyargs", "trncheck.conformance", *ISOLATED, "-q"]
        command += ["--target", "cpu", "--level", level, f"--results={folder}/results"]
        command += ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
        start = time.monotonic()
        with Path(folder, "log").open("w") as log:
            _, peak = footprint.watch(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        seconds = time.monotonic() - start
        written = list(Path(folder, "results").rglob("report.json"))
        if len(written) != 1:
            sys.exit(f"level {level} wrote {len(written)} reports:\n{Path(folder, 'log').read_text()[-3000:]}")
        return seconds, load_report(written[0]), peak / 2**30
