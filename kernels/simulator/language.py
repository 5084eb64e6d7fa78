"""``nki.language``: allocation, indices, loops and the names of dtypes, buffers and functions."""

import contextlib
import math
import os
from collections.abc import Callable, Iterator

import numpy as np

from trncheck.kernels.simulator import dtypes, tiles
from trncheck.kernels.simulator.core import active, current
from trncheck.kernels.simulator.errors import NkiError, called_from
from trncheck.kernels.simulator.nki_object import NKIObject
from trncheck.kernels.simulator.ops import OPS
from trncheck.kernels.simulator.platform import platform
from trncheck.kernels.simulator.registers import NkiScalar, Register, VirtualRegister
from trncheck.kernels.simulator.storage import Buffer, Storage
from trncheck.kernels.simulator.tensor import NkiTensor

__all__ = ["NKIObject", "NkiTensor"]

sbuf, psum, hbm = Buffer.sbuf, Buffer.psum, Buffer.hbm
private_hbm, shared_hbm = Buffer.private_hbm, Buffer.shared_hbm
globals().update(OPS | tiles.LANGUAGE)
globals().update({name: name for name in (*dtypes.NAMES, *dtypes.PACKED) if name != "bool"})
bool_ = "bool"


def ndarray(shape, dtype, buffer=sbuf, name="", address=None) -> NkiTensor:
    """An uninitialised tensor. On chip the first dimension is the partition; shared HBM is one tensor for all cores."""
    shape = tuple(map(int, shape))
    dtype = dtypes.dtype_name(dtype)
    if not isinstance(buffer, Buffer):
        raise NkiError(f"nl.ndarray: buffer {buffer!r} is not a buffer; use nl.sbuf, nl.psum, nl.shared_hbm ...")
    if not shape or any(size < 1 for size in shape):
        raise NkiError(f"nl.ndarray: shape {list(shape)} must have positive sizes")
    if buffer.on_chip:
        _check_on_chip(shape, dtype, buffer, address)
    storage = _shared(shape, dtype, name) if buffer is Buffer.shared_hbm else Storage(shape, dtype, buffer, name or "")
    return NkiTensor(storage, storage.shape, storage.strides, 0, dtype)


def _check_on_chip(shape, dtype, buffer: Buffer, address) -> None:
    limits = current().platform
    if len(shape) < 2:
        raise NkiError(f"nl.ndarray: {list(shape)} on chip needs a partition and a free dimension{called_from()}")
    if shape[0] > limits.partitions:
        raise NkiError(
            f"nl.ndarray: {list(shape)} has {shape[0]} partitions; at most {limits.partitions}{called_from()}"
        )
    capacity = limits.sbuf_bytes if buffer is Buffer.sbuf else limits.psum_bytes
    needed = math.prod(shape[1:]) * dtypes.itemsize(dtype)
    offset = address[1] if address is not None and len(address) == 2 else 0
    if offset and buffer is Buffer.psum and offset % limits.bank_bytes:
        raise NkiError(f"nl.ndarray: PSUM address {address} must be a multiple of {limits.bank_bytes} bytes")
    if offset + needed > capacity:
        raise NkiError(
            f"nl.ndarray: {buffer.value.upper()} capacity exceeded: {list(shape)} {dtype} takes {needed} bytes per "
            f"partition{f' from byte {offset}' if offset else ''}, {limits.name} has {capacity}{called_from()}"
        )


def _shared(shape, dtype, name) -> Storage:
    """The n-th shared tensor of one core is the n-th of the other."""
    core = current()
    position, known = core.allocations, core.shared.storages
    core.allocations += 1
    if position == len(known):
        known.append(Storage(shape, dtype, Buffer.shared_hbm, name or ""))
    storage = known[position]
    if (storage.shape, storage.dtype) != (shape, dtype):
        raise NkiError(
            f"nl.ndarray: shared tensor {position} is {list(shape)} {dtype} on core {core.index}, and {storage!r} on "
            "the other core; both cores must allocate shared tensors in the same order"
        )
    return storage


def full(shape, value, dtype, buffer=sbuf, name="") -> NkiTensor:
    from trncheck.kernels.simulator import isa

    tensor = ndarray(shape, dtype, buffer, name)
    if buffer.on_chip:
        isa.memset(tensor, value)
    else:
        _fill(tensor, np.full(tensor.shape, value))
    return tensor


def zeros(shape, dtype, buffer=sbuf, name="") -> NkiTensor:
    return full(shape, 0, dtype, buffer, name)


def ones(shape, dtype, buffer=sbuf, name="") -> NkiTensor:
    return full(shape, 1, dtype, buffer, name)


def zeros_like(tensor: NkiTensor, dtype=None, buffer=None, name="") -> NkiTensor:
    return zeros(tensor.shape, dtype or tensor.dtype, buffer or tensor.buffer, name)


def empty_like(tensor: NkiTensor, dtype=None, buffer=None, name="") -> NkiTensor:
    return ndarray(tensor.shape, dtype or tensor.dtype, buffer or tensor.buffer, name)


def shared_constant(values, dtype=None) -> NkiTensor:
    """A constant in HBM: an array, or the path of a ``.npy`` file."""
    values = np.load(values, allow_pickle=False) if isinstance(values, str | os.PathLike) else np.asarray(values)
    tensor = ndarray(values.shape, dtype or dtypes.dtype_name(values.dtype), private_hbm)
    _fill(tensor, values)
    return tensor


def shared_identity_matrix(n: int, dtype="uint8") -> NkiTensor:
    """The n x n identity in SBUF."""
    tensor = ndarray((n, n), dtype, sbuf)
    _fill(tensor, np.eye(n))
    return tensor


def _fill(tensor: NkiTensor, values: np.ndarray) -> None:
    from trncheck.kernels.simulator import access

    access.write(tensor, values)


def ds(start, size) -> slice:
    """``start : start + size``."""
    return slice(start, start + size)


def affine_range(*bounds, **_hints) -> range:
    """Deprecated since NKI 0.7: plain ``range``."""
    return range(*bounds)


sequential_range = static_range = affine_range


def dynamic_range(*_bounds, **_hints):
    raise NkiError("nl.dynamic_range no longer exists in NKI 0.7; use nl.fori_loop")


def fori_loop(lower, upper, body_fun: Callable, step: int = 1) -> None:
    """Call ``body_fun(i)`` for i from ``lower`` to ``upper``, ints or registers; the body sees a register."""
    if not isinstance(step, int) or step < 1:
        raise NkiError(f"nl.fori_loop: step {step!r} must be a positive int")
    bounds = [bound.value if isinstance(bound, Register) else bound for bound in (lower, upper)]
    kind = VirtualRegister if any(isinstance(bound, VirtualRegister) for bound in (lower, upper)) else NkiScalar
    with _loop():
        for i in range(bounds[0], bounds[1], step):
            if body_fun(kind(i)) is not None:
                raise NkiError("nl.fori_loop: the body must return nothing; state lives in SBUF or HBM")


def while_loop(init: Register, body_fun: Callable) -> None:
    """Repeat ``condition = body_fun(condition)`` while the condition register is not 0."""
    condition = init
    with _loop():
        while condition.value:
            condition = body_fun(condition)
            if not isinstance(condition, Register):
                raise NkiError(f"nl.while_loop: the body must return the next condition register, not {condition!r}")


@contextlib.contextmanager
def _loop() -> Iterator[None]:
    """A device loop on this core: what its body allocates ends with it."""
    core = current()
    outer = core.loops
    core.loops = (*outer, object())
    try:
        yield
    finally:
        core.loops = outer


def no_reorder():
    return contextlib.nullcontext()


def program_id(axis: int = 0) -> int:
    """Index of this core in the launch."""
    return current().index


def num_programs(axes: int = 0) -> int:
    return current().degree


def program_ndim() -> int:
    """0 for a launch without brackets."""
    return int(current().has_grid)


def device_print(prefix: str, tensor) -> None:
    from trncheck.kernels.simulator import access

    print(prefix, access.read(tensor, "tensor")[0] if isinstance(tensor, NkiTensor) else tensor)


def is_hbm(buffer: Buffer) -> bool:
    return not buffer.on_chip


def is_on_chip(buffer: Buffer) -> bool:
    return buffer.on_chip


def is_sbuf(buffer: Buffer) -> bool:
    return buffer is Buffer.sbuf


def is_psum(buffer: Buffer) -> bool:
    return buffer is Buffer.psum


class _TileSize:
    """Limits of the platform under NKI's names."""

    gemm_stationary_fmax = 128
    gemm_moving_fmax = 512
    bn_stats_fmax = 512
    psum_bank_fmax = psum_fmax = 512
    psum_bank_fmax_bytes = 2048
    psum_num_banks = 8
    psum_min_align = sbuf_min_align = 1

    @property
    def _limits(self):
        core = active()
        return core.platform if core else platform()

    @property
    def pmax(self) -> int:
        return self._limits.partitions

    @property
    def sbuf_fmax_bytes(self) -> int:
        return self._limits.sbuf_bytes

    sbuf_fmax = sbuf_fmax_bytes

    @property
    def sbuf_size_bytes(self) -> int:
        return self._limits.sbuf_bytes * self._limits.partitions

    total_available_sbuf_size = sbuf_fmax_bytes


tile_size = _TileSize()


def __getattr__(name: str):
    removed = {"arange": "slices", "mgrid": "slices", "par_dim": "plain shapes"}
    if name in removed:
        raise NkiError(f"nl.{name} was removed; use {removed[name]}")
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"the simulator has no nl.{name}; see trncheck.kernels.simulator.language")
