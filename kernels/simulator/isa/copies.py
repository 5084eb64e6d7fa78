"""Copies, fills and moves between partitions on chip."""

import functools

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError, kernel_line
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.platform import nc_version
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

_QUADRANT = 32
_KEEP = 255
_PREDICATES = ("uint8", "uint16", "uint32")


@instruction
def tensor_copy(dst, src, engine=engines.unknown, name=None):
    """dst = src: bit by bit where the dtypes agree, else through fp32."""
    checks.tile(src, "src")
    checks.tile(dst, "dst")
    checks.same_extent(dst=dst, src=src)
    checks.on_engine(engine, (engines.vector, engines.scalar, engines.gpsimd), dst=dst, src=src)
    if engine is engines.scalar and current().platform.version < nc_version.gen3:
        raise NkiError("engine.scalar has no tensor_copy before trn2; use nisa.activation with op=nl.copy")
    values, taint = access.read(src, "src")
    if dst.dtype != src.dtype:
        values = values.astype(np.float32, copy=False)
    access.write(dst, values, taint)


@instruction
def memset(dst, value, engine=engines.unknown, name=None):
    """Fill dst with a number; integer dtypes take integers only."""
    checks.tile(dst, "dst")
    checks.on_engine(engine, (engines.vector, engines.gpsimd), dst=dst)
    access.fill(dst, _constant(value, "value", dst))
    if dst.buffer is Buffer.psum:
        dst.storage.filled = (current().clock, kernel_line()) if value else None


@instruction
def tensor_copy_predicated(dst, src, predicate, reverse_pred=False, name=None):
    """dst = src, a tile or a number, where predicate is not 0 (where it is 0 if reversed); the rest of dst stays."""
    checks.tile(predicate, "predicate")
    checks.tile(dst, "dst")
    checks.same_extent(dst=dst, predicate=predicate)
    if predicate.dtype not in _PREDICATES:
        raise NkiError(f"predicate is {predicate.dtype}; it must be {', '.join(_PREDICATES)}")
    flags, flags_taint = access.read(predicate, "predicate")
    chosen = ((flags != 0) != bool(reverse_pred)).reshape(dst.shape)
    if isinstance(src, NkiTensor):
        checks.tile(src, "src")
        checks.same_extent(dst=dst, src=src)
        checks.not_both_in_psum(src=src, predicate=predicate)
        if src.dtype != dst.dtype:
            raise NkiError(f"src is {src.dtype} and dst is {dst.dtype}; a predicated copy keeps the dtype")
        values, taint = access.read_where(src, "src", chosen)
        values, taint = values.reshape(dst.shape), None if taint is None else taint.reshape(dst.shape)
    else:
        values, taint = np.broadcast_to(_constant(src, "src", dst), dst.shape), None
    if flags_taint is not None:
        # Where the predicate is not known, neither is the element.
        flags_taint = flags_taint.reshape(dst.shape)
        before, _ = access.peek(dst)
        values, taint = np.where(chosen, values, before), access.combine(taint, flags_taint)
        chosen = chosen | (flags_taint != 0)
    access.write_where(dst, chosen, values, taint)


@instruction
def nc_stream_shuffle(dst, src, shuffle_mask, name=None):
    """dst[p] = src[q + shuffle_mask[p % 32]] in every 32 partitions from q; 255 leaves dst[p] as it is."""
    checks.tile(src, "src")
    checks.tile(dst, "dst")
    if dst.dtype != src.dtype:
        raise NkiError(f"src is {src.dtype} and dst is {dst.dtype}; a shuffle keeps the dtype")
    free = src.size // src.shape[0]
    if dst.size // dst.shape[0] != free:
        raise NkiError(f"dst {list(dst.shape)} and src {list(src.shape)} must agree in elements per partition")
    active = -(-max(src.shape[0], dst.shape[0]) // _QUADRANT) * _QUADRANT
    for operand, tensor in (("src", src), ("dst", dst)):
        checks.start_partition(checks.first_partition(tensor), active, operand)
    rows = _sources(tuple(shuffle_mask), dst.shape[0], src.shape[0])
    kept = rows < 0
    used = np.zeros((src.shape[0], free), bool)
    used[rows[~kept]] = True
    values, taint = access.read_where(src, "src", used)
    values = values.reshape(-1, free)[rows].reshape(dst.shape)
    taint = None if taint is None else taint.reshape(-1, free)[rows].reshape(dst.shape)
    if not kept.any():
        access.write(dst, values, taint)
    else:
        chosen = np.repeat(~kept, free).reshape(dst.shape)
        access.write_where(dst, chosen, values, taint)


@functools.lru_cache(maxsize=256)
def _sources(mask: tuple[int, ...], dst_partitions: int, src_partitions: int) -> np.ndarray:
    """The partition of src for each of dst, or -1."""
    if len(mask) != _QUADRANT or any(not isinstance(m, int) for m in mask):
        raise NkiError(f"shuffle_mask {list(mask)!r} must hold {_QUADRANT} ints")
    if bad := [m for m in mask if not 0 <= m < _QUADRANT and m != _KEEP]:
        raise NkiError(f"shuffle_mask holds {bad[0]}; entries are partitions of a quadrant, 0 to 31, or {_KEEP}")
    rows = []
    for partition in range(dst_partitions):
        quadrant, lane = divmod(partition, _QUADRANT)
        source = -1 if mask[lane] == _KEEP else quadrant * _QUADRANT + mask[lane]
        if source >= src_partitions:
            raise NkiError(
                f"dst partition {partition} comes from src partition {source}; src has {src_partitions} partitions"
            )
        rows.append(source)
    return np.array(rows)


def _constant(value, operand: str, dst: NkiTensor) -> np.ndarray:
    """A number as one element of dst's dtype."""
    if not isinstance(value, int | float | np.integer | np.floating):
        raise NkiError(f"{operand} {value!r} is not a number")
    if dtypes.is_float(dst.dtype) or dst.dtype == "bool":
        return access.rounded(np.array(value, np.float32), dst.dtype)
    if isinstance(value, float | np.floating):
        raise NkiError(f"{operand} {value!r} is a float and dst is {dst.dtype}; give an int")
    limits = np.iinfo(dtypes.stored(dst.dtype))
    if not limits.min <= value <= limits.max:
        raise NkiError(f"{operand} {value!r} does not fit dst's {dst.dtype}, {limits.min} to {limits.max}")
    return np.array(value, dtypes.stored(dst.dtype))
