"""Copies, fills and moves between partitions on chip."""

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.registers import Register


@instruction
def tensor_copy(dst, src, engine=engines.unknown, name=None):
    """dst = src: bit by bit where the dtypes agree, else through fp32."""
    checks.tile(src, "src")
    checks.tile(dst, "dst")
    checks.same_extent(dst=dst, src=src)
    checks.on_engine(engine, (engines.vector, engines.scalar, engines.gpsimd), dst=dst, src=src)
    values, taint = access.read(src, "src")
    access.write(dst, values if dst.dtype == src.dtype else values.astype(np.float32, copy=False), taint)


@instruction
def memset(dst, value, engine=engines.unknown, name=None):
    """Fill dst with a number; integer dtypes take integers only."""
    checks.tile(dst, "dst")
    checks.on_engine(engine, (engines.vector, engines.gpsimd), dst=dst)
    if isinstance(value, Register) or not isinstance(value, int | float | np.number):
        raise NkiError(f"value {value!r} is not a number")
    if not dtypes.is_float(dst.dtype) and dst.dtype != "bool":
        if isinstance(value, float | np.floating):
            raise NkiError(f"value {value!r} is a float and dst is {dst.dtype}; give an int")
        limits = np.iinfo(dtypes.stored(dst.dtype))
        if not limits.min <= value <= limits.max:
            raise NkiError(f"value {value!r} does not fit dst's {dst.dtype}, {limits.min} to {limits.max}")
        filling = np.array(value, dtypes.stored(dst.dtype))
    else:
        filling = np.array(value, np.float32)
    access.write(dst, np.broadcast_to(access.rounded(filling, dst.dtype), dst.shape))
