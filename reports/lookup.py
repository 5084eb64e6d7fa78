"""From what a user types for a run, a path or the name of a release, to its report; and the repeats of a run."""

import json
import os
from pathlib import Path

from .diff_context import is_repeat, selects_checks
from .schema import Report
from .store import REPORT_JSON, load_report
from .text import one_line


def find_report(name: str, results: Path, target: str | None = None) -> Report:
    """The report in the file or run folder ``name``, or the newest whole run of release ``name`` under ``results``.

    A whole run came to its end and was not asked for single checks. Raises ValueError, in one line, where there is no
    such run, or where runs on several targets leave the choice open.
    """
    path = Path(name)
    if path.is_file() or (path / REPORT_JSON).is_file() or _is_path(name):
        return load_report(path)
    runs = {place.name: _newest_first(place) for place in _folders(results / name)}
    runs = {place: folders for place, folders in runs.items() if folders and target in (None, place)}
    if not runs:
        on = f" on {target}" if target else ""
        raise ValueError(f"{one_line(name, 80)!r} is neither a report nor a release with runs{on}; {_stored(results)}")
    if len(runs) > 1:
        raise ValueError(f"release {name} has runs on {' and '.join(runs)} in {results}: choose one with --target")
    for folder in next(iter(runs.values())):
        report = _readable(folder)
        if report and report.complete and not selects_checks(report.command):
            return report
    raise ValueError(f"release {name} has no whole run in {results}: all were stopped or asked for single checks")


def find_repeats(report: Report, folder: Path) -> list[Report]:
    """Runs of the same release, target, level and kit as ``report`` anywhere under ``folder``."""
    found = []
    for path in sorted(folder.rglob(REPORT_JSON)):
        # Most of a store is something else, which its head tells faster than all of its checks.
        if _could_repeat(path, report) and (candidate := _readable(path)) and is_repeat(candidate, report):
            found.append(candidate)
    return found


def _is_path(name: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    return name in ("", ".", "..") or name.endswith(".json") or any(separator in name for separator in separators)


def _stored(results: Path) -> str:
    releases = [folder.name for folder in _folders(results) if any(map(_newest_first, _folders(folder)))]
    return f"releases in {results}: {', '.join(releases) or 'none'}"


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir()) if path.is_dir() else []


def _newest_first(place: Path) -> list[Path]:
    """Run folders of one release and target; ids sort by time."""
    return sorted((folder for folder in _folders(place) if (folder / REPORT_JSON).is_file()), reverse=True)


def _readable(path: Path) -> Report | None:
    """The report in ``path``; None for a damaged one, and for one of another version."""
    try:
        return load_report(path)
    except ValueError:
        return None


def _could_repeat(path: Path, report: Report) -> bool:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and all(
        data.get(field) == getattr(report, field) for field in ("release", "target", "level", "kit_commit")
    )
