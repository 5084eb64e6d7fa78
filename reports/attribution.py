"""Which side moved each outcome and number between two runs, the kit or the stack; told by the two runs between."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from .attribution_cells import check_square, kit, stack_changes, warnings
from .attribution_effects import (
    Cause,
    Effects,
    Limit,
    cause_of_kinds,
    cause_of_numbers,
    effects,
    limit,
)
from .diff_context import Change, Side, side
from .drift import pairs
from .schema import CheckResult, Measurement, Outcome, Report, Strict
from .text import plural


class Finding(Strict):
    """One outcome, or one number, in the four cells."""

    check: str
    title: str
    required: bool
    cause: Cause
    outcomes: list[Outcome | None]
    """Of the check; None where a run has no such check."""
    name: str = ""
    """Of the measurement; empty where the finding is about the outcome."""
    unit: str = ""
    values: tuple[float, ...] = ()
    """Empty where the finding is about the outcome."""
    bar: float | None = None
    """In NEW_NEW."""
    relation: Literal["<=", ">=", "=="] = "<="
    effects: Effects | None = None
    """None for an outcome, and where a value is no finite number."""
    limit: Limit | None = None
    size: float = 0.0
    """The largest effect over the limit; infinite for an outcome that moved, and for a number that is none now."""
    note: str = ""


class Attribution(Strict):
    """A whole attribution. Cells are in the order OLD_OLD, NEWKIT_OLDSTACK, OLDKIT_NEWSTACK, NEW_NEW."""

    schema_version: Literal["1.0"] = "1.0"
    cells: list[Side]
    kits: list[str]
    """Old and new."""
    stack_changes: list[Change]
    warnings: list[str]
    compared: int
    """Checks that all four runs executed, in one version."""
    counts: dict[Cause, int]
    """Outcomes and numbers together."""
    findings: list[Finding]
    """All but those that are the same in all cells: what moved, the largest first, then the others."""

    @property
    def moved(self) -> int:
        """Outcomes and numbers that moved."""
        return sum(count for cause, count in self.counts.items() if cause.is_move)

    @property
    def exit_status(self) -> int:
        """0 where nothing moved; 1 where something did, or where there was nothing to compare."""
        return int(self.moved > 0 or not self.compared)


def attribute(cells: Sequence[Report], repeats: Sequence[Sequence[Report]] = ((), (), (), ())) -> Attribution:
    """Attribute what differs between the four ``cells``; ``repeats`` of each cell tell how much its numbers vary.

    Raises ValueError, in one line, where the cells are not two kits on two stacks.
    """
    check_square(cells)
    results = [_by_id(cell) for cell in cells]
    again = [[_by_id(report) for report in reports] for reports in repeats]
    found: list[Finding] = []
    compared = 0
    for id in dict.fromkeys(id for of in reversed(results) for id in of):
        four = [of.get(id) for of in results]
        runs = [[of[id] for of in reports if id in of] for reports in again]
        obstacle = _obstacle(four)
        if obstacle:
            found.append(_finding(four, obstacle[0], note=obstacle[1]))
            continue
        found.append(_outcome(four, runs))
        if all(result.outcome is not Outcome.NOT_RUN for result in four):
            compared += 1
            found += _numbers(four, runs)
    counts = Counter(finding.cause for finding in found)
    changes = [Change(kind="installed", name=name, old=a, new=b) for name, (a, b) in stack_changes(cells).items()]
    return Attribution(
        cells=[side(cell) for cell in cells],
        kits=[kit(cells[0]), kit(cells[3])],
        stack_changes=changes,
        warnings=warnings(cells),
        compared=compared,
        counts={cause: counts[cause] for cause in Cause},
        findings=sorted((finding for finding in found if finding.cause is not Cause.SAME), key=_order),
    )


def _by_id(report: Report) -> dict[str, CheckResult]:
    """Results by id, of several attempts the last."""
    return {result.id: result for result in report.results}


def _obstacle(four: Sequence[CheckResult | None]) -> tuple[Cause, str] | None:
    """What keeps the four results of a check from being compared, with the reason."""
    present = [result is not None for result in four]
    if not all(present):
        if cause_of_kinds(present) is Cause.KIT:
            return Cause.CHANGED, f"only the {'new' if present[3] else 'old'} kit has it"
        return Cause.NOT_COMPARED, "not every run has it"
    if len({result.version for result in four if result.version}) > 1:
        return Cause.CHANGED, "its code or its bars differ"
    return None


def _outcome(four: Sequence[CheckResult], runs: Sequence[Sequence[CheckResult]]) -> Finding:
    cause, note = cause_of_kinds([result.outcome for result in four]), ""
    unstable = any(
        again.outcome is not own.outcome for own, repeats in zip(four, runs, strict=True) for again in repeats
    )
    if cause.is_move and unstable:
        cause, note = Cause.NOISE, "repeats of one cell end differently"
    return _finding(four, cause, note=note, size=math.inf if cause.is_move else 0.0)


def _numbers(four: Sequence[CheckResult], runs: Sequence[Sequence[CheckResult]]) -> list[Finding]:
    first = four[0].measurements
    partners = [dict(pairs(first, result.measurements)) for result in four]
    samples = [[dict(pairs(first, again.measurements)) for again in repeats] for repeats in runs]
    shared = [place for place in range(len(first)) if all(place in of for of in partners)]
    found = []
    for place in shared:
        cells = [of[place] for of in partners]
        values = [
            [cell.value, *(of[place].value for of in repeats if place in of)]
            for cell, repeats in zip(cells, samples, strict=True)
        ]
        found.append(_number(four, cells, limit(cells, values)))
    alone = max(len(result.measurements) for result in four) - len(shared)
    if alone:
        found.append(_finding(four, Cause.NOT_COMPARED, note=f"{plural(alone, 'number')} not measured in every run"))
    return found


def _number(four: Sequence[CheckResult], cells: Sequence[Measurement], limit: Limit) -> Finding:
    values = tuple(cell.value for cell in cells)
    cause, of = cause_of_numbers(values, limit.value), effects(values)
    size = 0.0
    if of is None:
        size = math.inf if cause.is_move else 0.0
    elif of.largest:
        size = of.largest / limit.value if limit.value else math.inf
    new = cells[3]
    fields = {"name": new.name, "unit": new.unit, "bar": new.bar, "relation": new.relation}
    return _finding(four, cause, values=values, effects=of, limit=limit, size=size, **fields)


def _finding(four: Sequence[CheckResult | None], cause: Cause, **fields: object) -> Finding:
    shown = next(result for result in reversed(four) if result)
    return Finding(
        check=shown.id,
        title=shown.title,
        required=any(result.required for result in four if result),
        cause=cause,
        outcomes=[result and result.outcome for result in four],
        **fields,
    )


def _order(finding: Finding) -> tuple[bool, int, bool, float, bool]:
    """What moved before the rest, outcomes before numbers, and then by size; a check that is required goes first."""
    rest = 0 if finding.cause.is_move else list(Cause).index(finding.cause)
    return not finding.cause.is_move, rest, bool(finding.values), -finding.size, not finding.required
