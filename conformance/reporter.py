"""Receives results where the report is written: in the only process, or in xdist's controller."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from trncheck.conformance import outcomes, policy
from trncheck.conformance.plugin import RELEASE
from trncheck.conformance.repro import own_manifest
from trncheck.conformance.session import Session
from trncheck.conformance.stopping import end_at_sigterm, undisturbed
from trncheck.neuron import host


def _rehearsed() -> list[str]:
    """What ``trncheck run`` was told beside pytest's options."""
    return ["--rehearse", host.variant()] if host.rehearsal() else []


class Reporter:
    """Hooks of a conformance run that owns its report."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._session: Session | None = None

    def start(self) -> None:
        """Begin the report, once it is known that there are checks to run."""
        option = self._config.option
        try:
            self._session = self._session or Session(
                release=self._config.stash[RELEASE],
                target=option.target,
                level=option.level,
                command=" ".join(["pytest", *self._config.invocation_params.args, *_rehearsed()]),
                results=Path(option.results),
                manifest=own_manifest(option.release),
            )
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        end_at_sigterm()

    def expect(self, checks: Mapping[str, bool]) -> None:
        """Note the checks of the level and whether each is required, so that a missing one is noticed."""
        self._session.expect(checks)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        if ids:
            self.start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        output = getattr(node, "workeroutput", {})
        if problem := output.get("trncheck_usage_error"):
            raise pytest.UsageError(problem)

    def pytest_runtest_logreport(self, report):
        try:
            if expected := getattr(report, "trncheck_expected", None):
                self.expect(expected)
            if data := getattr(report, "trncheck", None):
                self._session.add(**outcomes.unpack(data))
            elif report.when == "???":
                # What xdist says of a check under which its worker died.
                self._session.add_crashed(outcomes.crashed(report, self._config.option))
        except ValueError as error:
            pytest.exit(f"trncheck: {error}", returncode=pytest.ExitCode.USAGE_ERROR)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        if self._session is None:
            return
        by_itself = exitstatus in (0, 1) and not (session.shouldstop or session.shouldfail)
        try:
            with undisturbed():
                self._session.finish(by_itself=by_itself)
        except ValueError as error:
            print(f"trncheck: {error}", file=sys.stderr)
            session.exitstatus = exitstatus = exitstatus or 1
        # Whatever else failed, a teardown or a test of another folder, is not for the verdict to overrule.
        if exitstatus == 0:
            verdict = self._session.report.verdict
            session.exitstatus = policy.exit_status(verdict, require_complete=self._config.option.require_complete)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        if self._session and self._session.report.finished:
            from trncheck.reports.terminal import print_summary

            print_summary(self._session.report, self._session.folder.page)
