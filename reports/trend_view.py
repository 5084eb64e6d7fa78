"""Words and lists that the text and the page of a trend share."""

from collections.abc import Sequence
from typing import TypeAlias

from .diff_context import Change
from .diff_view import ABSENT, values
from .schema import Outcome
from .summary import group_by
from .text import moment, one_line, plural, share
from .trend_models import CheckTrend, Flakiness, Group, RedStreak, RunRef, Series, Shift, Trend

_CHANGES = 4
"""Other changes named; the comparison of the two runs has all."""
ShiftOf: TypeAlias = tuple[CheckTrend, Series, Shift]
_GOOD = (Outcome.PASS, Outcome.EXPECTED_FAIL)


def result_word(trend: Trend) -> str:
    """``RED``, ``GREEN`` or ``NOTHING KNOWN``."""
    if any(map(red_now, trend.groups)):
        return "RED"
    return "GREEN" if any(_known(group) for group in trend.groups) else "NOTHING KNOWN"


def conclusion(trend: Trend) -> str:
    """What follows the result word, in one line."""
    red = [check for group in trend.groups for check in red_now(group)]
    moves = [shift for group in trend.groups for _, _, shift in shifts(group)]
    known = [check for group in trend.groups for check in _known(group)]
    optional = sum(not check.required for check in red)
    worse = sum(shift.drift.worse for shift in moves)
    good = sum(check.now in _GOOD and check.red is None for check in known)
    parts = [
        f"{plural(len(red), 'check')} red now" + (f" ({optional} not required)" if optional else ""),
        plural(len(moves), "change point") + (f" ({worse} for the worse)" if moves else ""),
        f"{sum(len(flaky(group)) for group in trend.groups)} flaky",
    ]
    left_out = [(len(trend.incomplete), "incomplete run"), (len(trend.skipped), "skipped file")]
    parts += [plural(count, noun) for count, noun in left_out if count]
    runs, total = sum(len(group.runs) for group in trend.groups), sum(group.total for group in trend.groups)
    of_all = plural(total, "run") if runs == total else f"the newest {runs:,} of {plural(total, 'run')}"
    return f"{', '.join(parts)}; {good} of {plural(len(known), 'check')} green, over {of_all}."


def red_now(group: Group) -> list[CheckTrend]:
    """Checks of the suite whose newest outcome is red; required ones first, then the newest break."""
    found = [check for check in group.checks if check.red and not check.gone]
    found.sort(key=lambda check: check.red.first_bad.started, reverse=True)
    return sorted(found, key=lambda check: not check.required)


def gone_red(group: Group) -> list[CheckTrend]:
    """Checks that were red when the suite last had them."""
    return [check for check in group.checks if check.red and check.gone]


def flaky(group: Group) -> list[CheckTrend]:
    """Flaky checks of the suite, the most restless first."""
    found = [check for check in group.checks if check.flaky and not check.gone]
    return sorted(found, key=lambda check: -check.flaky.flips)


def shifts(group: Group) -> list[ShiftOf]:
    """Change points, those for the worse first, then the newest."""
    found = [(check, s, shift) for check in group.checks if not check.gone for s in check.series for shift in s.shifts]
    found.sort(key=lambda item: item[2].first_after.started, reverse=True)
    return sorted(found, key=lambda item: not item[2].drift.worse)


def never_ran(group: Group) -> list[CheckTrend]:
    """Checks that no run shown has executed, the red ones aside."""
    return [check for check in group.checks if check.now is None and check.red is None]


def group_line(group: Group) -> str:
    """Target, runs and releases of a group in one line."""
    releases = list(dict.fromkeys(one_line(run.release) for run in group.runs))
    newest = f", the newest {len(group.runs)} looked at" if len(group.runs) < group.total else ""
    span = " to ".join(dict.fromkeys(moment(one_line(run.started)) for run in (group.runs[0], group.runs[-1])))
    return (
        f"{one_line(group.name)}: {plural(group.total, 'complete run')}{newest}: Neuron {', '.join(releases)}, {span}"
    )


def run_line(run: RunRef) -> str:
    """Run, time, release and commit of the kit in one line."""
    kit = run.kit_commit or run.kit_version
    return (
        f"{one_line(run.run_id)} ({moment(one_line(run.started))}, Neuron {one_line(run.release)}, kit {one_line(kit)})"
    )


def red_since(checks: Sequence[CheckTrend]) -> dict[str, list[CheckTrend]]:
    """Red ``checks`` that went red together, by the line that says when: first red run, last good one, changes."""
    return group_by(checks, lambda check: _since_line(check.red))


def shifts_since(items: Sequence[ShiftOf]) -> dict[str, list[ShiftOf]]:
    """Change points of the same run, by the line that says which and what else changed."""
    return group_by(items, lambda item: f"from {run_line(item[2].first_after)} on; {changes_line(item[2].changes)}")


def streak_line(red: RedStreak) -> str:
    """In how many runs a check has been red, and what that does not tell."""
    idle = f", not judged in the {plural(red.idle, 'run')} since" if red.idle else ""
    changed = ", and the check itself changed when it went red" if red.check_changed else ""
    return f"red in {plural(red.runs, 'run')}{idle}{changed}"


def flaky_line(flaky: Flakiness) -> str:
    """Flips and outcomes of a flaky check, and where."""
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in sorted(flaky.outcomes.items()))
    runs = f"{one_line(flaky.first.run_id)} to {one_line(flaky.last.run_id)}"
    return f"{plural(flaky.flips, 'flip')} in {plural(flaky.runs, 'run')} ({counts}), {runs}, with nothing else changed"


def changes_line(changes: Sequence[Change] | None) -> str:
    """What else changed between two runs, in one line."""
    if changes is None:
        return "what else changed is not known"
    if not changes:
        return "nothing else changed that the reports record"
    shown = []
    for change in changes[:_CHANGES]:
        old, new = (ABSENT if value is None else one_line(value, 40) for value in (change.old, change.new))
        shown.append(f"{change.kind} {one_line(change.name, 40)} {old} -> {new}")
    more = f" and {len(changes) - _CHANGES} more" if len(changes) > _CHANGES else ""
    return f"changed between: {', '.join(shown)}{more}"


def levels(shift: Shift) -> str:
    """Old and new level, and whether that is worse."""
    old, new, bar = values(shift.drift)
    unit = f" {one_line(shift.drift.unit)}" if shift.drift.unit else ""
    return f"{old} -> {new}{unit}" + (f", {'worse' if shift.drift.worse else 'not worse'}, bar {bar}" if bar else "")


def shift_line(series: Series, shift: Shift) -> str:
    """Old and new level, whether that is worse, and where the number stands now."""
    stands = budget_now(series)
    return levels(shift) + (f", now {stands}" if stands else "")


def budget_now(series: Series) -> str:
    """Where a number stands in its budget and where it was at the first run shown; empty without a budget."""
    used = [fraction for fraction in series.used if fraction is not None]
    if not used or series.used[-1] is None:
        return ""
    first, now = share(used[0]), share(used[-1])
    return f"{now} of the bar" if first == now else f"{now} of the bar, was {first}"


def _since_line(red: RedStreak) -> str:
    if red.last_good is None:
        return f"since {run_line(red.first_bad)}; never good before"
    return f"since {run_line(red.first_bad)}; last good in {run_line(red.last_good)}; {changes_line(red.changes)}"


def _known(group: Group) -> list[CheckTrend]:
    return [check for check in group.checks if not check.gone and (check.now is not None or check.red)]
