"""The report of a run in the making: starts it, takes results as they come, closes it with a verdict."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from trncheck.conformance import environment, pins, policy
from trncheck.conformance.repro import SUBJECTS, Kept, write_bundle
from trncheck.fixtures.manifest import Release
from trncheck.reports.schema import CheckResult, Curve, Execution, Expectation, Report, Target
from trncheck.reports.store import RunFolder, new_run_id

SEED = 42
"""Seed of every training run (``debug.seed`` of the configurations)."""


class Session:
    """One conformance run. The report on disk is up to date after every result."""

    def __init__(
        self, *, release: Release, target: str, level: str, command: str, results: Path, manifest: Path | None = None
    ):
        """``manifest`` is the release's file where it is none of the kit's."""
        self.release = release
        rows, stack = pins.inspect_pins(release, target)
        self._manifest = manifest
        self._clock = time.monotonic()
        self.report = Report(
            run_id=new_run_id(),
            kit_version=version("trncheck"),
            kit_commit=environment.kit_commit(),
            release=release.version,
            release_date=str(release.date),
            target=policy.reported(target),
            level=level,
            command=command,
            seed=SEED,
            started=_now(),
            verdict=policy.verdict(release.version, policy.reported(target), [], 0, finished=False),
            environment=environment.describe_environment(),
            stack=stack,
            pins=rows,
        )
        self._expected: dict[str, bool] = {}
        self.folder = RunFolder.create(results, self.report)

    def expect(self, checks: Mapping[str, bool]) -> None:
        """Note checks of the level, selected or not: id, and whether a verdict depends on it."""
        self._expected.update(checks)
        self.report.required_checks = sum(self._expected.values())

    def add(
        self,
        result: CheckResult,
        curves: Sequence[Curve] = (),
        expectations: Sequence[Expectation] = (),
        executions: Sequence[Execution] = (),
        kept: Kept | None = None,
    ) -> None:
        """Take one check's result and write the report; with what was ``kept`` of a failure, its bundle, too."""
        if kept and self.report.target != Target.REHEARSAL:  # whose machine a bundle cannot hold
            try:
                bundle = write_bundle(self.folder.path, self.report, result, kept, self._manifest)
                result = result.model_copy(update={"repro": str(bundle)})
            except OSError as error:
                result = result.model_copy(update={"evidence": result.evidence | {"no bundle": str(error)}})
        self.report.results.append(result)
        self.report.curves.extend(curves)
        self.report.expectations.extend(expectations)
        self.report.executions.extend(executions)
        self._judge(finished=False)
        self.folder.write(self.report)

    def add_crashed(self, result: CheckResult) -> None:
        """Take the result of a check under which its process died, in place of one that it had given before that."""
        required = self._expected.get(result.id, True)
        self.report.results[:] = [other for other in self.report.results if other.id != result.id]
        kept = Kept(note="the process died, and nothing was kept") if result.subject in SUBJECTS else None
        self.add(result.model_copy(update={"required": required}), kept=kept)

    def finish(self, *, by_itself: bool) -> None:
        """Give the verdict and write every form of the report; ``by_itself`` is False for an interrupted run."""
        report = self.report
        report.complete = by_itself
        report.finished = _now()
        report.duration_s = round(time.monotonic() - self._clock, 1)
        report.curves.sort(key=lambda curve: (curve.group, curve.model, not curve.reference, curve.name))
        self._judge(finished=by_itself)
        self.folder.finish(report)

    def _judge(self, *, finished: bool) -> None:
        report = self.report
        unselected = len(self._expected.keys() - {result.id for result in report.results}) if finished else 0
        report.verdict = policy.verdict(report.release, report.target, report.results, unselected, finished)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
