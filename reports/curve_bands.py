"""Around which losses a baseline expects a run's curves."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from .schema import CheckResult, Curve, Report
from .summary import distance, reference_of

if TYPE_CHECKING:
    from .baseline import Baseline

_UNITS = ("nat", "nats")


@dataclass(frozen=True)
class Band:
    """The losses that a baseline accepts, by step: as far from the reference as its distance may be."""

    steps: list[int]
    low: list[float]
    high: list[float]
    nearest: float
    """Lowest and highest accepted value of the largest distance from the reference, in nats."""
    farthest: float


Bands: TypeAlias = dict[tuple[str, str, str], Band]


def key(curve: Curve) -> tuple[str, str, str]:
    """What tells a curve from the others of its run; names alone may be there again in another group."""
    return curve.group, curve.model, curve.name


def curve_bands(report: Report, baseline: "Baseline") -> Bands:
    """Bands by ``key`` of the curve. A curve has one where its check's distance from the reference is in ``baseline``.

    That distance is the check's one number in nats that is the curve's largest. A baseline of another version of the
    check gives none, and neither does a report of a schema before 1.2, whose curves do not name their checks.
    """
    results = {result.id: result for result in report.results}
    bands = {}
    for curve in report.curves:
        reference = reference_of(curve, report.curves)
        result = results.get(curve.check)
        if reference and result and (ends := _ends(curve, reference, result, baseline)):
            known = set(curve.steps)
            points = [(s, loss) for s, loss in zip(reference.steps, reference.losses, strict=False) if s in known]
            bands[key(curve)] = Band(
                steps=[step for step, _ in points],
                low=[loss - ends[1] for _, loss in points],
                high=[loss + ends[1] for _, loss in points],
                nearest=ends[0],
                farthest=ends[1],
            )
    return bands


def _ends(curve: Curve, reference: Curve, result: CheckResult, baseline: "Baseline") -> tuple[float, float] | None:
    expected = baseline.checks.get(result.id)
    if expected is None or expected.version != result.version:
        return None
    largest = distance(curve, reference)
    names = [m.name for m in result.measurements if m.unit in _UNITS and m.relation == "<=" and m.value == largest]
    numbers = [expected.numbers[name] for name in names if name in expected.numbers]
    return (max(numbers[0].low, 0.0), numbers[0].high) if len(numbers) == 1 else None
