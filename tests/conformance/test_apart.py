"""Checks that compute on a NeuronCore themselves: in a process apart, which has the core and gives it back."""

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from trncheck.neuron import leases

CONFTEST = """
import os
import pytest
from trncheck.conformance.apart import Apart
from trncheck.neuron import leases

leases.usable = lambda environ: (tuple(range(4, 8)), 2)


def pytest_configure(config):
    config.pluginmanager.register(Apart())


@pytest.fixture(scope="session")
def kernels():
    return os.getpid()


@pytest.fixture(scope="session")
def session():
    return os.getpid()
"""


Ended = tuple[dict[str, int], str]


@pytest.fixture
def apart(monkeypatch, tmp_path) -> Callable[..., Ended]:
    """``apart(source, *arguments)``: outcomes and output of a session of these checks on a machine with cores 4-7."""
    monkeypatch.setenv(leases.FOLDER, str(tmp_path / "leases"))
    monkeypatch.delenv("NEURON_RT_VISIBLE_CORES", raising=False)
    (tmp_path / "conftest.py").write_text(CONFTEST)

    def run(source: str, *arguments: str) -> Ended:
        (tmp_path / "test_it.py").write_text("import os, signal\nfrom pathlib import Path\n" + source)
        command = [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            "-c",
            os.devnull,
            "--rootdir",
            ".",
        ]
        result = subprocess.run([*command, *arguments, "test_it.py"], cwd=tmp_path, capture_output=True, text=True)
        counts = re.findall(r"(\d+) (passed|failed|error)", result.stdout.splitlines()[-1])
        return {outcome: int(count) for count, outcome in counts}, result.stdout

    return run


def test_neighbours_share_a_process_with_a_core_and_others_run_in_the_session(apart):
    outcomes, _ = apart("""
def test_before(session):
    Path("session").write_text(str(session))

def test_first(kernels):
    assert os.environ["NEURON_RT_VISIBLE_CORES"] == "4"
    Path("kernels").write_text(str(kernels))

def test_second(kernels):
    assert str(kernels) == Path("kernels").read_text() != Path("session").read_text()

def test_between(session):
    assert str(session) == Path("session").read_text()
    assert "NEURON_RT_VISIBLE_CORES" not in os.environ
    from trncheck.neuron import leases
    with leases.lease(4, allowed=range(4, 8), timeout=5):
        pass  # the first process has ended, and its core is free

def test_third(kernels):
    assert str(kernels) != Path("kernels").read_text()
""")
    assert outcomes == {"passed": 5}


def test_what_fails_apart_fails_with_its_own_words(apart):
    outcomes, output = apart("def test_wrong(kernels):\n    assert kernels == 0, 'not on this core'\n")
    assert outcomes == {"failed": 1}
    assert "not on this core" in output


def test_a_process_that_dies_fails_its_check_and_no_other(apart):
    outcomes, output = apart("""
def test_first(kernels):
    pass

def test_dies(kernels):
    os.kill(os.getpid(), signal.SIGSEGV)

def test_next(kernels):
    pass
""")
    assert outcomes == {"passed": 2, "failed": 1}
    assert "the process that computed on the NeuronCore was killed by SIGSEGV" in output


def test_workers_of_xdist_compute_on_different_cores(apart, tmp_path):
    os.mkfifo(tmp_path / "both")  # whoever opens it waits for the other
    source = """
def test_first(kernels):
    Path("core").write_text(os.environ["NEURON_RT_VISIBLE_CORES"])
    assert Path("both").read_text() != os.environ["NEURON_RT_VISIBLE_CORES"]

def test_second(kernels):
    Path("both").write_text(os.environ["NEURON_RT_VISIBLE_CORES"])
"""
    assert apart(source, "-n", "2")[0] == {"passed": 2}


def test_cores_that_stay_busy_end_the_session_with_one_line(apart):
    source = """
from trncheck.neuron import leases
leases.lease.__wrapped__.__kwdefaults__["timeout"] = 0

def test_first(kernels):
    pass

def test_second(kernels):
    pass
"""
    with leases.lease(4, allowed=range(4, 8)) as held:
        outcomes, output = apart(source)
    assert outcomes == {}
    assert output.count(f"4-7 held by pid {held.owner} ") == 1
