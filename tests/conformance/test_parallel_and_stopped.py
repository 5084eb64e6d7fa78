"""Runs with several processes, and runs that are stopped before their end."""

import os
import signal
import threading
import xml.etree.ElementTree as ET
from contextlib import contextmanager

import pytest

from trncheck.conformance import stopping
from trncheck.reports.store import load_report

# Holds one check until the test has done something to the process.
HOLD = """\
import os

def pytest_runtest_call(item):
    if item.name == "test_stack":
        os.write(int(os.environ["READY"]), b"x")
        os.read(int(os.environ["HELD"]), 1)
"""
CRASH = """\
import os

def pytest_runtest_call(item):
    if item.name == "test_stack":
        os.kill(os.getpid(), 9)
"""


@contextmanager
def held(inner):
    """A run that stands still in ``pins.stack``."""
    inner.plant(hold=HOLD)
    ready, write_ready = os.pipe()
    read_held, hold = os.pipe()
    environment = {"READY": str(write_ready), "HELD": str(read_held)}
    arguments = ("-p", "machine", "-p", "hold", "--assert=plain", "--check", "pins.*")
    options = {"environment": environment, "pass_fds": (write_ready, read_held)}
    process = inner.start("--pyargs", "trncheck.conformance", "--release", "2.33.0", *arguments, **options)
    os.close(write_ready)
    try:
        # Ends without a byte if the process ends before it comes there.
        assert os.read(ready, 1) == b"x", process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()
        for end in (ready, read_held, hold):
            os.close(end)


def report_of(inner):
    (folder,) = inner.folder.glob("results/*/*/*")
    return folder, load_report(folder)


def test_killed_run_leaves_a_readable_report_that_says_so(inner):
    with held(inner) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    folder, report = report_of(inner)
    assert [file.name for file in folder.iterdir()] == ["report.json"]
    assert (report.complete, report.finished) == (False, None)
    assert report.verdict.status == "incomplete"
    assert "The run was stopped before its end." in report.verdict.reasons
    done = [result.id for result in report.results]
    assert "pins.pin[torch]" in done
    assert "pins.stack" not in done


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, pytest.ExitCode.INTERRUPTED), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_interrupted_run_has_a_page_that_says_so(inner, number, status):
    with held(inner) as process:
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == status
    folder, report = report_of(inner)
    assert not report.complete
    assert report.finished
    assert "pins.pin[torch]" in {result.id for result in report.results}
    *_, verdict, page = out.splitlines()
    assert verdict.startswith("INCOMPLETE (RUN DID NOT FINISH)")
    assert inner.folder / page == folder / "report.html"
    assert {file.name for file in folder.iterdir()} == {"report.json", "report.html", "report.md", "junit.xml"}
    assert "This run did not finish." in (folder / "report.html").read_text()
    assert "**The run did not finish.**" in (folder / "report.md").read_text()
    assert ET.parse(folder / "junit.xml").find(".//testcase[@name='run.finished']/error") is not None
    # Of all checks of the level, not of those that it came to.
    passed = sum(result.outcome == "pass" for result in report.results)
    assert report.required_checks > 100 > len(report.results)
    assert f"{passed} of {report.required_checks} required checks passed" in (folder / "report.md").read_text()


def test_run_that_stops_at_a_failure_is_not_complete(inner):
    inner.plant(crash=CRASH.replace("os.kill(os.getpid(), 9)", "raise RuntimeError"))
    ended = inner.run("--check", "pins.*", "-p", "crash", "--exitfirst")
    assert ended.status == 1
    assert not ended.report.complete
    assert "pins.impostors" not in ended.results


def test_two_processes_lose_no_result(inner, healthy):
    ended = inner.run("--check", "pins.*", "--check", "walkthrough.*", "-n", "2")
    assert ended.status == 0, ended.out
    assert {(id_, result.outcome) for id_, result in ended.results.items()} == {
        (id_, result.outcome) for id_, result in healthy.results.items()
    }
    assert ended.report.complete
    # The third reason lists checks in the order in which they ended.
    assert ended.report.verdict.reasons[:2] == healthy.report.verdict.reasons[:2]
    assert {expectation.name for expectation in ended.report.expectations} == {
        expectation.name for expectation in healthy.report.expectations
    }


def test_check_under_which_its_process_dies_has_failed(inner):
    inner.plant(crash=CRASH)
    ended = inner.run("--check", "pins.*", "-p", "crash", "-n", "1")
    crashed = ended.results.pop("pins.stack")
    assert crashed.outcome == "fail"
    assert "the process died" in crashed.message
    assert ended.results["pins.impostors"].outcome == "pass"
    assert ended.report.verdict.status == "not-conformant"
    assert ended.status == 1


def test_required_checks_are_those_of_the_level_in_any_number_of_processes(inner, healthy):
    ended = inner.run("--check", "pins.*", "-n", "2")
    assert ended.report.required_checks == healthy.report.required_checks > 100


@pytest.fixture
def handlers():
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_nothing_stops_a_report_that_is_being_written(handlers):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stopping.end_at_sigterm()
    with stopping.undisturbed():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
    with pytest.raises(pytest.exit.Exception, match="stopped by SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)


def test_handlers_of_others_stay(handlers):
    def own(number, frame):
        raise AssertionError

    signal.signal(signal.SIGTERM, own)
    stopping.end_at_sigterm()
    assert signal.getsignal(signal.SIGTERM) is own
    with stopping.undisturbed():
        pass
    assert signal.getsignal(signal.SIGTERM) is own
    thread = threading.Thread(target=stopping.end_at_sigterm)
    thread.start()
    thread.join()


def test_forked_child_ends_at_sigterm_as_before(handlers):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stopping.end_at_sigterm()
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
