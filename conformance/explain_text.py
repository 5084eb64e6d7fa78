"""Explanations of checks as text for a terminal, and as the page ``docs/checks.md``."""

import textwrap
from collections.abc import Sequence
from itertools import groupby

from trncheck.conformance.explain import BarText, Check, question

_WIDTH = 100
_NO_BAR = "none: what is compared has to be equal"
_NO_FAULT = "none: only the hardware can run this check"
_INTRODUCTION = """\
# What the checks assert

Written by `trncheck explain --all --format markdown`, from the docstrings of the checks in `conformance/`, the bars in
`conformance/bars.py` and the faults planted in `tests/faults/`; edit those, not this page.

A report names a check `subject.name[case]`. `trncheck explain ID` prints its part of this page, and
`trncheck run --check ID` runs it alone.
"""


def as_text(found: Sequence[Check]) -> str:
    """Explanations one after the other."""
    return "\n".join(_text(check) for check in found)


def as_markdown(found: Sequence[Check]) -> str:
    """A page with the checks by subject."""
    parts = [_INTRODUCTION]
    for subject, of_subject in groupby(found, lambda check: check.subject):
        parts.append(f"## {subject}\n\n{question(subject)}\n")
        parts += [_markdown(check) for check in of_subject]
    return "\n".join(parts)


def _text(check: Check) -> str:
    lines = [check.name, *(_indented(text) for text in (check.text.claim, *check.text.notes))]
    for heading, texts in _sections(check):
        lines += ["", f"  {heading}", *(_indented(text, 4) for text in texts)]
    return "\n".join([*lines, "", f"  Run it alone: trncheck run --check '{check.name}'", ""])


def _markdown(check: Check) -> str:
    lines = [f"### {check.name}", "", f"**{check.text.claim}**", ""]
    lines += [line for note in check.text.notes for line in (note, "")]
    for heading, texts in _sections(check):
        listed = heading in ("Bars", "Planted faults") and len(texts) > 1
        lines += [f"*{heading}*:", "", *(f"* {text}" for text in texts)] if listed else [f"*{heading}*: {texts[0]}"]
        lines.append("")
    return "\n".join(lines)


def _sections(check: Check) -> list[tuple[str, list[str]]]:
    sections = [
        ("Why", [check.text.why]),
        ("Bars", [_bar(bar) for bar in check.bars] or [_NO_BAR]),
        ("Red when", [check.text.red_when]),
        ("Planted faults", _faults(check) or [_NO_FAULT]),
        ("Reading a failure", [check.text.reading]),
    ]
    return [(heading, texts) for heading, texts in sections if any(texts)]


def _bar(bar: BarText) -> str:
    head = " = ".join(part for part in (bar.name, bar.value) if part)
    return f"{head}: {bar.source}"


def _faults(check: Check) -> list[str]:
    """In words, with the cases that they are planted in."""
    cases: dict[str, list[str]] = {}
    for fault in check.faults:
        cases.setdefault(fault.what, []).append(fault.check.removeprefix(check.name).strip("[]"))
    return [f"{what} ({', '.join(of)})" if any(of) else what for what, of in cases.items()]


def _indented(text: str, by: int = 2) -> str:
    space = " " * by
    return textwrap.fill(
        text, _WIDTH, initial_indent=space, subsequent_indent=space, break_long_words=False, break_on_hyphens=False
    )
