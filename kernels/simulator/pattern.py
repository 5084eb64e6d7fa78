"""``tensor.ap``: access patterns over a tensor's storage, with offsets that are read when an instruction runs."""

import math

from trncheck.kernels.simulator import dtypes
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.registers import Register
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import MAX_DIMS, Indirect, NkiTensor, refuse_without_bytes


def access_pattern(
    tensor: NkiTensor, pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0, dtype=None
) -> NkiTensor:
    """The elements ``offset + sum(step * i)`` of the storage, for i below the counts of ``pattern``, outermost first.

    Shape and strides of ``tensor`` play no part. ``scalar_offset`` (a 1-element SBUF tensor or register) adds
    ``value * prod(base.shape[indirect_dim + 1:])``, ``vector_offset`` (SBUF (P, 1)) chooses a row of the base for each
    of the P leading counts. Steps and offset count elements of ``dtype`` where one is given. NKI 0.6, language guide.
    """
    if tensor.is_indirect:
        raise NkiError("ap on a view that is already dynamic")
    if offset is not None and tensor.offset:
        # The stub says that the offset adds to the view's own, the guide that it replaces it.
        raise NkiError("ap with an offset on a view that has one itself; call it on the whole tensor")
    pairs = [tuple(pair) for pair in pattern]
    if not 1 <= len(pairs) <= MAX_DIMS or any(len(pair) != 2 or pair[1] < 1 for pair in pairs):
        raise NkiError(f"pattern {pattern} must be 1 to {MAX_DIMS} pairs of step and positive count")
    strides, shape = zip(*pairs, strict=True)
    storage = tensor.storage
    name = dtypes.dtype_name(dtype) if dtype is not None else tensor.dtype
    old, new = (1, 1) if name == storage.dtype else (dtypes.itemsize(storage.dtype), dtypes.itemsize(name))
    if name != tensor.dtype:
        refuse_without_bytes(tensor.dtype, name)
    start = tensor.offset if offset is None else offset
    if tensor.on_chip:
        _check_partitions(tensor, pairs, start, storage.free * old // new)
    by = _indirection(tensor, scalar_offset, vector_offset, indirect_dim, shape, name)
    if by is None or not by.vector:
        low, high = _reach(pairs, start)
        if low < 0 or high >= storage.size * old // new:
            raise NkiError(f"pattern {pattern} with offset {start} reaches elements {low} to {high} of {storage!r}")
    return NkiTensor(storage, shape, strides, start, name, by)


def _check_partitions(tensor: NkiTensor, pairs, start: int, free: int) -> None:
    step, count = pairs[0]
    if step != free and count > 1:
        raise NkiError(f"the first step of a pattern on chip is the {free} elements of a partition, not {step}")
    partition = start // free
    if partition + count > tensor.storage.shape[0]:
        raise NkiError(f"partitions {partition} to {partition + count - 1} of {tensor.storage!r}")
    low, high = _reach(pairs[1:], start % free)
    if low < 0 or high >= free:
        raise NkiError(
            f"the pattern reaches elements {low} to {high} of a partition that has {free}: {tensor.storage!r}"
        )


def _reach(pairs, start: int) -> tuple[int, int]:
    """The lowest and the highest element that a pattern reaches from ``start``."""
    low = high = start
    for step, count in pairs:
        if step < 0:
            low += step * (count - 1)
        else:
            high += step * (count - 1)
    return low, high


def _indirection(tensor: NkiTensor, scalar, vector, dim: int, shape, dtype: str) -> Indirect | None:
    if scalar is None and vector is None:
        return None
    base = _base(tensor)

    def elements(count: int) -> int:
        return count * dtypes.itemsize(tensor.storage.dtype) // dtypes.itemsize(dtype)

    if scalar is not None and vector is not None:
        raise NkiError("scalar_offset and vector_offset exclude each other")
    if vector is not None:
        if dim != 0:
            raise NkiError(f"vector_offset needs indirect_dim 0, not {dim}")
        if tensor.on_chip:
            raise NkiError("vector_offset addresses HBM tensors only")
        check_vector(vector)
        columns = vector.size // vector.shape[0]
        if shape[0] > vector.size or (columns == 1 and shape[0] != vector.size):
            raise NkiError(f"{vector.size} offsets for {shape[0]} rows of the pattern")
        return Indirect(vector, scale=elements(math.prod(base[1:])), limit=base[0], vector=True)
    is_element = isinstance(scalar, NkiTensor) and scalar.size == 1 and scalar.buffer is Buffer.sbuf
    if not is_element and not isinstance(scalar, Register):
        raise NkiError(f"scalar_offset must be an SBUF tensor of one element, or a register, not {scalar!r}")
    if not 0 <= dim < len(base):
        raise NkiError(f"indirect_dim {dim} of {tensor.storage!r}")
    return Indirect(scalar, scale=elements(math.prod(base[dim + 1 :])), limit=base[dim])


def _base(tensor: NkiTensor) -> tuple[int, ...]:
    """The shape whose rows an offset counts: the storage's, or what the whole of it has been reshaped to."""
    storage = tensor.storage
    if tensor.shape is storage.shape:
        return storage.shape
    step, row_major = 1, True
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        row_major = row_major and (size == 1 or stride == step)
        step *= size
    whole = tensor.dtype == storage.dtype and tensor.offset == 0 and step == math.prod(storage.shape)
    return tuple(tensor.shape) if whole and row_major else storage.shape


def check_vector(vector) -> None:
    """Demand offsets by row: integers in SBUF, one for each partition, or for dma_transpose (P, more columns)."""
    is_tile = isinstance(vector, NkiTensor) and vector.buffer is Buffer.sbuf
    if not is_tile or (vector.ndim != 2 and vector.size != vector.shape[0]):
        raise NkiError(f"vector_offset must be an SBUF tensor (P, 1), not {vector!r}")
    if not vector.dtype.lstrip("u").startswith("int"):
        raise NkiError(f"vector_offset must hold integers, not {vector.dtype}")
