"""NKI's dtypes are names; how each is stored in NumPy, and how fp32 results are rounded into them."""

import os
from functools import cache

import ml_dtypes
import numpy as np

from trncheck.kernels.simulator.core import active

_STORED = {
    "float32": np.float32,
    "tfloat32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
}
NAMES = tuple(_STORED)
PACKED = ("float4_e2m1fn_x4", "float8_e4m3fn_x4", "float8_e5m2_x4")
"""Trainium3's packed dtypes: kernels compare with their names, tensors of them are refused."""
FLOATS = frozenset(name for name in NAMES if "float" in name)
_ALIASES = {"bool_": "bool", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def dtype_name(dtype) -> str:
    """The NKI name of a dtype given as a name, or as a NumPy, ml_dtypes or torch dtype."""
    name = dtype if isinstance(dtype, str) else _name_of(dtype)
    name = _ALIASES.get(name, name)
    if name not in _STORED:
        from trncheck.kernels.simulator.errors import NkiError

        if name in PACKED:
            raise NkiError(f"dtype {name} is Trainium3's; the simulator has no packed dtypes")
        raise NkiError(f"dtype {dtype!r} is not one of {', '.join(NAMES)}")
    return name


def _name_of(dtype) -> str:
    text = str(dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype).name


def is_float(name: str) -> bool:
    return name in FLOATS


def precise() -> bool:
    """Whether low precision is stored as such; ``NKI_PRECISE_FP=0`` keeps it in fp32, to tell rounding from errors.

    The variable counts as it was when the launch began.
    """
    core = active()
    return core.precise if core is not None else asked_precise()


def asked_precise() -> bool:
    """What the environment says now."""
    return os.environ.get("NKI_PRECISE_FP", "1") != "0"


def stored(name: str) -> np.dtype:
    """The NumPy dtype that holds an NKI dtype."""
    return _stored(name) if name not in FLOATS or precise() else _F32


_F32 = np.dtype(np.float32)


@cache
def _stored(name: str) -> np.dtype:
    return np.dtype(_STORED[name])


@cache
def itemsize(name: str) -> int:
    """Bytes of one element on the hardware."""
    return np.dtype(_STORED[name]).itemsize


def cast(values: np.ndarray, name: str) -> np.ndarray:
    """Round once into ``name``: to nearest, ties to even; integers saturate, a NaN becomes 0, bool is ``!= 0``."""
    target = stored(name)
    if values.dtype == target:
        return values
    if name == "bool":
        return values != 0
    if is_float(name):
        return values.astype(np.float32, copy=False).astype(target)
    if values.dtype.kind in "iub" and np.can_cast(values.dtype, target):
        return values.astype(target)
    # 2**31 - 1 is no fp32 number, so the limits are applied in fp64.
    wide = np.nan_to_num(np.rint(values.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    info = np.iinfo(target)
    low, high = float(info.min), float(info.max)
    clipped = np.clip(wide, low, high)
    result = np.where(clipped >= high, 0, clipped).astype(target)
    return np.where(clipped >= high, info.max, result).astype(target)
