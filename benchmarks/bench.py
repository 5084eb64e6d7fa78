"""All benchmarks, or some: each against its rival, measured in turns.

    make bench
    .venv/bin/python benchmarks/bench.py simulator interpreter --rival FOLDER --repeats 9

Prints a line per figure: the median of the repeats, their range, and whether the bar is kept. Writes a
``report.json`` below ``--results``, of which ``trncheck trend benchmarks/results`` shows several. Exit status 1 where
a bar is missed. What is measured, and what came out: docs/performance.md.
"""

import argparse
import hashlib
import importlib
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from measure import save

ALL = ("start", "growth", "simulator", "interpreter", "steps", "levels")
"""Modules of this folder with ``run(options) -> Iterator[Benchmark]``, quick ones first."""


def main() -> int:
    """Run what the command line names."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)} (default: all)")
    parser.add_argument("--repeats", type=int, default=7, help="measurements of each side (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=here / "results", metavar="FOLDER")
    parser.add_argument("--rival", type=Path, metavar="FOLDER", help="a checkout of triton-viz, for interpreter")
    parser.add_argument("--levels", default="smoke,standard", help="levels to time, for levels (default: %(default)s)")
    options = parser.parse_args()
    if unknown := {*options.names} - {*ALL}:
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}; choose from {', '.join(ALL)}")
    started, found = datetime.now(UTC), []
    for name in options.names or ALL:
        module = importlib.import_module(name)
        print(f"{name}: {module.__doc__.splitlines()[0]}", flush=True)
        version = hashlib.sha256((here / f"{name}.py").read_bytes()).hexdigest()[:12]
        found.extend(replace(benchmark, version=version) for benchmark in module.run(options))
    command = " ".join(["benchmarks/bench.py", *(options.names or ALL)])
    print(save(options.results, found, command, started))
    return int(not all(figure.ok for benchmark in found for figure in benchmark.figures))


if __name__ == "__main__":
    sys.exit(main())
