"""The four runs of an attribution, two kits on two stacks: found, and refused where they are anything else."""

from collections.abc import Sequence
from pathlib import Path

from .diff_context import selects_checks
from .lookup import find_repeats, find_report
from .schema import Report
from .store import REPORT_JSON, load_report
from .text import one_line, plural

ARGUMENTS = ("OLD_OLD", "NEWKIT_OLDSTACK", "OLDKIT_NEWSTACK", "NEW_NEW")
"""What the four runs are called, in their order; all sequences of four here and elsewhere have this order."""
_SWAPS = (((1, 2),), ((0, 1), (2, 3)), ((0, 2), (1, 3)))
"""Exchanges that may put runs in order. Those of one group cannot be told apart: old and new would change places."""
_SHOWN = 3
_KIT = "trncheck"


def find_cells(names: Sequence[str], results: Path, target: str | None = None) -> list[Report]:
    """The four runs behind ``names``, each as ``find_cell``."""
    if len(names) != len(ARGUMENTS):
        raise ValueError(f"{plural(len(names), 'run')} given: give four, {' '.join(ARGUMENTS)}")
    return [find_cell(name, results, target) for name in names]


def find_cell(name: str, results: Path, target: str | None = None) -> Report:
    """As ``find_report``; in a folder that holds runs at any depth, the newest that came to its end."""
    path = Path(name)
    if not path.is_dir() or (path / REPORT_JSON).is_file():
        return find_report(name, results, target)
    runs = sorted(path.rglob(REPORT_JSON), key=lambda file: file.parent.name, reverse=True)
    if not runs:
        return find_report(name, results, target)
    report = next((report for run in runs if (report := load_report(run)).complete), None)
    if report is None:
        raise ValueError(f"{path}: {plural(len(runs), 'run')}, none of which came to its end; run again")
    return report


def find_cell_repeats(cell: Report, folders: Sequence[Path]) -> list[Report]:
    """Other runs of the kit and the stack of ``cell`` under ``folders``."""
    found = {repeat.run_id: repeat for folder in folders for repeat in find_repeats(cell, folder)}
    return [r for id, r in sorted(found.items()) if id != cell.run_id and _packages(r) == _packages(cell)]


def kit(report: Report) -> str:
    """Version and commit of the kit, e.g. ``0.1.0 (c3931d2)``."""
    return f"{one_line(report.kit_version)} ({one_line(report.kit_commit or 'no commit')})"


def stack_changes(cells: Sequence[Report]) -> dict[str, tuple[str, str]]:
    """Name -> (old, new) of everything in which the two stacks differ."""
    old, *_, new = _stacks(cells)
    return {name: (old[name], new[name]) for name in old if old[name] != new[name]}


def check_square(cells: Sequence[Report]) -> None:
    """Raise ValueError, in one line, unless ``cells`` are two kits on two stacks in the order of ``ARGUMENTS``."""
    first = cells[0]
    for name, cell in zip(ARGUMENTS[1:], cells[1:], strict=True):
        if cell.target != first.target:
            raise ValueError(f"{name} ran on {cell.target}, OLD_OLD on {first.target}: give runs on one target")
    ids = [cell.run_id for cell in cells]
    for place, id in enumerate(ids):
        if id in ids[:place]:
            twice = f"{ARGUMENTS[ids.index(id)]} and {ARGUMENTS[place]}"
            raise ValueError(f"{twice} are the same run, {one_line(id, 80)}: give four different runs")
    problem = _problem(cells)
    if not problem:
        return
    for group in _SWAPS:
        fitting = [f"{ARGUMENTS[i]} and {ARGUMENTS[j]}" for i, j in group if not _problem(_swapped(cells, i, j))]
        if fitting:
            raise ValueError(f"{problem}; swapped are {', or '.join(fitting)}")
    raise ValueError(f"{problem}; run it again, `trncheck attribute --old-kit ...` prints how")


def warnings(cells: Sequence[Report]) -> list[str]:
    """Sentences on what limits the attribution, the gravest first."""
    named = list(zip(ARGUMENTS, cells, strict=True))
    found = [f"{name} did not finish: checks are missing there." for name, cell in named if not cell.complete]
    for word, values in (
        ("releases that they are judged by", [cell.release for cell in cells]),
        ("levels", [cell.level for cell in cells]),
        ("seeds", [str(cell.seed) for cell in cells]),
    ):
        if len(set(values)) > 1:
            found.append(f"The {word} differ: {', '.join(one_line(value, 40) for value in values)}.")
    selected = [name for name, cell in named if selects_checks(cell.command)]
    if 0 < len(selected) < len(cells):
        found.append(f"{' and '.join(selected)} ran selected checks only.")
    dirty = [name for name, cell in named if (cell.kit_commit or "").endswith("+dirty")]
    if dirty:
        found.append(f"The kit of {' and '.join(dirty)} had changes that no commit holds; nobody knows which.")
    unknown = {result.id for cell in cells for result in cell.results if not result.version}
    if unknown:
        found.append(f"The version of {plural(len(unknown), 'check')} is not known: a change of the check goes unseen.")
    for i, j in ((0, 1), (2, 3)):
        differing = _differing(_surroundings(cells[i]), _surroundings(cells[j]))
        if differing:
            found.append(f"{ARGUMENTS[i]} and {ARGUMENTS[j]} ran in different surroundings: {differing}.")
    return found


def _problem(cells: Sequence[Report]) -> str:
    """What keeps ``cells`` from being a square; empty for nothing."""
    kits = [{"kit": kit(cell)} for cell in cells]
    return _side(kits, "kit", with_new=1, with_old=2) or _side(_stacks(cells), "stack", with_new=2, with_old=1)


def _side(facts: list[dict[str, str]], noun: str, with_new: int, with_old: int) -> str:
    """What is off with one of the two sides; place ``with_new`` must be as NEW_NEW, ``with_old`` as OLD_OLD."""
    old, new = 0, 3
    if facts[old] == facts[new]:
        which = ", ".join(facts[old].values()) if noun == "kit" else f"equal in all {len(facts[old])} known facts"
        same = f"OLD_OLD and NEW_NEW have the same {noun} ({which})"
        if facts[with_old] != facts[old] and facts[with_new] == facts[new]:
            return f"{same}, {ARGUMENTS[with_old]} another: OLD_OLD is not of the old {noun}"
        if facts[with_new] != facts[new] and facts[with_old] == facts[old]:
            return f"{same}, {ARGUMENTS[with_new]} another: NEW_NEW is not of the new {noun}"
        return same
    for place, like in ((with_new, new), (with_old, old)):
        if facts[place] != facts[like]:
            differing = _differing(facts[place], facts[like], f"in {ARGUMENTS[like]}")
            return f"{ARGUMENTS[place]} must have the {noun} of {ARGUMENTS[like]}: {differing}"
    return ""


def _stacks(cells: Sequence[Report]) -> list[dict[str, str]]:
    """The stack of each cell by what all kits look at; by the machine too where nothing else tells stacks apart."""
    found = [_packages(cell) for cell in cells]
    known: dict[str, set[str]] = {}
    for cell, packages in zip(cells, found, strict=True):
        known.setdefault(kit(cell), set()).update(packages)
    names = sorted(set.intersection(*known.values()))
    stacks = [{name: packages.get(name, "absent") for name in names} for packages in found]
    if all(stack == stacks[0] for stack in stacks):
        around = [_surroundings(cell) for cell in cells]
        names = sorted(set().union(*around))
        stacks = [
            stack | {name: of.get(name, "absent") for name in names} for stack, of in zip(stacks, around, strict=True)
        ]
    return stacks


def _packages(report: Report) -> dict[str, str]:
    found = report.environment.packages | {pin.name: pin.found for pin in report.pins if pin.found}
    return {"Python": report.environment.python} | {name: v for name, v in found.items() if name != _KIT}


def _surroundings(report: Report) -> dict[str, str]:
    of = report.environment
    facts = {"OS": of.os, "machine": of.machine, "CPU": of.cpu, "cores": str(of.cores), "accelerator": of.accelerator}
    return facts | of.variables


def _differing(mine: dict[str, str], others: dict[str, str], where: str = "and") -> str:
    """``torch 2.14.0, in OLD_OLD 2.13.0`` and so on for the first differences; empty for none."""
    names = [name for name in sorted(mine.keys() | others.keys()) if mine.get(name) != others.get(name)]
    shown = []
    for name in names[:_SHOWN]:
        here, there = (one_line(facts.get(name, "absent"), 60) for facts in (mine, others))
        shown.append(f"{one_line(name, 40)} {here}, {where} {there}")
    more = [plural(len(names) - _SHOWN, "more difference")] if len(names) > _SHOWN else []
    return "; ".join(shown + more)


def _swapped(cells: Sequence[Report], i: int, j: int) -> list[Report]:
    order = list(cells)
    order[i], order[j] = order[j], order[i]
    return order
