"""Runs every step of a ladder in order, on each rank, and writes what went wrong: ``climb.py STEPS OUT``.

A process of its own, because the stand-in changes torch for the whole process.
"""

import inspect
import json
import os
import runpy
import sys
import traceback
from pathlib import Path


def _problem(error: BaseException) -> str:
    """The error and the line of the step where it arose."""
    frame = traceback.extract_tb(error.__traceback__)[1]  # the first is climb's own
    text = " ".join(str(error).split())
    return f"{type(error).__name__} in `{frame.line}`: {text}"


def main(steps: str, out: str) -> None:
    done = {}
    for name, step in runpy.run_path(steps).items():
        if inspect.isfunction(step) and step.__code__.co_filename == steps and not name.startswith("_"):
            try:
                step()
                done[name] = ""
            except Exception as error:
                done[name] = _problem(error)
    Path(f"{out}.{os.environ.get('RANK', '0')}").write_text(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
