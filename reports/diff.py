"""Two runs held against each other, as data: what got worse, what got better, what cannot be compared, and why."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from .diff_context import Change, Side, changes, is_repeat, side, warnings
from .drift import Drift, drifts
from .schema import CheckResult, Outcome, Report, Strict
from .summary import reproduce

LEVELS = ("smoke", "standard", "full")


class Category(StrEnum):
    """What became of one check, the worst first."""

    BROKEN = "broken"
    NO_LONGER_COVERED = "no-longer-covered"
    STILL_BROKEN = "still-broken"
    CHANGED = "changed"
    NEWLY_COVERED = "newly-covered"
    FIXED = "fixed"
    RENAMED = "renamed"
    SAME = "same"


class CheckDiff(Strict):
    """One check in two runs."""

    id: str
    """In the new run; in the old one where the new has none."""
    renamed_from: str = ""
    title: str
    required: bool
    """Whether either run requires it."""
    category: Category
    old: Outcome | None
    """None where the run has no such check."""
    new: Outcome | None
    message: str = ""
    """Of the new run."""
    note: str = ""
    """Why the difference says nothing about the release, for a check that one run was not asked for."""
    again: str = ""
    """The command that runs it again, where it fails."""
    drifts: list[Drift]
    """Empty where the numbers are not comparable."""

    @property
    def is_worse(self) -> bool:
        """Whether this alone makes the comparison end badly: lost, or red now and not before."""
        was_red, is_red = (outcome is not None and outcome.is_failure for outcome in (self.old, self.new))
        lost = self.category in (Category.BROKEN, Category.NO_LONGER_COVERED) and not self.note
        return self.required and (lost or (is_red and not was_red))


class ReportDiff(Strict):
    """A whole comparison. ``worse`` and ``compared`` decide the exit status."""

    schema_version: Literal["1.0"] = "1.0"
    old: Side
    new: Side
    warnings: list[str]
    """What a reader has to know before the rest."""
    counts: dict[Category, int]
    compared: int
    """Checks that were executed in both runs."""
    worse: bool
    """Whether a required check broke or is no longer covered."""
    changes: list[Change]
    checks: list[CheckDiff]
    """The worst first."""

    @property
    def exit_status(self) -> int:
        """0 where nothing got worse; 1 where something did, or where there was nothing to compare."""
        return int(self.worse or not self.compared)


def diff_reports(old: Report, new: Report, repeats: Iterable[Report] = ()) -> ReportDiff:
    """What changed from ``old`` to ``new``. Those of ``repeats`` that repeat ``old`` tell how much its numbers vary."""
    before, after = _by_id(old), _by_id(new)
    again = {r.run_id: _by_id(r) for r in repeats if is_repeat(r, old) and r.run_id not in (old.run_id, new.run_id)}
    names = _renames(before, after)
    pairs = [(before.get(names.get(id, id)), result) for id, result in after.items()]
    pairs += [(result, None) for id, result in before.items() if id not in after and id not in names.values()]
    checks = [_check(old, new, a, b, list(again.values())) for a, b in pairs]
    order = list(Category)
    checks.sort(key=lambda check: (order.index(check.category), bool(check.note), not check.required))
    counts = Counter(check.category for check in checks)
    return ReportDiff(
        old=side(old),
        new=side(new),
        warnings=warnings(old, new, unknown_versions=sum(_version_unknown(a, b) for a, b in pairs)),
        counts={category: counts[category] for category in Category},
        compared=sum(_executed(a) and _executed(b) for a, b in pairs),
        worse=any(check.is_worse for check in checks),
        changes=changes(old, new),
        checks=checks,
    )


def _by_id(report: Report) -> dict[str, CheckResult]:
    """Results by id, of several attempts the last."""
    return {result.id: result for result in report.results}


def _renames(before: dict[str, CheckResult], after: dict[str, CheckResult]) -> dict[str, str]:
    """New id -> old id of checks that differ in nothing else; the case stays, because another case is another check."""

    def orphans(mine: dict[str, CheckResult], others: dict[str, CheckResult]) -> dict[tuple[str, ...], list[str]]:
        groups: dict[tuple[str, ...], list[str]] = {}
        for id, result in mine.items():
            if id not in others and result.version:
                groups.setdefault((result.version, result.title, id.partition("[")[2]), []).append(id)
        return groups

    gone, come = orphans(before, after), orphans(after, before)
    return {come[key][0]: gone[key][0] for key in come if len(come[key]) == len(gone.get(key, [])) == 1}


def _check(
    old: Report, new: Report, before: CheckResult | None, after: CheckResult | None, again: list[dict[str, CheckResult]]
) -> CheckDiff:
    shown = after or before
    comparable = _executed(before) and _executed(after) and not _versions_differ(before, after)
    renamed = before is not None and after is not None and before.id != after.id
    category = _category(before, after)
    covers_less = category is Category.NO_LONGER_COVERED and not _executed(after)
    covers_more = category is Category.NEWLY_COVERED and not _executed(before)
    repeats = []
    if comparable:
        results = [results[before.id] for results in again if before.id in results]
        repeats = [r.measurements for r in results if _executed(r) and not _versions_differ(before, r)]
    return CheckDiff(
        id=shown.id,
        renamed_from=before.id if renamed else "",
        title=shown.title,
        required=any(result.required for result in (before, after) if result),
        category=Category.RENAMED if renamed and category is Category.SAME else category,
        old=before and before.outcome,
        new=after and after.outcome,
        message=after.message if after else "",
        note=_note(shown, old, new) if covers_less or covers_more else "",
        again=reproduce(new, after) if after and after.outcome.is_failure else "",
        drifts=drifts(before.measurements, after.measurements, repeats) if comparable else [],
    )


def _category(before: CheckResult | None, after: CheckResult | None) -> Category:
    """A known defect is broken where it passed before, still broken where it failed; inconclusive covers nothing."""
    if not _executed(before) or not _executed(after):
        if _executed(before):
            return Category.NO_LONGER_COVERED
        return Category.NEWLY_COVERED if _executed(after) else Category.SAME
    if _versions_differ(before, after):
        return Category.CHANGED
    was, now = before.outcome, after.outcome
    if was is now:
        return Category.STILL_BROKEN if now.is_failure else Category.SAME
    if now.is_failure:
        return Category.STILL_BROKEN if was.is_failure else Category.BROKEN
    if now is Outcome.INCONCLUSIVE:
        return Category.NO_LONGER_COVERED
    if was is Outcome.INCONCLUSIVE:
        return Category.NEWLY_COVERED
    if now is Outcome.EXPECTED_FAIL:
        return Category.STILL_BROKEN if was.is_failure else Category.BROKEN
    return Category.FIXED


def _executed(result: CheckResult | None) -> bool:
    return result is not None and result.outcome is not Outcome.NOT_RUN


def _versions_differ(a: CheckResult, b: CheckResult) -> bool:
    return bool(a.version and b.version) and a.version != b.version


def _version_unknown(a: CheckResult | None, b: CheckResult | None) -> bool:
    return _executed(a) and _executed(b) and not (a.version and b.version)


def _note(check: CheckResult, old: Report, new: Report) -> str:
    """Why one run did not execute ``check``, where that lies in what the run was asked for."""
    if old.target != new.target:
        return f"OLD ran on {old.target}, NEW on {new.target}"
    common = min(old.level, new.level, key=LEVELS.index)
    if LEVELS.index(check.level) > LEVELS.index(common):
        return f"a check of level {check.level}; OLD ran level {old.level}, NEW level {new.level}"
    return ""
