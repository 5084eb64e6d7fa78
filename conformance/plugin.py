"""The pytest plugin: options, selection by level, and the way from a test's outcome to a result in the report.

It does nothing in a session that does not run ``trncheck.conformance``, and loads nothing heavy before it must.
"""

import difflib
import fnmatch
import importlib
import os
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
_REPORTER = "trncheck-reporter"
_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


def pytest_addoption(parser):
    group = parser.getgroup("trncheck", "trncheck: can this Neuron release be trusted?")
    add = group.addoption
    add(
        "--target",
        choices=("cpu", "trn2", "auto"),
        default="auto",
        help="where to judge (auto: trn2 where there is a Neuron device)",
    )
    add("--release", metavar="VERSION", help="Neuron release, or a manifest file (default: the newest known)")
    add("--level", choices=("smoke", "standard", "full"), default="standard", help="how much to check")
    add("--check", action="append", default=[], metavar="ID", help="only checks with this id; wildcards, repeatable")
    add("--require-complete", action="store_true", help="fail unless the verdict is conformant")
    add("--results", default="results", metavar="FOLDER", help="where reports go (default: %(default)s)")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.addinivalue_line("markers", "level(name): lowest level at which a check runs; the highest of several counts")
    config.addinivalue_line("markers", "informative: a check that no verdict depends on")
    config.addinivalue_line("markers", "trn2: a check that only hardware can decide")
    if not _runs_conformance(config) or config.option.collectonly:
        return
    for variable in _OFFLINE:
        os.environ.setdefault(variable, "1")
    from trncheck.conformance import check_fixtures

    config.pluginmanager.register(check_fixtures, "trncheck-check-fixtures")
    if not hasattr(config, "workerinput"):
        from trncheck.conformance.reporter import Reporter

        config.pluginmanager.register(Reporter(config, _start_session(config)), _REPORTER)


def _runs_conformance(config) -> bool:
    """Whether the arguments name the conformance suite, as a package, a path, or through ``testpaths``."""
    for argument in config.args:
        name = argument.split("::")[0]
        if config.option.pyargs and name.split(".")[:2] == ["trncheck", "conformance"]:
            return True
        path = (config.invocation_params.dir / name).resolve()
        if path == HERE or HERE in path.parents or (path in HERE.parents and path.exists()):
            return True
    return False


def _start_session(config):
    from trncheck.conformance.environment import has_neuron_device
    from trncheck.conformance.session import Session
    from trncheck.fixtures.manifest import available_releases, load_release

    target = config.option.target
    if target == "auto":
        target = "trn2" if has_neuron_device() else "cpu"
    if target == "trn2" and not has_neuron_device():
        raise pytest.UsageError(
            "target trn2: this machine has no Neuron device (/dev/neuron0 is missing); "
            "run on a trn2 instance with the Neuron driver, or use --target cpu"
        )
    config.option.target = target
    try:
        return Session(
            release=load_release(config.option.release or available_releases()[-1]),
            target=target,
            level=config.option.level,
            command=" ".join(["pytest", *config.invocation_params.args]),
            results=Path(config.option.results),
        )
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


class ConformanceModule(pytest.Module):
    """A module of checks under its real name, so that it shares its imports with the rest of the package.

    pytest's own import modes would put the checkout, or site-packages/trncheck, on ``sys.path``, where our
    ``kernels`` shadows the package that Transformers imports.
    """

    def _getobj(self):
        return importlib.import_module(f"trncheck.conformance.{self.path.stem}")


def pytest_pycollect_makemodule(module_path, parent):
    return ConformanceModule.from_parent(parent, path=module_path) if module_path.parent == HERE else None


def pytest_generate_tests(metafunc):
    """One check per pin and per published number of the release."""
    wanted = {"pin", "expectation"} & set(metafunc.fixturenames)
    if not wanted or metafunc.definition.path.parent != HERE:
        return
    from trncheck.fixtures.manifest import available_releases, load_release

    release = load_release(metafunc.config.option.release or available_releases()[-1])
    if "pin" in wanted:
        pins = [*(release.stacks[0].pins if release.stacks else []), *release.pins]
        stands_in = metafunc.config.option.target == "cpu"
        names = [pin.name for pin in pins if pin.needs != "cpu" or stands_in]
        metafunc.parametrize("pin", names)
    else:
        names = [expectation.name for expectation in release.expectations]
        metafunc.parametrize("expectation", release.expectations, ids=names)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    from trncheck.conformance.policy import within

    checks = [item for item in items if is_check(item)]
    if not checks:
        return
    of_level = [item for item in checks if within(level_of(item), config.option.level)]
    expected = [check_id(item) for item in of_level]
    selected = [item for item in of_level if _is_selected(check_id(item), config.option.check)]
    if config.option.check and not selected:
        close = difflib.get_close_matches(config.option.check[0], {name.split("[")[0] for name in expected}, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        patterns = ", ".join(config.option.check)
        raise pytest.UsageError(f"no check of level {config.option.level} matches {patterns}{hint}")
    dropped = [item for item in checks if item not in set(selected)]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in set(dropped)]
    if reporter := config.pluginmanager.get_plugin(_REPORTER):
        reporter.expect(expected)
    elif hasattr(config, "workeroutput"):
        config.workeroutput["trncheck_expected"] = expected


def is_check(item) -> bool:
    return item.path.parent == HERE


def check_id(item) -> str:
    """``subject.name[case]`` from ``test_subject.py::test_name[case]``."""
    return f"{item.path.stem.removeprefix('test_')}.{item.name.removeprefix('test_')}"


def level_of(item) -> str:
    from trncheck.conformance.policy import LEVELS

    return max((mark.args[0] for mark in item.iter_markers("level")), key=LEVELS.index, default="smoke")


def _is_selected(name: str, patterns: list[str]) -> bool:
    # A bracket is part of an id here, not a set of characters.
    globs = [pattern.replace("[", "[[]") for pattern in patterns]
    names = (name, name.split("[")[0])
    return not globs or any(fnmatch.fnmatch(candidate, glob) for glob in globs for candidate in names)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    result = yield
    if is_check(pyfuncitem):
        from trncheck.conformance import outcomes

        outcomes.conclude(pyfuncitem)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if is_check(item) and (report.when == "call" or (report.when == "setup" and not report.passed)):
        from trncheck.conformance import outcomes

        report.trncheck = outcomes.payload(item, call, report)
    return report
