"""One entry of the table of foreign names: how it is written, and what it says."""

import re
from typing import NamedTuple


class Part(NamedTuple):
    """What the kit uses of one module, and for what."""

    module: str
    breaks: str
    """What does not work without it."""
    entries: tuple[str, ...]
    instead: str = ""
    """Where it is missing, what is used in its place or not known then; such a miss breaks nothing."""


def part(module: str, breaks: str, *entries: str, instead: str = "") -> Part:
    """Entries are written as :func:`parse` reads them; several bare names may stand between blanks."""
    return Part(module, breaks, tuple(name for entry in entries for name in _split(entry)), instead)


def _split(entry: str) -> list[str]:
    return [entry] if any(mark in entry for mark in ("(", " .", "|")) else entry.split()


class Use(NamedTuple):
    """How the kit uses a name."""

    name: str
    called: bool
    positional: int
    """How many arguments it is given in their order."""
    passed: tuple[str, ...]
    """Names of the others."""
    more: bool
    """Whether it is given others as well that the kit does not choose."""
    members: tuple[str, ...]
    """Attributes, methods and fields of its dataclass."""


_ENTRY = re.compile(r"(?P<name>[\w.]+)(?P<call>\((?P<passed>[\w=, .]*)\))?(?P<members>( \.\w+)*)")


def parse(entry: str) -> list[Use]:
    """``name``, ``name(2, by=, name=, ...) .member .member``; ``|`` between names of which one is enough."""
    uses = []
    for text in entry.split(" | "):
        match = _ENTRY.fullmatch(text)
        assert match, f"{text!r} is no entry of the table"
        given = [name.strip() for name in (match["passed"] or "").split(",") if name.strip()]
        positional = sum(int(name) for name in given if name.isdigit())
        passed = tuple(name.removesuffix("=") for name in given if name.endswith("="))
        members = tuple(member.strip(" .") for member in match["members"].split())
        uses.append(Use(match["name"], match["call"] is not None, positional, passed, "..." in given, members))
    return uses
