"""Scalars between memory and registers, and the generation of the core."""

import numpy as np

from trncheck.kernels.simulator import access
from trncheck.kernels.simulator.core import active
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.platform import nc_version, platform
from trncheck.kernels.simulator.registers import NkiScalar, Register, VirtualRegister
from trncheck.kernels.simulator.tensor import NkiTensor

_SCALAR_DTYPES = ("int32", "int64")


@instruction
def register_alloc(x=None):
    """A new register, empty (0) or holding ``x``: an int, a register or a 1-element tensor."""
    register = VirtualRegister()
    if isinstance(x, NkiTensor):
        register.value = _load(x, "x")
    elif x is not None:
        register.value = _value(x, "x")
    return register


@instruction
def register_move(dst, src):
    """dst = src, an int or a register."""
    _register(dst, "dst").value = _value(src, "src")


@instruction
def register_load(dst, src):
    """dst = the 32 bits of a 1-element tensor in SBUF or HBM; fewer bits are extended, floats keep their bits."""
    _register(dst, "dst").value = _load(src, "src")


@instruction
def register_store(dst, src):
    """The 1-element tensor dst = the register, cut to the bits of dst's dtype."""
    _single(dst, "dst")
    dtype = access.peek(dst)[0].dtype
    bits = _register(src, "src").value % (1 << 8 * dtype.itemsize)
    access.write(dst, np.array([bits], f"u{dtype.itemsize}").view(dtype))


@instruction
def scalar_load(src):
    """The value of a 1-element int32 or int64 tensor as an NkiScalar."""
    _single(src, "src")
    if src.dtype not in _SCALAR_DTYPES:
        raise NkiError(f"src is {src.dtype}; it must be int32 or int64")
    return NkiScalar(_load(src, "src"), src.dtype)


@instruction
def scalar_store(dst, value):
    """The 1-element tensor dst = an NkiScalar of the same dtype."""
    _single(dst, "dst")
    if not isinstance(value, NkiScalar):
        raise NkiError(f"value must be an NkiScalar, not {value!r}")
    if value.dtype != dst.dtype:
        raise NkiError(f"value is {value.dtype} and dst is {dst.dtype}")
    access.write(dst, np.array([value.value], dst.dtype))


def get_nc_version() -> nc_version:
    """The generation of the core that is simulated; gen3 is Trainium2."""
    core = active()
    return (core.platform if core else platform()).version


def _register(value, operand: str) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        raise NkiError(f"{operand} must be a register of nisa.register_alloc, not {value!r}")
    return value


def _value(source, operand: str) -> int:
    if isinstance(source, Register):
        source = source.value
    if not isinstance(source, int) or isinstance(source, bool):
        raise NkiError(f"{operand} must be an int or a register, not {source!r}")
    if not -(2**31) <= source < 2**32:
        raise NkiError(f"{operand} {source} does not fit the 32 bits of a register")
    return source


def _single(tensor, operand: str) -> NkiTensor:
    checks.hbm_or_sbuf(tensor, operand)
    if tensor.size != 1:
        raise NkiError(f"{operand} {list(tensor.shape)} must have one element")
    return tensor


def _load(tensor, operand: str) -> int:
    values, taint = access.read(_single(tensor, operand), operand)
    if taint is not None and taint.any():
        raise NkiError(f"{operand} comes from memory that was never written: {tensor!r}")
    values = values.reshape(-1)
    if values.dtype.kind not in "iub":
        values = values.view(f"u{values.itemsize}")
    return int(values[0])
