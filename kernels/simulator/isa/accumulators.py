"""Registers of an engine, one fp32 for each partition, that sum over instructions."""

import numpy as np

from trncheck.kernels.simulator import access
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.enums import reduce_cmd
from trncheck.kernels.simulator.ops import Op
from trncheck.kernels.simulator.tensor import NkiTensor

_START = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


def update(engine: str, command: reduce_cmd, op: Op, dst: NkiTensor, values, taint, reduce_res):
    """Do ``command`` with the fp32 ``values`` of dst's shape; returns values and taint (P, 1) of the registers."""
    if not isinstance(command, reduce_cmd):
        raise NkiError(f"reduce_cmd {command!r} must be a member of nisa.reduce_cmd")
    if reduce_res is not None:
        checks.tile(reduce_res, "reduce_res")
        if reduce_res.shape[0] != dst.shape[0] or reduce_res.size != dst.shape[0]:
            raise NkiError(f"reduce_res {list(reduce_res.shape)} must be [{dst.shape[0]}, 1]")
    registers = current().accumulators
    partitions = dst.shape[0]
    if engine not in registers:
        limit = current().platform.partitions
        registers[engine] = (np.full((limit, 1), np.nan, np.float32), np.zeros((limit, 1), np.uint16))
    first = checks.first_partition(dst)
    lanes, lanes_taint = (part[first : first + partitions] for part in registers[engine])
    if command in (reduce_cmd.reset, reduce_cmd.reset_reduce):
        lanes[...], lanes_taint[...] = _START[op.name], 0
    elif command is reduce_cmd.load_reduce:
        if reduce_res is None:
            raise NkiError("reduce_cmd load_reduce needs reduce_res, which it starts from")
        loaded, loaded_taint = access.read_f32(reduce_res, "reduce_res")
        lanes[...] = loaded.reshape(partitions, 1)
        lanes_taint[...] = 0 if loaded_taint is None else loaded_taint.reshape(partitions, 1)
    elif np.isnan(lanes).any() and (command is reduce_cmd.reduce or reduce_res is not None):
        current().warn(f"reduce_cmd {command.name} on registers that hold NaN or were never reset")
    if command in (reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce):
        with np.errstate(all="ignore"):
            lanes[...] = op.compute(lanes, op.reduce(values.reshape(partitions, -1), axis=1)[:, None])
        if taint is not None:
            np.maximum(lanes_taint, taint.reshape(partitions, -1).max(axis=1)[:, None], out=lanes_taint)
    return lanes.copy(), lanes_taint.copy() if lanes_taint.any() else None


def deliver(sums, reduce_res: NkiTensor | None) -> None:
    """Write what ``update`` returned into reduce_res, if it is given."""
    if reduce_res is not None:
        values, taint = sums
        access.write(reduce_res, values.reshape(reduce_res.shape), taint)
