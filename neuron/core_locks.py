"""One lock per physical core, and the queue of those who want some: how leases keep out of each other's way.

Whoever leases a core takes its lock alone and then keeps it shared; a rank that was told its core joins that lock. All
functions look at the cores and the queue under one mutex, which is held for milliseconds.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trncheck.neuron import cores, holders, locks

_POLL = 0.005, 0.2
"""Seconds between two looks, at first and at most."""
_MUTEX_TIMEOUT = 60.0
"""Seconds; the mutex is held for milliseconds, unless its holder was stopped."""

_TICKETS = "ticket-" + 9 * "[0-9]"


class CoresBusy(ValueError):
    """The cores did not become free in time; the message names who has them."""


@dataclass(frozen=True)
class Request:
    """What a lease asks for."""

    folder: Path
    id: str
    count: int
    allowed: tuple[int, ...]
    lnc: int

    @property
    def physical(self) -> set[int]:
        return {physical for core in self.allowed for physical in physical_cores(core, self.lnc)}


def physical_cores(core: int, lnc: int) -> range:
    """The physical cores of a logical one, by which leases at either LNC exclude each other."""
    return range(core * lnc, (core + 1) * lnc)


def acquire(request: Request, timeout: float, tell: Callable[[str], None]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The logical cores that are leased, and the descriptors of their locks; CoresBusy after ``timeout`` seconds."""
    deadline, pause = time.monotonic() + timeout, _POLL[0]
    with _mutex(request.folder):
        ticket = _queue_up(request)
    told = False
    try:
        while True:
            with _mutex(request.folder):
                ahead = _ahead(request, ticket)
                if not ahead and (taken := _take(request)):
                    return taken
                if time.monotonic() >= deadline:
                    raise CoresBusy(_busy(request, f"within {timeout:g} s" if timeout else "at once", ahead))
                who = "" if told else _busy(request, "yet", ahead)
            if not told:
                tell(who)
                told = True
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(2 * pause, _POLL[1])
    finally:
        with contextlib.suppress(FileNotFoundError):
            ticket.path.unlink()
        locks.unlock(ticket.descriptor)


def join(folder: Path, lease: str, core: int, physical: int) -> int:
    """A descriptor that holds a physical part of ``core`` together with the process that leased it."""
    path = _file(folder, physical)
    descriptor = locks.lock(path, shared=True)
    lines = locks.read_lines(path)
    if descriptor is None or not lines or lines[0].get("lease") != lease:
        if descriptor is not None:
            os.close(descriptor)
        raise CoresBusy(
            f"core {core} is no longer leased to this rank: the process that launched it has ended, and the core went "
            f"to {holders.name(lines)}"
        )
    locks.write_line(descriptor, holders.about_me(), append=True)
    return descriptor


def leave(descriptor: int) -> None:
    """End this process' part in a lease; ranks that live on have the core, and are to be named for it."""
    first, *ranks = locks.read_lines(descriptor) or [{}]
    if ranks:
        locks.write_line(descriptor, first | {"created": 0})
        for rank in ranks:
            locks.write_line(descriptor, rank, append=True)
    locks.unlock(descriptor)


@contextlib.contextmanager
def _mutex(folder: Path) -> Iterator[None]:
    """One process at a time looks at the queue and the cores."""
    path, deadline = folder / "mutex", time.monotonic() + _MUTEX_TIMEOUT
    while (descriptor := locks.lock(path)) is None:
        if time.monotonic() >= deadline:
            who = holders.name(locks.read_lines(path))
            raise CoresBusy(f"{path} was locked for {_MUTEX_TIMEOUT:g} s by {who}; continue or end that")
        time.sleep(0.001)
    try:
        locks.write_line(descriptor, holders.about_me())
        yield
    finally:
        locks.unlock(descriptor)


@dataclass(frozen=True)
class _Ticket:
    path: Path
    descriptor: int


def _queue_up(request: Request) -> _Ticket:
    numbers = [int(path.name.removeprefix("ticket-")) for path in request.folder.glob(_TICKETS)]
    path = request.folder / f"ticket-{max(numbers, default=0) + 1:09}"
    descriptor = locks.lock(path)
    assert descriptor is not None, "a new ticket is nobody else's"
    locks.write_line(descriptor, holders.about_me() | {"count": request.count, "physical": sorted(request.physical)})
    return _Ticket(path, descriptor)


def _ahead(request: Request, mine: _Ticket) -> list[Path]:
    """Tickets of earlier requests that want some of the same cores; removes those of processes that are gone."""
    ahead = []
    for path in sorted(request.folder.glob(_TICKETS)):
        if path.name >= mine.path.name:
            break
        if not locks.is_locked(path):
            with contextlib.suppress(OSError):  # of another user: it stays, and bothers nobody
                path.unlink()
        elif any(request.physical.intersection(line.get("physical", ())) for line in locks.read_lines(path)):
            ahead.append(path)
    return ahead


def _take(request: Request) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The cores of a lease and the descriptors of their locks; None where too few are free."""
    with contextlib.ExitStack() as unwanted:
        free = {}
        for physical in sorted(request.physical):
            if (descriptor := locks.lock(_file(request.folder, physical))) is not None:
                free[physical] = descriptor
                unwanted.callback(locks.unlock, descriptor)
        whole = [core for core in request.allowed if all(part in free for part in physical_cores(core, request.lnc))]
        chosen = _choose(whole, request.count)
        if not chosen:
            return None
        record = holders.about_me() | {"lease": request.id}
        wanted = [part for core in chosen for part in physical_cores(core, request.lnc)]
        for part in wanted:
            locks.write_line(free[part], record)
            locks.share(free[part])
        unwanted.pop_all()
    for part in free.keys() - set(wanted):
        locks.unlock(free[part])
    return chosen, tuple(free[part] for part in wanted)


def _choose(free: Sequence[int], count: int) -> tuple[int, ...]:
    """Neighbours on a multiple of ``count`` before neighbours before any; nothing where too few are free."""
    windows = [tuple(free[start : start + count]) for start in range(len(free) - count + 1)]
    neighbours = [window for window in windows if window[-1] - window[0] == count - 1]
    aligned = [window for window in neighbours if window[0] % count == 0]
    return next(iter([*aligned, *neighbours, *windows]), ())


def _busy(request: Request, when: str, ahead: Sequence[Path]) -> str:
    """Who is in the way."""
    taken: dict[str, list[int]] = {}
    for core in request.allowed:
        for path in (_file(request.folder, part) for part in physical_cores(core, request.lnc)):
            if locks.is_locked(path):
                taken.setdefault(holders.name(locks.read_lines(path)), []).append(core)
    reasons = [f"{cores.show(set(of))} held by {who}" for who, of in taken.items()]
    reasons += [f"an earlier request by {holders.name(locks.read_lines(path))}" for path in ahead]
    return (
        f"of the logical cores {cores.show(request.allowed)}, {request.count} were not free "
        f"{when}: {'; '.join(reasons)}"
    )


def _file(folder: Path, physical: int) -> Path:
    return folder / f"core-{physical:03}"
