"""What all renderers say about an attribution: the conclusion, and the words for values and effects."""

from .attribution import Attribution, Finding
from .attribution_effects import Cause
from .text import number, numbers, one_line

CELLS = ("old/old", "new kit", "new stack", "new/new")
ABSENT = "absent"
_CHANGES = 12
_WORDS = {
    Cause.KIT: "by the kit",
    Cause.STACK: "by the stack",
    Cause.BOTH: "by both",
    Cause.INTERACTION: "by both only together",
}
_OTHERS = {
    Cause.CHANGED: "of another version of the check",
    Cause.NOT_COMPARED: "not compared",
    Cause.NOISE: "within the noise",
    Cause.SAME: "the same",
}


def result_word(attribution: Attribution) -> str:
    """``MOVED``, ``NOTHING MOVED`` or ``NOTHING COMPARED``."""
    if attribution.moved:
        return "MOVED"
    return "NOTHING MOVED" if attribution.compared else "NOTHING COMPARED"


def conclusion(attribution: Attribution) -> str:
    """What follows the result word: outcomes and numbers counted by cause."""
    words = _WORDS | _OTHERS
    parts = [f"{count:,} {words[cause]}" for cause, count in attribution.counts.items() if count]
    return f"of outcomes and numbers {', '.join(parts) or 'there are none'}."


def sides(attribution: Attribution) -> dict[str, str]:
    """``KIT`` and ``STACK`` with what changed there, each in one line."""
    changes = [
        f"{one_line(change.name, 60)} {one_line(change.old or ABSENT, 60)} -> {one_line(change.new or ABSENT, 60)}"
        for change in attribution.stack_changes
    ]
    more = [f"{len(changes) - _CHANGES} more"] if len(changes) > _CHANGES else []
    return {"KIT": " -> ".join(attribution.kits), "STACK": ", ".join(changes[:_CHANGES] + more)}


def runs(attribution: Attribution) -> str:
    """The ids of the four runs."""
    return ", ".join(f"{name} {one_line(cell.run_id)}" for name, cell in zip(CELLS, attribution.cells, strict=True))


def values(finding: Finding) -> tuple[str, ...]:
    """The four outcomes, or the four numbers with as many digits as tell them apart."""
    if finding.values:
        return numbers(*finding.values)
    return tuple(outcome.value if outcome else ABSENT for outcome in finding.outcomes)


def measured(finding: Finding) -> str:
    """``gap (nat)``, or ``outcome``."""
    unit = f" ({one_line(finding.unit)})" if finding.unit else ""
    return one_line(finding.name, 80) + unit if finding.name else "outcome"


def bar(finding: Finding) -> str:
    """``≤ 0.05``; empty without one."""
    sign = {"<=": "≤", ">=": "≥", "==": "="}[finding.relation]
    return "" if finding.bar is None else f"{sign} {number(finding.bar)}"


def effects(finding: Finding) -> tuple[str, str, str]:
    """Effects of kit and stack and their interaction, with sign; empty where there are none."""
    if finding.effects is None:
        return "", "", ""
    of = finding.effects
    return tuple(_signed(effect) for effect in (of.kit, of.stack, of.interaction))


def size(finding: Finding) -> str:
    """``20 times the limit 0.01 (1% of the bar 1; ...)``; empty without a limit."""
    if finding.limit is None:
        return ""
    return f"{_two_digits(finding.size)} times the limit {_two_digits(finding.limit.value)} ({finding.limit.source})"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{_two_digits(value)}"


def _two_digits(value: float) -> str:
    return number(float(f"{value:.2g}"))
