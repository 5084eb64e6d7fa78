"""Runs that a fresh interpreter makes: for what an interpreter decides at its start, such as how it hashes text.

``python -m trncheck.trainers.repeat`` reads the runs, as JSON, on its standard input, and forks their ranks.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trncheck.trainers.errors import RunFailed
from trncheck.trainers.record import RunRecord


class Wanted(NamedTuple):
    """One run."""

    config: str
    dump_folder: str
    flags: Sequence[str]
    world_size: int


def in_fresh_process(wanted: Sequence[Wanted], log: Path, timeout: float = 300) -> list[RunRecord]:
    """Make the runs on the CPU, one after the other, in the environment of this process.

    Raises RunFailed with the first failure; nothing is run behind it.
    """
    environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONSAFEPATH": "1"}
    with log.open("w") as file:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "trncheck.trainers.repeat"],
                input=json.dumps(wanted),
                stdout=subprocess.PIPE,
                stderr=file,
                env=environment,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise RunFailed(f"no end after {timeout:g} s; last output in {log}") from None
    if ended.returncode or ended.stdout:
        raise RunFailed(ended.stdout.strip() or f"a fresh process ended with status {ended.returncode}; see {log}")
    return [RunRecord(Path(run.dump_folder), run.world_size) for run in wanted]


def _run_all() -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    from trncheck.trainers import launch

    try:
        for run in (Wanted(*fields) for fields in json.load(sys.stdin)):
            launch.run(run.config, dump_folder=Path(run.dump_folder), flags=run.flags, world_size=run.world_size)
    except RunFailed as failed:
        answer.write(str(failed))
    answer.flush()


if __name__ == "__main__":
    _run_all()
