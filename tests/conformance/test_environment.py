"""Facts of the machine and the kit."""

import subprocess
import sys

import pytest

from trncheck.conformance import environment
from trncheck.neuron import host


@pytest.fixture
def dev(tmp_path, monkeypatch):
    """A /dev of its own."""
    monkeypatch.setattr(host, "root", lambda: tmp_path)
    monkeypatch.setattr(host, "output", lambda command: None)
    (tmp_path / "dev").mkdir()
    return tmp_path / "dev"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository in place of the kit's; returns its git."""

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        command = ["git", *identity, *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    monkeypatch.setattr(environment, "_ROOT", tmp_path)
    return git


def test_no_framework_is_imported():
    code = (
        "import sys\n"
        "from trncheck.conformance.environment import describe_environment, kit_commit\n"
        "kit_commit(), describe_environment()\n"
        "print({'torch', 'transformers', 'torchtitan'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "set()\n"


def test_installed_packages_are_listed_and_others_are_not():
    packages = environment.describe_environment().packages
    assert packages["pytest"] == pytest.__version__
    assert {"trncheck", "torch", "transformers"} <= packages.keys()
    assert all(packages.values())
    assert environment.installed_version("no-such-package") is None


def test_variables_that_can_move_a_number_are_listed_and_no_others(monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-3")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never")
    monkeypatch.setenv("HF_TOKEN", "never")
    variables = environment.describe_environment().variables
    assert variables.items() >= {"NEURON_RT_VISIBLE_CORES": "0-3", "OMP_NUM_THREADS": "1"}.items()
    assert "never" not in variables.values()


def test_machine_has_cores_and_memory():
    found = environment.describe_environment()
    assert found.cores >= 1
    assert found.memory_gib > 0
    assert found.cpu
    assert found.os


def test_neuron_devices_are_counted(dev):
    assert not environment.has_neuron_device()
    assert environment.describe_environment().accelerator == "none"
    (dev / "neuron_monitor").touch()
    assert not environment.has_neuron_device()
    for number in range(16):
        (dev / f"neuron{number}").touch()
    assert environment.has_neuron_device()
    accelerator = environment.describe_environment().accelerator
    assert accelerator.startswith("unknown instance type, 16 Neuron devices, unknown logical cores")


def test_commit_of_a_clean_checkout(checkout, tmp_path):
    assert environment.kit_commit() == checkout("rev-parse", "--short=12", "HEAD")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "report.json").touch()
    assert "dirty" not in environment.kit_commit()


def test_changed_file_makes_the_commit_dirty(checkout, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'changed'\n")
    assert environment.kit_commit() == checkout("rev-parse", "--short=12", "HEAD") + "+dirty"


def test_installed_kit_has_no_commit(checkout, tmp_path, monkeypatch):
    # An environment inside of somebody's repository: that commit says nothing about the kit.
    site = tmp_path / "venv" / "site-packages" / "trncheck"
    site.mkdir(parents=True)
    monkeypatch.setattr(environment, "_ROOT", site)
    assert environment.kit_commit() is None


def test_machine_without_git_has_no_commit(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert environment.kit_commit() is None
