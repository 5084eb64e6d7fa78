"""A trend as data: the source of its text, page and JSON."""

from typing import Literal

from .diff_context import Change
from .drift import Drift
from .history import Skipped
from .schema import Outcome, Strict


class RunRef(Strict):
    """One run, as far as it takes to find it and to name it."""

    run_id: str
    release: str
    target: str
    level: str
    started: str
    kit_version: str
    kit_commit: str | None
    changed: bool = False
    """Whether kit, seed, Python, packages or pins differ from the run before it in its group, or may differ."""


class RedStreak(Strict):
    """A check whose newest outcome is red, since when, and what else changed then."""

    first_bad: RunRef
    runs: int
    """Red runs since then; runs that did not execute the check, or were inconclusive, are not counted."""
    last_good: RunRef | None
    """The last run before in which it passed, or failed as expected; None where there is none."""
    changes: list[Change] | None
    """From ``last_good`` to ``first_bad``; None where that is not known."""
    check_changed: bool
    """Whether the check itself is another version in ``first_bad`` than in ``last_good``."""
    message: str
    """Of the newest red run, in one line."""
    idle: int
    """Runs since the newest red one; none of them executed it to a result."""


class Flakiness(Strict):
    """Outcomes that changed and changed back while nothing else did."""

    flips: int
    runs: int
    """Runs among which they happened."""
    outcomes: dict[Outcome, int]
    first: RunRef
    last: RunRef
    """``first`` to ``last`` are the newest such runs without any other change."""


class Shift(Strict):
    """A number that went to another level."""

    last_before: RunRef
    first_after: RunRef
    drift: Drift
    """From the median before to the median after."""
    noise: float
    """Standard deviation of one value, estimated."""
    changes: list[Change] | None
    """From ``last_before`` to ``first_after``; None where that is not known."""


class Series(Strict):
    """One number of one version of a check over the runs of a group; the lists have one entry per value."""

    name: str
    """In the newest run that has it."""
    unit: str
    relation: Literal["<=", ">=", "=="]
    runs: list[int]
    """Positions in ``Group.runs``."""
    values: list[float]
    bars: list[float | None]
    used: list[float | None]
    """Part of the budget: 1 is at the bar, above is beyond; None where a ratio says nothing."""
    shifts: list[Shift]


class CheckTrend(Strict):
    """One check over the runs of a group."""

    id: str
    title: str
    required: bool
    outcomes: list[Outcome | None]
    """One per run of ``Group.runs``; None where the run has no such check."""
    gone: bool
    """Whether the suite no longer has it."""
    red: RedStreak | None
    flaky: Flakiness | None
    series: list[Series]

    @property
    def now(self) -> Outcome | None:
        """Its newest outcome in the runs shown; None where none of them executed it."""
        return next((o for o in reversed(self.outcomes) if o not in (None, Outcome.NOT_RUN)), None)


class Group(Strict):
    """Runs that follow each other: on one target, releases by date and the runs of each by time."""

    name: str
    total: int
    """Complete runs; ``runs`` are the newest of them."""
    runs: list[RunRef]
    checks: list[CheckTrend]
    """The worst first."""
    unversioned: int
    """Checks with numbers whose version is not known: a change of the check itself looks like a change point."""


class Trend(Strict):
    """Everything; ``last`` runs per group are shown and searched for flaky checks and change points."""

    schema_version: Literal["1.0"] = "1.0"
    last: int
    groups: list[Group]
    incomplete: list[RunRef]
    """Runs that did not finish: nothing of them counts."""
    skipped: list[Skipped]
