"""Where facts of the host come from: the machine itself or, in a rehearsal, the stand-in for one. Imports no torch."""

import os
import shutil
import subprocess
from pathlib import Path

REHEARSAL = "TRNCHECK_REHEARSAL"
"""Variable that holds the folder of the stand-in environment; set by ``trncheck run --rehearse`` alone."""

_TOOLS = "/opt/aws/neuron/bin"


def rehearsal() -> Path | None:
    """The folder of the stand-in environment; None on a machine that is meant as it is."""
    folder = os.environ.get(REHEARSAL)
    return Path(folder) if folder else None


def variant() -> str:
    """What is wrong on purpose in the stand-in environment; empty where there is none."""
    folder = rehearsal()
    return folder.name.removeprefix("rehearsal-").rpartition("-")[0] if folder else ""


def root() -> Path:
    """What ``/dev``, ``/sys`` and ``/opt`` are read below."""
    folder = rehearsal()
    return folder / "root" if folder else Path("/")


def output(command: list[str], timeout: float = 30) -> str | None:
    """Standard output of a command; None where it does not exist, fails or takes longer than ``timeout`` seconds.

    Neuron's tools are found where its packages put them, also where that is not on ``PATH``.
    """
    found = shutil.which(command[0]) or shutil.which(command[0], path=_TOOLS)
    if found is None:
        return None
    try:
        result = subprocess.run([found, *command[1:]], capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
