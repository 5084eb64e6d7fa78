"""Two cores, one at a time: a core runs until it must wait for the other, so a run is the same every time."""

import threading
from collections.abc import Callable

from trncheck.kernels.simulator.core import Core, activate
from trncheck.kernels.simulator.errors import NkiError, kernel_line


class _Stopped(Exception):
    """Ends a core whose peer has failed."""


class Scheduler:
    """Runs one function on two cores; ``order`` says which goes first wherever both could."""

    def __init__(self, cores: list[Core], order: tuple[int, int]):
        self._cores, self._order = cores, order
        self._turn = [threading.Semaphore(0), threading.Semaphore(0)]
        self._waiting: list[tuple | None] = [None, None]
        self._met: list = [None, None]
        self._ended = [False, False]
        self._results: list = [None, None]
        self._failure: BaseException | None = None
        for core in cores:
            core.scheduler = self

    def run(self, function: Callable[[Core], object]) -> list:
        """The results of both cores; raises what the first failing core raised."""
        first, second = self._order
        thread = threading.Thread(target=self._run_core, args=(second, function, True), daemon=True)
        thread.start()
        self._run_core(first, function, False)
        thread.join()
        if self._failure is not None:
            raise self._failure
        return self._results

    def meet(self, core: Core, what: tuple, payload=None):
        """Wait until the other core comes to the same ``what``; returns the other's payload."""
        me, other = core.index, 1 - core.index
        if self._ended[other]:
            raise NkiError(f"core {me} waits here, and core {other} has ended without coming: deadlock")
        self._waiting[me] = (what, kernel_line(), payload)
        if self._waiting[other] is None:
            self._switch(me)
            if self._waiting[me] is not None:
                raise NkiError(f"core {me} waits here, and core {other} has ended without coming: deadlock")
        else:
            expected, line, theirs = self._waiting[other]
            if expected != what:
                raise NkiError(
                    f"core {me} waits at {_text(what)}, core {other} at {_text(expected)} ({line}): deadlock"
                )
            self._met = [payload, theirs] if me == 0 else [theirs, payload]
            self._waiting = [None, None]
            if self._order[0] != me:
                self._switch(me)
        return self._met[other]

    def _switch(self, me: int) -> None:
        self._turn[1 - me].release()
        self._turn[me].acquire()
        if self._failure is not None:
            raise _Stopped
        activate(self._cores[me])

    def _run_core(self, me: int, function, wait: bool) -> None:
        if wait:
            self._turn[me].acquire()
        activate(self._cores[me])
        try:
            if self._failure is None:
                self._results[me] = function(self._cores[me])
        except _Stopped:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            self._ended[me] = True
            activate(None)
            self._turn[1 - me].release()


def _text(what: tuple) -> str:
    return " ".join(str(part) for part in what)
