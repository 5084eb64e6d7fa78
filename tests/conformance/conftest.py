"""Runs the suite in a pytest of its own, in an empty folder, on a machine that is made up."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from trncheck.reports.schema import CheckResult, Report
from trncheck.reports.store import load_report

# A plugin of the inner session: what the release wants of a CPU is installed, whatever this machine has.
_MACHINE = """\
from trncheck.conformance import environment, pins
from trncheck.fixtures.installed import Found

environment.has_neuron_device = lambda: False
pins.probe = lambda *_: {"torch": Found("2.13.0"), "transformers": Found("5.16.0"), "torchtitan": Found("0.3.0")}
"""
# Says what the inner session had loaded, and where it looks for modules.
_WITNESS = """\
import json, os, pathlib, sys

def pytest_unconfigure():
    facts = {"modules": sorted(sys.modules), "path": sys.path, "offline": os.environ.get("HF_HUB_OFFLINE")}
    pathlib.Path(__file__).with_name("witness.json").write_text(json.dumps(facts))
"""
_PYTEST = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
SUITE = ("-p", "machine", "--assert=plain", "--pyargs", "--release", "2.33.0")
PINS = ("--check", "pins.*", "--check", "walkthrough.*")
"""The checks that train nothing."""


@dataclass(frozen=True)
class Ended:
    """An inner session that has ended."""

    status: int
    out: str
    err: str
    folder: Path
    """Where it ran, and where its results are."""
    witness: dict
    """With ``-p witness``: modules that were loaded, sys.path and the offline switch at the end of the session."""

    @property
    def run_folders(self) -> list[Path]:
        return sorted(self.folder.glob("results/*/*/*"))

    @property
    def report(self) -> Report:
        (folder,) = self.run_folders
        return load_report(folder)

    @property
    def results(self) -> dict[str, CheckResult]:
        results = {result.id: result for result in self.report.results}
        assert len(results) == len(self.report.results), "an id came twice"
        return results


class Inner:
    """Starts pytest in an empty folder below ``root``."""

    def __init__(self, root: Path):
        self.folder, self._plugins = root / "here", root / "plugins"
        self.folder.mkdir(parents=True)
        self._plugins.mkdir()
        self.plant(machine=_MACHINE, witness=_WITNESS)

    def plant(self, **plugins: str) -> None:
        """Write modules that ``-p`` finds."""
        for name, source in plugins.items():
            (self._plugins / f"{name}.py").write_text(source)

    def start(self, *arguments: str, environment=None, **options) -> subprocess.Popen:
        """pytest with exactly these arguments."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "HF_", "TRANSFORMERS_", "NO_COLOR", "FORCE_COLOR"))
        }
        clean |= {"PYTHONPATH": str(self._plugins)} | (environment or {})
        pipes = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "errors": "replace",
            "cwd": self.folder,
        }
        return subprocess.Popen([*_PYTEST, *arguments], env=clean, **(pipes | options))

    def pytest(self, *arguments: str, **options) -> Ended:
        """``start``, and wait for the end."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=120)
        facts = self._plugins / "witness.json"
        witness = json.loads(facts.read_text()) if facts.is_file() else {}
        return Ended(process.returncode, out, err, self.folder, witness)

    def run(self, *arguments: str, suite: str = "trncheck.conformance", **options) -> Ended:
        """``pytest --pyargs trncheck.conformance`` with further arguments."""
        return self.pytest(*SUITE, suite, *arguments, **options)


@pytest.fixture
def inner(tmp_path) -> Inner:
    return Inner(tmp_path)


@pytest.fixture(scope="module")
def inner_of_module(tmp_path_factory) -> Inner:
    """For a session that several tests of a module look at."""
    return Inner(tmp_path_factory.mktemp("inner"))


@pytest.fixture(scope="session")
def healthy(tmp_path_factory) -> Ended:
    """A run in which nothing failed."""
    return Inner(tmp_path_factory.mktemp("healthy")).run(*PINS, "-p", "witness", "--junitxml", "own.xml")
