"""What a run says of kernels: what executed them how often, and which number of each used most of its bar."""

import re
from dataclasses import dataclass, field

from .schema import CheckResult, Measurement, Report
from .summary import group_by, usage

CATALOGUE = "catalogue: "
"""How ``Execution.where`` starts for a check of a single kernel; anything else is a training run."""
_PARITY = re.compile(r"kernels\.(forward|gradient)\[(.*)\]", re.DOTALL)
_QUANTITIES = ("relative error", "worst element")
_NOTES = {
    "simulator": "Backend simulator means NumPy on a CPU: passes there are not passes on Trainium.",
    "nki.simulate": "Backend nki.simulate means NKI's own simulator on a CPU: passes there are not passes on Trainium.",
}
_UNKNOWN = "No execution was recorded, so it is not known what executed the kernels."


@dataclass(frozen=True)
class Executed:
    """Executions of one operator in one direction, dtype and backend."""

    operator: str
    direction: str
    dtype: str
    backend: str
    training: dict[str, int]
    """Count by training run; one that several checks counted counts once."""
    catalogue: int | None
    """Count in checks of single kernels; None where none of them counts it."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.training.values()) + (self.catalogue or 0)


@dataclass(frozen=True)
class Worst:
    """The measurement of one kind in one check that used most of its bar."""

    quantity: str
    """``relative error`` or ``worst element``."""
    measurement: Measurement
    place: str
    """Name of the measurement without ``quantity``."""


@dataclass(frozen=True)
class Parity:
    """How close one kernel came to its bars in one direction."""

    kernel: str
    direction: str
    """``forward`` or ``gradient``."""
    check: CheckResult
    worst: list[Worst]


@dataclass(frozen=True)
class Kernels:
    """All that a run says of kernels; false where it says nothing."""

    judged: bool
    """Whether there are checks of kernels."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know of the backends."""
    executed: list[Executed] = field(default_factory=list)
    parity: list[Parity] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.judged or bool(self.executed)


def kernels(report: Report) -> Kernels:
    """The part of ``report`` that is about kernels, in the order of operators and of kernels."""
    judged = any(result.subject == "kernels" for result in report.results)
    executed = _executed(report)
    backends = {row.backend for row in executed}
    notes = [note for backend, note in _NOTES.items() if backend in backends] if executed else [_UNKNOWN]
    return Kernels(judged, notes, executed, _parity(report.results))


def _executed(report: Report) -> list[Executed]:
    rows = []
    groups = group_by(report.executions, lambda e: (e.operator, e.direction == "backward", e.dtype, e.backend))
    for _, executions in sorted(groups.items()):
        training: dict[str, int] = {}
        for e in executions:
            if not e.where.startswith(CATALOGUE):
                training[e.where] = max(e.count, training.get(e.where, 0))
        singles = [e.count for e in executions if e.where.startswith(CATALOGUE)]
        of = executions[0]
        rows.append(
            Executed(
                operator=of.operator,
                direction=of.direction,
                dtype=of.dtype,
                backend=of.backend,
                training=dict(sorted(training.items())),
                catalogue=sum(singles) if singles else None,
            )
        )
    return rows


def _parity(results: list[CheckResult]) -> list[Parity]:
    found = {}
    for result in results:
        if match := _PARITY.fullmatch(result.id):
            direction, kernel = match.groups()
            worst = [_worst(result, quantity) for quantity in _QUANTITIES]
            found[kernel, direction] = Parity(kernel, direction, result, [w for w in worst if w])
    return [found[key] for key in sorted(found)]


def _worst(result: CheckResult, quantity: str) -> Worst | None:
    of_kind = [m for m in result.measurements if m.name.endswith(quantity)]
    if not of_kind:
        return None
    worst = max(of_kind, key=usage)
    return Worst(quantity, worst, worst.name.removesuffix(quantity).rstrip(", "))
