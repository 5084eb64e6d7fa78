"""From repeated runs to a baseline."""

import math
import statistics
import struct
from collections.abc import Iterable, Sequence

from .baseline import BASELINE_VERSION, MIN_RUNS, Baseline, BaselineCheck, BaselineNumber, Provenance, SourceRun
from .baseline_band import RULE, band
from .baseline_fingerprint import digest, environment_of
from .baseline_runs import accept
from .drift import pairs
from .schema import CheckResult, Measurement, Outcome, Report, Strict
from .text import one_line

COUNTED = (Outcome.PASS, Outcome.EXPECTED_FAIL)
"""Outcomes whose numbers make a baseline: an inconclusive check says itself that its numbers say nothing."""


class LeftOut(Strict):
    """A measurement of the runs that is not in the baseline."""

    id: str
    name: str
    reason: str


def build(reports: Sequence[Report], reason: str, previous: str | None) -> tuple[Baseline, list[LeftOut]]:
    """The baseline of ``reports``, in whatever order they come, and what could not be part of it.

    ``previous`` is the SHA-256 of the file that it replaces. Raises ValueError, in one line, for runs that do not fit
    (``baseline_runs.accept``), and where no number is left.
    """
    runs = accept(reports)
    checks: dict[str, BaselineCheck] = {}
    left_out: list[LeftOut] = []
    for id in sorted({result.id for report in runs for result in report.results}):
        results = [r for report in runs for r in report.results if r.id == id and r.outcome in COUNTED]
        numbers = _numbers(id, results, left_out)
        if numbers:
            checks[id] = BaselineCheck(version=results[0].version, numbers=numbers)
    if not checks:
        raise ValueError(f"the runs have no number that {MIN_RUNS} of them measured; take runs of more checks")
    environment = environment_of(runs[0])
    provenance = Provenance(
        release=runs[0].release,
        target=runs[0].target,
        level=runs[0].level,
        kit_version=runs[0].kit_version,
        kit_commit=runs[0].kit_commit,
        seed=runs[0].seed,
        runs=[SourceRun(run_id=report.run_id, started=report.started) for report in runs],
        environment=environment,
        fingerprint=digest(environment),
        reason=one_line(reason),
        previous=previous,
    )
    return Baseline(baseline_version=BASELINE_VERSION, rule=RULE, provenance=provenance, checks=checks), left_out


def labels(measurements: Iterable[Measurement]) -> list[str]:
    """Names, each once: one that is there again gets a count."""
    taken: list[str] = []
    for measurement in measurements:
        label, count = measurement.name, 1
        while label in taken:
            count += 1
            label = f"{measurement.name} ({count})"
        taken.append(label)
    return taken


def alike(measurements: Sequence[Measurement]) -> list[Measurement]:
    """``measurements`` under their labels, for ``drift.pairs``; without the bar's source, which may hold a number."""
    named = zip(measurements, labels(measurements), strict=True)
    return [measurement.model_copy(update={"name": label, "source": ""}) for measurement, label in named]


def same_bits(a: float, b: float) -> bool:
    """Whether two numbers are the same to the last bit, the sign of zero included."""
    return struct.pack("<d", a) == struct.pack("<d", b)


def measurements_of(check: BaselineCheck) -> list[Measurement]:
    """The means of ``check`` as measurements in their places, to be paired with those of a run."""
    ordered = sorted(check.numbers.items(), key=lambda item: (item[1].place, item[0]))
    return [Measurement(name=name, value=n.mean, relation=n.relation, unit=n.unit) for name, n in ordered]


def _numbers(id: str, results: list[CheckResult], left_out: list[LeftOut]) -> dict[str, BaselineNumber]:
    """The numbers of one check over its results; what three of them do not share goes to ``left_out``."""
    # The one with the most measurements leads, so that as few as possible have no counterpart.
    lead = max(results, key=lambda result: len(result.measurements), default=None)
    if lead is None or not lead.measurements:
        return {}
    leading = alike(lead.measurements)
    samples: list[list[Measurement]] = [[] for _ in leading]
    for result in results:
        for position, again in pairs(leading, alike(result.measurements)):
            samples[position].append(again)
    numbers = {}
    for place, (measurement, found) in enumerate(zip(leading, samples, strict=True)):
        number, problem = _number(place, found)
        if not all(result.version for result in results):
            number, problem = None, "the version of the check is not known"
        if number:
            numbers[measurement.name] = number
        else:
            left_out.append(LeftOut(id=id, name=measurement.name, reason=problem))
    return numbers


def _number(place: int, found: list[Measurement]) -> tuple[BaselineNumber | None, str]:
    values = [measurement.value for measurement in found]
    if len(values) < MIN_RUNS:
        return None, f"measured in {len(values)} of the runs"
    if not all(map(math.isfinite, values)):
        return None, "not a finite number in every run"
    bars = [m.bar for m in found if m.bar is not None and math.isfinite(m.bar)]
    bar, relation = min(bars, key=lambda bar: (abs(bar), bar), default=None), found[0].relation
    try:
        mean, std = statistics.mean(values), statistics.stdev(values)
        least, most = min(values), max(values)
        low, high = band(n=len(values), mean=mean, std=std, least=least, most=most, bar=bar, relation=relation)
    except OverflowError:
        low = high = math.inf
    if not (math.isfinite(low) and math.isfinite(high)):
        return None, "too large for a mean and a band"
    number = BaselineNumber(
        place=place,
        unit=found[0].unit,
        bar=bar,
        relation=relation,
        n=len(values),
        mean=mean,
        std=std,
        min=least,
        max=most,
        low=low,
        high=high,
        golden=values[0] if all(same_bits(value, values[0]) for value in values) else None,
    )
    return number, ""
