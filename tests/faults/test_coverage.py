"""Every check has a fault that turns it red, and no check is red without one."""

import ast
from pathlib import Path

import trncheck.conformance.plugin as plugin

HERE = Path(__file__).parent
UNREACHABLE = {"environment.machine"}
"""Checks that only hardware can run; here they can only be not-run, which is never a pass."""


def checks() -> set[str]:
    """``subject.name`` of every check."""
    return {
        f"{file.stem.removeprefix('test_')}.{node.name.removeprefix('test_')}"
        for file in plugin.HERE.glob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def planted() -> list[str]:
    """The check that each fault names."""
    return [
        decorator.args[0].value
        for file in HERE.glob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "fault"
    ]


def test_every_check_has_a_fault():
    assert checks() - {name.split("[")[0] for name in planted()} == UNREACHABLE


def test_no_false_alarm(conformance):
    clean = sorted(set(planted()) - {"losses.full_size_random_start"})
    results = conformance(clean)
    assert results.keys() == set(clean)
    red = {name: result.message for name, result in results.items() if result.outcome.is_failure}
    assert red == {}
