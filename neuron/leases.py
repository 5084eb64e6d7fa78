"""NeuronCores on loan: no two processes of a host that ask here use the same core.

A core is free again when the last process that may use it is gone, however that ended: nothing has to be cleaned up.
Requests for the same cores are served in the order they came.
"""

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trncheck.neuron import cores, holders, host, locks, machine
from trncheck.neuron.core_locks import Request, acquire, join, leave, physical_cores

FOLDER = "TRNCHECK_LEASES"
"""Variable with the folder of the locks, for containers that share a machine's cores but not its ``/tmp``."""
LEASE = "TRNCHECK_LEASE"
"""Variable that tells a process under which lease it was started."""
TIMEOUT = 3600.0
"""Seconds to wait for cores: another run may be using all of them for a whole level."""


@dataclass(frozen=True)
class Lease:
    """Cores that this process may use, or give to what it starts."""

    id: str
    cores: tuple[int, ...]
    """Logical cores at ``lnc``, ascending."""
    lnc: int
    waited_s: float
    owner: int
    """Process id."""
    descriptors: tuple[int, ...] = field(repr=False)

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` for a process that uses these cores and no others."""
        kept = {name: value for name, value in base.items() if name != cores.NUMBER}
        return kept | {cores.VISIBLE: cores.show(self.cores), cores.LNC: str(self.lnc), LEASE: self.id}


_taken: list[Lease] = []
_told: list[Lease] = []
_held: list[Lease] = []
# All three with those of the parents that this process was forked from.
_kept = contextlib.ExitStack()
"""What a rank holds to its end."""


def taken() -> list[Lease]:
    """Every lease that this process has had, oldest first; the sum of ``waited_s`` measures contention."""
    return [lease for lease in _taken if lease.owner == os.getpid()]


def untold() -> list[Lease]:
    """Leases of this process since the last call."""
    fresh = [lease for lease in taken() if lease not in _told]
    _told.extend(fresh)
    return fresh


def borrowers() -> set[int]:
    """Processes that hold cores by a lease, of this machine's default folder."""
    files = default_folder().glob("core-*")
    return {line["pid"] for file in files for line in locks.read_lines(file) if holders.lives(line)}


def default_folder() -> Path:
    """Where the locks are: not below TMPDIR, because jobs with folders of their own share the cores all the same."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    stand_in = host.rehearsal()
    return Path("/tmp", f"trncheck-leases-{stand_in.name}" if stand_in else "trncheck-leases")


def on_device(environ: Mapping[str, str]) -> bool:
    """Whether a process with this environment computes on NeuronCores: torch finds them unless it is told not to."""
    return bool(machine.device_files()) and environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0"


def usable(environ: Mapping[str, str]) -> tuple[tuple[int, ...], int]:
    """The cores that a process with this environment may lease, and its LNC. Runs neuron-ls the first time."""
    lnc, count = _counted(host.root(), environ.get(cores.LNC))
    return cores.allowed(environ, count), lnc


@functools.cache
def _counted(_root: Path, lnc: str | None) -> tuple[int, int]:
    found = machine.inspect()
    lnc = cores.lnc({cores.LNC: lnc or str(found.lnc or 2)})
    # Without neuron-ls, for which other checks are red, there are the device files, of 8 physical cores each on Trn2.
    count = found.logical_cores_at(lnc) or found.devices * 8 // lnc
    if not count:
        raise ValueError(f"no NeuronCores: {' '.join(machine.problems(found))}")
    return lnc, count


@contextlib.contextmanager
def lease(
    count: int,
    *,
    allowed: Sequence[int],
    lnc: int = 2,
    timeout: float = TIMEOUT,
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Lease]:
    """Hold ``count`` logical cores out of ``allowed``, all at once; waits up to ``timeout`` seconds for them.

    Neighbours where they are free, on a multiple of ``count`` if possible. ``tell`` is told once when it has to wait,
    and for whom. A process that holds a lease does not wait for another one, so that no two wait for each other.
    Raises ValueError where the process is not allowed that many cores, CoresBusy where they are not free in time.
    """
    mine = [held for held in _held if held.owner == os.getpid()]
    _demand_possible(count, allowed, lnc, mine)
    folder = locks.shared_folder(folder or default_folder())
    started = time.monotonic()
    request = Request(folder, uuid.uuid4().hex, count, tuple(sorted(allowed)), lnc)
    chosen, descriptors = acquire(request, 0.0 if mine else timeout, tell)
    held = Lease(request.id, chosen, lnc, round(time.monotonic() - started, 3), os.getpid(), descriptors)
    _taken.append(held)
    _held.append(held)
    try:
        yield held
    finally:
        _held.remove(held)
        for descriptor in descriptors:
            if held.owner == os.getpid():
                leave(descriptor)
            else:  # a fork of this process, which must not end the lease of its parent
                os.close(descriptor)


def enter(environ: MutableMapping[str, str], folder: Path | None = None) -> int | None:
    """Give a rank of torchrun its own core, to be called before it imports a framework; None outside of torchrun.

    Narrows ``environ`` to that core. The rank holds it to its end: it joins the lease that it was started under or,
    where a user started torchrun, takes one. Raises ValueError, CoresBusy where another process has the core.
    """
    core = cores.own(environ)
    if core is None:
        return None
    folder = locks.shared_folder(folder or default_folder())
    lnc = cores.lnc(environ) if cores.LNC in environ else machine.inspect().lnc or 2
    if LEASE in environ:
        for physical in physical_cores(core, lnc):
            _kept.callback(os.close, join(folder, environ[LEASE], core, physical))
    else:
        _kept.enter_context(lease(1, allowed=(core,), lnc=lnc, timeout=0, folder=folder))
    environ[cores.VISIBLE] = str(core)
    environ.pop(cores.NUMBER, None)
    return core


def _demand_possible(count: int, allowed: Sequence[int], lnc: int, mine: list[Lease]) -> None:
    if count < 1:
        raise ValueError(f"a lease is of one core or more, not of {count}")
    origin = cores.inherited(os.environ)
    if count > len(allowed):
        there = f"{origin} allows {len(allowed)}" if origin else f"there are {len(allowed)} at {cores.LNC}={lnc}"
        raise ValueError(f"{count} logical cores are needed, but {there}")
    own = {physical for held in mine for core in held.cores for physical in physical_cores(core, held.lnc)}
    left = [core for core in allowed if not own.intersection(physical_cores(core, lnc))]
    if count > len(left):
        raise ValueError(
            f"{count} logical cores are needed, but of the {len(allowed)} that are allowed this very process "
            f"(pid {os.getpid()}) already holds {len(allowed) - len(left)}; use those first in a process that ends"
        )
