"""What is installed into the environment of a Neuron image, and what is left alone there."""

import importlib.util
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from trncheck.conformance.pins import PLACEHOLDERS
from trncheck.fixtures.manifest import default_release, load_release

SCRIPT = Path(__file__).resolve().parents[2] / "ci" / "install_trn2.py"
IMAGE = {
    "torch": "2.14.0",
    "torch-neuronx": "2.14.3.0.99",
    "nki": "0.7.1",
    "neuronx-cc": "2.28.9000.0",
    "safetensors": "0.6",
    "torchtitan": "0.2.2+neuron.1",
}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("install_trn2", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_an_image_ships_is_left_alone_in_any_version(script, tmp_path):
    (command,) = script.commands(IMAGE, tmp_path / "installed.txt", tmp_path)
    wanted = command[command.index("--editable") + 2 :]
    assert wanted == [
        "ml-dtypes>=0.5",
        "threadpoolctl>=3.5",
        "transformers==5.16.0.*",
        "Jinja2>=3.1",
        "matplotlib>=3.9",
    ]
    assert command[command.index("--constraint") + 1] == str(tmp_path / "installed.txt")
    assert "https://pip.repos.neuron.amazonaws.com" in command
    assert not {"--upgrade", "-U", "--force-reinstall"} & set(command)


def test_empty_environment_gets_the_whole_stack_and_the_fork(script, tmp_path):
    kit, clone, fork = script.commands({}, tmp_path / "installed.txt", tmp_path)
    assert {"torch==2.14.0.*", "torch-neuronx==2.14.3.*", "nki==0.7.0.*"} <= set(kit)
    assert clone[:2] == ["git", "clone"]
    assert fork[-1] == clone[-1] == str(tmp_path / "torchtitan-neuron")


def test_fork_that_is_cloned_already_is_not_cloned_again(script, tmp_path):
    (tmp_path / "torchtitan-neuron").mkdir()
    assert [command[0] for command in script.commands({}, tmp_path / "c", tmp_path)] == [sys.executable] * 2


def test_fork_is_the_one_that_the_release_pins(script):
    pin = next(pin for pin in load_release(default_release()).pins if pin.name == "torchtitan-neuron")
    assert pin.accepts == [script.BRANCH]
    assert script.FORK.removesuffix(".git") in pin.source
    python = next(pin for pin in load_release(default_release()).pins if pin.name == "python")
    assert ".".join(map(str, script.OLDEST)) == python.accepts[0]


def test_placeholders_of_pypi_satisfy_nothing(script):
    from packaging.requirements import Requirement

    wanted = {requirement.name: requirement.specifier for requirement in map(Requirement, script.missing({}))}
    assert not [name for name, version in PLACEHOLDERS.items() if name in wanted and version in wanted[name]]
    assert len(wanted.keys() & PLACEHOLDERS.keys()) == 3


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python is new enough")
def test_older_python_is_refused_in_one_line():
    ended = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "activate one of 3.12 or newer" in ended.stdout
    assert ended.stdout.count("\n") == 1


def test_versions_here_are_constraints_that_pip_takes(script, tmp_path, monkeypatch):
    ran = []

    def run(command, **_):
        if "--constraint" in command:
            ran.append(Path(command[command.index("--constraint") + 1]).read_text().splitlines())
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(script, "OLDEST", (3, 11))
    monkeypatch.setattr(script.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(script.subprocess, "run", run)
    assert script.main() == 0
    torch = next(dist.version for dist in distributions() if dist.name == "torch")
    assert f"torch=={torch}" in ran[0]
    assert not [line for line in ran[0] if line.startswith(("trncheck==", "pip=="))]


def test_failure_of_pip_is_said(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "OLDEST", (3, 11))
    monkeypatch.setattr(script.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    assert script.main() == 1
    assert "failed, see above" in capsys.readouterr().out
