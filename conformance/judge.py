"""What a check says of what it compared. A check that compares nothing has not passed."""

from collections.abc import Collection, Mapping
from typing import Literal

from trncheck.conformance.bars import Bar
from trncheck.reports.schema import Compared, Curve, Execution, Expectation, Measurement


class KnownDefect(Exception):
    """Raised by a watch check: the stock behaviour is wrong in the way that is known, and the kit repairs it."""


class Judge:
    """Collects the comparisons of one check; the check fails at its end if any of them failed."""

    def __init__(self) -> None:
        self.measurements: list[Measurement] = []
        self.compared = Compared()
        self.evidence: dict[str, str] = {}
        self.curves: list[Curve] = []
        self.expectations: list[Expectation] = []
        self.executions: list[Execution] = []
        self.failures: list[str] = []
        self.open: list[str] = []
        """What could not be decided."""

    def at_most(
        self, name: str, value: float, bar: Bar, *, unit: str = "", elements: int = 1, ulp: float = 0.0
    ) -> None:
        """Hold a number, drawn from ``elements`` elements, against its largest allowed value; NaN misses every bar.

        ``ulp`` is the distance of neighbours where the compared values are largest. ValueError for a bar below it,
        which asks for equal bits without saying so: ``bit_equal`` says so.
        """
        if bar.value < ulp:
            raise ValueError(
                f"{name}: the bar {bar.value:.3g} is below one ulp, {ulp:.3g}, of what is compared; "
                "widen it in conformance/bars.py, or demand equal bits"
            )
        self._hold(name, float(value), bar, "<=", value <= bar.value, unit, elements)

    def at_least(self, name: str, value: float, bar: Bar, *, unit: str = "", elements: int = 1) -> None:
        """Hold a number, drawn from ``elements`` elements, against its smallest allowed value; NaN misses every bar."""
        self._hold(name, float(value), bar, ">=", value >= bar.value, unit, elements)

    def equal(self, name: str, got, want, *, elements: int = 1) -> None:
        """Demand equality of two plain values."""
        self._count(1, elements)
        if got != want:
            self.fail(f"{name}: expected {want!r}, found {got!r}")

    def same_names(self, name: str, got: Collection[str], want: Collection[str]) -> None:
        """Demand that two sets of names agree; says which are missing and which should not be there."""
        got, want = set(got), set(want)
        self._count(1, len(got | want))
        for problem, names in (("missing", want - got), ("unexpected", got - want)):
            if names:
                self.fail(f"{name}: {len(names)} {problem}: {_first(names)}")

    def bit_equal(self, name: str, got: Mapping, want: Mapping) -> None:
        """Demand that two dicts of tensors hold the same names, shapes, dtypes and bits."""
        self.same_names(name, got, want)
        different = []
        for key in sorted(got.keys() & want.keys()):
            self._count(1, want[key].numel())
            if problem := _difference(got[key], want[key]):
                different.append(f"{key} ({problem})")
        if different:
            self.fail(f"{name}: {len(different)} of {len(want)} tensors differ: {_first(different)}")

    def report(self, name: str, value: float, *, unit: str = "", source: str = "") -> None:
        """Record a number without holding it against anything."""
        self.measurements.append(Measurement(name=name, value=value, unit=unit, source=source))

    def note(self, key: str, text: str) -> None:
        """Record a fact that proves what ran."""
        self.evidence[key] = text

    def executed(self, where: str, counts: Mapping[str, int]) -> None:
        """Record how often kernels ran: ``{"rope forward float32 simulator": 24}``, 0 for never.

        ``where`` is a training configuration with its steps and ranks, or ``catalogue: `` and a sample. To record is
        not to compare. Raises ValueError for a key that is not operator, direction, dtype and backend, or a bad count.
        """
        for key, count in counts.items():
            try:
                operator, direction, dtype, backend = key.split()
                execution = Execution(
                    operator=operator, direction=direction, dtype=dtype, backend=backend, where=where, count=count
                )
            except ValueError as error:
                raise ValueError(
                    f"{count!r} executions of {key!r}: use a whole number, and as key operator, forward or backward, "
                    "dtype and backend, with spaces between them"
                ) from error
            self.executions.append(execution)

    def inconclusive(self, message: str) -> None:
        """Record that something cannot be decided; the check goes on, and a failure counts for more."""
        self.open.append(message)

    def fail(self, message: str) -> None:
        """Record a failure; the check goes on, so that its message shows all of them."""
        self.failures.append(message)

    def _hold(
        self, name: str, value: float, bar: Bar, relation: Literal["<=", ">="], ok: bool, unit: str, elements: int
    ) -> None:
        self._count(1, elements)
        self.measurements.append(
            Measurement(name=name, value=value, bar=bar.value, relation=relation, unit=unit, source=bar.source, ok=ok)
        )
        if not ok:
            sign = {"<=": "at most", ">=": "at least"}[relation]
            space = f" {unit}" if unit else ""
            self.fail(f"{name}: {value:.6g}{space}, allowed {sign} {bar.value:.6g}{space}; bar: {bar.source}")

    def _count(self, tensors: int, elements: int) -> None:
        self.compared.tensors += tensors
        self.compared.elements += elements


def _first(names: Collection[str], limit: int = 4) -> str:
    shown = sorted(names)[:limit]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _difference(got, want) -> str | None:
    import torch

    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)} for {want.dtype} {tuple(want.shape)}"
    # As bytes, because a NaN equals nothing and -0.0 equals 0.0.
    bits_got, bits_want = (
        tensor.reshape(-1).view(torch.uint8).reshape(tensor.numel(), tensor.element_size()) for tensor in (got, want)
    )
    wrong = int((bits_got != bits_want).any(dim=1).sum())
    if not wrong:
        return None
    worst = (got.double() - want.double()).abs().max().item()
    return f"{wrong} of {want.numel()} elements, by up to {worst:.3g}"
