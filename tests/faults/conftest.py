"""Runs each planted fault: the marked function is the fault, the marked check must go red for the stated reason.

The function runs in a child that is forked from this process, which has imported everything; there it patches what
it likes, and the conformance suite then runs the one check. Nothing leaks back.
"""

import gc
import importlib
import multiprocessing
import os
import sys
from pathlib import Path

import pytest

_NEEDLESS = ("cacheprovider", "xdist", "hypothesispytest", "timeout")
"""Plugins that have no part in a conformance run."""


@pytest.fixture(scope="session")
def published():
    """The published weights, trained before any fault is planted, so that none of them gets into the cache."""
    from trncheck.conformance import plugin
    from trncheck.trainers import launch, published

    launch.warm_up()
    for file in (*plugin.HERE.glob("*.py"), *plugin.HERE.parent.glob("reports/*.py")):
        importlib.import_module(f"trncheck.{file.parent.name}.{file.stem}")
    folders = [published.published_folder(model) for model in published.CONFIGS]
    gc.freeze()  # what is here now needs no looking through in every child
    return folders


@pytest.fixture
def conformance(published, tmp_path):
    """Runs checks of the conformance suite in a forked child, with a fault planted or without: id -> CheckResult."""

    def run(checks: list[str], plant=lambda: None) -> dict:
        from trncheck.reports.store import load_report

        child = multiprocessing.get_context("fork").Process(target=_run_checks, args=(checks, plant, tmp_path))
        child.start()
        child.join()
        reports = list(tmp_path.rglob("report.json"))
        if len(reports) != 1:
            pytest.fail(f"the suite wrote {len(reports)} reports:\n{(tmp_path / 'log').read_text()[-3000:]}")
        return {result.id: result for result in load_report(reports[0]).results}

    return run


def _run_checks(checks: list[str], plant, folder: Path) -> None:
    with (folder / "log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    plant()
    selection = [argument for check in checks for argument in ("--check", check)]
    without = [argument for name in _NEEDLESS for argument in ("-p", f"no:{name}")]
    isolated = ["-c", os.devnull, "--rootdir", str(folder), "--assert=plain", *without]
    where = ["--results", str(folder / "results"), "--basetemp", str(folder / "runs")]
    level = "full" if any(check.startswith("losses.full_size") for check in checks) else "standard"
    pytest.main(
        ["--pyargs", "trncheck.conformance", "--target", "cpu", "--level", level, *isolated, *where, *selection]
    )


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
