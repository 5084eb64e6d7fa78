"""How fast ``trncheck trend`` is on a store of synthetic runs.

    .venv/bin/python benchmarks/trend.py --runs 2000 --checks 100

Prints seconds and runs per second of reading and judging, then seconds and size of each format. The runs have three
numbers per check, evidence, pins, packages and curves, as those of the suite have, and lie in a temporary folder.
"""

import argparse
import random
import resource
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

from trncheck.reports.history import read_history
from trncheck.reports.schema import (
    CheckResult,
    Compared,
    Curve,
    Environment,
    Measurement,
    Outcome,
    PinRow,
    PinStatus,
    Report,
    Verdict,
    VerdictStatus,
)
from trncheck.reports.store import RunFolder
from trncheck.reports.trend import trend
from trncheck.reports.trend_output import render

RELEASES = (("2.31.0", "2026-06-01"), ("2.32.0", "2026-08-01"), ("2.33.0", "2026-10-19"))


def main() -> None:
    """Make the store, then read, judge and render it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--checks", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for number in range(options.runs):
            RunFolder.create(root, synthetic(number, options.runs, options.checks))
        size = sum(path.stat().st_size for path in root.rglob("report.json"))
        print(f"{options.runs} runs of {options.checks} checks, {size / 1e6:.0f} MB")
        start = time.perf_counter()
        history = read_history([root])
        seconds = time.perf_counter() - start
        print(f"read:   {seconds:.2f} s, {options.runs / seconds:.0f} runs/s")
        start = time.perf_counter()
        found = trend(history)
        print(f"judge:  {time.perf_counter() - start:.2f} s")
        for format in ("text", "json", "html"):
            start = time.perf_counter()
            text = render(found, format)
            print(f"{format + ':':7} {time.perf_counter() - start:.2f} s, {len(text.encode()) / 1e6:.2f} MB")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def synthetic(number: int, runs: int, checks: int) -> Report:
    """Run ``number`` of so many, with ``checks`` checks; the same for the same arguments."""
    noise = random.Random(number)
    release, date = RELEASES[number * len(RELEASES) // runs]
    started = datetime.fromisoformat("2026-01-01T03:00:00+00:00") + timedelta(hours=4 * number)
    return Report(
        run_id=f"{started:%Y%m%dT%H%M%S}-{number:06x}",
        kit_version="0.1.0",
        kit_commit=f"{number // 50:012x}",
        release=release,
        release_date=date,
        target="cpu",
        level="standard",
        command="pytest --pyargs trncheck.conformance --level standard",
        seed=42,
        started=started.isoformat(),
        complete=True,
        verdict=Verdict(status=VerdictStatus.INCOMPLETE, headline="Nothing failed."),
        environment=Environment(
            python="3.12.1",
            os="Linux",
            machine="x86_64",
            cpu="Xeon",
            cores=2,
            memory_gib=15.6,
            accelerator="none",
            packages={f"package-{k}": f"2.{number // 300}.{k}" for k in range(12)},
        ),
        pins=[
            PinRow(name=f"pin-{k}", kind="distribution", expected="2.14", found="2.14.0", status=PinStatus.EQUAL)
            for k in range(12)
        ],
        results=[_check(k, number, runs, noise) for k in range(checks)],
        curves=[
            Curve(name=f"curve {k}", group="g", model="m", steps=list(range(20)), losses=[12.0 - k] * 20)
            for k in range(8)
        ],
    )


def _check(index: int, number: int, runs: int, noise: random.Random) -> CheckResult:
    red = index % 20 == 3 and number > runs - 3 * index
    moved = 1.5 if index % 10 == 5 and number > runs - 25 else 1.0
    return CheckResult(
        id=f"subject{index % 7}.check[case-{index}]",
        subject=f"subject{index % 7}",
        title="Path and reference agree on the same weights and batch.",
        outcome=Outcome.FAIL if red or (index == 7 and noise.random() < 0.2) else Outcome.PASS,
        message="loss: relative error 0.0272 > 0.008 (3.4 times the bar)\n  compared 12 tensors" if red else "",
        level="standard",
        target="cpu",
        version=f"{index:012x}",
        compared=Compared(tensors=12, elements=1_234_567),
        measurements=[
            Measurement(
                name=f"relative error of part {k}, worst in layer",
                value=1e-3 * moved * (1 + 0.02 * noise.gauss(0, 1)),
                bar=4e-3,
                source="error of plain bfloat16 against float64, times 2",
            )
            for k in range(3)
        ],
        evidence={f"fact {k}": "9f2c1e0b7a" * 6 for k in range(4)},
    )


if __name__ == "__main__":
    main()
