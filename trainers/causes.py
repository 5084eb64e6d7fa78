"""What made a run fail, from the logs of its ranks."""

import signal
from collections.abc import Sequence
from pathlib import Path

from trncheck.trainers.job import FAILURE_MARK


def cause(logs: Sequence[Path], exit_codes: Sequence[int | None] = ()) -> str:
    """What failed first, and its log: a rank that died without a failure line, else the earliest such line.

    Ranks that lost their peer write theirs later. ``exit_codes`` are those of the ranks, where they are known.
    """
    outputs = [log.read_text(errors="replace").splitlines() if log.exists() else [] for log in logs]
    failures = [_failures(lines) for lines in outputs]
    for rank, code in enumerate(exit_codes):
        if code and not failures[rank]:
            return f"rank {rank} {_ending(code)}; last output: {_last(outputs[rank])} (log: {logs[rank]})"
    if found := [(*failure, log) for log, ranks in zip(logs, failures, strict=True) for failure in ranks]:
        _, exception, log = min(found)
        return f"{exception} (log: {log})"
    return f"ended without a word; last output: {_last(outputs[0])} (log: {logs[0]})"


def _failures(lines: list[str]) -> list[tuple[float, str]]:
    """Time and exception of every failure line."""
    marked = [line.split(FAILURE_MARK, 1)[1].split(maxsplit=1) for line in lines if FAILURE_MARK in line]
    return [(float(when), exception) for when, exception in marked]


def _ending(exit_code: int) -> str:
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"


def _last(lines: list[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "none")
