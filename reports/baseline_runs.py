"""Which runs a baseline may be made of: finished, green, without retries, of one clean commit and one environment."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from .baseline import DIRTY, MIN_RUNS
from .baseline_fingerprint import environment_of, first_difference
from .schema import Report, Target
from .summary import failures
from .text import one_line, plural

_EQUAL: dict[str, Callable[[Report], object]] = {
    "release": lambda report: report.release,
    "target": lambda report: report.target,
    "level": lambda report: report.level,
    "kit commit": lambda report: report.kit_commit,
    "kit version": lambda report: report.kit_version,
    "seed": lambda report: report.seed,
}


def accept(reports: Sequence[Report]) -> list[Report]:
    """``reports``, the oldest first, whatever order they came in.

    Raises ValueError, in one line with the run and the remedy, where they cannot make a baseline.
    """
    runs = sorted(reports, key=lambda report: (report.started, report.run_id))
    for run_id, times in Counter(report.run_id for report in runs).items():
        if times > 1:
            raise ValueError(f"run {_name(run_id)} was given {times} times; repeats have to be runs of their own")
    if len(runs) < MIN_RUNS:
        raise ValueError(f"{plural(len(runs), 'run')} given, a spread needs at least {MIN_RUNS}; run again as before")
    for report in runs:
        if problem := next(_problems(report), ""):
            raise ValueError(f"run {_name(report.run_id)}: {problem}")
    for report in runs[1:]:
        if problem := next(_disagreements(runs[0], report), ""):
            raise ValueError(f"runs {_name(runs[0].run_id)} and {_name(report.run_id)} differ in {problem}")
    return runs


def retried(report: Report) -> list[str]:
    """Ids of checks that took more than one attempt.

    The result says so, or is there more than once: rerun plugins of pytest report every attempt under the same id.
    A report has no attempt of its own, because a run that is started again is another run.
    """
    times = Counter(result.id for result in report.results)
    again = {result.id for result in report.results if result.attempt > 1 or times[result.id] > 1}
    return sorted(again)


def _problems(report: Report) -> Iterator[str]:
    """Why ``report`` alone is not fit."""
    if report.target == Target.REHEARSAL:
        yield "it was a rehearsal, whose numbers are those of a stand-in; take runs on the hardware"
    if not report.complete:
        yield "it did not finish, so that nobody knows what is missing; take complete runs"
    if not (report.kit_commit or "").strip():
        yield "the commit of the kit is not known; run from a git checkout"
    elif report.kit_commit.endswith(DIRTY):
        yield f"the checkout had changes that no commit holds ({_name(report.kit_commit)}); commit them and run again"
    if again := retried(report):
        yield f"{_some(again)} took more than one attempt; find out why it is flaky, then take runs without retries"
    if red := [result.id for result in failures(report)]:
        yield f"{_some(red)} failed; a baseline is made of runs in which nothing failed"


def _disagreements(first: Report, other: Report) -> Iterator[str]:
    """In what two runs differ that have to be repeats of each other."""
    for what, of in _EQUAL.items():
        if of(first) != of(other):
            yield f"{what} ({_name(of(first))} and {_name(of(other))}); take repeats of one state"
    if found := first_difference(environment_of(first), environment_of(other)):
        old, new = ("absent" if value is None else _name(value) for value in (found.old, found.new))
        yield f"environment: {_name(found.item)} ({old} and {new}); a baseline stands for one environment"
    versions = {result.id: result.version for result in first.results}
    for result in other.results:
        version = versions.get(result.id, "")
        if version and result.version and version != result.version:
            yield f"the version of check {_name(result.id)} ({version} and {result.version}); take repeats of one state"


def _some(ids: list[str]) -> str:
    more = f" and {plural(len(ids) - 1, 'more check')}" if len(ids) > 1 else ""
    return f"{_name(ids[0])}{more}"


def _name(value: object) -> str:
    return one_line(str(value), 80)
