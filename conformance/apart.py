"""Checks that compute on a NeuronCore themselves, in a process apart that leases the core and then ends.

The runtime reserves a core until its process ends, so a core that pytest itself took would be missing from every later
run on all cores. The process is forked from one that was set aside before any framework was imported: the list of cores
is there before the import. It serves neighbouring checks together, and where it dies the session goes on.
"""

import os
import signal
import traceback
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest
from _pytest.runner import runtestprotocol

from trncheck.conformance.cores import in_process, needed


class Apart:
    """Hooks of a session on target trn2."""

    def __init__(self) -> None:
        self._line: Connection | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if any(map(in_process, session.items)) and not session.config.option.collectonly:
            self._line = _set_aside(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if self._line is None or not in_process(item):
            return None
        follows = nextitem is not None and in_process(nextitem)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        items = item.session.items
        self._line.send((items.index(item), items.index(nextitem) if follows else None))
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # What this process has set up for a neighbour that ran here, expecting this check to follow.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def pytest_sessionfinish(self):
        if self._line:
            self._line.close()

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        try:
            kind, content = self._line.recv()
        except (EOFError, OSError):
            kind, content = "died", "has ended, and so has the one that starts it"
        if kind == "refused":
            pytest.exit(f"trncheck: {content}", returncode=pytest.ExitCode.USAGE_ERROR)
        if kind == "died":
            text = f"the process that computed on the NeuronCore {content}"
            return [pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "???")]  # as of a dead worker
        hook = item.config.hook
        return [hook.pytest_report_from_serializable(config=item.config, data=data) for data in content]


def _set_aside(session: pytest.Session) -> Connection:
    """The line to a fork of this process that knows its checks, and has imported no framework."""
    # Made now, because every fork that made it by itself would empty what --basetemp names.
    session.config._tmp_path_factory.getbasetemp()
    here, there = Pipe()
    if os.fork():
        there.close()
        return here
    here.close()
    # The session says when to end, by closing the line. A check that is running then ends with the terminal's Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(EOFError, OSError):
        while True:
            request = there.recv()
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                try:
                    _serve(session, there, *request)
                except EOFError:  # the session has ended
                    os._exit(0)
                except BaseException:  # or this fork would end the session as pytest does, report and all
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if status:
                there.send(("died", _ending(status)))
    os._exit(0)


def _serve(session: pytest.Session, line: Connection, index: int, following: int | None) -> None:
    """Run checks until one comes that is followed by another kind, holding a core."""
    from trncheck.neuron import leases

    _leave_xdist(session.config)
    with ExitStack() as kept:
        try:
            allowed, lnc = leases.usable(os.environ)
            count = max(needed(item) for item in session.items if in_process(item))
            held = kept.enter_context(leases.lease(count, allowed=allowed, lnc=lnc))
        except ValueError as error:
            line.send(("refused", str(error)))
            return
        environ = held.environ(os.environ)
        os.environ.clear()
        os.environ.update(environ)
        while True:
            line.send(("ran", _run(session, index, following)))
            if following is None:
                os._exit(0)  # with the lease, because the runtime has the core until then
            index, following = line.recv()


def _run(session: pytest.Session, index: int, following: int | None) -> list[dict]:
    """The serialized reports of one check."""
    item, config = session.items[index], session.config
    # What was set up for more than one check stays, because it may be that of the session's own process.
    reports = runtestprotocol(item, log=False, nextitem=item.parent if following is None else session.items[following])
    return [config.hook.pytest_report_to_serializable(config=config, report=report) for report in reports]


def _leave_xdist(config: pytest.Config) -> None:
    """A worker's events come from the worker alone."""
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):
            config.pluginmanager.unregister(plugin)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with status {os.waitstatus_to_exitcode(status)}"
