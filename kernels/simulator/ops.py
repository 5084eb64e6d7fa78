"""ALU and activation functions: ``nl.add``, ``nl.silu`` and so on, as the engines compute them, in fp32."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Op:
    """One function of an engine. ``kind`` is arithmetic, bitvec or activation."""

    name: str
    compute: Callable
    kind: str = "arithmetic"
    unary: bool = False
    reduce: Callable | None = None
    """Reduction over the last axis, where the hardware has one."""
    domain: tuple[float, float] | None = None
    """Inputs that the hardware's approximation is documented for; absolute values for reciprocal."""

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __call__(self, *operands, dtype=None, **options):
        """The op as a function over tiles; see ``tiles``."""
        from trncheck.kernels.simulator.tiles import apply

        return apply(self, operands, dtype, options)


def _truth(compute: Callable) -> Callable:
    return lambda a, b: compute(a, b).astype(np.float32)


def _sigmoid(x):
    y = np.exp(-x)
    y += 1
    return np.reciprocal(y, out=y)


def _silu(x):
    y = _sigmoid(x)
    y *= x
    return y


@functools.cache
def _erf_table() -> tuple[np.ndarray, float]:
    """erf at multiples of a step, up to 4 and once more; beyond 4 it is 1 in fp32."""
    step = 2.0**-14
    return np.array([math.erf(i * step) for i in range(int(4 / step) + 2)]), step


def _erf(x):
    """Interpolated linearly in fp64; the error is less than 1e-9, and relatively so near 0."""
    table, step = _erf_table()
    at = np.minimum(np.abs(x), 4) / step
    index = np.nan_to_num(at).astype(np.int64)
    low = table[index]
    return np.copysign(low + (at - index) * (table[index + 1] - low), x)


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _normal_density(x):
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _softplus(x):
    return np.logaddexp(x, 0)


_ALU = {
    "add": (np.add, np.add.reduce),
    "subtract": (np.subtract, np.subtract.reduce),
    "multiply": (np.multiply, np.multiply.reduce),
    "maximum": (np.maximum, np.maximum.reduce),
    "minimum": (np.minimum, np.minimum.reduce),
    "max": (np.maximum, np.maximum.reduce),
    "min": (np.minimum, np.minimum.reduce),
    "equal": (_truth(np.equal), None),
    "not_equal": (_truth(np.not_equal), None),
    "greater": (_truth(np.greater), None),
    "greater_equal": (_truth(np.greater_equal), None),
    "less": (_truth(np.less), None),
    "less_equal": (_truth(np.less_equal), None),
    "logical_and": (_truth(np.logical_and), np.logical_and.reduce),
    "logical_or": (_truth(np.logical_or), np.logical_or.reduce),
    "logical_xor": (_truth(np.logical_xor), np.logical_xor.reduce),
    "power": (np.power, None),
}
_BITVEC = {
    "bitwise_and": (np.bitwise_and, np.bitwise_and.reduce),
    "bitwise_or": (np.bitwise_or, np.bitwise_or.reduce),
    "bitwise_xor": (np.bitwise_xor, np.bitwise_xor.reduce),
    "left_shift": (np.left_shift, None),
    "right_shift": (lambda a, b: _logical_shift(a, b), None),
}
_ACTIVATIONS: dict[str, Callable] = {
    "copy": lambda x: x,
    "square": np.square,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "gelu_dx": lambda x: 0.5 * (1 + _erf(x / math.sqrt(2))) + x * _normal_density(x),
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: _sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - _sigmoid(1.702 * x))),
    "silu": _silu,
    "silu_dx": lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    "tanh": np.tanh,
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "erf": _erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": np.reciprocal,
    "sign": np.sign,
    "abs": np.abs,
}
_DOMAINS = {
    "log": (2.0**-64, 2.0**64),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
    "sin": (-math.pi, math.pi),
    "arctan": (-math.pi / 2, math.pi / 2),
}


def _logical_shift(a, b):
    unsigned = np.dtype(f"u{a.dtype.itemsize}") if a.dtype.kind == "i" else a.dtype
    return np.right_shift(a.view(unsigned), np.asarray(b).astype(unsigned)).view(a.dtype)


def _f32(compute: Callable) -> Callable:
    return lambda x: np.asarray(compute(x), dtype=np.float32)


ALU = {name: Op(name, compute, reduce=reduce) for name, (compute, reduce) in _ALU.items()}
BITVEC = {name: Op(name, compute, "bitvec", reduce=reduce) for name, (compute, reduce) in _BITVEC.items()} | {
    "invert": Op("invert", np.invert, "bitvec", unary=True)
}
ACTIVATIONS = {
    name: Op(name, _f32(compute), "activation", unary=True, domain=_DOMAINS.get(name))
    for name, compute in _ACTIVATIONS.items()
}
OPS = ACTIVATIONS | ALU | BITVEC
