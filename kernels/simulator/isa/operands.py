"""Operands of arithmetic instructions: raw integers, and one value for each partition."""

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.ops import OPS, Op
from trncheck.kernels.simulator.platform import nc_version
from trncheck.kernels.simulator.tensor import NkiTensor

_UNARY = ("rsqrt", "reciprocal", "abs")


def integers(tensor: NkiTensor, operand: str, dst: NkiTensor) -> tuple[np.ndarray, access.Taint]:
    """Values of an integer tensor as they are stored, in dst's shape; dst must be an integer too."""
    for label, item in ((operand, tensor), ("dst", dst)):
        if dtypes.is_float(item.dtype):
            raise NkiError(f"{label} is {item.dtype}; bitwise functions take integers only")
    values, taint = access.read(tensor, operand)
    return values.reshape(dst.shape), None if taint is None else taint.reshape(dst.shape)


def column(value, operand: str, dst: NkiTensor, integer: np.dtype | None = None, *, fp32: bool = True):
    """A number, or one for each partition in a shape that broadcasts against dst; as fp32, or as ``integer``.

    ``fp32`` demands that a tensor is fp32.
    """
    if not isinstance(value, NkiTensor):
        if integer is not None:
            return _integer(value, operand, integer), None
        return checks.per_partition(value, operand, dst, fp32=fp32)
    shape = (dst.shape[0],) + (1,) * (dst.ndim - 1)
    if integer is None:
        values, taint = checks.per_partition(value, operand, dst, fp32=fp32)
    else:
        checks.tile(value, operand)
        if value.shape[0] != dst.shape[0] or value.size != dst.shape[0]:
            raise NkiError(f"{operand} {list(value.shape)} must hold one element for each of {dst.shape[0]} partitions")
        if dtypes.is_float(value.dtype):
            raise NkiError(f"{operand} is {value.dtype}; bitwise functions take integers only")
        values, taint = access.read(value, operand)
        values = values.astype(integer)
    return values.reshape(shape), None if taint is None else taint.reshape(shape)


def _integer(value, operand: str, dtype: np.dtype) -> np.ndarray:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise NkiError(f"{operand} {value!r} must be an int or an integer tensor (P, 1) for bitwise functions")
    bits = 8 * dtype.itemsize
    if not -(2 ** (bits - 1)) <= value < 2**bits:
        raise NkiError(f"{operand} {value!r} does not fit {dtype.name}")
    return np.array(int(value) % 2**bits, np.dtype(f"u{dtype.itemsize}")).astype(dtype)


def check_scalar_op(op, operand, label: str, *kinds: str) -> None:
    """Demand a function of ``kinds`` that takes a tile and ``operand``, or one of a tile alone that engines have there.

    Those are rsqrt, reciprocal and abs; square and relu from trn3 on.
    """
    checks.op(op, label)
    unary = _UNARY if current().platform.version < nc_version.gen4 else (*_UNARY, "square", "relu")
    if op.kind == "activation" and op.name not in unary:
        raise NkiError(f"{label} {op!r} is an activation function; use nisa.activation")
    if op.kind not in ("activation", *kinds):
        raise NkiError(f"{label} {op!r} is {op.kind}, not {' or '.join(kinds)}")
    is_zero = operand is None or (isinstance(operand, int | float) and operand == 0)
    if op.unary and not is_zero:
        raise NkiError(f"{label} {op!r} takes no operand; give operand{label[-1]}=None")
    if not op.unary and operand is None:
        raise NkiError(f"{label} {op!r} needs operand{label[-1]}")


def sides(
    op: Op, values, taint, operand, label: str, reverse: bool, dst: NkiTensor, *, integer=None, fp32: bool = True
):
    """What ``op`` computes from: (values,), (values, operand) or the reverse; and the taint of its result."""
    if op.unary:
        return (values,), taint
    value, value_taint = column(operand, label, dst, integer, fp32=fp32)
    if value_taint is not None:
        taint = access.combine(np.broadcast_to(value_taint, dst.shape), taint)
    return ((value, values) if reverse else (values, value)), taint


def scalar_engine_pair(op0: Op, op1: Op | None) -> None:
    """Demand what the scalar engine can do as tensor_scalar."""
    if current().platform.version >= nc_version.gen4:
        return
    multiply, add = OPS["multiply"], OPS["add"]
    if (op0, op1) not in ((multiply, add), (multiply, None), (add, None)):
        raise NkiError(f"engine.scalar executes multiply then add, multiply, or add; not {op0!r} then {op1!r}")
