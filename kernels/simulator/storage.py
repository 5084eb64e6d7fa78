"""Memory: one flat array per tensor that a kernel allocates, and for every element whether anybody wrote it."""

import enum
import functools

import numpy as np

from trncheck.kernels.simulator import dtypes
from trncheck.kernels.simulator.core import Core, Lifetime, active
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.places import place

UNWRITTEN, WRITTEN, TAINT = 0, 1, 2
"""States of an element. From ``TAINT`` on: written, from memory that had never been; the origin is the rest."""


class Buffer(enum.Enum):
    """A memory region; ``nl.sbuf`` and so on."""

    sbuf = "sbuf"
    psum = "psum"
    hbm = "hbm"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    def __init__(self, name: str):
        self.on_chip = name in ("sbuf", "psum")


@functools.lru_cache(maxsize=1024)
def row_major(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Strides of a tensor without gaps, in elements, and how many there are."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides)), step


class Storage:
    """The memory of one tensor: ``whole`` in its shape, ``state`` of every element while not all is clean.

    A tensor that nobody has written yet is ``fresh``: its memory holds nothing, and it has no states. The first write
    mostly fills it all, and then needs none; any other access must ``settle`` it before.
    """

    __slots__ = (
        "_bytes",
        "awaited",
        "borrowed",
        "buffer",
        "dirty",
        "dtype",
        "filled",
        "free",
        "fresh",
        "lifetime",
        "loops",
        "missing",
        "name",
        "opened",
        "place",
        "shape",
        "size",
        "state",
        "strides",
        "whole",
    )

    def __init__(
        self, shape: tuple[int, ...], dtype: str, buffer: Buffer, name: str = "", data=None, borrowed: bool = False
    ):
        self.shape, self.dtype, self.buffer, self.name = shape, dtype, buffer, name
        self.place = place()
        self.strides, self.size = row_major(shape)
        self.dirty = False
        """Whether an instruction has written here."""
        self.borrowed = borrowed
        """Whether the memory is the caller's, and must stay as it is."""
        self.free = self.size // shape[0] if shape[0] else 0
        self.fresh = data is None
        self.whole = np.empty(shape, dtypes.stored(dtype)) if data is None else data
        self.state: np.ndarray | None = None
        self.missing = 0
        """Elements that are unwritten."""
        self._bytes = None
        self.opened: bool | np.ndarray = False
        """Whether a matmul has written all, none or in a flat array each of the elements, so that the next one adds."""
        self.awaited: list[tuple[int, int, str]] = []
        """Elements that were read before they were written: index, the core that read, the origin."""
        self.filled: tuple[int, str] | None = None
        """PSUM: when and where memset has put something other than zeros here."""
        self.lifetime = None
        self.loops = ()
        """The device loops in whose bodies this was allocated, on chip."""
        if buffer.on_chip and (core := active()) is not None:
            self.loops = core.loops
            self.lifetime = Lifetime(buffer.name, self.free * dtypes.itemsize(dtype), shape, dtype, self.place)
            core.lifetimes.append(self.lifetime)

    @property
    def line(self) -> str:
        """``file:line`` of the allocation."""
        return self.place.line

    @property
    def bytes(self) -> np.ndarray:
        """The memory; NumPy takes no bfloat16 array as such."""
        if self._bytes is None:
            self._bytes = self.whole.reshape(-1).view(np.uint8)
        return self._bytes

    def claim(self) -> None:
        """Note that an instruction is about to write here; memory of the caller is copied first."""
        if self.dirty:
            return
        self.dirty = True
        if self.borrowed:
            self.whole, self._bytes = self.whole.copy(), None

    def settle(self) -> None:
        """Give every element the state of one that nobody wrote, and a value that shows."""
        self.fresh = False
        self.whole.fill(np.nan if dtypes.is_float(self.dtype) else 4)
        self.state, self.missing = np.zeros(self.size, np.uint16), self.size

    def mask(self) -> np.ndarray:
        """``opened`` as an array."""
        if isinstance(self.opened, bool):
            self.opened = np.full(self.size, self.opened)
        return self.opened

    def touch(self, core: Core) -> None:
        """Note that the current instruction uses this memory; NkiError where its loop has ended."""
        if self.loops and core.loops[: len(self.loops)] != self.loops:
            raise NkiError(f"{self!r} belongs to the body of a loop that has ended; allocate it before the loop")
        if (lifetime := self.lifetime) is not None:
            if lifetime.first < 0:
                lifetime.first = core.clock
            lifetime.last = core.clock

    def mark(self, state_view: np.ndarray, taint: np.ndarray | None) -> None:
        """Note that the elements of ``state_view``, a view of ``state``, were written."""
        known = 0 if self.missing == self.size else int(np.count_nonzero(state_view))
        self.missing -= state_view.size - known
        state_view[...] = WRITTEN if taint is None else taint
        if taint is None:
            self.forget_if_clean()

    def forget_if_clean(self) -> None:
        """Drop the states once they say nothing."""
        if self.missing == 0 and self.state.max() == WRITTEN:
            self.state = None

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"{self.buffer.value}{name} {list(self.shape)} {self.dtype} allocated at {self.line}"
