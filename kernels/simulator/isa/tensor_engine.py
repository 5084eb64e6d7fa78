"""The tensor engine: matmuls that accumulate in PSUM, and transposes."""

import numpy as np

from trncheck.kernels.simulator import access
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.isa.enums import matmul_perf_mode
from trncheck.kernels.simulator.storage import TAINT, Buffer

_WIDE = ("float32", "tfloat32")
_MATMUL_DTYPES = ("float8_e4m3", "float8_e5m2", "bfloat16", "float16", *_WIDE)


@instruction
def nc_matmul(
    dst,
    stationary,
    moving,
    is_stationary_onezero=False,
    is_moving_onezero=False,
    is_transpose=False,
    accumulate=None,
    tile_position=(),
    tile_size=(),
    perf_mode=matmul_perf_mode.none,
    name=None,
):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N] in fp32, K on partitions; free dimensions count flattened.

    ``accumulate`` None: the first matmul that writes an element of PSUM overwrites it, later ones add.
    """
    checks.tile(stationary, "stationary", buffers=(Buffer.sbuf,))
    checks.tile(moving, "moving", buffers=(Buffer.sbuf,))
    checks.tile(dst, "dst", buffers=(Buffer.psum,))
    k, m, n = stationary.shape[0], stationary.size // stationary.shape[0], moving.size // moving.shape[0]
    _check_sizes(dst, stationary, moving, k, m, n)
    _check_dtypes(dst, stationary, moving, is_transpose)
    _check_tiling(tile_position, tile_size)
    if perf_mode is not matmul_perf_mode.none:
        raise NkiError("perf_mode double_row is not simulated")
    stationary_KM, stationary_taint = access.read_f32(stationary, "stationary")
    moving_KN, moving_taint = access.read_f32(moving, "moving")
    taint_MN = _taint(stationary_taint, moving_taint, k, m, n)
    factors = stationary_KM.reshape(k, m).T, moving_KN.reshape(k, n)
    _accumulate(dst, factors, taint_MN, False if is_transpose else accumulate)


@instruction
def nc_transpose(dst, data, engine=engines.unknown, name=None):
    """dst[F, P] = data[P, F].T bit by bit; on the tensor engine from SBUF to PSUM, or 32 x 32 on the vector engine."""
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    p, f = data.shape[0], data.size // data.shape[0]
    if dst.shape[0] != f or dst.size != p * f:
        raise NkiError(f"dst {list(dst.shape)} must be the transpose of data {list(data.shape)}")
    if dst.dtype != data.dtype:
        raise NkiError(f"dst is {dst.dtype} and data is {data.dtype}; a transpose keeps the dtype")
    on_vector = engine is engines.vector or (
        engine is engines.unknown and not (data.buffer is Buffer.sbuf and dst.buffer is Buffer.psum)
    )
    if on_vector and (p > 32 or f > 32):
        raise NkiError(f"data {list(data.shape)} is larger than 32 x 32 and does not go from SBUF to PSUM")
    if not on_vector and f > 128:
        raise NkiError(f"data {list(data.shape)} is larger than 128 x 128")
    if not on_vector and (data.buffer is not Buffer.sbuf or dst.buffer is not Buffer.psum):
        raise NkiError("the tensor engine transposes from SBUF to PSUM")
    values, taint = access.read(data, "data")
    access.write(dst, values.reshape(p, f).T.copy(), None if taint is None else taint.reshape(p, f).T)


def _check_sizes(dst, stationary, moving, k: int, m: int, n: int) -> None:
    limits = current().platform
    if moving.shape[0] != k:
        raise NkiError(
            f"stationary {list(stationary.shape)} and moving {list(moving.shape)} must have the same number of "
            "partitions, the contraction dimension K"
        )
    if m > limits.stationary_free:
        raise NkiError(f"stationary {list(stationary.shape)} has {m} columns; at most {limits.stationary_free}")
    if n > limits.moving_free:
        raise NkiError(f"moving {list(moving.shape)} has {n} columns; at most {limits.moving_free}")
    if dst.shape[0] != m or dst.size != m * n:
        raise NkiError(f"dst {list(dst.shape)} must be [{m}, {n}]: stationary's and moving's columns")
    size = dst.storage.whole.itemsize
    first = (dst.offset % dst.storage.free) * size
    last = (
        first + sum((count - 1) * stride for count, stride in zip(dst.shape[1:], dst.strides[1:], strict=True)) * size
    )
    if first // limits.bank_bytes != last // limits.bank_bytes:
        raise NkiError(f"dst {list(dst.shape)} crosses a PSUM bank of {limits.bank_bytes} bytes per partition")


def _check_dtypes(dst, stationary, moving, is_transpose: bool) -> None:
    for name, tensor in (("stationary", stationary), ("moving", moving)):
        if tensor.dtype not in _MATMUL_DTYPES:
            raise NkiError(f"{name} is {tensor.dtype}; the tensor engine takes {', '.join(_MATMUL_DTYPES)}")
    if (stationary.dtype in _WIDE) != (moving.dtype in _WIDE) and not is_transpose:
        raise NkiError(f"stationary is {stationary.dtype} and moving is {moving.dtype}; fp32 goes with fp32 only")
    wanted = moving.dtype if is_transpose else "float32"
    if dst.dtype != wanted:
        raise NkiError(f"dst is {dst.dtype}; it must be {wanted} on {current().platform.name}")


def _check_tiling(position, size) -> None:
    if bool(position) != bool(size):
        raise NkiError("tile_position and tile_size go together")
    for start, extent in zip(position, size, strict=True):
        if extent not in (32, 64, 128) or start % extent:
            raise NkiError(f"tile_position {position} with tile_size {size}: sizes are 32, 64 or 128, starts multiples")


def _taint(stationary, moving, k: int, m: int, n: int):
    if stationary is None and moving is None:
        return None
    taint_MN = np.zeros((m, n), np.uint16)
    if stationary is not None:
        taint_MN = np.maximum(taint_MN, stationary.reshape(k, m).max(axis=0)[:, None])
    if moving is not None:
        taint_MN = np.maximum(taint_MN, moving.reshape(k, n).max(axis=0)[None, :])
    return taint_MN


def _accumulate(dst, factors: tuple[np.ndarray, np.ndarray], taint_MN, accumulate: bool | None) -> None:
    storage, offset = dst.storage, access.start(dst)
    opened = access.opened(dst, offset)
    if accumulate and opened is not True:
        raise NkiError(f"accumulate=True onto PSUM that no matmul has written: {storage!r}")
    if accumulate is None and storage.filled and storage.lifetime.last == storage.filled[0] and opened is not True:
        current().warn(f"what memset wrote at {storage.filled[1]} is lost: the first matmul into PSUM overwrites it")
    adding = False if accumulate is False else opened
    if adding is False and dst.strides == (dst.shape[1], 1):  # BLAS writes there itself
        access.write_result(dst, np.matmul, factors, taint_MN)
        access.note_opened(dst, offset, True)
        return
    product = np.matmul(*factors).reshape(dst.shape)
    if adding is not False:
        before, before_taint = access.read(dst, "dst") if adding is True else _masked(dst, adding)
        before = before.astype(np.float32, copy=False)
        product = before + product if adding is True else np.where(adding, before + product, product)
        taint_MN = access.combine(*(t.reshape(dst.shape) for t in (taint_MN, before_taint) if t is not None))
    access.write(dst, product, taint_MN)
    access.note_opened(dst, offset, True)


def _masked(dst, adding):
    """Values and taint of ``dst`` where a matmul has been; the rest counts as zero."""
    values, state = access.peek(dst)
    tainted = None if state is None else np.where(adding & (state >= TAINT), state, 0)
    return np.where(adding, values, 0), tainted
