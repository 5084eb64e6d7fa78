"""Wall time and peak memory of a command with all of its processes.

    .venv/bin/python benchmarks/footprint.py .venv/bin/trncheck run --level standard

Memory is the proportional set size, in which pages shared by forked processes count once; sampled, so that a peak
shorter than the interval can be missed.
"""

import contextlib
import subprocess
import sys
import time

import psutil

INTERVAL = 0.25


def main(command: list[str]) -> int:
    """Run ``command``; print its seconds and peak GiB."""
    started = time.monotonic()
    status, peak = watch(command)
    print(f"{time.monotonic() - started:.1f} s, {peak / 2**30:.2f} GiB peak, status {status}")
    return status


def watch(command: list[str], **options) -> tuple[int, int]:
    """Run ``command`` with the ``options`` of Popen; returns its status and its peak memory in bytes."""
    peak, process = 0, psutil.Popen(command, **options)
    while True:
        peak = max(peak, _memory(process))
        with contextlib.suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            return process.wait(timeout=INTERVAL), peak


def _memory(process: psutil.Process) -> int:
    """Proportional set size of the process and its descendants, bytes."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += member.memory_full_info().pss
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
