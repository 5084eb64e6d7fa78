"""Who holds a lock of this host: what a process writes about itself, and how others read it."""

import os
import shlex
import sys
import time
from collections.abc import Iterable

import psutil

_LENGTH = 120
"""Characters shown of a command."""


def about_me() -> dict:
    """This process, so that others can name it and notice its end."""
    return {
        "pid": os.getpid(),
        "created": psutil.Process().create_time(),
        "command": " ".join(shlex.join(sys.orig_argv).split())[:_LENGTH],
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def name(lines: Iterable[dict]) -> str:
    """The first process of ``lines`` that lives, with its command and since when; the first one where all are gone."""
    lines = [line for line in lines if "pid" in line]
    if not lines:
        return "a process that left no name"
    alive = [line for line in lines if lives(line)]
    shown = (alive or lines)[0]
    ended = "" if alive else ", which has ended, but not all that it started"
    orphan = f", started by pid {lines[0]['pid']}, which has ended" if alive and alive[0] is not lines[0] else ""
    return f"pid {shown['pid']} ({shown.get('command', '?')}) since {shown.get('since', '?')}{ended or orphan}"


def lives(line: dict) -> bool:
    """Whether the process that wrote ``line`` about itself is still there."""
    try:
        return abs(psutil.Process(line["pid"]).create_time() - line.get("created", 0)) < 1
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False
