"""Runs each planted fault: the marked function is the fault, the marked check must go red for the stated reason.

The function runs in a child that is forked from this process, which has imported everything; there it patches what
it likes, and the conformance suite then runs the one check. Nothing leaks back.

Checks of a whole trn2 run here as well: the machine is the stand-in's, the ranks are forked and compute on the CPU, and
what only a device can tell is said by ``_become_trn2``. ``tests/neuron`` rehearses the whole way through its code.
"""

import gc
import importlib
import multiprocessing
import os
import sys
from pathlib import Path
from unittest import mock

import pytest

_NEEDLESS = ("cacheprovider", "xdist", "hypothesispytest", "timeout")
"""Plugins that have no part in a conformance run."""
_RELOADING = ("checkpoint.", "losses.learning_published")
"""What the checks start with that load exports."""
_OF_TRN2 = ("device", "walkthrough")
"""Subjects that only hardware can decide."""


@pytest.fixture(scope="session")
def published():
    """The published weights, trained before any fault is planted, so that none of them gets into the cache."""
    from trncheck.conformance import plugin
    from trncheck.trainers import children, published

    children.warm_up()
    for file in (*plugin.HERE.glob("*.py"), *plugin.HERE.parent.glob("reports/*.py")):
        importlib.import_module(f"trncheck.{file.parent.name}.{file.stem}")
    folders = [published.published_folder(model) for model in published.CONFIGS]
    gc.freeze()  # what is here now needs no looking through in every child
    return folders


@pytest.fixture
def conformance(published, tmp_path):
    """Runs checks of the conformance suite in a forked child, with a fault planted or without: id -> CheckResult."""

    def run(checks: list[str], plant=lambda: None) -> dict:
        found = {}
        for target in ("cpu", "trn2"):
            if of_target := [check for check in checks if (check.split(".")[0] in _OF_TRN2) == (target == "trn2")]:
                found |= _results(of_target, plant, target, tmp_path / target)
        return found

    return run


def _results(checks: list[str], plant, target: str, folder: Path) -> dict:
    from trncheck.reports.store import load_report

    folder.mkdir()
    child = multiprocessing.get_context("fork").Process(target=_run_checks, args=(checks, plant, target, folder))
    child.start()
    child.join()
    reports = list(folder.rglob("report.json"))
    if len(reports) != 1:
        pytest.fail(f"the suite wrote {len(reports)} reports:\n{(folder / 'log').read_text()[-3000:]}")
    return {result.id: result for result in load_report(reports[0]).results}


def _with_shared(started, plant):
    """``plant``, in a child whose ``Reloader`` talks to the process of ``started``."""

    def both():
        from trncheck.conformance.reload import Reloader

        Reloader.__enter__ = lambda self: vars(self).update(_process=started._process) or self
        Reloader.__exit__ = lambda self, *_: None
        plant()

    return both


def _run_checks(checks: list[str], plant, target: str, folder: Path) -> None:
    with (folder / "log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    if target == "trn2":
        _become_trn2(folder / "stand-in")
    plant()
    selection = [argument for check in checks for argument in ("--check", check)]
    without = [argument for name in _NEEDLESS for argument in ("-p", f"no:{name}")]
    isolated = ["-c", os.devnull, "--rootdir", str(folder), "--assert=plain", *without]
    where = ["--results", str(folder / "results"), "--basetemp", str(folder / "runs")]
    full = target == "trn2" or any(check.startswith("losses.full_size") for check in checks)
    how = ["--target", target, "--level", "full" if full else "standard"]
    pytest.main(["--pyargs", "trncheck.conformance", *how, *isolated, *where, *selection])


def _become_trn2(folder: Path) -> None:
    from trncheck.conformance import check_fixtures
    from trncheck.fixtures.manifest import default_release, load_release
    from trncheck.neuron import device, host
    from trncheck.neuron.standin import folder as standin
    from trncheck.trainers.record import RunRecord

    standin.write(folder, load_release(default_release()), extension=Path(__file__))
    os.environ |= {host.REHEARSAL: str(folder), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # so that no core is leased
    check_fixtures.LAUNCHER = dict.fromkeys(check_fixtures.LAUNCHER, "fork")
    check_fixtures.DEVICE = {"trn2": "cpu"}
    device.DEVICE, device.BACKEND = "cpu", "gloo"
    device.fallbacks = lambda: device.Fallbacks(True, ("aten::mm", "aten::silu"), ("aten::cumsum",))
    device.memory = lambda: device.Memory(2**20, 2**21)
    device.Compilations = mock.Mock(return_value=mock.Mock(by_step=lambda: ([9, 1, 0, 0], "")))
    RunRecord.cores = property(lambda run: [str(rank) for rank in range(run.world_size)])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    mark = pyfuncitem.get_closest_marker("fault")
    if mark is None:
        return None
    check, reason = mark.args
    result = pyfuncitem._request.getfixturevalue("conformance")([check], plant=pyfuncitem.obj).get(check)
    verdict = _judge(result, reason)
    pyfuncitem.user_properties.append(("fault", verdict))
    seen = f"{result.outcome.value}: {result.message}" if result else "not among the results"
    assert verdict == "detected", f"{verdict}: {check} is {seen}"
    return True


def _judge(result, reason: str) -> str:
    if result is None or not result.outcome.is_failure:
        return "missed"
    return "detected" if reason in result.message else "wrong reason"
