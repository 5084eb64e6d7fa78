"""What one run leaves behind, as data: the source of ``report.json`` and of its JSON Schema.

Every renderer, ``diff`` and ``trend`` read these models and nothing else.
"""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt

SCHEMA_VERSION = "1.3"
READABLE_VERSIONS = ("1.0", "1.1", "1.2", SCHEMA_VERSION)
"""What later versions added has a default; ``docs/report-schema.md`` says since when each field is there."""


class Target(StrEnum):
    """Where a run judges. A rehearsal uses a stand-in for a trn2 machine, which does its work on the CPU."""

    CPU = "cpu"
    TRN2 = "trn2"
    REHEARSAL = "trn2-rehearsal"


class Outcome(StrEnum):
    """How one check ended. Only ``PASS`` (and ``EXPECTED_FAIL``, which is listed apart) is green."""

    PASS = "pass"
    FAIL = "fail"
    EXPECTED_FAIL = "expected-fail"
    UNEXPECTED_PASS = "unexpected-pass"
    NOT_RUN = "not-run"
    NOTHING_COMPARED = "nothing-compared"
    INCONCLUSIVE = "inconclusive"

    @property
    def is_failure(self) -> bool:
        """Whether this outcome alone makes the run fail."""
        return self in (Outcome.FAIL, Outcome.UNEXPECTED_PASS, Outcome.NOTHING_COMPARED)


class PinStatus(StrEnum):
    """One pin of a release against what is installed."""

    EQUAL = "equal"
    DIFFERENT = "different"
    ABSENT = "absent"
    NOT_APPLICABLE = "not-applicable"


class VerdictStatus(StrEnum):
    """``CONFORMANT`` needs every required check to have run on the target itself."""

    CONFORMANT = "conformant"
    NOT_CONFORMANT = "not-conformant"
    INCOMPLETE = "incomplete"


class Strict(BaseModel):
    """Base of all models: no unknown fields, and JSON that every reader takes."""

    # Numbers such as NaN are results here, so JSON carries them as the strings "NaN" and "Infinity".
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class Measurement(Strict):
    """One number that a check measured, and the bar it was held against."""

    name: str
    """What was measured, e.g. ``step-1 loss, |native - transformers|``."""
    value: float
    """The measured number, in ``unit``."""
    bar: float | None = None
    """The limit; None for a number that is only reported."""
    relation: Literal["<=", ">=", "=="] = "<="
    """The check passes where ``value relation bar`` holds."""
    unit: str = ""
    source: str = ""
    """Where the bar comes from: a derivation, a measurement or a publication."""
    ok: bool = True


class Compared(Strict):
    """How much a check really compared. Nothing compared is not a pass."""

    tensors: int = 0
    """Tensors, or values where no tensor is involved (a key set, a version, a loss)."""
    elements: int = 0
    """Single numbers or names among them."""


class CheckResult(Strict):
    """One check of one run."""

    id: str
    """Stable name, ``subject.check[case]``."""
    subject: str
    title: str
    """The claim, as one sentence that is true when the check passes."""
    outcome: Outcome
    message: str = ""
    """Why it failed or did not run; empty for a pass. May hold several lines."""
    level: Literal["smoke", "standard", "full"]
    """The lowest level at which the check runs."""
    target: str
    """Where it ran, or for ``not-run`` where it would have to run; a ``Target``."""
    required: bool = True
    """Whether ``conformant`` needs this check to have passed."""
    compared: Compared = Compared()
    measurements: list[Measurement] = []
    evidence: dict[str, str] = {}
    """Facts that prove what ran: counts, fingerprints, paths, versions."""
    repro: str = ""
    """Folder of the bundle for ``trncheck repro``, as the run wrote it; empty where there is none."""
    duration_s: float = 0.0
    attempt: int = 1
    version: str = ""
    """Hash of the check's code and data. Where it differs, two results are not comparable; empty for not known."""


class PinRow(Strict):
    """One row of the environment table."""

    name: str
    kind: Literal["distribution", "git", "system"]
    expected: str
    """Accepted release prefixes, e.g. ``2.14.0 or 2.13.0``."""
    found: str | None
    status: PinStatus
    note: str = ""
    """Which stack is met, that a placeholder or the wrong product is installed, ..."""


class Curve(Strict):
    """One training curve, for the loss plot."""

    name: str
    """Path and model, e.g. ``native, dense tied``."""
    group: str
    """Curves of one group share a plot."""
    model: str
    """Curves of one model start from the same weights and batches, and are held against its reference."""
    steps: list[int]
    losses: list[float]
    reference: bool = False
    """True for plain Transformers, the witness that the other curves of the model are held against."""
    check: str = ""
    """Id of the check that compared it; empty for not known."""


class Expectation(Strict):
    """A published number beside what this run measured for it."""

    name: str
    published: float
    unit: str = ""
    measured: float | None = None
    source: str
    note: str = ""


class Execution(Strict):
    """How often one kernel ran in one place."""

    operator: str
    """As the counters name it, e.g. ``rope``."""
    direction: Literal["forward", "backward"]
    dtype: str
    """Without ``torch.``, e.g. ``bfloat16``."""
    backend: str
    """``neuron`` (a device), ``nki.simulate`` (the official simulator) or ``simulator`` (the kit's own, NumPy)."""
    where: str
    """A training configuration with its steps and ranks; ``catalogue: `` and a sample in checks of single kernels."""
    count: NonNegativeInt
    """Launches; 0 where the kernel should have run and did not."""
    check: str = ""
    """Id of the check that counted."""


class Environment(Strict):
    """The machine and software of a run."""

    python: str
    os: str
    machine: str
    cpu: str
    cores: int
    memory_gib: float
    accelerator: str
    """``none`` where there is no Neuron device."""
    packages: dict[str, str] = {}
    variables: dict[str, str] = {}


class Verdict(Strict):
    """The answer, with its reasons in the order of their weight."""

    status: VerdictStatus
    headline: str
    """One sentence for a release manager."""
    reasons: list[str] = []


class Report(Strict):
    """A whole run."""

    schema_version: Literal["1.3"] = SCHEMA_VERSION
    run_id: str
    kit_version: str
    kit_commit: str | None = None
    """Git commit of the checkout, with ``+dirty`` where files differ; None outside of a checkout."""
    release: str
    release_date: str
    target: Target
    level: Literal["smoke", "standard", "full"]
    command: str
    seed: int
    started: str
    """ISO 8601, UTC."""
    finished: str | None = None
    duration_s: float | None = None
    complete: bool = False
    """False until the run has ended by itself; a killed run stays False."""
    required_checks: NonNegativeInt | None = None
    """Required checks of the level, those included that were not selected or not reached; None for not known."""
    verdict: Verdict
    environment: Environment
    stack: str = ""
    """Which of the release's supported stacks the installed packages meet, or why none."""
    pins: list[PinRow] = []
    results: list[CheckResult] = []
    curves: list[Curve] = []
    expectations: list[Expectation] = []
    executions: list[Execution] = []


def count_outcomes(results: list[CheckResult]) -> dict[Outcome, int]:
    """Number of results per outcome; every outcome is a key."""
    counts = dict.fromkeys(Outcome, 0)
    for result in results:
        counts[result.outcome] += 1
    return counts
