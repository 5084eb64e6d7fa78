"""Pieces of GitHub-flavoured Markdown in which nothing from outside has a structure of its own."""

import re
from collections.abc import Iterable

from .text import clean, one_line

_SPECIAL = re.compile(r"([\\`*_\[\]~#$])")


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """A table of cells that are Markdown already; columns ``right`` are aligned to the right."""
    rule = tuple("--:" if column in right else "---" for column in range(len(header)))
    # Also within code, GitHub ends a cell at a bar that is not escaped.
    lines = [header, rule, *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(text: str) -> str:
    """``text`` in one line, with nothing in it read as Markdown, HTML or a mention."""
    escaped = _SPECIAL.sub(r"\\\1", one_line(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", "@\u2060")


def code(text: str) -> str:
    """``text`` in one line as code."""
    line = one_line(text) or " "
    ticks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if len(ticks) > 1 else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fenced(text: str) -> str:
    """``text`` with its lines as a block of code."""
    text = clean(text)
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}text\n{text}\n{ticks}"
