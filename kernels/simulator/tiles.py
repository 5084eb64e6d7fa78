"""Functions over tiles: ``nl.add(x, y)`` allocates its result; thin forms of the instructions."""

import math

import numpy as np

from trncheck.kernels.simulator import dtypes, isa
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.ops import OPS, Op
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

_TRUTHS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")


def apply(op: Op, operands: tuple, dtype, options: dict) -> NkiTensor:
    """``op(*operands)`` as a new SBUF tile; ``nl.max`` and ``nl.min`` with an axis reduce."""
    all_tiles = all(isinstance(operand, NkiTensor) for operand in operands)
    if op.name in ("max", "min") and ("axis" in options or not all_tiles):
        return _reduced(op, *operands, dtype=dtype, **options)
    if unknown := options.keys() - {"name"}:
        raise NkiError(f"nl.{op.name} has no argument {', '.join(sorted(unknown))}")
    wanted = 1 if op.unary else 2
    if len(operands) != wanted or not any(isinstance(operand, NkiTensor) for operand in operands):
        raise NkiError(f"nl.{op.name} takes {wanted} operand{'s' * (wanted > 1)}, at least one of them a tile")
    tiles = [operand for operand in operands if isinstance(operand, NkiTensor)]
    buffer = tiles[0].buffer if op.name == "copy" else Buffer.sbuf
    dst = _new(tiles[0].shape, dtype or ("uint8" if op.name in _TRUTHS else _widest(tiles)), buffer)
    if op.kind == "activation":
        isa.activation(dst, op, *operands)
    elif op.unary:
        isa.tensor_scalar(dst, tiles[0], op, None)
    elif len(tiles) == 2:
        if tiles[0].shape != tiles[1].shape:
            shapes = " and ".join(str(list(tile.shape)) for tile in tiles)
            raise NkiError(f"nl.{op.name} of {shapes} does not broadcast; use nl.broadcast_to")
        isa.tensor_tensor(dst, *tiles, op)
    else:
        number_first = not isinstance(operands[0], NkiTensor)
        isa.tensor_scalar(dst, tiles[0], op, operands[not number_first], reverse0=number_first)
    return dst


def load(src: NkiTensor, dtype=None) -> NkiTensor:
    """An SBUF tile with the values of an HBM tensor."""
    dst = _new(src.shape, dtype or src.dtype)
    isa.dma_copy(dst, src)
    return dst


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write an SBUF tile into an HBM tensor."""
    isa.dma_copy(dst, value)


def divide(x, y, dtype=None) -> NkiTensor:
    """x / y as x times the reciprocal of y: no engine divides."""
    if not isinstance(y, NkiTensor):
        return OPS["multiply"](x, float(np.float32(1) / np.float32(y)), dtype=dtype)
    inverse = _new(y.shape, "float32")
    isa.reciprocal(inverse, y)
    tiles = [operand for operand in (x, y) if isinstance(operand, NkiTensor)]
    return OPS["multiply"](x, inverse, dtype=dtype or _widest(tiles))


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x[K, M].T @ y[K, N] as a new fp32 PSUM tile (M, N)."""
    if not transpose_x:
        raise NkiError("nl.matmul needs transpose_x=True: the tensor engine takes x with the contraction on partitions")
    dst = _new((math.prod(x.shape[1:]), math.prod(y.shape[1:])), "float32", Buffer.psum)
    isa.nc_matmul(dst, x, y)
    return dst


def broadcast_to(src: NkiTensor, shape) -> NkiTensor:
    """A new tile of ``shape`` by NumPy's rules; one partition goes to all."""
    shape = tuple(shape)
    padded = (*src.shape[:1], *(1,) * (len(shape) - src.ndim), *src.shape[1:])
    if len(padded) != len(shape) or any(size not in (1, wanted) for size, wanted in zip(padded, shape, strict=True)):
        raise NkiError(f"nl.broadcast_to: {list(src.shape)} does not broadcast to {list(shape)}")
    view = src.reshape(padded)
    for dim in range(1, len(shape)):
        if view.shape[dim] != shape[dim]:
            view = view.broadcast(dim, shape[dim])
    dst = _new(shape, src.dtype)
    if padded[0] == shape[0]:
        isa.tensor_copy(dst, view)
    for start in range(0, shape[0] if padded[0] != shape[0] else 0, 32):
        isa.nc_stream_shuffle(dst[start : min(start + 32, shape[0])], view, [0] * 32)
    return dst


def sum(x: NkiTensor, axis, dtype=None, keepdims: bool = False) -> NkiTensor:
    """The sum over the last dimensions, ``axis``."""
    return _reduced(OPS["add"], x, axis, dtype, keepdims)


def mean(x: NkiTensor, axis, dtype=None, keepdims: bool = False) -> NkiTensor:
    """The mean over the last dimensions, ``axis``."""
    total = _reduced(OPS["add"], x, axis, "float32", keepdims)
    return OPS["multiply"](total, total.size / x.size, dtype=dtype or x.dtype)


LANGUAGE = {function.__name__: function for function in (broadcast_to, divide, load, matmul, mean, store, sum)}
"""What ``nki.language`` has from here, next to the functions that ``apply`` serves."""


def _reduced(op: Op, x: NkiTensor, axis, dtype=None, keepdims: bool = False) -> NkiTensor:
    axes = {a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)}
    shape = [1 if dim in axes else size for dim, size in enumerate(x.shape) if keepdims or dim not in axes]
    dst = _new(shape + [1] * (2 - len(shape)), dtype or x.dtype)
    isa.tensor_reduce(dst, op, x, axis, keepdims=keepdims)
    return dst


def _new(shape, dtype, buffer: Buffer = Buffer.sbuf) -> NkiTensor:
    from trncheck.kernels.simulator import language

    return language.ndarray(shape, dtype, buffer)


def _widest(tiles: list[NkiTensor]) -> str:
    """The dtype with the highest precision: floats before integers, then by size."""
    return max((tile.dtype for tile in tiles), key=lambda name: (dtypes.is_float(name), dtypes.itemsize(name)))
