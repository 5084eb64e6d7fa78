"""The scalar engine: a function of data * scale + bias, and sums of it in the engine's registers."""

import numpy as np

from trncheck.kernels.simulator import access
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import accumulators, checks
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.isa.enums import reduce_cmd as commands
from trncheck.kernels.simulator.isa.operands import column
from trncheck.kernels.simulator.ops import OPS, Op
from trncheck.kernels.simulator.platform import nc_version


@instruction
def activation(
    dst,
    op,
    data,
    bias=None,
    scale=1.0,
    reduce_op=None,
    reduce_res=None,
    reduce_cmd=commands.idle,
    engine=engines.scalar,
    name=None,
):
    """dst = op(data * scale + bias) in fp32; ``reduce_cmd`` says what happens to the sum registers.

    scale: a number or fp32 (P, 1); bias: a number or (P, 1). reduce_res (P, 1) receives the registers.
    """
    _check_engine(engine)
    _activate(dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd)


@instruction
def activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None):
    """``activation`` with reduce_cmd.reset_reduce: reduce_res (P, 1) is the sum of the result's free dimensions."""
    _activate(dst, op, data, bias, scale, reduce_op, reduce_res, commands.reset_reduce)


def _activate(dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd) -> None:
    values, taint = _evaluate(dst, op, data, bias, scale)
    if reduce_op is None and reduce_res is None and reduce_cmd is commands.idle:
        access.write(dst, values, taint)
        return
    if reduce_op is None and reduce_cmd in (commands.reduce, commands.reset_reduce):
        raise NkiError(f"reduce_cmd {reduce_cmd.name} needs reduce_op=nl.add")
    if reduce_op is not None and reduce_op is not OPS["add"]:
        raise NkiError(f"reduce_op {reduce_op!r} must be nl.add; the scalar engine's registers only sum")
    sums = accumulators.update("scalar", reduce_cmd, OPS["add"], dst, values, taint, reduce_res)
    access.write(dst, values, taint)
    accumulators.deliver(sums, reduce_res)


def _evaluate(dst, op, data, bias, scale) -> tuple[np.ndarray, access.Taint]:
    checks.tile(data, "data")
    checks.tile(dst, "dst")
    checks.op(op, "op")
    if op.kind != "activation":
        raise NkiError(f"op {op!r} is no activation function; use nisa.tensor_scalar or nisa.tensor_tensor")
    checks.same_extent(dst=dst, data=data)
    x, taint = access.read_like(data, "data", dst.shape)
    for value, operand in ((scale, "scale"), (bias, "bias")):
        if value is None or (type(value) is float and value == (operand == "scale")):
            continue
        if getattr(value, "dtype", None) == "tfloat32":
            raise NkiError(f"{operand} is tfloat32; give float32")
        factor, factor_taint = column(value, operand, dst, fp32=operand == "scale")
        x = x * factor if operand == "scale" else x + factor
        if factor_taint is not None:
            taint = access.combine(np.broadcast_to(factor_taint, dst.shape), taint)
    if op.domain is not None:
        _warn_outside(op, x)
    return op.compute(x), taint


def _warn_outside(op: Op, x: np.ndarray) -> None:
    low, high = op.domain
    magnitude = np.abs(x) if op.name == "reciprocal" else x
    outside = (magnitude < low) | (magnitude > high)
    if outside.any():
        current().warn(
            f"{int(outside.sum())} inputs of {op!r} such as {x[outside][0]:g} are outside [{low:g}, {high:g}], "
            "where the hardware's approximation is not documented"
        )


def _check_engine(engine) -> None:
    allowed = (engines.scalar,)
    if current().platform.version >= nc_version.gen4:
        allowed = (engines.scalar, engines.gpsimd)
    checks.on_engine(engine, allowed)
