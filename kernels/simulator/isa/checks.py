"""What instructions demand of their operands, and the errors that say which one, its shape and the limit."""

import math

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.isa.enums import engine
from trncheck.kernels.simulator.ops import Op
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

MAX_FREE_DIMS = 3
"""Free dimensions of one instruction's access pattern, after merging."""
MAX_FREE = {Buffer.sbuf: 64 * 1024, Buffer.psum: 4 * 1024}
"""Elements per partition of one instruction."""
_ALWAYS = min(MAX_FREE.values())

_COMPOSED = {
    "broadcast_to": "a view, tensor.broadcast(dim, size)",
    "divide": "nisa.reciprocal, then nl.multiply",
    "load": "nisa.dma_copy",
    "matmul": "nisa.nc_matmul",
    "mean": "nisa.tensor_reduce with nl.add, then nl.multiply by 1/n",
    "store": "nisa.dma_copy",
    "sum": "nisa.tensor_reduce with nl.add",
}
"""Functions of nki.language that are made of instructions, and what to use as an engine's function instead."""


def tile(tensor, operand: str, *, buffers: tuple[Buffer, ...] = (Buffer.sbuf, Buffer.psum)) -> NkiTensor:
    """Demand an on-chip operand of a compute engine that it can address."""
    if not isinstance(tensor, NkiTensor):
        raise NkiError(f"{operand} must be a tensor, not {tensor!r}")
    storage, shape = tensor.storage, tensor.shape
    if shape is storage.shape and storage.free <= _ALWAYS and len(shape) <= MAX_FREE_DIMS and storage.buffer in buffers:
        return tensor  # as it was allocated
    if storage.buffer not in buffers:
        names = " or ".join(buffer.value for buffer in buffers)
        raise NkiError(f"{operand} {list(shape)} is in {tensor.buffer.value}; it must be in {names}")
    if tensor.offset >= storage.free and (first := first_partition(tensor)):
        start_partition(first, shape[0], f"{operand} {list(shape)}")
    free = storage.free if shape is storage.shape else math.prod(shape[1:])
    if free > MAX_FREE[storage.buffer]:
        raise NkiError(f"{operand} {list(shape)} has {free} elements per partition; at most {MAX_FREE[storage.buffer]}")
    if len(shape) > MAX_FREE_DIMS + 1 and (dims := _merged_dims(tensor)) > MAX_FREE_DIMS:
        raise NkiError(f"{operand} {list(shape)} has {dims} free dimensions after merging; at most {MAX_FREE_DIMS}")
    return tensor


def start_partition(first: int, partitions: int, operand: str) -> None:
    """Demand that a compute engine can start ``partitions`` partitions at ``first``."""
    allowed = (0,) if partitions > 64 else (0, 64) if partitions > 32 else (0, 32, 64, 96)
    if first not in allowed:
        raise NkiError(
            f"{operand} starts at partition {first}; {partitions} partitions may start at "
            f"{', '.join(map(str, allowed))}"
        )


def first_partition(tensor: NkiTensor) -> int:
    """The partition where an on-chip tensor starts."""
    storage = tensor.storage
    if tensor.dtype == storage.dtype:
        return tensor.offset // storage.free
    return tensor.offset * dtypes.itemsize(tensor.dtype) // (storage.free * dtypes.itemsize(storage.dtype))


def hbm_or_sbuf(tensor, operand: str) -> NkiTensor:
    """Demand an operand that DMA can reach."""
    if not isinstance(tensor, NkiTensor):
        raise NkiError(f"{operand} must be a tensor, not {tensor!r}")
    if tensor.buffer is Buffer.psum:
        raise NkiError(f"{operand} {list(tensor.shape)} is in PSUM, which DMA cannot reach; copy it to SBUF first")
    return tensor


def same_extent(**tensors: NkiTensor) -> None:
    """Demand one number of partitions and of elements per partition."""
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.shape != first.shape and (tensor.shape[0], tensor.size) != (first.shape[0], first.size):
            raise NkiError(
                f"{name} {list(tensor.shape)} and {first_name} {list(first.shape)} must agree in partitions and in "
                "elements per partition"
            )


def not_both_in_psum(**tensors: NkiTensor) -> None:
    for tensor in tensors.values():
        if tensor.storage.buffer is not Buffer.psum:
            return
    if tensors:
        raise NkiError(f"{' and '.join(tensors)} are both in PSUM; one must be in SBUF")


def on_engine(value, allowed: tuple[engine, ...], **tensors: NkiTensor) -> None:
    """Demand an engine that has the instruction and, for GpSimd, that no operand is in PSUM."""
    if value is engine.unknown:
        return
    if value not in allowed:
        names = ", ".join(f"engine.{item.name}" for item in allowed)
        raise NkiError(f"engine {value!r} does not execute this instruction; use {names} or engine.unknown")
    if value is engine.gpsimd:
        not_in_psum("engine.gpsimd", **tensors)


def not_in_psum(reason: str, **tensors: NkiTensor) -> None:
    """Demand operands in SBUF, because of ``reason``, which cannot reach PSUM."""
    for name, tensor in tensors.items():
        if isinstance(tensor, NkiTensor) and tensor.buffer is Buffer.psum:
            raise NkiError(f"{name} {list(tensor.shape)} is in PSUM, which {reason} cannot reach")


def op(value, operand: str, *kinds: str) -> Op:
    """Demand one of NKI's functions of one of ``kinds``."""
    if not isinstance(value, Op):
        name = getattr(value, "__name__", "")
        if name in _COMPOSED and getattr(value, "__module__", "").startswith("trncheck.kernels.simulator"):
            raise NkiError(f"{operand} nl.{name}: no engine has that function; use {_COMPOSED[name]}")
        raise NkiError(f"{operand} must be a function of nki.language such as nl.add, not {value!r}")
    if kinds and value.kind not in kinds:
        raise NkiError(f"{operand} {value!r} is {value.kind}, not {' or '.join(kinds)}")
    return value


def per_partition(value, operand: str, dst: NkiTensor, *, fp32: bool) -> tuple[np.ndarray | float, access.Taint]:
    """A scalar, or a (P, 1) tensor as a column."""
    if not isinstance(value, NkiTensor):
        if not isinstance(value, int | float | np.number):
            raise NkiError(f"{operand} must be a number or a tensor (P, 1), not {value!r}")
        return np.float32(value), None
    tile(value, operand)
    if value.shape[0] != dst.shape[0] or value.size != dst.shape[0]:
        raise NkiError(f"{operand} {list(value.shape)} must hold one element for each of {dst.shape[0]} partitions")
    if fp32 and value.dtype != "float32":
        raise NkiError(f"{operand} is {value.dtype}; a tensor here must be float32")
    values, taint = access.read_f32(value, operand)
    return values.reshape(-1, 1), None if taint is None else taint.reshape(-1, 1)


def _merged_dims(tensor: NkiTensor) -> int:
    merged: list[tuple[int, int]] = []
    for size, stride in zip(tensor.shape[1:], tensor.strides[1:], strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return len(merged)
