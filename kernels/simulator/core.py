"""One simulated NeuronCore: what it has executed, what it holds, what it must say at the end."""

import threading
from collections import Counter
from dataclasses import dataclass, field

from trncheck.kernels.simulator.places import Place, place
from trncheck.kernels.simulator.platform import Platform


class _Active(threading.local):
    core: "Core | None" = None


_active = _Active()


@dataclass(eq=False, slots=True)
class Lifetime:
    """From the first to the last instruction that touches one on-chip tensor."""

    buffer: str
    partition_bytes: int
    shape: tuple[int, ...]
    dtype: str
    place: Place
    first: int = -1
    last: int = -1

    @property
    def what(self) -> str:
        """Shape and dtype."""
        return f"{list(self.shape)} {self.dtype}"

    @property
    def line(self) -> str:
        """``file:line`` of the allocation, and of the call of the helper function that makes it."""
        return self.place.line + self.place.called_from


@dataclass(eq=False)
class Core:
    """State of one core during one launch."""

    index: int
    degree: int
    """Cores of the launch (LNC): 1 or 2."""
    has_grid: bool
    platform: Platform
    shared: "SharedMemory"
    precise: bool = True
    """Whether low precision is stored as such."""
    scheduler: object = None
    executed: Counter = field(default_factory=Counter)
    clock: int = 0
    """Instructions so far."""
    instruction: str = ""
    lifetimes: list[Lifetime] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)
    allocations: int = 0
    """Shared HBM tensors so far: the n-th of one core is the n-th of the other."""
    accumulators: dict = field(default_factory=dict)
    """Engine registers that sum over instructions, by engine."""
    loops: tuple[object, ...] = ()
    """The device loops whose bodies execute, outermost first."""

    def warn(self, text: str) -> None:
        self.warnings[f"{place().line}: {self.instruction + ': ' if self.instruction else ''}{text}"] = None


@dataclass(eq=False)
class SharedMemory:
    """What both cores of a launch see."""

    storages: list = field(default_factory=list)
    """HBM tensors allocated by the kernel."""
    origins: list[str] = field(default_factory=list)
    """Where memory was read that had never been written; ``storage.TAINT + index`` marks what came of it."""
    late: dict[str, str] = field(default_factory=dict)
    """By origin: which other core writes the memory after all, and where."""


def activate(core: Core | None) -> None:
    """Make ``core`` the one that this thread simulates."""
    _active.core = core


def active() -> Core | None:
    return _active.core


def current() -> Core:
    """The core that executes; RuntimeError outside of a launch."""
    core = _active.core
    if core is None:
        raise RuntimeError("NKI instructions execute inside a kernel only: call it through nki.simulate or kernel[lnc]")
    return core


def instruction_name() -> str:
    core = active()
    return core.instruction if core else ""


def peak(lifetimes: list[Lifetime], buffer: str) -> tuple[int, list[Lifetime]]:
    """Most bytes per partition that are alive at once in ``buffer``, and the tensors alive then, largest first.

    Alive means between the first and last instruction that touches a tensor: no allocator can do with less unless
    the compiler reorders instructions.
    """
    alive = [item for item in lifetimes if item.buffer == buffer and item.first >= 0]
    changes: Counter = Counter()
    for item in alive:
        changes[item.first] += item.partition_bytes
        changes[item.last + 1] -= item.partition_bytes
    most, level, moment = 0, 0, 0
    for clock in sorted(changes):
        level += changes[clock]
        if level > most:
            most, moment = level, clock
    then = [item for item in alive if item.first <= moment <= item.last]
    return most, sorted(then, key=lambda item: -item.partition_bytes)
