"""The verb ``doctor``: whether this machine is ready for a run, what it has, and what to do where it is not."""

import argparse
import json

from trncheck.conformance.options import OPTIONS

_EPILOG = """\
Ready means that a run on the target would find nothing wrong with the machine, the installed software and the
settings. Without --release, the software of a Neuron machine is held against the release that it is nearest to, and a
CPU's against the newest whose versions are all known, as in a run. A machine without a Neuron device is ready when its
software is right for --target cpu; ask for --target trn2 where it ought to have one. Exit status: 0 when ready, 1 when
not, 2 for bad input.
"""
_WORDS = {"equal": "ok", "different": "DIFFERS", "absent": "MISSING", "not-applicable": "–"}
_STYLES = {"ok": "green", "DIFFERS": "bold red", "MISSING": "bold red", "unknown": "yellow", "–": "dim"}


def add_verb(verbs: argparse._SubParsersAction) -> None:
    """Add ``doctor`` to the command line."""
    verb = verbs.add_parser(
        "doctor", help="say which Neuron release is installed, and whether this machine is ready for it", epilog=_EPILOG
    )
    for flag in ("--target", "--release"):
        verb.add_argument(flag, **OPTIONS[flag])
    verb.add_argument("--format", choices=("text", "json"), default="text")
    verb.set_defaults(call=_doctor)


def _doctor(options, _rest: list[str]) -> int:
    from trncheck.conformance.diagnosis import diagnose

    found = diagnose(options.release, options.target)
    if options.format == "json":
        print(json.dumps(found.as_json(), indent=1))
    else:
        _print(found)
    return 0 if found.is_ready else 1


def _print(found) -> None:
    from rich.console import Console

    from trncheck.reports.terminal import Printer

    out = Printer(Console(highlight=False))
    out.line(found.verdict, "bold green" if found.is_ready else "bold red")
    for title, lines in (("Problems", found.problems), ("Good to know", found.remarks)):
        if lines:
            out.line(f"\n{title}", "bold")
        for line in lines:
            out.line(f"  - {line}")
    out.line(f"\nSoftware, against Neuron {found.identification.release.version} on {found.target}", "bold")
    out.console.print(_components(found, out))
    out.line("\nMachine", "bold")
    out.line(f"  {found.machine}")
    out.line("\nSettings", "bold")
    for line in _settings(found.settings, found.target):
        out.line(f"  {line}")


def _components(found, out):
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  component", no_wrap=True)
    for column in ("expected", "found", ""):
        table.add_column(column, overflow="fold")
    for part in found.identification.components:
        row = part.row
        word = "unknown" if row.expected == "unknown" else _WORDS[row.status.value]
        other = "" if word != "DIFFERS" or not part.releases else f", of {' or '.join(part.releases)}"
        cells = (f"  {row.name}", row.expected, row.found or "nothing")
        table.add_row(*map(out.text, cells), out.text(word + other, _STYLES[word]))
    return table


def _settings(rows, target: str) -> list[str]:
    """Those that are set; for a device then what a run sets itself, and what is left at its default."""
    lines = [f"{row.name}={row.value}: {row.what} (default: {row.default})" for row in rows if row.value != "unset"]
    if target == "cpu":
        return lines or ["none that matters is set"]
    unset = [row for row in rows if row.value == "unset"]
    ours = [f"{row.name}={row.ours.split(':')[0]}" for row in unset if row.ours]
    left = [row.name for row in unset if not row.ours]
    return [*lines, f"a run sets itself: {', '.join(ours)}", f"left unset: {', '.join(left)}"]
