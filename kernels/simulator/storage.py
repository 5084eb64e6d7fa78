"""Memory: one flat array per tensor that a kernel allocates, and for every element whether anybody wrote it."""

import enum
import math

import numpy as np

from trncheck.kernels.simulator import dtypes
from trncheck.kernels.simulator.core import Core, Lifetime, active
from trncheck.kernels.simulator.errors import NkiError, called_from, kernel_line

UNWRITTEN, WRITTEN, TAINT = 0, 1, 2
"""States of an element. From ``TAINT`` on: written, from memory that had never been; the origin is the rest."""


class Buffer(enum.Enum):
    """A memory region; ``nl.sbuf`` and so on."""

    sbuf = "sbuf"
    psum = "psum"
    hbm = "hbm"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def on_chip(self) -> bool:
        return self in (Buffer.sbuf, Buffer.psum)


class Storage:
    """The memory of one tensor: ``data`` flat in row-major order, ``state`` of every element while not all is clean."""

    __slots__ = (
        "awaited",
        "borrowed",
        "buffer",
        "bytes",
        "data",
        "dirty",
        "dtype",
        "filled",
        "free",
        "lifetime",
        "line",
        "loops",
        "missing",
        "name",
        "opened",
        "shape",
        "state",
    )

    def __init__(self, shape: tuple[int, ...], dtype: str, buffer: Buffer, name: str = "", data=None):
        self.shape, self.dtype, self.buffer, self.name = shape, dtype, buffer, name
        self.line = kernel_line()
        self.dirty = False
        """Whether an instruction has written here."""
        self.borrowed = data is not None
        """Whether ``data`` is the caller's memory."""
        size = math.prod(shape)
        self.free = size // shape[0] if shape[0] else 0
        if data is None:
            fill = np.nan if dtypes.is_float(dtype) else 4
            self.data = np.full(size, fill, dtypes.stored(dtype))
            self.state = np.zeros(size, np.uint16)
            self.missing = size
        else:
            self.data, self.state, self.missing = data, None, 0
        self.bytes = self.data.view(np.uint8)
        """The memory of ``data``; NumPy takes no bfloat16 array as such."""
        self.opened = np.zeros(size, bool) if buffer is Buffer.psum else None
        """PSUM: whether a matmul has written the element, so that the next one adds."""
        self.awaited: list[tuple[int, int, str]] = []
        """Elements that were read before they were written: index, the core that read, the origin."""
        self.filled: tuple[int, str] | None = None
        """PSUM: when and where memset has put something other than zeros here."""
        self.lifetime = None
        core = active()
        self.loops = core.loops if core is not None and buffer.on_chip else ()
        """The device loops in whose bodies this was allocated, on chip."""
        if core is not None and buffer.on_chip:
            bytes_ = self.free * dtypes.itemsize(dtype)
            self.lifetime = Lifetime(buffer.value, bytes_, f"{list(shape)} {dtype}", self.line + called_from())
            core.lifetimes.append(self.lifetime)

    def claim(self) -> None:
        """Note that an instruction is about to write here; memory of the caller is copied first."""
        if self.dirty:
            return
        self.dirty = True
        if self.borrowed:
            self.data = self.data.copy()
            self.bytes = self.data.view(np.uint8)

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
        self.missing -= state_view.size - int(np.count_nonzero(state_view))
        state_view[...] = WRITTEN if taint is None else taint
        if taint is None:
            self.forget_if_clean()

    def forget_if_clean(self) -> None:
        """Drop the states once they say nothing."""
        if self.missing == 0 and (self.state == WRITTEN).all():
            self.state = None

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"{self.buffer.value}{name} {list(self.shape)} {self.dtype} allocated at {self.line}"
