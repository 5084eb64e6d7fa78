"""What many runs say together: what is red and since when, what is flaky, which numbers changed level."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from .diff import LEVELS
from .diff_context import Change, changes
from .history import History, Run
from .schema import Outcome
from .store import load_report
from .summary import budget_used, group_by
from .trend_models import CheckTrend, Flakiness, Group, RedStreak, RunRef, Series, Shift, Trend
from .trend_numbers import Track, as_measurement, tracks
from .trend_outcomes import flips, red_streak, same_state

LAST = 60
"""Runs per group that are shown and searched for flaky checks and change points."""


def trend(history: History, last: int = LAST, group: Literal["target", "release"] = "target") -> Trend:
    """The trend of all complete runs, in one group per target, or per release and target.

    In a group, releases follow each other by date and the runs of each by time, so that a late run of an old release
    does not count as the present. Raises ValueError where ``last`` is below 1.
    """
    if last < 1:
        raise ValueError(f"--last {last}: at least 1 run has to be shown")
    dates = {run.release: run.release_date for run in history.runs}
    complete = [run for run in history.runs if run.complete]
    complete.sort(key=lambda run: (dates[run.release], run.release))
    names = {"target": lambda run: run.target, "release": lambda run: f"{run.target}, Neuron {run.release}"}
    groups = group_by(complete, names[group])
    return Trend(
        last=last,
        groups=[_Builder(runs, last).group(name) for name, runs in sorted(groups.items(), reverse=True)],
        incomplete=[_reference(run) for run in history.runs if not run.complete],
        skipped=history.skipped,
    )


class _Builder:
    """Builds one group out of its runs."""

    def __init__(self, runs: Sequence[Run], last: int) -> None:
        self.runs = runs
        self.shown = runs[-last:]
        self._changes: dict[tuple[Path, Path], list[Change] | None] = {}

    def group(self, name: str) -> Group:
        """The group of all runs."""
        before = [None, *self.runs][-len(self.shown) - 1 :]
        newest = {id: run for run in self.runs for id in run.results}
        checks = [check for id, run in newest.items() if (check := self._check(id, run))]
        checks.sort(key=_weight)
        return Group(
            name=name,
            total=len(self.runs),
            runs=[
                _reference(run, previous is not None and not same_state(previous, run))
                for previous, run in zip(before, self.shown, strict=False)
            ],
            checks=checks,
            unversioned=sum(bool(check.series) and not newest[check.id].results[check.id].version for check in checks),
        )

    def _check(self, id: str, newest: Run) -> CheckTrend | None:
        """Check ``id``, last seen in ``newest``; None where that was before the runs shown and nothing is open."""
        result = newest.results[id]
        gone = self._is_gone(newest, result.level)
        red = self._red(id)
        if newest not in self.shown and (gone or red is None):
            return None
        return CheckTrend(
            id=id,
            title=result.title,
            required=result.required,
            outcomes=[run.results[id].outcome if id in run.results else None for run in self.shown],
            gone=gone,
            red=red,
            flaky=self._flaky(id),
            series=[self._series(track) for track in tracks(self.shown, id)],
        )

    def _is_gone(self, newest: Run, level: str) -> bool:
        """Whether a later run, which would have listed a check of ``level``, does not."""
        later = self.runs[self.runs.index(newest) + 1 :]
        return any(run.whole and LEVELS.index(run.level) >= LEVELS.index(level) for run in later)

    def _red(self, id: str) -> RedStreak | None:
        streak = red_streak(self.runs, id)
        if streak is None:
            return None
        good, bad = streak.last_good, streak.first_bad
        return RedStreak(
            first_bad=_reference(bad),
            runs=streak.runs,
            last_good=_reference(good) if good else None,
            changes=self._between(good, bad) if good else None,
            check_changed=good is not None and good.results[id].version != bad.results[id].version,
            message=streak.newest_bad.results[id].message,
            idle=len(self.runs) - 1 - self.runs.index(streak.newest_bad),
        )

    def _flaky(self, id: str) -> Flakiness | None:
        found = flips(self.shown, id)
        if found is None:
            return None
        return Flakiness(
            flips=found.flips,
            runs=found.outcomes.total(),
            outcomes=dict(found.outcomes),
            first=_reference(found.newest[0]),
            last=_reference(found.newest[-1]),
        )

    def _series(self, track: Track) -> Series:
        points = list(track.points.values())
        return Series(
            name=track.latest.name,
            unit=track.latest.unit,
            relation=track.latest.relation,
            runs=list(track.points),
            values=[number.value for number in points],
            bars=[number.bar for number in points],
            used=[budget_used(as_measurement(number)) for number in points],
            shifts=[
                Shift(
                    last_before=_reference(self.shown[before]),
                    first_after=_reference(self.shown[after]),
                    drift=drift,
                    noise=noise,
                    changes=self._between(self.shown[before], self.shown[after]),
                )
                for before, after, drift, noise in track.shifts()
            ],
        )

    def _between(self, old: Run, new: Run) -> list[Change] | None:
        """What else changed; None where a report can no longer be read, or not in full."""
        key = (old.path, new.path)
        if key not in self._changes:
            try:
                self._changes[key] = changes(load_report(old.path), load_report(new.path))
            except ValueError:
                self._changes[key] = None
        return self._changes[key]


def _reference(run: Run, changed: bool = False) -> RunRef:
    return RunRef(
        run_id=run.run_id,
        release=run.release,
        target=run.target,
        level=run.level,
        started=run.started,
        kit_version=run.kit_version,
        kit_commit=run.kit_commit,
        changed=changed,
    )


def _weight(check: CheckTrend) -> tuple[bool, ...]:
    """Sort key, the worst first; equals keep the order of the suite."""
    red = check.red is not None and not check.gone
    return not (red and check.required), not red, check.flaky is None, check.now in (None, Outcome.NOT_RUN)
