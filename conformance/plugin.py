"""The pytest plugin: options, selection by level, and the way from a test's outcome to a result in the report.

It does nothing in a session that does not run ``trncheck.conformance``, and loads nothing heavy before it must.
"""

import functools
import importlib
import os
from pathlib import Path

import pytest

from trncheck.conformance import ids
from trncheck.conformance.options import OPTIONS

HERE = Path(__file__).resolve().parent
_REPORTER = "trncheck-reporter"
_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
_SITES = {"site-packages", "dist-packages"}
RELEASE = pytest.StashKey()
"""The manifest of the release under judgement."""
KNOWN_FAILURES = pytest.StashKey()
"""Its expected failures that count for this release and target."""
_EXPECTED = pytest.StashKey()
"""In an xdist worker, until the controller knows it: the checks of the level, and whether each is required."""


def pytest_addoption(parser):
    group = parser.getgroup("trncheck", "trncheck: can this Neuron release be trusted?")
    for flag, how in OPTIONS.items():
        group.addoption(flag, **how)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.addinivalue_line("markers", "level(name): lowest level at which a check runs; the highest of several counts")
    config.addinivalue_line("markers", "informative: a check that no verdict depends on")
    config.addinivalue_line("markers", "trn2: a check that only hardware can decide")
    config.addinivalue_line("markers", "cpu: a check of what the host computes, where a device has no part")
    config.addinivalue_line("markers", "cores(n): logical NeuronCores that the check needs on trn2, if not its ranks")
    config.addinivalue_line("markers", "minutes(n): about how long the check takes on trn2, for trncheck plan")
    if not _runs_conformance(config):
        return
    for variable in _OFFLINE:
        os.environ.setdefault(variable, "1")
    _settle_options(config)
    if config.option.collectonly:
        return
    from trncheck.conformance import check_fixtures

    config.pluginmanager.register(check_fixtures, "trncheck-check-fixtures")
    if config.option.target == "trn2":
        from trncheck.conformance.apart import Apart

        config.pluginmanager.register(Apart(), "trncheck-apart")
    if not hasattr(config, "workerinput"):
        from trncheck.conformance.reporter import Reporter

        config.pluginmanager.register(Reporter(config), _REPORTER)


def _runs_conformance(config) -> bool:
    """Whether the arguments name the conformance suite, as a package, a path, or through ``testpaths``."""
    for argument in config.args:
        name = argument.split("::")[0]
        if config.option.pyargs and name.split(".")[:2] == ["trncheck", "conformance"]:
            return True
        path = (config.invocation_params.dir / name).resolve()
        if path == HERE or HERE in path.parents:
            return True
        # A folder above counts where it holds a checkout, not where it holds the environment of another project.
        if path in HERE.parents and path.exists() and not _SITES & set(HERE.relative_to(path).parts):
            return True
    return False


def _settle_options(config):
    """Make ``auto`` a target and load the release, in every process of a run; UsageError where that cannot be."""
    from trncheck.conformance.environment import has_neuron_device
    from trncheck.conformance.expected_failures import in_force
    from trncheck.fixtures.manifest import default_release, load_release

    option = config.option
    if option.target == "auto":
        option.target = "trn2" if has_neuron_device() else "cpu"
    if option.target == "trn2" and not option.collectonly and not has_neuron_device():
        raise pytest.UsageError(
            "target trn2: this machine has no Neuron device (/dev/neuron0 is missing); "
            "run on a trn2 instance with the Neuron driver, or use --target cpu"
        )
    if option.assets and not Path(option.assets).is_dir():
        raise pytest.UsageError(
            f"--assets {option.assets}: no such folder; it holds published models under their names"
        )
    try:
        config.stash[RELEASE] = load_release(option.release or default_release())
        config.stash[KNOWN_FAILURES] = in_force(config.stash[RELEASE], option.target)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


class ConformanceModule(pytest.Module):
    """A module of checks under its real name, so that it shares its imports with the rest of the package.

    pytest's own import modes would put the checkout, or site-packages/trncheck, on ``sys.path``, where our
    ``kernels`` shadows the package that Transformers imports.
    """

    def _getobj(self):
        return importlib.import_module(f"trncheck.conformance.{self.path.stem}")


def pytest_collect_directory(path, parent):
    # As a plain folder, because a package's set-up imports its __init__.py, and puts the same on ``sys.path``.
    return pytest.Dir.from_parent(parent, path=path) if _is_here(path) else None


def pytest_pycollect_makemodule(module_path, parent):
    return ConformanceModule.from_parent(parent, path=module_path) if _is_here(module_path.parent) else None


def pytest_generate_tests(metafunc):
    """One check per pin and per published number of the release."""
    wanted = {"pin", "expectation"} & set(metafunc.fixturenames)
    if not wanted or not is_check(metafunc.definition):
        return
    release = metafunc.config.stash[RELEASE]
    if "pin" in wanted:
        pins = [*(release.stacks[0].pins if release.stacks else []), *release.pins]
        stands_in = metafunc.config.option.target == "cpu"
        names = [pin.name for pin in pins if pin.needs != "cpu" or stands_in]
        metafunc.parametrize("pin", names)
    else:
        cases = [pytest.param(expectation, id=expectation.name) for expectation in release.expectations]
        nothing = [pytest.mark.informative, pytest.mark.skip(reason=f"no number is published for {release.version}")]
        metafunc.parametrize("expectation", cases or [pytest.param(None, id="none", marks=nothing)])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if config.option.target == "trn2":
        items[:] = [item for item in items if not (is_check(item) and item.get_closest_marker("cpu"))]
    checks = [item for item in items if is_check(item)]
    if not checks:
        return
    from trncheck.conformance.policy import within

    of_level = [item for item in checks if within(level_of(item), config.option.level)]
    expected = {check_id(item): _is_required(item.iter_markers()) for item in of_level} | _left_out(config, checks)
    selected = [item for item in of_level if _is_selected(check_id(item), config.option.check)]
    problem = _bad_selection(config, expected, selected) or _bad_expected_failures(config, checks)
    if problem := problem or _no_cores(config, selected):
        if not hasattr(config, "workeroutput"):
            raise pytest.UsageError(problem)
        # xdist's controller says it, because it takes an error in a worker for a crash.
        config.workeroutput["trncheck_usage_error"] = problem
        items.clear()
        return
    dropped = [item for item in checks if item not in set(selected)]
    config.hook.pytest_deselected(items=dropped)
    items[:] = sorted((item for item in items if item not in set(dropped)), key=_place)
    if reporter := config.pluginmanager.get_plugin(_REPORTER):
        reporter.start()
        reporter.expect(expected)
    elif hasattr(config, "workeroutput"):
        config.stash[_EXPECTED] = expected


def _bad_selection(config, of_level: list[str], selected: list) -> str:
    """What is wrong with ``--check``, or nothing."""
    if selected or not config.option.check:
        return ""
    hint = ids.suggestion(config.option.check[0], {ids.name_of(id) for id in of_level})
    return f"no check of level {config.option.level} matches {', '.join(config.option.check)}{hint}"


def _no_cores(config, selected: list) -> str:
    """Why the NeuronCores that ``selected`` needs cannot be had, or nothing."""
    if config.option.target != "trn2" or config.option.collectonly or not selected:
        return ""
    from trncheck.conformance.cores import obstacle

    return obstacle(os.environ, selected)


def _bad_expected_failures(config, checks) -> str:
    """What is wrong with the manifest's expected failures, held against the whole suite, or nothing."""
    from trncheck.conformance.expected_failures import demand_checks

    entries = config.stash[KNOWN_FAILURES]
    if not entries:
        return ""
    collected, functions = {check_id(item) for item in checks}, _functions()
    whole = functions.keys() <= {ids.name_of(id) for id in collected} and not any("::" in word for word in config.args)
    try:
        demand_checks(entries, collected, functions, whole=whole)
    except ValueError as error:
        return str(error)
    return ""


def _left_out(config, checks) -> dict[str, bool]:
    """What the arguments keep out of the collection, and whether it is required.

    Names of checks, because only collecting one tells its cases. An argument that names a single case stands for the
    cases beside it, which are not counted.
    """
    from trncheck.conformance.policy import within

    functions = _functions()
    single_cases = [argument for argument in config.args if "[" in argument.partition("::")[2]]
    collected = {ids.name_of(check_id(item)) for item in checks}
    absent = {
        name: _is_required(marks)
        for name, marks in functions.items()
        if name not in collected and within(_highest(marks), config.option.level)
    }
    return dict.fromkeys(single_cases, False) | absent


def _functions() -> dict[str, list]:
    """Name of every check of the suite -> the marks of its function."""
    return {
        f"{path.stem.removeprefix('test_')}.{name.removeprefix('test_')}": getattr(function, "pytestmark", [])
        for path in sorted(HERE.glob("test_*.py"))
        for name, function in vars(importlib.import_module(f"trncheck.conformance.{path.stem}")).items()
        if name.startswith("test_")
    }


def _place(item) -> int:
    """Position of an item's subject; a new subject, and what is no check, keeps its order behind them."""
    subject = item.path.stem.removeprefix("test_")
    return ids.SUBJECTS.index(subject) if is_check(item) and subject in ids.SUBJECTS else len(ids.SUBJECTS)


def is_check(item) -> bool:
    return _is_here(item.path.parent)


@functools.cache
def _is_here(folder: Path) -> bool:
    # pytest keeps the path of an environment or a home folder that is reached through a link.
    return folder.resolve() == HERE


def check_id(item) -> str:
    """``subject.name[case]`` from ``test_subject.py::test_name[case]``."""
    return f"{item.path.stem.removeprefix('test_')}.{item.name.removeprefix('test_')}"


def level_of(item) -> str:
    return _highest(item.iter_markers())


def _highest(marks) -> str:
    from trncheck.conformance.policy import LEVELS

    return max((mark.args[0] for mark in marks if mark.name == "level"), key=LEVELS.index, default="smoke")


def _is_required(marks) -> bool:
    return all(mark.name != "informative" for mark in marks)


def _is_selected(name: str, patterns: list[str]) -> bool:
    return not patterns or any(ids.matches(name, pattern) for pattern in patterns)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    if not is_check(pyfuncitem):
        return (yield)
    from trncheck.conformance import outcomes
    from trncheck.conformance.cores import lease_notes
    from trncheck.conformance.judge import KnownDefect

    try:
        result = yield
    except (pytest.skip.Exception, KnownDefect):
        # Neither a skip nor a defect that is known excuses what had failed before.
        outcomes.demand_no_failure(pyfuncitem)
        raise
    finally:
        if pyfuncitem.config.option.target == "trn2" and outcomes.JUDGE in pyfuncitem.stash:
            pyfuncitem.stash[outcomes.JUDGE].evidence |= lease_notes()
    outcomes.conclude(pyfuncitem)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if expected := item.config.stash.get(_EXPECTED, None):
        # With the first word of a worker, because its last one may never come.
        report.trncheck_expected = expected
        del item.config.stash[_EXPECTED]
    if is_check(item) and (report.when == "call" or (report.when == "setup" and not report.passed)):
        from trncheck.conformance import outcomes

        report.trncheck = outcomes.payload(item, call, report)
    return report
