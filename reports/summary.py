"""What all renderers say about a run: the verdict line, the counts, the groups. Derived from the report alone."""

import math
import re
import shlex
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from .schema import CheckResult, Compared, Curve, Measurement, Outcome, Report, Target, VerdictStatus
from .text import numbers, one_line, plural

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_SIGN = {"<=": "≤", ">=": "≥", "==": "="}
_MANY, _SHOWN = 12, 8
"""More measurements of one check than the first are shown as the second, and the others folded away."""
_SOURCE = 32
"""Characters of a source of a bar that are left where it is only named."""
NOT_FINISHED = "It was stopped before its end: checks are missing here, and nothing is known about them."


@dataclass(frozen=True)
class Tally:
    """Counts of a run; ``executed`` are all checks but those not run."""

    executed: int
    not_run: int
    failed: int
    required: int
    """Of the level, as far as that is known; else of the results."""
    required_passed: int


def tally(report: Report) -> Tally:
    """Counts over all results of ``report``."""
    results = report.results
    not_run = sum(r.outcome is Outcome.NOT_RUN for r in results)
    return Tally(
        executed=len(results) - not_run,
        not_run=not_run,
        failed=len(failures(report)),
        # A suite restricted to some files does not know the cases of the others.
        required=max(report.required_checks or 0, sum(r.required for r in results)),
        required_passed=sum(r.required and r.outcome is Outcome.PASS for r in results),
    )


def failures(report: Report) -> list[CheckResult]:
    """Results that make the run fail, required ones first."""
    return sorted((r for r in report.results if r.outcome.is_failure), key=lambda r: not r.required)


def status(report: Report) -> VerdictStatus:
    """The verdict's status; a run that did not finish is never conformant."""
    if not report.complete and report.verdict.status is VerdictStatus.CONFORMANT:
        return VerdictStatus.INCOMPLETE
    return report.verdict.status


def verdict_word(report: Report) -> str:
    """``CONFORMANT``, ``NOT CONFORMANT`` or ``INCOMPLETE``, behind ``REHEARSAL`` where it was one."""
    word = status(report).value.replace("-", " ").upper()
    return f"REHEARSAL, {word}" if report.target == Target.REHEARSAL else word


def status_word(report: Report) -> str:
    """The verdict's word, and loud where the run did not finish."""
    word = verdict_word(report)
    return word if report.complete else f"{word} (RUN DID NOT FINISH)"


def verdict_line(report: Report) -> str:
    """Status and headline in one line."""
    return f"{status_word(report)}: {one_line(report.verdict.headline)}"


def counts_line(report: Report) -> str:
    """``21 executed, 6 not run, 2 failed; 14 of 20 required checks passed``."""
    t = tally(report)
    return (
        f"{t.executed} executed, {t.not_run} not run, {t.failed} failed; "
        f"{t.required_passed} of {t.required} required checks passed"
    )


def reproduce(report: Report, result: CheckResult) -> str:
    """The command that runs this one check again, as it ran here."""
    target = str(report.target)
    if report.target == Target.REHEARSAL:
        target = f"trn2 --rehearse{''.join(re.findall(r'--rehearse( [a-z0-9-]+)', report.command))}"
    options = f"--release {report.release} --target {target} --level {result.level}"
    return f"trncheck run --check '{one_line(result.id)}' {options}"


def from_bundle(result: CheckResult) -> str:
    """The command that runs this one check again from its bundle; empty where there is none."""
    return f"trncheck repro {shlex.quote(one_line(result.repro))}" if result.repro else ""


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """``items`` in lists by ``key``, both in order of first appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def not_run_by_reason(report: Report) -> dict[str, list[CheckResult]]:
    """Checks that did not run, by the reason given, the largest group first."""
    not_run = (r for r in report.results if r.outcome is Outcome.NOT_RUN)
    groups = group_by(not_run, lambda r: one_line(r.message) or "no reason was given")
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def compared_text(compared: Compared) -> str:
    """``12 tensors/values, 1,234 elements``; ``nothing compared`` where both are zero."""
    counts = ((compared.tensors, "tensor/value", "tensors/values"), (compared.elements, "element", "elements"))
    return ", ".join(plural(*count) for count in counts if count[0]) or "nothing compared"


def against_bar(measurement: Measurement) -> tuple[str, str]:
    """Value and limit as text, e.g. ``("3.1e-07", "≤ 1e-06 nats")``; the limit is empty where there is none."""
    unit = f" {measurement.unit}" if measurement.unit else ""
    if measurement.bar is None:
        return numbers(measurement.value)[0] + unit, ""
    value, bar = numbers(measurement.value, measurement.bar)
    return value, f"{_SIGN[measurement.relation]} {bar}{unit}"


def budget_used(measurement: Measurement) -> float | None:
    """How much of its budget a measurement uses: 1 is the bar, above 1 misses it. None where a ratio says nothing."""
    value, bar = measurement.value, measurement.bar
    if bar is None or measurement.relation == "==" or math.isnan(value) or not 0 < bar < math.inf:
        return None
    if measurement.relation == "<=":
        return max(value / bar, 0.0)
    return bar / value if value > 0 else math.inf


def usage(measurement: Measurement) -> tuple[bool, float]:
    """Orders measurements by how much of their budget they use: what missed its bar last, what has none first."""
    used = budget_used(measurement)
    return not measurement.ok, (-1.0 if measurement.ok else math.inf) if used is None else used


def most_used(measurements: Sequence[Measurement]) -> tuple[Sequence[Measurement], Sequence[Measurement]]:
    """Measurements to show and to fold away: of many, those that used most of their budget are shown, by that."""
    if len(measurements) <= _MANY:
        return measurements, []
    order = sorted(range(len(measurements)), key=lambda i: usage(measurements[i]), reverse=True)
    return [measurements[i] for i in order[:_SHOWN]], [measurements[i] for i in sorted(order[_SHOWN:])]


def message_beside_table(result: CheckResult) -> str:
    """The message, with what the table of measurements says in full, the long sources of bars, cut to their start."""
    message = result.message.strip("\n")
    for source in _long_sources(result):
        message = message.replace(source, _start_of(source))
    return message


def message_alone(result: CheckResult) -> str:
    """The message, with long sources of bars in full where each comes first, and cut to their start from then on."""
    message = result.message.strip("\n")
    for source in _long_sources(result):
        head, found, rest = message.partition(source)
        message = head + found + rest.replace(source, _start_of(source))
    return message


def _long_sources(result: CheckResult) -> list[str]:
    """Sources of bars that are worth to be cut; one that holds another comes before it."""
    return sorted({m.source for m in result.measurements if len(m.source) > _SOURCE}, key=len, reverse=True)


def _start_of(source: str) -> str:
    return f"{source[:_SOURCE].rsplit(' ', 1)[0]} …"


def runs_of_source(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """Measurements in their order, those behind each other whose bars have the same source together."""
    return [list(run) for _, run in groupby(measurements, key=lambda m: m.source)]


def folded_text(folded: Sequence[Measurement]) -> str:
    """What stands for measurements that are not shown: ``56 more measurements, which used less of their bars``."""
    missed = sum(not m.ok for m in folded)
    also = f", {missed} of them missed" if missed else ", which used less of their bars"
    return plural(len(folded), "more measurement") + also


def reference_of(curve: Curve, curves: Iterable[Curve]) -> Curve | None:
    """The reference among ``curves`` that ``curve`` is held against; None for a reference itself."""
    return None if curve.reference else next((c for c in curves if c.reference and c.model == curve.model), None)


def distance(curve: Curve, reference: Curve) -> float | None:
    """Largest difference in loss from ``reference`` over their common steps; NaN if any is NaN, None without a step."""
    expected = dict(zip(reference.steps, reference.losses, strict=False))
    gaps = [
        abs(loss - expected[step]) for step, loss in zip(curve.steps, curve.losses, strict=False) if step in expected
    ]
    return None if not gaps else math.nan if any(map(math.isnan, gaps)) else max(gaps)
