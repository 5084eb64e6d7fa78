"""Outcomes of one check over runs: the red streak it is in, and whether it is flaky."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .history import Result, Run
from .schema import Outcome

MIN_FLIPS = 2
FLAKY_RULE = (
    f"A check is flaky where its outcome changed at least {MIN_FLIPS} times over consecutive runs between which kit, "
    "seed, Python, packages, pins and the check itself stayed the same; uncommitted changes of the kit (+dirty) count "
    "as a change."
)
_GOOD = (Outcome.PASS, Outcome.EXPECTED_FAIL)


@dataclass(frozen=True)
class Streak:
    """Red runs up to now; ``last_good`` is None where the check was never good before."""

    first_bad: Run
    newest_bad: Run
    runs: int
    last_good: Run | None


@dataclass(frozen=True)
class Flips:
    """Flips of all stretches that have enough of them; ``newest`` are the runs of the newest such stretch."""

    flips: int
    outcomes: Counter[Outcome]
    newest: list[Run]


def red_streak(runs: Sequence[Run], id: str) -> Streak | None:
    """The streak of red outcomes that check ``id`` is in, over all ``runs`` in order; None where it is not red.

    A run that did not execute it, or was inconclusive, neither ends nor lengthens a streak.
    """
    red: list[Run] = []
    for run in reversed(runs):
        result = run.results.get(id)
        if result and result.outcome.is_failure:
            red.append(run)
        elif result and result.outcome in _GOOD:
            return Streak(red[-1], red[0], len(red), run) if red else None
    return Streak(red[-1], red[0], len(red), None) if red else None


def flips(runs: Sequence[Run], id: str) -> Flips | None:
    """Changes of the outcome of check ``id`` over ``runs`` by ``FLAKY_RULE``; None where it is not flaky."""
    total, outcomes, newest = 0, Counter(), []
    for stretch in _stretches(runs, id):
        seen = [run.results[id].outcome for run in stretch]
        changed = sum(a is not b for a, b in pairwise(seen))
        if changed >= MIN_FLIPS:
            total += changed
            outcomes.update(seen)
            newest = stretch
    return Flips(total, outcomes, newest) if newest else None


def executed(result: Result | None) -> bool:
    """Whether there is a result of a check that ran."""
    return result is not None and result.outcome is not Outcome.NOT_RUN


def same_state(a: Run, b: Run) -> bool:
    """Whether nothing that is known to matter changed between two runs, for certain."""
    return a.state == b.state and a.state_known


def _stretches(runs: Sequence[Run], id: str) -> list[list[Run]]:
    """Runs that executed check ``id``, cut wherever anything else changed."""
    stretches: list[list[Run]] = []
    previous: Run | None = None
    for run in runs:
        if not executed(run.results.get(id)):
            continue
        same = previous and same_state(previous, run) and previous.results[id].version == run.results[id].version
        if same:
            stretches[-1].append(run)
        else:
            stretches.append([run])
        previous = run
    return stretches
