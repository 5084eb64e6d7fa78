"""What all renderers say about a comparison: the conclusion, the sections and the words for a difference."""

from .diff import Category, CheckDiff, ReportDiff
from .diff_context import Side
from .drift import MIN_REPEATS, Drift, moved, weight
from .schema import Outcome
from .text import number, numbers, one_line, plural, share

ABSENT = "absent"


def result_word(diff: ReportDiff) -> str:
    """``WORSE``, ``NOTHING GOT WORSE`` or ``NOTHING COMPARED``."""
    if diff.worse:
        return "WORSE"
    return "NOTHING GOT WORSE" if diff.compared else "NOTHING COMPARED"


def conclusion(diff: ReportDiff) -> str:
    """What follows the result word: counts and verdict in one line."""
    parts = [text for category in Category if category is not Category.SAME and (text := _counted(diff, category))]
    unasked = sum(bool(check.note) for check in diff.checks)
    if unasked:
        parts.append(f"{unasked} not asked for in both runs")
    idle = sum(check.category is Category.SAME and not ran(check) for check in diff.checks)
    parts.append(f"{diff.counts[Category.SAME] - idle} same")
    if idle:
        parts.append(f"{idle} not run by either")
    old, new = diff.old.status.value, diff.new.status.value
    verdict = f"verdict still {new}" if old == new else f"verdict {old} -> {new}"
    return f"{', '.join(parts)}; {verdict}."


def sections(diff: ReportDiff) -> dict[Category, list[CheckDiff]]:
    """Checks with something to say, by category, the worst first; without those that one run was not asked for."""
    groups: dict[Category, list[CheckDiff]] = {}
    for check in diff.checks:
        if check.category is not Category.SAME and not check.note:
            groups.setdefault(check.category, []).append(check)
    return groups


def excused(diff: ReportDiff) -> dict[str, list[CheckDiff]]:
    """Checks that one run was not asked for, by the reason."""
    groups: dict[str, list[CheckDiff]] = {}
    for check in diff.checks:
        if check.note:
            groups.setdefault(check.note, []).append(check)
    return groups


def heading(category: Category) -> str:
    """``No longer covered``."""
    return category.value.replace("-", " ").capitalize()


def outcomes(check: CheckDiff) -> str:
    """``pass -> fail``; one word where nothing changed."""
    old, new = (outcome.value if outcome else ABSENT for outcome in (check.old, check.new))
    return new if old == new else f"{old} -> {new}"


def ran(check: CheckDiff) -> bool:
    """Whether either run executed it."""
    return any(outcome not in (None, Outcome.NOT_RUN) for outcome in (check.old, check.new))


def moves(diff: ReportDiff) -> list[tuple[CheckDiff, Drift]]:
    """Every number that is another one now, the one to look at first in front."""
    found = [(check, drift) for check in diff.checks for drift in check.drifts if moved(drift)]
    return sorted(found, key=lambda pair: weight(pair[1]), reverse=True)


def measured(diff: ReportDiff) -> int:
    """Measurements that were compared."""
    return sum(len(check.drifts) for check in diff.checks)


def values(drift: Drift) -> tuple[str, str, str]:
    """Old value, new value and bar as text; the bar is empty where there is none."""
    sign = {"<=": "≤ ", ">=": "≥ ", "==": "= "}[drift.relation]
    if drift.bar is None:
        return (*numbers(drift.old, drift.new), "")
    old, new, bar = numbers(drift.old, drift.new, drift.bar)
    return old, new, sign + bar


def budget(drift: Drift) -> str:
    """The move in units of the budget, e.g. ``worse by 12 % of the bar``; empty without one."""
    if drift.of_bar is None:
        return ""
    size = f"{_rounded(drift.of_bar)} times" if drift.of_bar >= 10 else f"{share(drift.of_bar)} of"
    return f"{'worse' if drift.worse else 'better'} by {size} the bar"


def noise(drift: Drift) -> str:
    """The move in units of the noise, e.g. ``+4.2 std (5 runs)``."""
    if drift.effect is None:
        return "no noise estimate" if drift.runs < MIN_REPEATS else f"no noise estimate ({drift.runs} runs)"
    sign = "+" if drift.effect > 0 else ""
    return f"{sign}{_rounded(drift.effect)} std ({plural(drift.runs, 'run')})"


def side_line(side: Side) -> str:
    """One run in one line."""
    finished = "" if side.complete else ", did not finish"
    commit = f" ({one_line(side.kit_commit)})" if side.kit_commit else ""
    return (
        f"Neuron {one_line(side.release)} on {side.target}, level {side.level}, run {one_line(side.run_id)}{finished}, "
        f"trncheck {one_line(side.kit_version)}{commit}: {side.status.value}"
    )


def _rounded(value: float) -> str:
    """Two digits of ``value``, also of a large one."""
    return number(float(f"{value:.2g}"))


def _counted(diff: ReportDiff, category: Category) -> str:
    """``2 broken (1 not required)``, ``3 changed (1 fails now)``; empty for none."""
    checks = sections(diff).get(category, [])
    if not checks:
        return ""
    remarks = []
    if category in (Category.BROKEN, Category.NO_LONGER_COVERED):
        optional = sum(not check.required for check in checks)
        remarks = [f"{optional} not required"] if optional else []
    elif category in (Category.CHANGED, Category.NEWLY_COVERED):
        red = sum(check.new is not None and check.new.is_failure for check in checks)
        remarks = [f"{red} of them failing"] if red else []
    remark = f" ({', '.join(remarks)})" if remarks else ""
    return f"{len(checks)} {category.value.replace('-', ' ')}{remark}"
