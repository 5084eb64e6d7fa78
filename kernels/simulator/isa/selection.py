"""Generated indices, and selections by position."""

import math

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import accumulators, checks
from trncheck.kernels.simulator.isa.enums import reduce_cmd as commands
from trncheck.kernels.simulator.isa.operands import column
from trncheck.kernels.simulator.ops import OPS
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

FP32_MIN = float(np.finfo(np.float32).min)
_IN_RANGE = ("equal", "less", "less_equal", "greater", "greater_equal")
_COMPARISONS = (*_IN_RANGE, "not_equal")


@instruction
def iota(dst, pattern, offset=0, channel_multiplier=0, name=None):
    """dst[p, i...] = offset + p * channel_multiplier + sum of step * i over ``pattern`` [[step, count], ...]."""
    checks.tile(dst, "dst", buffers=(Buffer.sbuf,))
    access.write(dst, _affine(dst, pattern, offset, channel_multiplier))


@instruction
def affine_select(
    dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=OPS["equal"], offset=0, name=None
):
    """dst = on_true_tile where the value of ``iota`` compares with 0, else the number on_false_value."""
    checks.tile(on_true_tile, "on_true_tile", buffers=(Buffer.sbuf,))
    checks.tile(dst, "dst", buffers=(Buffer.sbuf,))
    checks.same_extent(dst=dst, on_true_tile=on_true_tile)
    _check_comparison(cmp_op, "cmp_op", _COMPARISONS)
    if isinstance(on_false_value, bool) or not isinstance(on_false_value, int | float | np.number):
        raise NkiError(f"on_false_value {on_false_value!r} must be a number")
    chosen = cmp_op.compute(_affine(dst, pattern, offset, channel_multiplier), np.int64(0)) != 0
    values, taint = access.read(on_true_tile, "on_true_tile")
    if on_true_tile.dtype != dst.dtype:
        values = access.rounded(values.astype(np.float32), dst.dtype)
    rest = dtypes.cast(np.array(on_false_value, np.float32), dst.dtype)
    access.write(dst, np.where(chosen, values.reshape(dst.shape), rest), _where_taint(chosen, taint, dst))


@instruction
def range_select(
    dst,
    on_true_tile,
    comp_op0,
    comp_op1,
    bound0,
    bound1,
    reduce_cmd=commands.reset_reduce,
    reduce_res=None,
    reduce_op=OPS["maximum"],
    range_start=0,
    on_false_value=FP32_MIN,
    name=None,
):
    """dst = on_true_tile where (range_start + i) compares with both bounds (P, 1), else the least fp32 number.

    reduce_res (P, 1) receives the maximum of each partition.
    """
    checks.tile(on_true_tile, "on_true_tile")
    checks.tile(dst, "dst")
    checks.same_extent(dst=dst, on_true_tile=on_true_tile)
    if not dtypes.is_float(on_true_tile.dtype):
        raise NkiError(f"on_true_tile is {on_true_tile.dtype}; it must be a float")
    if on_false_value is not Ellipsis and np.float32(on_false_value) != np.float32(FP32_MIN):
        raise NkiError(f"on_false_value {on_false_value!r} is ignored by the hardware, which gives {FP32_MIN!r}")
    if reduce_op.name not in ("maximum", "max"):
        raise NkiError(f"reduce_op {reduce_op!r} must be nl.maximum")
    free = dst.size // dst.shape[0]
    if not isinstance(range_start, int | float) or not 0 <= range_start + free <= 2**24:
        raise NkiError(f"range_start {range_start!r} + {free} elements must stay within 0 and 2**24, exact in fp32")
    index = (range_start + np.arange(free, dtype=np.float32)).reshape(1, *dst.shape[1:])
    chosen, bound_taint = np.ones(dst.shape, bool), None
    for number, op, bound in ((0, comp_op0, bound0), (1, comp_op1, bound1)):
        _check_comparison(op, f"comp_op{number}", _IN_RANGE)
        if not isinstance(bound, NkiTensor):
            raise NkiError(f"bound{number} {bound!r} must be a tensor [{dst.shape[0]}, 1]")
        value, value_taint = column(bound, f"bound{number}", dst)
        chosen &= op.compute(index, value) != 0
        bound_taint = access.combine(bound_taint, value_taint)
    values, taint = access.read_like(on_true_tile, "on_true_tile", dst.shape)
    result = np.where(chosen, values, np.float32(FP32_MIN))
    taint = _where_taint(chosen, taint, dst)
    if bound_taint is not None:
        taint = access.combine(np.broadcast_to(bound_taint, dst.shape), taint)
    sums = accumulators.update("vector", commands.reset_reduce, OPS["maximum"], dst, result, taint, reduce_res)
    access.write(dst, result, taint)
    accumulators.deliver(sums, reduce_res)


@instruction
def nonzero_with_count(dst, src, index_offset=0, padding_val=-1, name=None):
    """dst[p] = indices of src[p]'s nonzero elements, padding, and their count; for p = 0, 16, 32 ... only."""
    checks.tile(src, "src", buffers=(Buffer.sbuf,))
    checks.tile(dst, "dst", buffers=(Buffer.sbuf,))
    if src.dtype not in ("float32", "int32"):
        raise NkiError(f"src is {src.dtype}; it must be float32 or int32")
    if dst.dtype != "int32":
        raise NkiError(f"dst is {dst.dtype}; it must be int32")
    free = src.size // src.shape[0]
    if dst.shape[0] != src.shape[0] or dst.size != dst.shape[0] * (free + 1):
        raise NkiError(f"dst {list(dst.shape)} must have {src.shape[0]} partitions with {free + 1} elements, src's + 1")
    for number, operand in ((index_offset, "index_offset"), (padding_val, "padding_val")):
        if not isinstance(number, int) or not -(2**31) <= number < 2**31:
            raise NkiError(f"{operand} {number!r} must be an int32")
    for partition in range(0, src.shape[0], 16):
        row = slice(partition, partition + 1)
        values, taint = access.read(src[row], "src")
        found = np.flatnonzero(values)
        result = np.full(free + 1, padding_val, np.int32)
        result[: found.size] = found + index_offset
        result[-1] = found.size
        access.write(dst[row], result, None if taint is None else np.full(free + 1, taint.max()))


def _affine(dst: NkiTensor, pattern, offset, channel_multiplier) -> np.ndarray:
    """offset + p * channel_multiplier + sum of step * i, int64 in dst's shape."""
    pairs = list(pattern)
    if not 1 <= len(pairs) <= 4 or any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
        raise NkiError(f"pattern {pattern!r} must be 1 to 4 pairs [step, count]")
    numbers = [*(number for pair in pairs for number in pair), offset, channel_multiplier]
    if any(not isinstance(number, int | np.integer) for number in numbers):
        raise NkiError(
            f"pattern {pattern!r}, offset {offset!r} and channel_multiplier {channel_multiplier!r} take ints"
        )
    counts = [count for _, count in pairs]
    free = dst.size // dst.shape[0]
    if math.prod(counts) != free:
        raise NkiError(f"pattern {pattern!r} counts {math.prod(counts)} elements; dst {list(dst.shape)} has {free}")
    row = np.array([offset], np.int64)
    for step, count in pairs:
        row = (row[:, None] + step * np.arange(count)).reshape(-1)
    value = (channel_multiplier * np.arange(dst.shape[0]))[:, None] + row
    if value.min() < -(2**31) or value.max() >= 2**31:
        current().warn(f"values from {value.min()} to {value.max()} exceed int32 and wrap")
        value = value.astype(np.int32)
    return value.reshape(dst.shape)


def _check_comparison(op, operand: str, allowed: tuple[str, ...]) -> None:
    checks.op(op, operand)
    if op.name not in allowed:
        raise NkiError(f"{operand} {op!r} must be one of {', '.join('nl.' + name for name in allowed)}")


def _where_taint(chosen: np.ndarray, taint: access.Taint, dst: NkiTensor) -> access.Taint:
    return None if taint is None else np.where(chosen, taint.reshape(dst.shape), 0)
