"""What each check asserts, why, against which bars, what turns it red, and how to read its failure.

All of it is read from the source of the checks, the bars and the planted faults; nothing of them is imported but the
bars. A check's docstring starts with its claim. Paragraphs that begin with ``Why:``, ``Red when:`` and
``Reading a failure:`` follow, and any other paragraph is a note to the claim.
"""

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from trncheck.conformance import bars, ids, sources
from trncheck.conformance.planted import Fault, faults

HERE = Path(__file__).resolve().parent
_HEADINGS = ("Why", "Red when", "Reading a failure")
_HEADING = re.compile(rf"^({'|'.join(_HEADINGS)}):", re.MULTILINE)


class Explained(NamedTuple):
    """Parts of a check's docstring, each on one line; empty where there is none."""

    claim: str
    notes: list[str]
    why: str
    red_when: str
    reading: str


class BarText(NamedTuple):
    """A bar, or what makes one of a run."""

    name: str
    value: str
    """Empty where it depends on the run."""
    source: str


class Check(NamedTuple):
    """Everything there is to say of a check."""

    name: str
    """``subject.name``."""
    text: Explained
    bars: list[BarText]
    faults: list[Fault]

    @property
    def subject(self) -> str:
        return self.name.split(".")[0]


@cache
def checks() -> tuple[Check, ...]:
    """All checks of the suite, in the order of a report."""
    planted = faults()
    subjects = [path.stem.removeprefix("test_") for path in sorted(HERE.glob("test_*.py"))]
    subjects.sort(key=lambda subject: ids.SUBJECTS.index(subject) if subject in ids.SUBJECTS else len(ids.SUBJECTS))
    return tuple(
        Check(name, parse(ast.get_docstring(node) or ""), used_bars(source, node), _of(planted, name))
        for subject in subjects
        for source in [_source(subject, "test_")]
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for name in [f"{subject}.{node.name.removeprefix('test_')}"]
    )


def question(subject: str) -> str:
    """What a subject asks: the first line of its module."""
    return (ast.get_docstring(ast.parse(_source(subject, "test_"))) or "").split("\n")[0]


def find(patterns: Sequence[str]) -> list[Check]:
    """The checks that ``patterns`` mean: ids, names without a case, or wildcards.

    Raises ValueError for a pattern that means none, with the nearest names. Cases are not known here, and not judged.
    """
    every = checks()
    found: dict[str, Check] = {}
    for pattern in patterns:
        of_pattern = [check for check in every if ids.matches(check.name, ids.name_of(pattern))]
        if not of_pattern:
            names = {check.name for check in every}
            hint = ids.suggestion(ids.name_of(pattern), names) or "; trncheck explain --all tells all of them"
            raise ValueError(f"no check is {pattern!r}{hint}")
        found |= {check.name: check for check in of_pattern}
    return list(found.values())


def parse(docstring: str) -> Explained:
    """The parts of a check's docstring, as ``inspect.getdoc`` gives it."""
    head, *rest = _HEADING.split(docstring)
    claim, *notes = (_flat(paragraph) for paragraph in head.split("\n\n"))
    named = dict.fromkeys(_HEADINGS, "")
    for heading, text in zip(rest[::2], rest[1::2], strict=True):
        text, *more = (_flat(paragraph) for paragraph in text.split("\n\n"))
        named[heading] = text
        notes += more
    return Explained(claim, [note for note in notes if note], *(named[heading] for heading in _HEADINGS))


def used_bars(source: str, check: ast.FunctionDef) -> list[BarText]:
    """The bars that a check, a function of the module ``source``, uses directly or not."""
    known = _bar_texts()
    pool: dict[str, str] = {}
    for name in sorted(sources.imported(source) & {*sources.SHARED} - {"bars"}):
        pool |= _definitions(_source(name))
    pool |= _definitions(source)
    code = "\n".join([pool[check.name], *sources.used(pool[check.name], pool).values()])
    named = {*re.findall(r"\bbars\.(\w+)", code), *re.findall(r"\b[A-Z][A-Z0-9_]+\b", code)}
    return [text for name, text in known.items() if name in named] + _written_out(check)


def _written_out(check: ast.FunctionDef) -> list[BarText]:
    """Bars that the function makes itself."""
    calls = (node for node in ast.walk(check) if isinstance(node, ast.Call))
    return [
        BarText("", ast.unparse(call.args[0]), _flat(ast.unparse(call.args[1]).strip("'\"")))
        for call in calls
        if ast.unparse(call.func) in ("bars.Bar", "Bar") and len(call.args) == 2
    ]


@cache
def _bar_texts() -> dict[str, BarText]:
    """Every bar by name, what makes one, and the numbers that are part of one."""
    found: dict[str, BarText] = {}
    body = ast.parse(_source("bars")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            arguments = ", ".join(argument.arg for argument in node.args.args)
            text = _flat(ast.get_docstring(node) or "")
            found[node.name] = BarText(
                f"{node.name}({arguments})", "", f"{text} The message of a check says the reason."
            )
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value = getattr(bars, name)
            if isinstance(value, bars.Bar):
                found[name] = BarText(name, f"{value.value:g}", value.source)
            elif isinstance(after, ast.Expr):
                found[name] = BarText(name, f"{value:g}", _flat(ast.literal_eval(after.value)))
    return found


def _of(planted: list[Fault], name: str) -> list[Fault]:
    return [fault for fault in planted if ids.name_of(fault.check) == name]


@cache
def _source(name: str, prefix: str = "") -> str:
    return (HERE / f"{prefix}{name}.py").read_text("utf-8")


_definitions = cache(sources.definitions)


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")
