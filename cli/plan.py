"""The verb ``plan``: what a run would do, on how many cores, and for about how long."""

import argparse
import json
from dataclasses import asdict

from trncheck.conformance.options import OPTIONS


def add_verb(verbs: argparse._SubParsersAction) -> None:
    """Add ``plan`` to the command line."""
    verb = verbs.add_parser(
        "plan",
        help="list what a run would do, with cores and expected duration; runs nothing",
        epilog="Needs no device. Exit status: 0, or 2 for bad input.",
    )
    verb.add_argument("--target", choices=("cpu", "trn2"), default="trn2", help="(default: %(default)s)")
    for flag in ("--level", "--release"):
        verb.add_argument(flag, **OPTIONS[flag])
    verb.add_argument("--format", choices=("text", "json"), default="text")
    verb.set_defaults(call=_plan)


def _plan(options, _rest: list[str]) -> int:
    from trncheck.conformance.plan import BASIS, plan
    from trncheck.fixtures.manifest import default_release, load_release

    rows = plan(options.target, options.level, options.release)
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    _print(rows, options.target, options.level, BASIS[options.target])
    release = load_release(options.release or default_release())
    print(f"Neuron {release.version}: {' '.join((release.note or release.title).split())}")
    return 0


def _print(rows, target: str, level: str, basis: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for column, how in {"check": "left", "checks": "right", "cores": "right", "about": "right"}.items():
        table.add_column(column, justify=how)
    for row in rows:
        cores = str(row.cores) if row.cores else "–"
        table.add_row(row.name, str(row.checks), cores, _duration(row.seconds))
    console.print(table)
    total = sum(row.seconds for row in rows)
    most = max((row.cores for row in rows), default=0)
    where = f"{target}, up to {most} logical NeuronCores" if most else target
    console.print(f"\n{sum(row.checks for row in rows)} checks of level {level} on {where}: about {_duration(total)}")
    console.print(f"Durations are {basis}.", soft_wrap=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
