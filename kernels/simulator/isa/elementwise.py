"""Elementwise arithmetic of the vector and GpSimd engines."""

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.isa.operands import column, integers, scalar_engine_pair
from trncheck.kernels.simulator.ops import BITVEC, OPS, Op
from trncheck.kernels.simulator.storage import Buffer

_EXACT = ("int32", "uint32")
_UNARY_OF_TENSOR_SCALAR = ("rsqrt", "reciprocal", "abs")


@instruction
def tensor_tensor(dst, data1, data2, op, engine=engines.unknown, name=None):
    """dst = data1 op data2, in fp32; all-int32/uint32 operands in SBUF are exact unless ``engine`` is vector."""
    checks.tile(data1, "data1")
    checks.tile(data2, "data2")
    checks.tile(dst, "dst")
    checks.op(op, "op", "arithmetic", "bitvec")
    if op.unary:
        raise NkiError(f"op {op!r} takes one operand")
    checks.same_extent(dst=dst, data1=data1, data2=data2)
    checks.not_both_in_psum(data1=data1, data2=data2)
    checks.on_engine(engine, (engines.vector, engines.gpsimd), dst=dst, data1=data1, data2=data2)
    if op is OPS["power"]:
        checks.not_in_psum("nl.power on GpSimd", dst=dst, data1=data1, data2=data2)
    if op.kind == "bitvec":
        _bitvec(dst, data1, data2, op)
    elif dst.dtype in _EXACT and engine is not engines.vector and _exact(dst, data1, data2, op):
        _integer(dst, data1, data2, op)
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
    _check_tensor_scalar_op(op0, "op0", operand0)
    if op1 is not None:
        _check_tensor_scalar_op(op1, "op1", operand1)
        if (op0.kind == "bitvec") != (op1.kind == "bitvec"):
            raise NkiError(f"op0 {op0!r} and op1 {op1!r} must both be arithmetic or both be bitvec")
    elif operand1 is not None:
        raise NkiError("operand1 without op1")
    checks.on_engine(engine, (engines.vector, engines.scalar, engines.gpsimd), dst=dst, data=data)
    if engine is engines.scalar:
        scalar_engine_pair(op0, op1)
    if engine is engines.gpsimd and not (op0 is OPS["rsqrt"] and op1 is None):
        raise NkiError(f"engine.gpsimd executes nl.rsqrt only, not {op0!r}")
    if op0.kind == "bitvec":
        values, taint = integers(data, "data", dst)
        kind = integers
    else:
        values, taint = access.read_like(data, "data", dst.shape)
        kind = None
    steps = [(op0, "operand0", operand0, reverse0)]
    if op1 is not None:
        steps.append((op1, "operand1", operand1, reverse1))
    functions = []
    for op, label, operand, reverse in steps:
        if op.unary:
            functions.append((op.compute, ()))
            continue
        value, value_taint = column(operand, label, dst, values.dtype if kind else None)
        if value_taint is not None:
            taint = access.combine(np.broadcast_to(value_taint, dst.shape), taint)
        functions.append((op.compute, (value, reverse)))
    for compute, rest in functions[:-1]:
        with np.errstate(all="ignore"):
            values = compute(*_sides(values, rest))
    compute, rest = functions[-1]
    if kind:
        access.write(dst, compute(*_sides(values, rest)).astype(dtypes.stored(dst.dtype), copy=False), taint)
    else:
        access.write_result(dst, compute, _sides(values, rest), taint)


def _sides(values, rest) -> tuple:
    if not rest:
        return (values,)
    value, reverse = rest
    return (value, values) if reverse else (values, value)


def _check_tensor_scalar_op(op, label: str, operand) -> None:
    checks.op(op, label)
    if op.kind == "activation" and op.name not in _UNARY_OF_TENSOR_SCALAR:
        raise NkiError(f"{label} {op!r} is an activation function; use nisa.activation")
    if op.unary and not (operand is None or (isinstance(operand, int | float) and operand == 0)):
        raise NkiError(f"{label} {op!r} takes no operand; leave operand{label[-1]} None")
    if not op.unary and operand is None:
        raise NkiError(f"{label} {op!r} needs operand{label[-1]}")


def _bitvec(dst, data1, data2, op: Op) -> None:
    a, a_taint = integers(data1, "data1", dst)
    b, b_taint = integers(data2, "data2", dst)
    if a.itemsize != b.itemsize:
        raise NkiError(f"data1 is {data1.dtype} and data2 is {data2.dtype}; {op!r} needs integers of one width")
    result = op.compute(a, b.view(a.dtype)).astype(dtypes.stored(dst.dtype), copy=False)
    access.write(dst, result, access.combine(a_taint, b_taint))


def _exact(dst, data1, data2, op: Op) -> bool:
    integral = data1.dtype in _EXACT and data2.dtype in _EXACT
    return integral and op is not OPS["power"] and all(t.buffer is not Buffer.psum for t in (dst, data1, data2))


def _integer(dst, data1, data2, op: Op) -> None:
    a, a_taint = access.read(data1, "data1")
    b, b_taint = access.read(data2, "data2")
    wide = np.asarray(op.compute(a.astype(np.int64), b.astype(np.int64))).astype(np.int64)
    limits = np.iinfo(dtypes.stored(dst.dtype))
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        current().warn(f"{op!r} exceeds {dst.dtype}; the result wraps here, on hardware it is not documented")
    a_taint, b_taint = (None if t is None else t.reshape(dst.shape) for t in (a_taint, b_taint))
    access.write(dst, wide.reshape(dst.shape).astype(dtypes.stored(dst.dtype)), access.combine(a_taint, b_taint))
