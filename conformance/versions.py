"""A short hash of what a check is made of, so that whoever compares two runs can tell when the check itself changed."""

import ast
import hashlib
import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType

import pytest

from trncheck.conformance import bars, compare, runs
from trncheck.conformance.plugin import RELEASE
from trncheck.fixtures.manifest import Expectation, Pin

_SHARED = (bars, compare, runs)
"""Modules whose definitions are part of the checks that use them."""
_DIGITS = 12
_WORD = re.compile(r"\w+")


def check_version(item: pytest.Item) -> str:
    """12 hexadecimal digits over code and manifest data of a check; empty where its source cannot be read.

    The code is the check's function and whatever it uses, directly or not, of its own module, the bars and the
    comparisons. Names of the function and of its case are not part of it, and neither is the machine.
    """
    try:
        code = _code_of(item.function)
    except (OSError, TypeError):
        return ""
    parts = [code, *(entry.model_dump_json() for entry in _data_of(item))]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:_DIGITS]


def _data_of(item: pytest.Item) -> list[Pin | Expectation]:
    """What the manifest says of the pin or the number that a check is about; a pin may be in several stacks."""
    cases = item.callspec.params if hasattr(item, "callspec") else {}
    if "expectation" in cases:
        return [cases["expectation"]]
    if "pin" not in cases:
        return []
    release = item.config.stash[RELEASE]
    pins = [*(pin for stack in release.stacks for pin in stack.pins), *release.pins]
    return [pin for pin in pins if pin.name == cases["pin"]]


@cache
def _code_of(function: Callable[..., None]) -> str:
    """Source of ``function`` under a neutral name, and of the definitions that it uses, in the order of their names."""
    source = re.sub(rf"\bdef {function.__name__}\b", "def check", _plain(inspect.getsource(function)), count=1)
    pool: dict[str, str] = {}
    for module in (*_SHARED, sys.modules[function.__module__]):
        for name, text in _definitions(module).items():
            pool[name] = pool.get(name, "") + text
    used: dict[str, str] = {}
    waiting = [source]
    while waiting:
        # By word, not by meaning: a word too many makes a version change once too often, which costs one comparison.
        found = set(_WORD.findall(waiting.pop())) & pool.keys() - used.keys()
        used |= {name: pool[name] for name in found}
        waiting += [pool[name] for name in found]
    return "\0".join([source, *(used[name] for name in sorted(used))])


@cache
def _definitions(module: ModuleType) -> dict[str, str]:
    """Source of everything that ``module`` defines at its top level, by name."""
    text = inspect.getsource(module)
    lines = text.splitlines()
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = {node.name}
        else:
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        source = _plain("\n".join(lines[first - 1 : node.end_lineno]))
        found |= {name: found.get(name, "") + source for name in names}
    return found


def _plain(source: str) -> str:
    """``source`` with the same line endings everywhere and without white space that nobody sees."""
    return "\n".join(line.rstrip() for line in source.splitlines()).strip() + "\n"
