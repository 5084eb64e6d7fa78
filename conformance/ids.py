"""Ids of checks, ``subject.name[case]``: how patterns pick them, and the order of the subjects."""

import difflib
import fnmatch
from collections.abc import Collection, Iterable

SUBJECTS = (
    "environment",
    "pins",
    "fidelity",
    "kernels",
    "kernel_training",
    "memory",
    "paths",
    "router",
    "layouts",
    "determinism",
    "losses",
    "checkpoint",
    "resume",
    "device",
    "walkthrough",
)
"""Causes before effects: the first red check is the one to look at."""


def matches(id: str, pattern: str) -> bool:
    """Whether ``pattern``, an id or name with wildcards, means the check ``id``, with or without its case."""
    # A bracket is part of an id here, not a set of characters.
    glob = pattern.replace("[", "[[]")
    return any(fnmatch.fnmatch(candidate, glob) for candidate in (id, name_of(id)))


def name_of(id: str) -> str:
    """``subject.name`` of an id or a pattern."""
    return id.split("[")[0]


def nearest(pattern: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Up to ``count`` of ``names`` that ``pattern`` may be a slip for, the closest first."""
    return difflib.get_close_matches(pattern, sorted(set(names)), n=count)


def suggestion(pattern: str, names: Collection[str]) -> str:
    """``; did you mean a or b?``, empty where nothing is close."""
    close = nearest(pattern, names)
    return f"; did you mean {' or '.join(close)}?" if close else ""
