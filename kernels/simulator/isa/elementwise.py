"""Elementwise arithmetic of the vector and GpSimd engines."""

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import accumulators, checks
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.isa.enums import reduce_cmd as commands
from trncheck.kernels.simulator.isa.operands import check_scalar_op, integers, scalar_engine_pair, sides
from trncheck.kernels.simulator.ops import OPS, Op
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

_EXACT = ("int32", "uint32")


@instruction
def tensor_tensor(dst, data1, data2, op, engine=engines.unknown, name=None):
    """dst = data1 op data2, in fp32; all-int32/uint32 operands in SBUF are exact unless ``engine`` is vector."""
    checks.tile(data1, "data1")
    checks.tile(data2, "data2")
    checks.tile(dst, "dst")
    checks.op(op, "op", "arithmetic", "bitvec")
    if op.unary:
        raise NkiError(f"op {op!r} takes one operand; use nisa.tensor_scalar")
    if not dst.shape == data1.shape == data2.shape:
        checks.same_extent(dst=dst, data1=data1, data2=data2)
    checks.not_both_in_psum(data1=data1, data2=data2)
    if engine is not engines.unknown:
        checks.on_engine(engine, (engines.vector, engines.gpsimd), dst=dst, data1=data1, data2=data2)
    if op.name == "power":
        checks.not_in_psum("nl.power on GpSimd", dst=dst, data1=data1, data2=data2)
    if op.kind == "bitvec":
        _bitvec(dst, data1, data2, op)
    elif dst.dtype in _EXACT and engine is not engines.vector and _is_exact(dst, data1, data2, op):
        _exact(dst, data1, data2, op)
    else:
        a, a_taint = access.read_like(data1, "data1", dst.shape)
        b, b_taint = access.read_like(data2, "data2", dst.shape)
        access.write_result(dst, op.compute, (a, b), access.combine(a_taint, b_taint))


@instruction
def tensor_scalar(
    dst,
    data,
    op0,
    operand0,
    reverse0=False,
    op1=None,
    operand1=None,
    reverse1=False,
    engine=engines.unknown,
    name=None,
):
    """dst = (data op0 operand0) op1 operand1; operands are numbers or fp32 (P, 1); ``reverse`` swaps the two sides."""
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    checks.same_extent(dst=dst, data=data)
    check_scalar_op(op0, operand0, "op0", "arithmetic", "bitvec")
    steps = [(op0, "operand0", operand0, reverse0)]
    if op1 is not None:
        check_scalar_op(op1, operand1, "op1", "arithmetic", "bitvec")
        steps.append((op1, "operand1", operand1, reverse1))
        if (op0.kind == "bitvec") != (op1.kind == "bitvec"):
            raise NkiError(f"op0 {op0!r} and op1 {op1!r} must both be arithmetic or both be bitvec")
    elif operand1 is not None:
        raise NkiError(f"operand1 {operand1!r} without op1")
    _check_engine(engine, op0, op1, dst, data)
    bitwise = op0.kind == "bitvec"
    values, taint = integers(data, "data", dst) if bitwise else access.read_like(data, "data", dst.shape)
    dtype = values.dtype if bitwise else None
    for position, (op, label, operand, reverse) in enumerate(steps, start=1):
        fp32 = not _is_16_bit(operand, label)
        operands, taint = sides(op, values, taint, operand, label, reverse, dst, integer=dtype, fp32=fp32)
        if position < len(steps):
            values = op.compute(*operands)
        elif bitwise:
            access.write(dst, op.compute(*operands).astype(dtypes.stored(dst.dtype), copy=False), taint)
        else:
            access.write_result(dst, op.compute, operands, taint)


def _is_16_bit(operand, label: str) -> bool:
    """Whether an operand is a 16-bit float tensor, which is documented as fp32 but used in released kernels: warns."""
    if not isinstance(operand, NkiTensor) or operand.dtype not in ("bfloat16", "float16"):
        return False
    current().warn(f"{label} is {operand.dtype}; documented for a tensor here is float32")
    return True


@instruction
def scalar_tensor_tensor(
    dst,
    data,
    op0,
    operand0,
    op1,
    operand1,
    reverse0=False,
    reverse1=False,
    reduce_cmd=commands.reset_reduce,
    reduce_op=None,
    reduce_res=None,
    name=None,
):
    """dst = (data op0 operand0) op1 operand1, operand0 a number or (P, 1), operand1 a tile.

    With ``reduce_op`` the vector engine's registers reduce the result over the free dimensions into reduce_res (P, 1).
    """
    checks.tile(data, "data")
    checks.tile(operand1, "operand1")
    checks.tile(dst, "dst")
    check_scalar_op(op0, operand0, "op0", "arithmetic")
    checks.op(op1, "op1", "arithmetic")
    checks.same_extent(dst=dst, data=data, operand1=operand1)
    checks.not_both_in_psum(data=data, operand1=operand1)
    a, a_taint = access.read_like(data, "data", dst.shape)
    b, b_taint = access.read_like(operand1, "operand1", dst.shape)
    taint = access.combine(a_taint, b_taint)
    operands, taint = sides(op0, a, taint, operand0, "operand0", reverse0, dst, fp32=False)
    first = op0.compute(*operands)
    operands = (b, first) if reverse1 else (first, b)
    if reduce_op is None:
        if reduce_res is not None:
            raise NkiError("reduce_res without reduce_op")
        access.write_result(dst, op1.compute, operands, taint)
        return
    result = op1.compute(*operands)
    sums = accumulators.update("vector", reduce_cmd, reduce_op, dst, result, taint, reduce_res)
    access.write(dst, result, taint)
    accumulators.deliver(sums, reduce_res)


@instruction
def reciprocal(dst, data, name=None):
    """dst = 1 / data on the vector engine."""
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    checks.same_extent(dst=dst, data=data)
    values, taint = access.read_like(data, "data", dst.shape)
    access.write_result(dst, np.reciprocal, (values,), taint)


def _check_engine(engine, op0: Op, op1: Op | None, dst, data) -> None:
    checks.on_engine(engine, (engines.vector, engines.scalar, engines.gpsimd), dst=dst, data=data)
    if op0.kind == "bitvec" and engine not in (engines.vector, engines.unknown):
        raise NkiError(f"op0 {op0!r} is bitvec and executes on engine.vector only, not engine.{engine.name}")
    if engine is engines.scalar:
        scalar_engine_pair(op0, op1)
    if engine is engines.gpsimd and not (op0 is OPS["rsqrt"] and op1 is None):
        raise NkiError(f"engine.gpsimd executes nl.rsqrt only, not {op0!r}")


def _bitvec(dst, data1, data2, op: Op) -> None:
    a, a_taint = integers(data1, "data1", dst)
    b, b_taint = integers(data2, "data2", dst)
    if a.itemsize != b.itemsize:
        raise NkiError(f"data1 is {data1.dtype} and data2 is {data2.dtype}; {op!r} needs integers of one width")
    result = op.compute(a, b.astype(a.dtype)).astype(dtypes.stored(dst.dtype), copy=False)
    access.write(dst, result, access.combine(a_taint, b_taint))


def _is_exact(dst, data1, data2, op: Op) -> bool:
    integral = data1.dtype in _EXACT and data2.dtype in _EXACT
    return integral and op.name != "power" and all(t.buffer is not Buffer.psum for t in (dst, data1, data2))


def _exact(dst, data1, data2, op: Op) -> None:
    a, a_taint = access.read(data1, "data1")
    b, b_taint = access.read(data2, "data2")
    a, b = (values.astype(np.int64).reshape(dst.shape) for values in (a, b))
    a_taint, b_taint = (None if taint is None else taint.reshape(dst.shape) for taint in (a_taint, b_taint))
    wide = op.compute(a, b).astype(np.int64)
    limits = np.iinfo(dtypes.stored(dst.dtype))
    if wide.min() < limits.min or wide.max() > limits.max:
        current().warn(f"{op!r} exceeds {dst.dtype} and wraps here; what the hardware does is not documented")
    access.write(dst, wide.astype(dtypes.stored(dst.dtype)), access.combine(a_taint, b_taint))
