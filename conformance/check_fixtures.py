"""What checks are given. Registered by the plugin in conformance runs only."""

import os
from pathlib import Path

import pytest

from trncheck.conformance.judge import Judge
from trncheck.conformance.outcomes import JUDGE
from trncheck.conformance.plugin import RELEASE
from trncheck.conformance.policy import reported
from trncheck.neuron import settings

LAUNCHER = {"cpu": "fork", "trn2": "torchrun", "trn2-rehearsal": "serve"}
"""How the ranks of small runs are started, by target; those at published size by torchrun."""
DEVICE = {"cpu": "cpu", "trn2": "neuron"}
"""Where the tensors are that kernels are tried on, by target."""


@pytest.fixture(scope="session", autouse=True)
def explicit_settings(request, tmp_path_factory):
    """On a Neuron device, set variables whose defaults have moved, and give the session its own compilation caches."""
    if request.config.option.target == "trn2":
        os.environ |= settings.explicit(os.environ, tmp_path_factory.mktemp("neuron"))


@pytest.fixture
def judge(request) -> Judge:
    """Collects what the check compares."""
    request.node.stash[JUDGE] = Judge()
    return request.node.stash[JUDGE]


@pytest.fixture(scope="session")
def runs(request, tmp_path_factory):
    """All training runs of the session, made when first asked for."""
    from trncheck.conformance.runs import RunBook

    launcher = LAUNCHER[reported(request.config.option.target)]
    return RunBook(tmp_path_factory.mktemp("runs"), launcher, progress=_progress(request.config))


@pytest.fixture(scope="session")
def kernels(request, target):
    """All catalogued kernels, and their runs on generated inputs."""
    from trncheck.conformance.kernel_runs import KernelRuns
    from trncheck.kernels import runtime

    degrees = (1, 2) if target == "cpu" else (runtime.lnc(),)
    return KernelRuns(request.config.option.level, DEVICE[target], degrees)


@pytest.fixture(scope="session")
def device_runs(target, runs):
    """``runs``, where they are on a Neuron device."""
    if target != "trn2":
        pytest.skip("needs a Neuron device")
    return runs


@pytest.fixture(scope="session")
def device_kernels(target, kernels):
    """``kernels``, where they are on a Neuron device."""
    if target != "trn2":
        pytest.skip("needs a Neuron device")
    return kernels


@pytest.fixture(scope="session")
def instance(request, target, tmp_path_factory):
    """The runs at published size on a whole instance."""
    if target != "trn2":
        pytest.skip("needs a trn2.48xlarge with 64 NeuronCores")
    from trncheck.conformance.hardware import WholeInstance
    from trncheck.neuron import host, machine

    assets = request.config.option.assets
    return WholeInstance(
        tmp_path_factory.mktemp("instance"),
        cores=machine.inspect().logical_cores,
        assets=Path(assets) if assets else None,
        rehearsal=host.rehearsal() is not None,
        launcher=LAUNCHER[target],
        progress=_progress(request.config),
    )


@pytest.fixture(scope="session")
def reloader(runs, tmp_path_factory):
    """Loads exported folders with stock Transformers in fresh processes."""
    from trncheck.conformance.reload import Reloader

    with Reloader(tmp_path_factory.mktemp("reload")) as started:
        yield started


@pytest.fixture(scope="session")
def release(request):
    """The manifest of the release under judgement."""
    return request.config.stash[RELEASE]


@pytest.fixture(scope="session")
def machine():
    """What this machine has of Neuron, as it was when first asked for."""
    from trncheck.neuron.machine import inspect

    return inspect()


@pytest.fixture(scope="session")
def pin_rows(release, target):
    """Every pin of the release against what is installed, and the line about the stacks."""
    from trncheck.conformance.pins import inspect_pins

    return inspect_pins(release, target)


@pytest.fixture(scope="session")
def target(request) -> str:
    """``cpu`` or ``trn2``."""
    return request.config.option.target


def _progress(config):
    """Writes what takes long to the terminal of a verbose run, past pytest's capturing."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if terminal is None or capture is None or config.option.verbose < 1:
        return lambda text: None

    def tell(text: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(f"    {text}", cyan=True)

    return tell
