"""The version of a check: it follows the check's code and data, and nothing else."""

import importlib
import re
import sys
from types import SimpleNamespace

import pytest

from trncheck.conformance import bars, test_losses, test_pins, versions
from trncheck.conformance.plugin import RELEASE
from trncheck.conformance.versions import check_version
from trncheck.fixtures.manifest import load_release

MODULE = '''
"""A module of checks."""

import math

from trncheck.conformance import bars

LIMIT = 3


def _helper(x):
    return _inner(x) + LIMIT


def _inner(x):
    return x


def _unused(x):
    return 0


def test_start(judge):
    """The claim."""
    judge.at_most("gap", _helper(1), bars.STEP1_LOSS)


def test_other(judge):
    """Another claim."""
    judge.equal("a", 1, 1)
'''


@pytest.fixture
def version_of(tmp_path, monkeypatch):
    """Version of a check in a module with this source; each call is a kit of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    names = iter(f"checks_of_{tmp_path.name}_{n}" for n in range(100))

    def version(source: str = MODULE, check: str = "test_start") -> str:
        name = next(names)
        (tmp_path / f"{name}.py").write_bytes(source.encode())
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        try:
            return check_version(SimpleNamespace(function=getattr(module, check)))
        finally:
            del sys.modules[name]

    return version


def test_is_a_short_hash_that_checks_do_not_share(version_of):
    assert re.fullmatch("[0-9a-f]{12}", version_of())
    assert version_of() != version_of(check="test_other")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"gap"', '"distance"'),
        ("return _inner(x) + LIMIT", "return _inner(x)"),
        ("    return x\n", "    return 2 * x\n"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("bars.STEP1_LOSS", "bars.TRAJECTORY"),
    ],
)
def test_follows_the_check_and_what_it_uses(version_of, old, new):
    assert old in MODULE
    assert version_of(MODULE.replace(old, new)) != version_of()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n", "\r\n"),
        (":\n", ":   \n"),
        ("A module of checks.", "A module of many checks."),
        ("import math\n", "import math\nimport os\n"),
        ("    return 0\n", "    return 1\n"),
        ("Another claim.", "Quite another claim."),
        ("The claim.", "A better sentence, STEP1_LOSS and _unused.\n\n    Why: it is read by people.\n    "),
        ("def _inner(x):\n", 'def _inner(x):\n    """The number."""\n\n'),
        ("def test_start(", "def test_first_step("),
    ],
)
def test_follows_nothing_else(version_of, old, new):
    assert old in MODULE
    check = "test_first_step" if "first_step" in new else "test_start"
    assert version_of(MODULE.replace(old, new), check) == version_of()


def test_follows_the_bars_that_the_check_uses(monkeypatch):
    def version(check):
        versions._code_of.cache_clear()
        return check_version(SimpleNamespace(function=check))

    before = version(test_losses.test_published_start), version(test_pins.test_pin)
    definitions = versions._definitions

    def stricter(module):
        changed = {"STEP1_LOSS": 'STEP1_LOSS = Bar(1e-6, "stricter")\n'} if module is bars else {}
        return definitions(module) | changed

    monkeypatch.setattr(versions, "_definitions", stricter)
    assert version(test_losses.test_published_start) != before[0]
    assert version(test_pins.test_pin) == before[1]
    monkeypatch.undo()
    versions._code_of.cache_clear()


def test_follows_the_entry_of_the_manifest():
    release = load_release("2.33.0")

    def version(release, **case):
        config = SimpleNamespace(stash={RELEASE: release})
        callspec = SimpleNamespace(params=case)
        return check_version(SimpleNamespace(function=test_pins.test_pin, config=config, callspec=callspec))

    torch, other = (version(release, pin=name) for name in ("torch", "transformers"))
    assert torch != other
    pins = [pin.model_copy(update={"accepts": ["9.9"]}) if pin.name == "transformers" else pin for pin in release.pins]
    stacks = [
        stack.model_copy(
            update={
                "pins": [
                    pin.model_copy(update={"accepts": ["9.9"]}) if pin.name == "transformers" else pin
                    for pin in stack.pins
                ]
            }
        )
        for stack in release.stacks
    ]
    changed = release.model_copy(update={"pins": pins, "stacks": stacks})
    assert version(changed, pin="torch") == torch
    assert version(changed, pin="transformers") != other
    first, second, *_ = release.expectations
    assert version(release, expectation=first) != version(release, expectation=second)


def test_code_without_a_file_has_no_version():
    scope: dict = {"__name__": test_pins.__name__}
    exec("def test_made_up(judge):\n    pass", scope)
    assert check_version(SimpleNamespace(function=scope["test_made_up"])) == ""
