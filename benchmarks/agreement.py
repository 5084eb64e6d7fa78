"""Do runs of the suite on one commit agree in every outcome, in any order and on any number of workers?

    .venv/bin/python benchmarks/agreement.py --runs 10 --level standard
    .venv/bin/python benchmarks/agreement.py --runs 10 --level smoke --random-order -n 2

Prints a line per run, and each check whose outcomes differ or are failures. Exit status 1 for any of these.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from trncheck.conformance.options import ISOLATED
from trncheck.reports.schema import Report
from trncheck.reports.store import load_report

_ORDER = """\
import os, random
import pytest

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    random.Random(os.environ["TRNCHECK_ORDER"]).shuffle(items)
"""


def main() -> int:
    """Make the runs one after the other, then compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--level", default="standard", help="level of the suite (default: %(default)s)")
    parser.add_argument("--check", action="append", default=[], metavar="ID", help="only these, repeatable")
    parser.add_argument("-n", dest="workers", type=int, default=0, help="xdist workers (default: none)")
    parser.add_argument("--random-order", action="store_true", help="another order in each run, by its number")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "order.py").write_text(_ORDER)
        reports = []
        for number in range(1, options.runs + 1):
            start = time.monotonic()
            reports.append(_run(options, number, Path(scratch)))
            counts = Counter(result.outcome.value for result in reports[-1].results)
            told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            print(f"run {number}: {time.monotonic() - start:.0f} s, {told}", flush=True)
    wrong = disagreements(reports)
    for line in wrong:
        print(line)
    print(f"{len(reports)} runs of {len(reports[0].results)} checks: {len(wrong)} checks differ or fail")
    return int(bool(wrong))


def disagreements(reports: Sequence[Report]) -> list[str]:
    """A line for each check that has two outcomes, is missing somewhere, or fails, with its runs by outcome."""
    seen: dict[str, dict[str, list[int]]] = {}
    for number, report in enumerate(reports, start=1):
        for result in report.results:
            seen.setdefault(result.id, {}).setdefault(result.outcome.value, []).append(number)
    failing = {result.id for report in reports for result in report.results if result.outcome.is_failure}
    lines = []
    for id, runs in sorted(seen.items()):
        absent = [n for n in range(1, len(reports) + 1) if not any(n in of for of in runs.values())]
        outcomes = runs | ({"missing": absent} if absent else {})
        if len(outcomes) > 1 or id in failing:
            told = "; ".join(f"{outcome} in {', '.join(map(str, of))}" for outcome, of in outcomes.items())
            lines.append(f"{id}: {told}")
    return lines


def _run(options: argparse.Namespace, number: int, scratch: Path) -> Report:
    results = scratch / str(number)
    command = [sys.executable, "-P", "-m", "pytest", "--pyargs", "trncheck.conformance", *ISOLATED, "-q"]
    command += ["--target", "cpu", "--level", options.level, f"--results={results}"]
    command += [word for check in options.check for word in ("--check", check)]
    command += ["-n", str(options.workers)] if options.workers else []
    environment = dict(os.environ)
    if options.random_order:
        command += ["-p", "order"]
        path = [str(scratch), *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {"TRNCHECK_ORDER": str(number), "PYTHONPATH": os.pathsep.join(path)}
    ended = subprocess.run(command, env=environment, cwd=scratch, capture_output=True, text=True)
    written = list(results.rglob("report.json"))
    if len(written) != 1:
        sys.exit(f"run {number} wrote {len(written)} reports:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    return load_report(written[0])


if __name__ == "__main__":
    sys.exit(main())
