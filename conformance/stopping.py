"""Signals that end a run: SIGTERM as Ctrl-C does, with a report, and neither while the report is being written."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_STATUS = 128 + signal.SIGTERM
"""As a shell reports a process that SIGTERM ended."""


def end_at_sigterm() -> None:
    """Let SIGTERM end pytest through its own end, from now on; nothing where someone else handles it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    owner = os.getpid()

    def end(number, frame):
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != owner:
            # A forked rank has no report to write.
            os.kill(os.getpid(), number)
            return
        pytest.exit("stopped by SIGTERM", returncode=_STATUS)

    signal.signal(signal.SIGTERM, end)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore SIGTERM and Ctrl-C: whoever is told to stop twice must not lose the report."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
