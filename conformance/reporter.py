"""Receives results where the report is written: in the only process, or in xdist's controller."""

import sys

import pytest

from trncheck.conformance import outcomes, policy
from trncheck.conformance.session import Session


class Reporter:
    """Hooks of a conformance run that owns its report."""

    def __init__(self, config: pytest.Config, session: Session):
        self._config = config
        self._session = session

    def expect(self, ids: list[str]) -> None:
        """Note the checks of the level, so that a missing one is noticed."""
        self._session.expected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        self.expect(getattr(node, "workeroutput", {}).get("trncheck_expected", []))

    def pytest_runtest_logreport(self, report):
        if data := getattr(report, "trncheck", None):
            self._session.add(**outcomes.unpack(data))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        by_itself = exitstatus in (0, 1) and not (session.shouldstop or session.shouldfail)
        try:
            self._session.finish(by_itself=by_itself)
        except ValueError as error:
            print(f"trncheck: {error}", file=sys.stderr)
        if exitstatus in (0, 1):
            verdict = self._session.report.verdict
            session.exitstatus = policy.exit_status(verdict, require_complete=self._config.option.require_complete)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        if self._session.report.finished:
            from trncheck.reports.terminal import print_summary

            print_summary(self._session.report, self._session.folder.page)
