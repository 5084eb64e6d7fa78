"""Reductions and scans over the free dimensions, and over partitions."""

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import accumulators, checks
from trncheck.kernels.simulator.isa.enums import reduce_cmd as commands
from trncheck.kernels.simulator.isa.operands import check_scalar_op, column, sides
from trncheck.kernels.simulator.ops import Op
from trncheck.kernels.simulator.storage import Buffer

_OVER_PARTITIONS = ("add", "maximum", "max", "bitwise_or", "bitwise_and")


@instruction
def tensor_reduce(dst, op, data, axis, negate=False, keepdims=False, name=None):
    """dst = data reduced with op over its last dimensions, ``axis``; times -1 if ``negate``."""
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    _check_reduction(op)
    kept = _kept(data, axis)
    if dst.shape[0] != data.shape[0] or dst.size != data.shape[0] * kept:
        raise NkiError(f"dst {list(dst.shape)} must have {data.shape[0]} partitions with {kept} elements each")
    if op.kind == "bitvec":
        if negate:
            raise NkiError(f"negate goes with arithmetic, not with {op!r}")
        values, taint = _raw(data, dst)
    else:
        values, taint = access.read_f32(data, "data")
    rows = (data.shape[0] * kept, -1)
    result = _reduce(op, values.reshape(rows), 1)
    access.write(dst, -result if negate else result, None if taint is None else taint.reshape(rows).max(axis=1))


@instruction
def tensor_tensor_scan(dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None):
    """dst[:, i] = (data0[:, i] op0 dst[:, i - 1]) op1 data1[:, i] in fp32; ``initial`` stands before the first."""
    checks.tile(data0, "data0")
    checks.tile(data1, "data1")
    checks.tile(dst, "dst")
    for operand, tensor in (("data0", data0), ("data1", data1), ("dst", dst)):
        if tensor.ndim != 2:
            raise NkiError(f"{operand} {list(tensor.shape)} must have 2 dimensions")
    for op, label in ((op0, "op0"), (op1, "op1")):
        checks.op(op, label, "arithmetic")
    checks.same_extent(dst=dst, data0=data0, data1=data1)
    checks.not_both_in_psum(data0=data0, data1=data1)
    a, a_taint = access.read_f32(data0, "data0")
    b, b_taint = access.read_f32(data1, "data1")
    value, value_taint = column(initial, "initial", dst, fp32=False)
    state = np.broadcast_to(np.asarray(value, np.float32).reshape(-1), dst.shape[:1])
    result = np.empty(dst.shape[::-1], np.float32)
    for i, (x, y) in enumerate(zip(a.T.copy(), b.T.copy(), strict=True)):
        first = op0.compute(state, x) if reverse0 else op0.compute(x, state)
        state = op1.compute(y, first) if reverse1 else op1.compute(first, y)
        result[i] = state
    taint = access.combine(a_taint, b_taint, None if value_taint is None else np.broadcast_to(value_taint, dst.shape))
    access.write(dst, result.T, None if taint is None else np.maximum.accumulate(taint, axis=1))


@instruction
def tensor_scalar_reduce(
    dst,
    data,
    op0,
    operand0,
    reduce_op,
    reduce_res=None,
    reverse0=False,
    reduce_cmd=commands.reset_reduce,
    reduce_init=None,
    reduce_res_negate=False,
    name=None,
):
    """dst = data op0 operand0, and reduce_res (P, 1) = dst, before it is rounded, reduced over its free dimensions."""
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    check_scalar_op(op0, operand0, "op0", "arithmetic")
    checks.same_extent(dst=dst, data=data)
    values, taint = access.read_like(data, "data", dst.shape)
    operands, taint = sides(op0, values, taint, operand0, "operand0", reverse0, dst)
    values = op0.compute(*operands)
    sums = accumulators.update("vector", reduce_cmd, reduce_op, dst, values, taint, reduce_res, reduce_init)
    access.write(dst, values, taint)
    accumulators.deliver(sums, reduce_res, -1 if reduce_res_negate else 1)


@instruction
def tensor_partition_reduce(dst, op, data, name=None):
    """dst[0] = data reduced over its partitions, on GpSimd."""
    for tensor, operand in ((data, "data"), (dst, "dst")):
        checks.tile(tensor, operand, buffers=(Buffer.sbuf,))
    checks.op(op, "op")
    if op.name not in _OVER_PARTITIONS:
        raise NkiError(f"op {op!r} must be nl.add, nl.maximum, nl.bitwise_or or nl.bitwise_and")
    free = data.size // data.shape[0]
    if dst.shape[0] != 1 or dst.size != free:
        raise NkiError(f"dst {list(dst.shape)} must have 1 partition with {free} elements")
    values, taint = _raw(data, dst) if op.kind == "bitvec" else access.read_f32(data, "data")
    result = _reduce(op, values.reshape(-1, free), 0)
    access.write(dst, result, None if taint is None else taint.reshape(-1, free).max(axis=0))


@instruction
def bn_stats(dst, data, name=None):
    """dst (P, 6) = count, mean and variance * count of the even elements of data, then of the odd ones."""
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    partitions, free = data.shape[0], data.size // data.shape[0]
    if free > 512:
        raise NkiError(f"data {list(data.shape)} has {free} elements per partition; at most 512")
    if dst.shape[0] != partitions or dst.size != partitions * 6:
        raise NkiError(f"dst {list(dst.shape)} must be [{partitions}, 6]")
    values, taint = access.read_f32(data, "data")
    result = np.zeros((partitions, 6), np.float32)
    for at in (0, 1):
        part = values.reshape(partitions, free)[:, at::2]
        if part.shape[1]:
            mean = part.mean(axis=1)
            result[:, 3 * at] = part.shape[1]
            result[:, 3 * at + 1] = mean
            result[:, 3 * at + 2] = np.square(part - mean[:, None]).sum(axis=1)
    access.write(dst, result, _of_rows(taint, partitions, 6))


@instruction
def bn_aggr(dst, data, name=None):
    """dst (P, 2) = mean and variance of everything that the triples of ``bn_stats`` in data describe."""
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    partitions, free = data.shape[0], data.size // data.shape[0]
    if free % 3:
        raise NkiError(f"data {list(data.shape)} has {free} elements per partition; not a multiple of 3")
    if dst.shape[0] != partitions or dst.size != partitions * 2:
        raise NkiError(f"dst {list(dst.shape)} must be [{partitions}, 2]")
    values, taint = access.read_f32(data, "data")
    count, mean, spread = np.moveaxis(values.reshape(partitions, -1, 3), 2, 0)
    total = count.sum(axis=1)
    overall = (count * mean).sum(axis=1) / total
    variance = (spread + count * np.square(mean - overall[:, None])).sum(axis=1) / total
    access.write(dst, np.stack([overall, variance], axis=1), _of_rows(taint, partitions, 2))


def _check_reduction(op) -> None:
    checks.op(op, "op")
    if op.reduce is None:
        raise NkiError(
            f"op {op!r} does not reduce; add, subtract, multiply, maximum, minimum, logical_* and bitwise_* do"
        )


def _kept(data, axis) -> int:
    """Elements per partition that remain when the dimensions ``axis`` of data are reduced."""
    axes = sorted({axis} if isinstance(axis, int) else set(axis))
    if any(not isinstance(a, int) for a in axes) or not axes:
        raise NkiError(f"axis {axis!r} must be an int or a sequence of ints")
    axes = sorted(a % data.ndim if -data.ndim <= a < data.ndim else a for a in axes)
    if 0 in axes:
        raise NkiError(
            f"axis {axis!r} has 0, the partition dimension; transpose first, or multiply with ones on the tensor engine"
        )
    if axes != list(range(data.ndim - len(axes), data.ndim)):
        raise NkiError(
            f"axis {axis!r} must be the last dimensions of data {list(data.shape)}, in a row up to {data.ndim - 1}"
        )
    kept = 1
    for size in data.shape[1 : axes[0]]:
        kept *= size
    return kept


def _reduce(op: Op, values: np.ndarray, axis: int) -> np.ndarray:
    result = op.reduce(values, axis=axis)
    return result.astype(np.float32) if result.dtype == bool else result


def _raw(data, dst) -> tuple[np.ndarray, access.Taint]:
    for operand, tensor in (("data", data), ("dst", dst)):
        if dtypes.is_float(tensor.dtype):
            raise NkiError(f"{operand} is {tensor.dtype}; bitwise functions take integers only")
    return access.read(data, "data")


def _of_rows(taint: access.Taint, partitions: int, columns: int) -> access.Taint:
    if taint is None:
        return None
    return np.repeat(taint.reshape(partitions, -1).max(axis=1), columns)
