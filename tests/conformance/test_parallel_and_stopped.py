"""Runs with several processes, and runs that are stopped before their end."""

import os
import signal
from contextlib import contextmanager

import pytest

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


def test_interrupted_run_has_a_page_that_says_so(inner):
    with held(inner) as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    folder, report = report_of(inner)
    assert not report.complete
    assert report.finished
    assert "pins.pin[torch]" in {result.id for result in report.results}
    *_, verdict, page = out.splitlines()
    assert verdict.startswith("INCOMPLETE (RUN DID NOT FINISH)")
    assert inner.folder / page == folder / "report.html"
    assert (folder / "report.html").is_file()


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
