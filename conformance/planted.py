"""The faults that are planted to prove the checks, by check: read in a checkout, shipped as ``faults.json``.

``python -m trncheck.conformance.planted`` writes that file anew.
"""

import ast
import json
from pathlib import Path
from typing import NamedTuple

SHIPPED = Path(__file__).with_name("faults.json")
CHECKOUT = Path(__file__).resolve().parent.parent / "tests" / "faults"


class Fault(NamedTuple):
    """One planted fault."""

    check: str
    """Id of the check that has to go red."""
    what: str
    """What is wrong, in words."""


def faults(checkout: Path = CHECKOUT) -> list[Fault]:
    """All planted faults, from the tests of a checkout, or as shipped where there is none."""
    if checkout.is_dir():
        return [fault for file in sorted(checkout.glob("test_*.py")) for fault in _read(file.read_text("utf-8"))]
    return [Fault(check, what) for check, all_of in json.loads(SHIPPED.read_text("utf-8")).items() for what in all_of]


def render(every: list[Fault]) -> str:
    """The text of ``faults.json``: id of a check -> its faults."""
    by_check: dict[str, list[str]] = {}
    for fault in every:
        by_check.setdefault(fault.check, []).append(fault.what)
    return json.dumps(dict(sorted(by_check.items())), indent=1, ensure_ascii=False) + "\n"


def _read(source: str) -> list[Fault]:
    """Faults of one module: functions that ``fault(check, reason)`` marks."""
    return [
        Fault(ast.literal_eval(mark.args[0]), _words(function))
        for function in ast.parse(source).body
        if isinstance(function, ast.FunctionDef)
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and getattr(mark.func, "id", getattr(mark.func, "attr", "")) == "fault"
    ]


def _words(function: ast.FunctionDef) -> str:
    """The first paragraph of the docstring, or the function's name as words."""
    if text := ast.get_docstring(function):
        return " ".join(text.split("\n\n")[0].split()).rstrip(".")
    return function.name.removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    SHIPPED.write_text(render(faults()), encoding="utf-8", newline="\n")
