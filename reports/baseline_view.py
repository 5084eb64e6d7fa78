"""What all renderers say about baselines: the conclusion, the words for a number and for where it comes from."""

from collections.abc import Iterable

from .baseline import Baseline, BaselineNumber, Provenance
from .baseline_changes import Move, Proposal
from .baseline_check import BaselineComparison, Compared, Unmatched
from .text import moment, number, numbers, one_line, plural

ABSENT = "absent"


def provenance_line(of: Provenance) -> str:
    """Where a baseline comes from, in one line."""
    first, last = (moment(run.started) for run in (of.runs[0], of.runs[-1]))
    return (
        f"Neuron {one_line(of.release)} on {of.target}, level {of.level}, {plural(len(of.runs), 'run')} "
        f"from {first} to {last}, trncheck {one_line(of.kit_version)} ({one_line(of.kit_commit)}), seed {of.seed}"
    )


def result_word(comparison: BaselineComparison) -> str:
    """``INSIDE``, ``OUTSIDE`` or ``NOTHING COMPARED``."""
    if not comparison.compared:
        return "NOTHING COMPARED"
    return "INSIDE" if comparison.inside else "OUTSIDE"


def conclusion(comparison: BaselineComparison) -> str:
    """What follows the result word: counts in one line."""
    outside, compared = len(comparison.outside), plural(comparison.compared, "number")
    parts = [f"{outside} of {compared} outside" if outside else f"{compared} inside" if comparison.compared else ""]
    for found, what in (
        (comparison.changed, "changed"),
        (comparison.missing, "missing"),
        (comparison.new, "new"),
    ):
        if found and what == "changed":
            parts.append(f"{plural(len(found), 'check')} of another version")
        elif found:
            parts.append(f"{plural(len(found), 'number')} {what}")
    return f"{', '.join(filter(None, parts)) or 'baseline and run share no number'}."


def how(comparison: BaselineComparison) -> str:
    """Which of the two was applied, exact agreement or the band, and why."""
    if (found := comparison.mismatch) is not None:
        old, new = (ABSENT if value is None else one_line(value, 80) for value in (found.baseline, found.run))
        where = f"{one_line(found.item, 80)} is {new} here, {old} in the baseline"
        return f"Held to the bands, not to the exact values: the environments differ, first in this: {where}."
    exactly = sum(compared.how == "golden" for compared in comparison.numbers)
    varied = comparison.compared - exactly
    rest = f"; {varied} to the band, because the baseline's runs varied" if varied else ""
    return f"The environment is the baseline's: {plural(exactly, 'number')} held to the exact value, bit for bit{rest}."


def judged(compared: Compared) -> tuple[str, str, str]:
    """Value, what was expected, and by how much it misses that; the last is empty for a number that is inside."""
    unit = f" {one_line(compared.unit)}" if compared.unit else ""
    runs = plural(compared.n, "run")
    if compared.how == "golden":
        value, golden = numbers(compared.value, compared.golden)
        off = "" if compared.inside else f"differs by {number(compared.by, 3)}" if compared.by else "another zero"
        return f"{value}{unit}", f"exactly {golden} ({runs})", off
    value, low, high, mean = numbers(compared.value, compared.low, compared.high, compared.mean)
    side = "above" if compared.value > compared.high else "below" if compared.value < compared.low else "no number"
    off = "" if compared.inside else f"{number(compared.by, 3)} {side}" if side != "no number" else side
    return f"{value}{unit}", f"{low} to {high} (mean {mean}, {runs})", off


def moved(move: Move) -> tuple[str, str, str]:
    """Before, after, and the size of the effect."""
    before, after = numbers(move.before.mean, move.after.mean)
    return _spread(before, move.before), _spread(after, move.after), effect(move)


def effect(move: Move) -> str:
    """``+2.1 pooled standard deviations``, or that no run varied."""
    if move.effect is None:
        return "no spread measured"
    return f"{'+' if move.effect > 0 else ''}{number(float(f'{move.effect:.2g}'))} pooled standard deviations"


def by_check(found: Iterable[Unmatched]) -> dict[tuple[str, str], list[str]]:
    """Names by check and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for unmatched in found:
        groups.setdefault((unmatched.id, unmatched.reason), []).append(unmatched.name)
    return groups


def some(names: list[str], most: int = 3) -> str:
    """The first ``names``, and how many more there are."""
    more = f"; and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(one_line(name, 80) for name in names[:most]) + more


def contents(baseline: Baseline) -> str:
    """``120 numbers of 31 checks, 100 of them equal in all runs bit for bit``."""
    found = [n for check in baseline.checks.values() for n in check.numbers.values()]
    golden = sum(n.golden is not None for n in found)
    checks = plural(len(baseline.checks), "check")
    return f"{plural(len(found), 'number')} of {checks}, {golden} equal in all runs bit for bit"


def written(proposal: Proposal) -> str:
    """What follows the file's name: counts in one line."""
    new, gone = (sum(map(len, names.values())) for names in (proposal.new, proposal.gone))
    parts = [f"{len(proposal.moves)} moved", f"{proposal.kept} as before", f"{new} new", f"{gone} gone"]
    if proposal.changed:
        parts.append(f"{plural(len(proposal.changed), 'check')} of another version")
    if proposal.left_out:
        parts.append(f"{len(proposal.left_out)} left out")
    return f"{contents(proposal.baseline)}; {', '.join(parts)}."


def _spread(mean: str, of: BaselineNumber) -> str:
    unit = f" {one_line(of.unit)}" if of.unit else ""
    spread = "all equal" if of.golden is not None else f"std {number(of.std, 2)}"
    return f"{mean}{unit} ({spread}, {plural(of.n, 'run')})"
