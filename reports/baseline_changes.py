"""What a proposed baseline changes of the one before: numbers that moved, with the size of the move, and coverage."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .baseline import Baseline, BaselineCheck, BaselineNumber, default_path, load_baseline
from .baseline_build import LeftOut, build, measurements_of
from .baseline_runs import accept
from .diff_context import selects_checks
from .drift import pairs
from .schema import Report
from .text import one_line, plural


class Move(NamedTuple):
    """A number that is another one, or that varies in another way."""

    id: str
    name: str
    before: BaselineNumber
    after: BaselineNumber

    @property
    def effect(self) -> float | None:
        """(after - before) / pooled standard deviation; None where neither of the two varies."""
        old, new = self.before, self.after
        pooled = math.sqrt(((old.n - 1) * old.std**2 + (new.n - 1) * new.std**2) / (old.n + new.n - 2))
        return (new.mean - old.mean) / pooled if pooled > 0 else None


class Proposal(NamedTuple):
    """A new baseline beside the one that it replaces. Names are by id of the check."""

    path: Path
    baseline: Baseline
    replaced: Baseline | None
    moves: list[Move]
    """The one to look at first in front."""
    kept: int
    """Numbers that are the same in both."""
    new: dict[str, list[str]]
    gone: dict[str, list[str]]
    changed: dict[str, tuple[str, str]]
    """Checks of another version, with the old and the new one: their numbers are not comparable."""
    left_out: list[LeftOut]
    warnings: list[str]
    """Sentences that a reader has to know before the rest."""


def propose(reports: Sequence[Report], reason: str, path: Path | None = None) -> Proposal:
    """The baseline of ``reports`` for the file ``path`` (default: ``default_path``), beside what the file holds now.

    Writes nothing. Raises ValueError, in one line, for no reason, runs that do not fit, and a file that is there and
    is no baseline.
    """
    if not one_line(reason):
        raise ValueError("no reason given; say with --reason why these numbers are right")
    runs = accept(reports)
    path = path or default_path(runs[0].release, runs[0].target)
    replaced, previous = load_baseline(path) if path.exists() else (None, None)
    baseline, left_out = build(runs, reason, previous)
    old = replaced.checks if replaced else {}
    moves: list[Move] = []
    kept = 0
    new: dict[str, list[str]] = {}
    gone: dict[str, list[str]] = {}
    changed: dict[str, tuple[str, str]] = {}
    for id in sorted(old.keys() | baseline.checks.keys()):
        before, after = old.get(id), baseline.checks.get(id)
        if before and after and before.version != after.version:
            changed[id] = before.version, after.version
            continue
        partners = _partners(before, after)
        for name in _names(after):
            number = after.numbers[name]
            if name not in partners:
                new.setdefault(id, []).append(name)
            elif _moved(before.numbers[partners[name]], number):
                moves.append(Move(id, name, before.numbers[partners[name]], number))
            else:
                kept += 1
        if lost := [name for name in _names(before) if name not in partners.values()]:
            gone[id] = lost
    moves.sort(key=_weight)
    warnings = [*_scope(baseline, replaced), *_selected(runs)]
    return Proposal(path, baseline, replaced, moves, kept, new, gone, changed, left_out, warnings)


def _names(check: BaselineCheck | None) -> list[str]:
    """Names of the numbers of ``check`` in their places."""
    return [measurement.name for measurement in measurements_of(check)] if check else []


def _partners(before: BaselineCheck | None, after: BaselineCheck | None) -> dict[str, str]:
    """New name -> old name of numbers that belong together."""
    if before is None or after is None:
        return {}
    old, new = measurements_of(before), measurements_of(after)
    return {measurement.name: old[position].name for position, measurement in pairs(old, new)}


def _moved(before: BaselineNumber, after: BaselineNumber) -> bool:
    return (before.mean, before.min, before.max) != (after.mean, after.min, after.max)


def _weight(move: Move) -> tuple[bool, float, str, str]:
    """Sort key: what moved without any spread cannot be noise, then by the size of the effect."""
    effect = move.effect
    return effect is not None, -abs(effect or 0.0), move.id, move.name


def _scope(baseline: Baseline, replaced: Baseline | None) -> list[str]:
    """Sentences on what the two do not have in common."""
    if replaced is None:
        return []
    old, new = replaced.provenance, baseline.provenance
    return [
        f"The {what} differs: {getattr(old, what)} before, {getattr(new, what)} now."
        for what in ("release", "target", "level", "seed")
        if getattr(old, what) != getattr(new, what)
    ]


def _selected(runs: list[Report]) -> list[str]:
    count = sum(selects_checks(report.command) for report in runs)
    return [f"{plural(count, 'run')} of selected checks only: the baseline has no others."] if count else []
