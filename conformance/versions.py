"""A short hash of what a check is made of, so that whoever compares two runs can tell when the check itself changed."""

import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from types import ModuleType

import pytest

from trncheck.conformance import sources
from trncheck.conformance.plugin import RELEASE
from trncheck.fixtures.manifest import Expectation, Pin

_DIGITS = 12


def check_version(item: pytest.Item) -> str:
    """12 hexadecimal digits over code and manifest data of a check; empty where its source cannot be read.

    The code is the check's function and whatever it uses, directly or not, of its own module, the bars and the
    comparisons. Names of the function and of its case, and docstrings, are not part of it, and neither is the machine.
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
        return [cases["expectation"]] if cases["expectation"] else []
    if "pin" not in cases:
        return []
    return [pin for pin in item.config.stash[RELEASE].all_pins if pin.name == cases["pin"]]


@cache
def _code_of(function: Callable[..., None]) -> str:
    """Source of ``function`` under a neutral name, and of the definitions that it uses, in the order of their names."""
    source = sources.without_docstrings(textwrap.dedent(inspect.getsource(function)))
    source = re.sub(rf"\bdef {function.__name__}\b", "def check", sources.plain(source), count=1)
    module = sys.modules[function.__module__]
    pool: dict[str, str] = {}
    for part in (*_shared(module), module):
        for name, text in _definitions(part).items():
            pool[name] = pool.get(name, "") + text
    found = sources.used(source, pool)
    return "\0".join([source, *(found[name] for name in sorted(found))])


def _shared(module: ModuleType) -> list[ModuleType]:
    names = sources.imported(inspect.getsource(module))
    return [sys.modules[f"trncheck.conformance.{name}"] for name in sources.SHARED if name in names]


@cache
def _definitions(module: ModuleType) -> dict[str, str]:
    """Source of everything that ``module`` defines at its top level, by name."""
    return sources.definitions(inspect.getsource(module))
