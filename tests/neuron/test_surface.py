"""The table of foreign names is whole, and a name that is missing or changed is one line."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.neuron import surface
from trncheck.neuron.surface_part import Use, parse, part
from trncheck.neuron.surface_table import PACKAGES, TABLE

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("fixtures", "kernels", "trainers", "conformance", "reports", "cli", "neuron")
NOT_OURS = ("simulator", "standin", "site")
"""Folders that stand in for foreign packages, or are kernels of others."""


# --- the table against the sources


def sources() -> list[Path]:
    files = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]
    if not files:
        pytest.skip("not a checkout")
    return [file for file in files if not set(NOT_OURS) & set(file.relative_to(ROOT).parts)]


def foreign_uses(source: str) -> dict[str, set[str]]:
    """Dotted names of foreign packages that ``source`` uses, each with the parameters that it passes by name."""
    found: dict[str, set[str]] = {}

    def visit(node, names: dict[str, str]) -> None:
        """``names``: what names of this scope stand for; imports in a function are its own, and so are parameters."""
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            arguments = node.args
            own = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
            names = {name: full for name, full in names.items() if name not in own}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
                found.setdefault(alias.name, set())
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.setdefault(f"{node.module}.{alias.name}", set())
        elif isinstance(node, ast.Attribute | ast.Name) and (name := dotted(node, names)):
            found.setdefault(name, set())
        elif isinstance(node, ast.Call):
            is_partial = isinstance(node.func, ast.Name) and node.func.id == "partial"
            if name := dotted(node.args[0] if is_partial else node.func, names):
                found.setdefault(name, set()).update({keyword.arg for keyword in node.keywords} - {None})
        for child in ast.iter_child_nodes(node):
            visit(child, names)

    visit(ast.parse(source), {})
    return {name: keywords for name, keywords in found.items() if name.partition(".")[0] in PACKAGES}


def dotted(node, names: dict[str, str]) -> str | None:
    """What an expression like ``a.b.c`` stands for; None where ``a`` is nothing that was imported."""
    if isinstance(node, ast.Attribute):
        return (owner := dotted(node.value, names)) and f"{owner}.{node.attr}"
    return names.get(node.id) if isinstance(node, ast.Name) else None


def listed() -> dict[str, set[str]]:
    """Every name of the table with the parameters that it is given."""
    names: dict[str, set[str]] = {}
    for one in TABLE:
        for use in (use for entry in one.entries for use in parse(entry)):
            name = f"{one.module}.{use.name}"
            names.setdefault(name, set()).update(use.passed)
            names |= {f"{name}.{member}": set() for member in use.members}
    return names


def unlisted(source: str) -> list[str]:
    """What ``source`` uses and the table does not know. Owners of a name are known, and torch's plain functions."""
    table = listed()
    problems = []
    for name, passed in foreign_uses(source).items():
        name = name.removesuffix(".__init__").removesuffix(".__file__")
        if name not in table and not any(other.startswith(f"{name}.") for other in table):
            problems.append(name)
        elif not name.startswith(("torch.", "nki.jit")) or name.startswith(("torch.distributed.", "torch.library.")):
            problems += [f"{name}({keyword}=)" for keyword in sorted(passed - table.get(name, set()))]
    return problems


def test_every_foreign_name_is_in_the_table():
    missing = {str(file.relative_to(ROOT)): problems for file in sources() if (problems := unlisted(file.read_text()))}
    assert missing == {}, "add these to neuron/surface_table.py, or to surface_torchtitan.py"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("from torchtitan.trainer import Retrainer", "torchtitan.trainer.Retrainer"),
        ("import torch\ntorch.no_such_thing()", "torch.no_such_thing"),
        ("import torch.distributed as dist\ndist.send(x)", "torch.distributed.send"),
        ("import nki.isa as nisa\ndef k(x):\n    nisa.memset(x, value=0)", "nki.isa.memset(value=)"),
        ("from torchtitan.config import DebugConfig\nDebugConfig(sed=1)", "torchtitan.config.DebugConfig(sed=)"),
        (
            "def f(model):\n    return model.gone\ndef g():\n    from torchtitan import model\n    return model.gone",
            "torchtitan.model",
        ),
        (
            "from functools import partial\nfrom torchtitan.config import derive\npartial(derive, x=1)",
            "torchtitan.config.derive(x=)",
        ),
    ],
)
def test_the_walk_sees(source, problem):
    assert unlisted(source)[0] == problem


def test_entries_are_read():
    assert parse("a.b(2, c=, d=, ...) .e .f") == [Use("a.b", True, 2, ("c", "d"), True, ("e", "f"))]
    assert parse("a() | b") == [Use("a", True, 0, (), False, ()), Use("b", False, 0, (), False, ())]
    assert part("m", "x", "a b", "c(1)", "d | e", instead="y").entries == ("a", "b", "c(1)", "d | e")
    for one in TABLE:
        for entry in one.entries:
            parse(entry)


# --- planted: what a release may change

MODULE = """
from dataclasses import dataclass
@dataclass
class Settings:
    steps: int = 1
class Trainer:
    config: Settings
    def train_step(self, data): ...
def by_name(x, *, op): ...
def anything(*args, **kwargs): ...
number = 1
"""


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A foreign package ``foreign``; call it with the source of ``foreign.part``."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda source: (folder / "part.py").write_text(source)
    for name in [name for name in sys.modules if name.partition(".")[0] == "foreign"]:
        del sys.modules[name]


def lines(*entries: str, module: str = "foreign.part", instead: str = "") -> tuple[list[str], list[str]]:
    found = surface.survey_here([part(module, "training", *entries, instead=instead)])
    return [miss.line for miss in found.misses], [miss.line for miss in found.replaced]


def test_what_fits_is_no_miss(package):
    package(MODULE)
    entries = ("Settings(steps=)", "Trainer .config .train_step", "Trainer.train_step(2)", "by_name(1, op=)")
    assert lines(*entries, "anything(7, op=)", "number", "gone | number", "by_name(1, ...)") == ([], [])


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("gone", "foreign.part.gone is missing"),
        ("Trainer.gone(1)", "foreign.part.Trainer.gone is missing"),
        ("gone | lost", "foreign.part.gone and foreign.part.lost are both missing"),
        ("Settings .stride .step", "foreign.part.Settings has no stride, step"),
        ("Settings(stride=, steps=, step=)", "foreign.part.Settings takes no stride=, step="),
        ("by_name(1, operation=)", "foreign.part.by_name takes no operation="),
        ("by_name(2, op=)", "foreign.part.by_name takes 1 arguments in their order, not 2"),
        ("by_name(1)", "foreign.part.by_name now demands op"),
        ("Trainer.train_step(1)", "foreign.part.Trainer.train_step now demands data"),
        ("gone | by_name(1)", "foreign.part.by_name now demands op"),
        ("number()", "foreign.part.number cannot be called"),
    ],
)
def test_a_miss_is_one_line_that_says_what_it_breaks(package, entry, line):
    package(MODULE)
    assert lines(entry) == ([f"{line}; breaks training"], [])


def test_a_missing_name_with_something_in_its_place_is_told_apart(package):
    package(MODULE)
    expected = "foreign.part.gone is missing; a counter of ours is used"
    assert lines("gone", instead="a counter of ours is used") == ([], [expected])
    assert lines("by_name(1)", instead="a counter of ours is used")[0] == [
        "foreign.part.by_name now demands op; breaks training"
    ]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('many\\nlines')", "SystemExit: many lines"),
    ],
)
def test_a_module_that_breaks_is_one_line_for_all_its_names(package, source, problem):
    package(source)
    line = f"foreign.part (one, Two) cannot be imported: {problem}; breaks training"
    assert lines("one", "Two.three(1) .four") == ([line], [])


def test_a_missing_module_and_a_missing_package(package):
    package("")
    assert lines("name", module="foreign.other") == (["foreign.other (name) is missing; breaks training"], [])
    assert lines("name", module="no_such.part") == (["no_such is not installed; breaks training"], [])


# --- the probe of this installation


def test_nothing_is_missing_here():
    found = surface.survey()
    assert [miss.line for miss in found.misses] == []
    assert found.probed > 150


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import os\nos.kill(os.getpid(), 11)", "the process was ended by SIGSEGV"),
        (
            "import os, sys\nprint('no device', file=sys.stderr)\nos._exit(3)",
            "the process ended with status 3: no device",
        ),
    ],
)
def test_a_framework_that_ends_the_process_is_one_line(monkeypatch, tmp_path, code, problem):
    (tmp_path / "torch.py").write_text(f"print('loading')\n{code}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = surface.survey()
    assert [miss.line for miss in found.misses] == [f"torch cannot be imported: {problem}; breaks all that uses it"]


def test_a_probe_that_hangs_is_one_line(monkeypatch):
    def hang(command, *, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout, output=b'{"importing": "torch"}\n{"importing": "nki"}\n')

    monkeypatch.setattr(subprocess, "run", hang)
    line = "nki cannot be imported: the process has not ended after 600 s; breaks all that uses it"
    assert [miss.line for miss in surface.probe()] == [line]
