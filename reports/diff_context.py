"""What surrounds the checks of two runs: which runs they are, what else differs, what a reader must be warned of."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from .schema import Outcome, Report, Strict, VerdictStatus
from .summary import status
from .text import plural

_SELECTION = re.compile(r"\s(?:--check|--deselect|-k|-m)\b|\s--(?:lf|last-failed)\b|test_\w+\.py|[.:]test_\w")
"""What a command holds that asks for single checks or files, in the kit's way or in pytest's."""


class Side(Strict):
    """One of the two runs."""

    run_id: str
    release: str
    target: str
    level: str
    started: str
    complete: bool
    kit_version: str
    kit_commit: str | None
    status: VerdictStatus
    headline: str


class Change(Strict):
    """Something other than a check that differs; None where one run does not have it."""

    kind: Literal["kit", "pinned", "installed", "environment", "variable", "kernel"]
    name: str
    old: str | None
    new: str | None


def side(report: Report) -> Side:
    """``report`` as one side of a comparison."""
    return Side(
        run_id=report.run_id,
        release=report.release,
        target=report.target,
        level=report.level,
        started=report.started,
        complete=report.complete,
        kit_version=report.kit_version,
        kit_commit=report.kit_commit,
        status=status(report),
        headline=report.verdict.headline,
    )


def is_repeat(candidate: Report, report: Report) -> bool:
    """Whether ``candidate`` is a finished run of the same release, target, level and kit as ``report``."""
    return candidate.complete and _state(candidate) == _state(report)


def selects_checks(command: str) -> bool:
    """Whether ``command`` asked for some checks only, so that its run is no baseline for the whole level."""
    return _SELECTION.search(command) is not None


def changes(old: Report, new: Report) -> list[Change]:
    """Differences of kit, pins, packages, facts of the machine that can move a number; kernels that ran no more."""
    return [
        *_different("kit", _kit(old), _kit(new)),
        *_different("pinned", *({pin.name: pin.expected for pin in report.pins} for report in (old, new))),
        *_different("installed", _installed(old), _installed(new)),
        *_different("environment", _machine(old), _machine(new)),
        *_different("variable", old.environment.variables, new.environment.variables),
        *_no_longer_executed(old, new),
    ]


def warnings(old: Report, new: Report, unknown_versions: int) -> list[str]:
    """Sentences on what limits the comparison, the gravest first; ``unknown_versions`` is a number of checks."""
    found = []
    if old.run_id == new.run_id:
        found.append("OLD and NEW are the same run.")
    if old.target != new.target:
        found.append(
            f"The targets differ: OLD ran on {old.target}, NEW on {new.target}. "
            "Checks that only one of them ran do not count as worse."
        )
    if old.level != new.level:
        found.append(
            f"The levels differ: OLD is {old.level}, NEW is {new.level}. "
            "Checks outside of the common level do not count as worse."
        )
    for name, report in (("OLD", old), ("NEW", new)):
        if not report.complete:
            found.append(f"{name} did not finish: checks are missing there, and nothing is known about them.")
        if selects_checks(report.command):
            found.append(f"{name} ran selected checks only.")
    if old.seed != new.seed:
        found.append(f"The seeds differ ({old.seed} and {new.seed}), and with them every number.")
    if new.started < old.started:
        found.append("NEW started before OLD: check the order of the two.")
    if unknown_versions:
        checks = plural(unknown_versions, "check")
        found.append(f"The version of {checks} is not known: a change of the check itself would go unseen.")
    return found


def _state(report: Report) -> tuple[str | None, ...]:
    return report.release, report.target, report.level, report.kit_version, report.kit_commit


def _kit(report: Report) -> dict[str, str]:
    return {"version": report.kit_version, "commit": report.kit_commit or "not a checkout"}


def _installed(report: Report) -> dict[str, str]:
    return report.environment.packages | {pin.name: pin.found for pin in report.pins if pin.found}


def _machine(report: Report) -> dict[str, str]:
    of = report.environment
    facts = {"Python": of.python, "machine": of.machine, "CPU": of.cpu, "accelerator": of.accelerator}
    return facts | {"cores": str(of.cores)}


def _no_longer_executed(old: Report, new: Report) -> list[Change]:
    """Kernels that ran in ``old`` and not in ``new``, by checks that both executed: the others are named as checks."""
    ran = {result.id for result in new.results if result.outcome is not Outcome.NOT_RUN}
    before, after = Counter(), Counter()
    for counts, report in ((before, old), (after, new)):
        for e in report.executions:
            counts[f"{e.operator} {e.direction} on {e.backend}"] += e.count if e.check in ran else 0
    # A run that recorded nothing at all may be an older kit's.
    gone = "no longer executed" if new.executions else "none recorded"
    return [
        Change(kind="kernel", name=name, old=plural(count, "execution"), new=gone)
        for name, count in sorted(before.items())
        if count and not after[name]
    ]


def _different(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    return [
        Change(kind=kind, name=name, old=old.get(name), new=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
