"""Scalars that the hardware holds: usable in arithmetic and as offsets, never in Python's control flow."""

from trncheck.kernels.simulator.errors import NkiError

_RANGES = {"int32": (-(2**31), 2**32), "int64": (-(2**63), 2**64)}


class Register:
    """A value that only the hardware knows; Python must not branch on it."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0):
        self.value = value

    def _refuse(self, *_):
        raise NkiError(
            "a register has no value while the kernel is compiled: no if, while, int(), range() or index on it"
        )

    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = _refuse


class VirtualRegister(Register):
    """``nisa.register_alloc``: 32 bits; changed by register_move and register_load only."""

    __slots__ = ()


class NkiScalar(Register):
    """``nisa.scalar_load``: int32 or int64 with ``+ - *``; immutable; 32 bits wrap."""

    __slots__ = ("dtype",)

    def __init__(self, value: int, dtype: str = "int32"):
        low, span = _RANGES[dtype]
        super().__init__((value - low) % span + low)
        self.dtype = dtype

    def _combine(self, other, compute):
        if isinstance(other, NkiScalar):
            if other.dtype != self.dtype:
                raise NkiError(f"arithmetic of {self.dtype} and {other.dtype} scalars")
            other = other.value
        elif not isinstance(other, int) or isinstance(other, bool):
            raise NkiError(f"arithmetic of a scalar register and {other!r}; only ints and scalars of the same dtype")
        return NkiScalar(compute(self.value, other), self.dtype)

    def __add__(self, other):
        return self._combine(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._combine(other, lambda a, b: a - b)

    def __rsub__(self, other):
        return self._combine(other, lambda a, b: b - a)

    def __mul__(self, other):
        return self._combine(other, lambda a, b: a * b)

    def __neg__(self):
        return NkiScalar(-self.value, self.dtype)

    __radd__ = __add__
    __rmul__ = __mul__
