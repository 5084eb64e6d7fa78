"""Failures that the manifest of a release lists as known: which entries count, and what they make of an outcome.

An entry excuses nothing but what it says: every failure of the check has to hold one of its fragments. A pass under a
strict entry is a failure, and so are an entry that names no check and one that has expired.
"""

import datetime as dt
from collections.abc import Collection, Sequence
from typing import NamedTuple

from trncheck.conformance import ids
from trncheck.fixtures.manifest import ExpectedFailure, Release
from trncheck.reports.schema import Outcome


class Judged(NamedTuple):
    """What an entry makes of a check."""

    outcome: Outcome
    message: str
    evidence: dict[str, str]


def today() -> dt.date:
    """The day on which entries are judged, UTC."""
    return dt.datetime.now(dt.UTC).date()


def in_force(release: Release, target: str, day: dt.date | None = None) -> list[ExpectedFailure]:
    """Entries for ``release`` on ``target``; ValueError where one of them has expired by ``day`` (default: today)."""
    day = day or today()
    entries = [
        entry for entry in release.expected_failures if entry.covers(release.version) and entry.target in (None, target)
    ]
    problems = [
        f"{entry.place}: the expected failure of {entry.check} expired on {entry.expires}; "
        f"see {entry.link}, then remove the entry, or renew it with its owner, {entry.owner}"
        for entry in entries
        if day > entry.expires
    ]
    _refuse(problems)
    return entries


def demand_checks(
    entries: Sequence[ExpectedFailure], collected: Collection[str], functions: Collection[str], *, whole: bool
) -> None:
    """ValueError where an entry means none of the suite's checks, at whatever level.

    ``collected`` are ids, ``functions`` the names of all checks. Where the arguments kept a part of the suite out
    (not ``whole``), its cases are not known, and only the names are judged.
    """
    problems = []
    for entry in entries:
        found = any(ids.matches(id, entry.check) for id in collected)
        if not whole:
            found = found or any(ids.matches(name, ids.name_of(entry.check)) for name in functions)
        if not found:
            hint = ids.suggestion(entry.check, {*collected, *functions})
            problems.append(
                f"{entry.place}: expected_failures: no check is {entry.check!r}{hint or '; remove the entry'}"
            )
    _refuse(problems)


def judge(
    entries: Sequence[ExpectedFailure],
    id: str,
    outcome: Outcome,
    failures: Sequence[str],
    facts: Collection[str] = (),
) -> Judged | None:
    """What ``entries`` make of the check ``id`` that ended so; None for what they leave as it is.

    ``failures`` are the messages of a failed check. One that starts with white space, or is among the ``facts`` that
    the check noted, such as where a difference starts, is about the one before.
    """
    entries = [entry for entry in entries if ids.matches(id, entry.check)]
    if outcome is Outcome.PASS and entries:
        return _passed(entries, id)
    if outcome is not Outcome.FAIL:
        return None
    excused: list[ExpectedFailure] = []
    for failure in failures:
        if excused and (failure[:1].isspace() or failure in facts):
            continue
        entry = next((entry for entry in entries if any(words in failure for words in entry.says)), None)
        if entry is None:
            return None
        if entry not in excused:
            excused.append(entry)
    if not excused:
        return None
    first, *_ = excused
    reasons = [
        f"expected until {entry.expires}: {entry.reason} ({entry.link}; {entry.owner}; {entry.short_place})"
        for entry in excused
    ]
    return Judged(Outcome.EXPECTED_FAIL, "\n".join([*reasons, *failures]), _evidence(first))


def _passed(entries: Sequence[ExpectedFailure], id: str) -> Judged:
    entry = next((entry for entry in entries if entry.strict), entries[0])
    if entry.strict:
        narrow = f", or narrow its check, {entry.check}" if entry.check != id else ""
        message = f"passes, but {entry.short_place} expects it to fail ({entry.reason}): remove the entry{narrow}"
        return Judged(Outcome.UNEXPECTED_PASS, message, _evidence(entry))
    return Judged(
        Outcome.PASS, "", _evidence(entry) | {"passes": "the expected failure did not occur; it is not strict"}
    )


def _evidence(entry: ExpectedFailure) -> dict[str, str]:
    return {
        "expected failure": f"{entry.reason} ({entry.short_place})",
        "expected failure, link": entry.link,
        "expected failure, owner": entry.owner,
        "expected failure, added": str(entry.added),
        "expected failure, expires": str(entry.expires),
    }


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ValueError(f"{problems[0]}{more}")
