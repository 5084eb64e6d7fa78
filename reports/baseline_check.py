"""One run against a baseline, as data: exactly where that is plausible, else within the band."""

import math
from collections.abc import Iterator
from typing import Literal

from .baseline import DIRTY, Baseline, BaselineNumber, Provenance
from .baseline_build import alike, measurements_of, same_bits
from .baseline_fingerprint import environment_of, first_difference
from .baseline_runs import retried
from .diff_context import Side, selects_checks, side
from .drift import pairs
from .schema import CheckResult, Measurement, Outcome, Report, Strict
from .text import one_line, plural

_SAYS_NOTHING = (Outcome.NOT_RUN, Outcome.INCONCLUSIVE)


class Compared(Strict):
    """One number of the run against the baseline."""

    id: str
    name: str
    """In the run."""
    unit: str
    value: float
    inside: bool
    how: Literal["golden", "band"]
    golden: float | None
    """The value of every run of the baseline; None where they varied."""
    mean: float
    std: float
    low: float
    high: float
    n: int
    """Runs of the baseline behind the number."""
    by: float
    """Distance from the golden value, or from the near end of the band; 0 inside, infinite for NaN."""


class Unmatched(Strict):
    """A number that only one side has."""

    id: str
    name: str
    reason: str


class ChangedCheck(Strict):
    """A check of another version: its numbers are not comparable."""

    id: str
    baseline: str
    run: str
    """Empty where it is not known."""


class Mismatch(Strict):
    """The first item in which the environments differ; None where one does not have it."""

    item: str
    baseline: str | None
    run: str | None


class BaselineComparison(Strict):
    """A whole comparison. ``inside`` and ``compared`` decide the exit status."""

    schema_version: Literal["1.0"] = "1.0"
    path: str
    """The baseline's file."""
    provenance: Provenance
    rule: str
    run: Side
    mismatch: Mismatch | None
    """Why golden values are not compared exactly; None where the environments agree, and they are."""
    warnings: list[str]
    compared: int
    inside: bool
    """Whether no number is outside; a comparison of nothing is not a good one all the same."""
    numbers: list[Compared]
    """Those outside first."""
    changed: list[ChangedCheck]
    missing: list[Unmatched]
    new: list[Unmatched]

    @property
    def outside(self) -> list[Compared]:
        """Numbers that are not what the baseline says."""
        return [number for number in self.numbers if not number.inside]

    @property
    def exit_status(self) -> int:
        """0 where every compared number is inside; 1 where one is not, or where there was nothing to compare."""
        return int(not self.inside or not self.compared)


def check_run(report: Report, baseline: Baseline, path: str) -> BaselineComparison:
    """Every number of ``report`` against ``baseline``, which was read from ``path``."""
    found = first_difference(baseline.provenance.environment, environment_of(report))
    results = {result.id: result for result in report.results}
    numbers: list[Compared] = []
    changed: list[ChangedCheck] = []
    missing: list[Unmatched] = []
    new: list[Unmatched] = []
    for id, expected in sorted(baseline.checks.items()):
        result = results.get(id)
        if reason := _not_there(result):
            missing += [Unmatched(id=id, name=m.name, reason=reason) for m in measurements_of(expected)]
        elif result.version != expected.version:
            changed.append(ChangedCheck(id=id, baseline=expected.version, run=result.version))
        else:
            old, measured = measurements_of(expected), alike(result.measurements)
            partners = [(old[position].name, again) for position, again in pairs(old, measured)]
            numbers += [_compared(id, m, expected.numbers[name], exactly=found is None) for name, m in partners]
            missing += _without_partner(id, old, {name for name, _ in partners}, "the check did not measure it")
            new += _without_partner(
                id, measured, {m.name for _, m in partners}, "the baseline's check does not have it"
            )
    for id, result in results.items():
        if id not in baseline.checks and not _not_there(result):
            new += _without_partner(id, alike(result.measurements), set(), "the baseline does not have the check")
    numbers.sort(key=lambda number: number.inside)
    return BaselineComparison(
        path=path,
        provenance=baseline.provenance,
        rule=baseline.rule,
        run=side(report),
        mismatch=Mismatch(item=found.item, baseline=found.old, run=found.new) if found else None,
        warnings=list(_warnings(report, baseline)),
        compared=len(numbers),
        inside=all(number.inside for number in numbers),
        numbers=numbers,
        changed=changed,
        missing=missing,
        new=new,
    )


def _compared(id: str, measurement: Measurement, expected: BaselineNumber, *, exactly: bool) -> Compared:
    value = measurement.value
    how = "golden" if exactly and expected.golden is not None else "band"
    if how == "golden":
        inside = same_bits(value, expected.golden)
        gap = abs(value - expected.golden)
    else:
        inside = expected.low <= value <= expected.high
        gap = max(expected.low - value, value - expected.high, 0.0)
    return Compared(
        id=id,
        name=measurement.name,
        unit=measurement.unit,
        value=value,
        inside=inside,
        how=how,
        golden=expected.golden,
        mean=expected.mean,
        std=expected.std,
        low=expected.low,
        high=expected.high,
        n=expected.n,
        by=0.0 if inside else math.inf if math.isnan(value) else gap,
    )


def _not_there(result: CheckResult | None) -> str:
    """Why a run's ``result`` has no numbers that say something; empty where it has."""
    if result is None:
        return "the run does not have the check"
    if result.outcome in _SAYS_NOTHING:
        message = one_line(result.message, 120)
        return result.outcome.value + (f": {message}" if message else "")
    return ""


def _without_partner(id: str, measurements: list[Measurement], partners: set[str], reason: str) -> list[Unmatched]:
    return [Unmatched(id=id, name=m.name, reason=reason) for m in measurements if m.name not in partners]


def _warnings(report: Report, baseline: Baseline) -> Iterator[str]:
    """Sentences on what limits the comparison, the gravest first."""
    of = baseline.provenance
    for what in ("target", "seed", "release", "level"):
        old, new = getattr(of, what), getattr(report, what)
        if old != new:
            yield f"The {what} differs: {old} in the baseline, {new} in the run."
    if not report.complete:
        yield "The run did not finish: checks are missing there, and nothing is known about them."
    if selects_checks(report.command):
        yield "The run was asked for selected checks only."
    if again := retried(report):
        yield f"{plural(len(again), 'check')} took more than one attempt; the last one counts."
    if (report.kit_commit or DIRTY).endswith(DIRTY):
        yield "The kit's commit is not known or had changes: what the run executed cannot be found again."
    if report.run_id in {run.run_id for run in of.runs}:
        yield "The run is one of those that the baseline was made of."
