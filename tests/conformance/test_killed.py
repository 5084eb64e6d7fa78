"""Runs that are killed at any moment: what they leave is valid, says so, and stands in nobody's way."""

import json
import random
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import jsonschema
import psutil
import pytest

from trncheck.cli import main
from trncheck.reports.json_schema import SCHEMA_FILE
from trncheck.reports.schema import Report
from trncheck.reports.store import load_report

PINS = 24
FILES = ["report.json"] * (PINS + 4) + ["report.md", "junit.xml", "report.html"]
"""What a run writes: at its start, after each check (two are there beside the pins), and at its end."""
RELEASE = """\
version: 9.9.9
date: 2026-01-01
title: many pins, each a check that is written down at once
stacks: []
expectations: []
pins:
"""
PIN = "  - {{name: pin-{0}, kind: distribution, accepts: ['{0}.0'], source: this test}}\n"
# A machine on which every third pin is not met: its check fails, with a message.
MACHINE = f"""\
from trncheck.conformance import environment, pins
from trncheck.fixtures.installed import Found

environment.has_neuron_device = lambda: False
pins.probe = lambda *_: {{f"pin-{{k}}": Found(f"{{k if k % 3 else 0}}.0") for k in range(1, {PINS} + 1)}}
"""
# Kills its own process at the n-th file that the store writes: before, in the middle, at its end, or once it is there.
KILLER = """\
import os, pathlib, signal
from trncheck.reports import store

at, stage = int(os.environ["KILL_AT"]), os.environ["KILL_STAGE"]
count, write, replace = 0, pathlib.Path.write_text, os.replace

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def counted_write(path, text, **options):
    global count
    count += path.name.endswith(".part")
    if count == at and stage == "before":
        die()
    if count == at and stage == "half":
        write(path, text[: len(text) // 2], **options)
        die()
    return write(path, text, **options)

def counted_replace(source, target):
    if count == at and stage == "written":
        die()
    replace(source, target)
    if count == at and stage == "replaced":
        die()

pathlib.Path.write_text, store.os.replace = counted_write, counted_replace
"""
STAGES = ("before", "half", "written", "replaced")
# Kills the worker in one phase of one check.
WORKER_KILLER = """\
import os, signal

def at(phase):
    def hook(item):
        if [item.name, phase] == os.environ["KILL"].split():
            os.kill(os.getpid(), signal.SIGKILL)
    return hook

pytest_runtest_call, pytest_runtest_teardown = map(at, ("call", "teardown"))
"""


def moments() -> dict[str, tuple[int, str]]:
    """Name -> file and stage at which a run kills itself: the first, six of the middle, and all of its end."""
    chosen = random.Random(4783)
    files = [1, *sorted(chosen.sample(range(2, PINS + 4), 6)), *range(PINS + 4, len(FILES) + 1)]
    return {f"at-{file}": (file, STAGES[place % len(STAGES)]) for place, file in enumerate(files)}


MOMENTS = moments()


def start(inner, name, *arguments, environment=None) -> subprocess.Popen:
    """A run whose report is told apart by ``name`` in its command."""
    selected = ("--pyargs", "trncheck.conformance", "--check", "pins.*", "--check", name)
    how = ("-p", "machine", "--assert=plain", "--release", "release.yaml", "-q", "--tb=native", *selected, *arguments)
    log = (inner.folder / f"{name}.log").open("w")
    with log:
        return inner.start(*how, environment=environment, stdout=log, stderr=subprocess.STDOUT)


def folder_of(inner, name) -> Path | None:
    """The folder of the run ``name``; None where it was killed before there was a report. Its output is printed."""
    print((inner.folder / f"{name}.log").read_text()[-2000:])
    command = re.compile(rf'--check {name}[ "]')
    marked = [path for path in inner.folder.glob("results/9.9.9/cpu/*/report.json") if command.search(path.read_text())]
    assert len(marked) <= 1
    return marked[0].parent if marked else None


def valid_report(folder: Path) -> Report:
    jsonschema.validate(json.loads((folder / "report.json").read_text()), json.loads(SCHEMA_FILE.read_text()))
    return load_report(folder)


def essence(report: Report) -> list[tuple]:
    """What does not depend on time."""
    return [(r.id, r.outcome, r.message, r.measurements, r.evidence, r.version) for r in report.results]


def unordered(report: Report, but: str = "") -> set[str]:
    return {repr(fields) for fields in essence(report) if fields[0] != but}


def undisturbed(inner, name) -> Report:
    """The report of a run that nobody kills."""
    start(inner, name).wait(timeout=60)
    folder = folder_of(inner, name)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    report = valid_report(folder)
    assert report.complete
    assert len(report.results) == PINS + 2
    return report


def await_report(inner, name, process, results=0) -> Path:
    """The folder of a run that is still on, once its report has so many results."""
    while not (folder := folder_of(inner, name)) or len(load_report(folder).results) < results:
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"the run came to its end with status {process.wait(timeout=0.01)}")
    return folder


@pytest.fixture(scope="module")
def inner(inner_of_module):
    inner_of_module.plant(machine=MACHINE, killer=KILLER, worker_killer=WORKER_KILLER)
    pins = "".join(PIN.format(k) for k in range(1, PINS + 1))
    (inner_of_module.folder / "release.yaml").write_text(RELEASE + pins)
    return inner_of_module


@pytest.fixture(scope="module")
def whole(inner) -> tuple[Report, float]:
    """A run that nobody kills, and how long it takes, in seconds."""
    since = time.monotonic()
    report = undisturbed(inner, "whole-0")
    return report, time.monotonic() - since


@pytest.fixture(scope="module")
def killed(inner, whole) -> list[str]:
    """20 runs in the same results: those of MOMENTS, and 9 that are killed at moments spread over a run's life."""
    chosen = random.Random(2026)
    # Three while there is no report yet, and six from then on: how long a start takes depends on what else runs.
    waits = {f"early-{k}": chosen.random() * (whole[1] - whole[0].duration_s) for k in range(3)}
    waits |= {f"late-{k}": (k + chosen.random()) / 5 * whole[0].duration_s for k in range(6)}

    def run(name):
        file, stage = MOMENTS.get(name, (0, ""))
        process = start(inner, name, "-p", "killer", environment={"KILL_AT": str(file), "KILL_STAGE": stage})
        if name.startswith("late"):
            await_report(inner, name, process)
        try:
            process.wait(timeout=waits.get(name, 60))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, [*MOMENTS, *waits]))
    return [*waits]


def test_killed_at_one_file(inner, whole, killed):
    """What is left is what the file before says, or this one where it was there already."""
    expected = essence(whole[0])
    for name, (file, stage) in MOMENTS.items():
        done = file if stage == "replaced" else file - 1
        folder = folder_of(inner, name)
        if done == 0:
            assert folder is None
            continue
        report = valid_report(folder)
        assert essence(report) == expected[: done - 1], name
        assert report.complete is (done >= PINS + 4), name
        assert {path.name for path in folder.iterdir() if path.suffix != ".part"} == set(FILES[:done]), name
        assert len(list(folder.glob(".*.part"))) == (stage in ("half", "written")), name


def test_killed_from_outside(inner, whole, killed):
    expected, found = essence(whole[0]), 0
    for name in killed:
        if folder := folder_of(inner, name):
            found += 1
            report = valid_report(folder)
            assert essence(report) == expected[: len(report.results)], name
            if not report.complete:
                assert report.finished is None
                assert not set(FILES[-3:]) & {path.name for path in folder.iterdir()}, name
    assert found >= 6


def test_later_run_is_as_the_first(inner, whole, killed):
    assert essence(undisturbed(inner, "whole-1")) == essence(whole[0])


def test_verbs_read_what_killed_runs_leave(inner, killed, tmp_path, capsys):
    results = shutil.copytree(inner.folder / "results", tmp_path / "results")
    reports = {path.parent: load_report(path) for path in sorted(results.rglob("report.json"))}
    stopped = [folder for folder, report in reports.items() if not report.complete]
    finished = next(folder for folder, report in reports.items() if report.complete)
    assert stopped
    assert list(results.rglob(".*.part"))
    assert main(["trend", str(results), "--format", "json"]) == 0
    trend = json.loads(capsys.readouterr().out)
    assert trend["skipped"] == []
    assert len(trend["incomplete"]) == len(stopped)
    assert main(["diff", str(stopped[-1]), str(finished)]) in (0, 1)
    assert "did not finish" in capsys.readouterr().out
    for folder in stopped:
        assert main(["report", str(folder)]) == 0
        assert {path.name for path in folder.iterdir()} == set(FILES)
        assert "This run did not finish" in (folder / "report.html").read_text()


def test_killed_controller_leaves_a_report_and_no_worker(inner, whole):
    name = "controller"
    process = start(inner, name, "-n", "2")
    folder = await_report(inner, name, process, results=PINS // 2)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    gone, alive = psutil.wait_procs(workers, timeout=20)
    assert (len(gone) >= 2, alive) == (True, [])
    report = valid_report(folder)
    assert not report.complete
    assert report.required_checks == whole[0].required_checks
    assert unordered(report) < unordered(whole[0])


@pytest.mark.parametrize("phase", ["call", "teardown"])
def test_check_of_a_killed_worker_has_failed_and_no_other_is_lost(inner, whole, phase):
    name, killed = f"worker-{phase}", "pins.pin[pin-3]"
    start(inner, name, "-n", "2", "-p", "worker_killer", environment={"KILL": f"test_pin[pin-3] {phase}"}).wait(60)
    report = valid_report(folder_of(inner, name))
    assert report.complete
    (crashed,) = [result for result in report.results if result.id == killed]
    assert crashed.outcome == "fail"
    assert "the process died" in crashed.message
    assert unordered(report, but=killed) == unordered(whole[0], but=killed)
    assert len(report.results) == len(whole[0].results)
