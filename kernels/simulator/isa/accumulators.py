"""Registers of an engine, one fp32 for each partition, that reduce over instructions."""

import numpy as np

from trncheck.kernels.simulator import access
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.enums import reduce_cmd
from trncheck.kernels.simulator.isa.operands import column
from trncheck.kernels.simulator.ops import Op
from trncheck.kernels.simulator.tensor import NkiTensor

_START = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "max": -np.inf, "minimum": np.inf, "min": np.inf}


def update(engine: str, command, op: Op, dst: NkiTensor, values, taint, reduce_res, initial=None):
    """Do ``command`` with the fp32 ``values`` of dst's shape; returns values and taint (P, 1) of the registers."""
    _check(command, op, dst, reduce_res)
    partitions, first = dst.shape[0], checks.first_partition(dst)
    lanes, lanes_taint = (part[first : first + partitions] for part in _registers(engine))
    if command in (reduce_cmd.reset, reduce_cmd.reset_reduce):
        lanes[...], lanes_taint[...] = _START[op.name], 0
    elif command is reduce_cmd.load_reduce:
        if initial is None:
            raise NkiError("reduce_cmd load_reduce needs reduce_init, which the registers start from")
        value, value_taint = column(initial, "reduce_init", dst)
        lanes[...] = value if np.ndim(value) == 0 else value.reshape(partitions, 1)
        lanes_taint[...] = 0 if value_taint is None else value_taint.reshape(partitions, 1)
    elif np.isnan(lanes).any() and (command is reduce_cmd.reduce or reduce_res is not None):
        current().warn(f"reduce_cmd {command.name} with registers that were never reset, or hold NaN")
    if command not in (reduce_cmd.idle, reduce_cmd.reset):
        lanes[...] = op.compute(lanes, op.reduce(values.reshape(partitions, -1), axis=1)[:, None])
        if taint is not None:
            np.maximum(lanes_taint, taint.reshape(partitions, -1).max(axis=1)[:, None], out=lanes_taint)
    return lanes.copy(), lanes_taint.copy() if lanes_taint.any() else None


def deliver(sums, reduce_res: NkiTensor | None, factor: int = 1) -> None:
    """Write what ``update`` returned into reduce_res, if it is given."""
    if reduce_res is not None:
        values, taint = sums
        access.write(reduce_res, values * np.float32(factor), taint)


def _check(command, op, dst: NkiTensor, reduce_res) -> None:
    if not isinstance(command, reduce_cmd):
        raise NkiError(f"reduce_cmd {command!r} must be a member of nisa.reduce_cmd")
    checks.op(op, "reduce_op")
    if op.name not in _START:
        raise NkiError(f"reduce_op {op!r} must be nl.add, nl.multiply, nl.maximum or nl.minimum")
    if reduce_res is not None:
        checks.tile(reduce_res, "reduce_res")
        if reduce_res.shape[0] != dst.shape[0] or reduce_res.size != dst.shape[0]:
            raise NkiError(f"reduce_res {list(reduce_res.shape)} must be [{dst.shape[0]}, 1]")


def _registers(engine: str) -> tuple[np.ndarray, np.ndarray]:
    registers = current().accumulators
    if engine not in registers:
        limit = current().platform.partitions
        registers[engine] = (np.full((limit, 1), np.nan, np.float32), np.zeros((limit, 1), np.uint16))
    return registers[engine]
