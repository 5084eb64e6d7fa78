"""Tensors as kernels see them: shape and strides over a storage, and the views that the API has."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trncheck.kernels.simulator import dtypes
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.storage import Buffer, Storage

MAX_DIMS = 5
_ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Indirect:
    """An offset that is known when an instruction runs: ``index * scale`` elements."""

    index: object
    """A 1-element tensor or a register; or for each partition one, a tensor (P, 1)."""
    scale: int
    limit: int
    """Indices from here on are out of bounds."""
    vector: bool = False


class NkiTensor:
    """A view of memory; has no values outside of instructions."""

    __slots__ = ("dtype", "indirect_by", "offset", "shape", "storage", "strides")

    def __init__(self, storage: Storage, shape, strides, offset: int, dtype: str, indirect_by: Indirect | None = None):
        self.storage, self.shape, self.strides = storage, tuple(shape), tuple(strides)
        self.offset, self.dtype, self.indirect_by = offset, dtype, indirect_by

    @property
    def buffer(self) -> Buffer:
        return self.storage.buffer

    @property
    def name(self) -> str:
        return self.storage.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def on_chip(self) -> bool:
        return self.storage.buffer.on_chip

    @property
    def is_indirect(self) -> bool:
        return self.indirect_by is not None

    @property
    def is_contiguous(self) -> bool:
        """Whether the free dimensions (on chip), or all of them (HBM), lie in row-major order without gaps."""
        step = 1
        first = 1 if self.on_chip else 0
        for size, stride in zip(reversed(self.shape[first:]), reversed(self.strides[first:]), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def __repr__(self) -> str:
        return f"{self.dtype} {list(self.shape)} in {self.storage!r}"

    def __bool__(self) -> bool:
        return True

    def get_pattern(self) -> list[list[int]]:
        return [[stride, size] for stride, size in zip(self.strides, self.shape, strict=True)]

    def __getitem__(self, key) -> "NkiTensor":
        keys = key if type(key) is tuple and len(key) == len(self.shape) else self._keys(key)
        # On chip the partition dimension stays and two dimensions at least; in HBM one.
        on_chip = self.storage.buffer.on_chip
        least, left = 2 if on_chip else 1, len(keys)
        shape, strides, offset = [], [], self.offset
        for k, size, stride in zip(keys, self.shape, self.strides, strict=True):
            if type(k) is slice:
                start, stop, step = k.start, k.stop, k.step
                start, stop = 0 if start is None else start, size if stop is None else stop
                if step is None and type(start) is type(stop) is int and 0 <= start < stop <= size:
                    shape.append(stop - start)
                    strides.append(stride)
                    offset += start * stride
                else:
                    start, stop, step = _bounds(k, size, len(keys) - left + len(shape), self)
                    shape.append(-(-(stop - start) // step))
                    strides.append(stride * step)
                    offset += start * stride
            elif k is Ellipsis:
                return self[tuple(self._keys(key))]
            else:
                dim = len(keys) - left + len(shape)
                offset += self._position(k, size, dim) * stride
                if left > least and not (on_chip and dim == 0):
                    left -= 1
                    continue
                shape.append(1)
                strides.append(stride)
        return self._derive(shape, strides, offset)

    def _keys(self, key) -> list:
        """One index for each dimension."""
        keys, dims = list(key) if isinstance(key, tuple) else [key], len(self.shape)
        for at, k in enumerate(keys):
            if k is Ellipsis:
                keys[at : at + 1] = [_ALL] * (dims - len(keys) + 1)
                break
        if len(keys) > dims:
            raise NkiError(f"{len(keys)} indices for {dims} dimensions of {self!r}")
        return keys + [_ALL] * (dims - len(keys))

    def _position(self, key, size: int, dim: int) -> int:
        try:
            index = key.__index__()
        except (AttributeError, TypeError):
            raise NkiError(
                f"index {key!r} of dimension {dim} is neither an int nor a slice; use select or .ap for dynamic ones"
            ) from None
        if not -size <= index < size:
            raise NkiError(f"index {index} is outside dimension {dim} of size {size} of {self!r}")
        return index % size

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> "NkiTensor":
        keys = [slice(None)] * self.ndim
        keys[self._dim(dim)] = slice(start, end, step)
        return self[tuple(keys)]

    def select(self, dim: int, index) -> "NkiTensor":
        """Remove ``dim`` at ``index``, an int, or a 1-element tensor or register that is read when it is used."""
        dim = self._dim(dim)
        keep = [d for d in range(self.ndim) if d != dim]
        shape, strides = [self.shape[d] for d in keep], [self.strides[d] for d in keep]
        if isinstance(index, int):
            return self._derive(
                shape, strides, self.offset + self._position(index, self.shape[dim], dim) * self.strides[dim]
            )
        self._refuse_second_indirection()
        if self.on_chip and dim == 0:
            raise NkiError("select of the partition dimension on chip needs an int")
        by = Indirect(index, scale=self.strides[dim], limit=self.shape[dim])
        return NkiTensor(self.storage, shape, strides, self.offset, self.dtype, by)

    def vector_select(self, dim: int, offsets: "NkiTensor") -> "NkiTensor":
        """One row of an HBM tensor for each of the (P, 1) ``offsets``."""
        from trncheck.kernels.simulator.pattern import check_vector

        if dim != 0 or self.on_chip:
            raise NkiError("vector_select selects along dimension 0 of an HBM tensor")
        self._refuse_second_indirection()
        check_vector(offsets)
        by = Indirect(offsets, scale=self.strides[0], limit=self.shape[0], vector=True)
        shape = (offsets.shape[0], *self.shape[1:])
        return NkiTensor(self.storage, shape, self.strides, self.offset, self.dtype, by)

    def permute(self, dims: Sequence[int]) -> "NkiTensor":
        if sorted(dims) != list(range(self.ndim)):
            raise NkiError(f"permute{tuple(dims)} does not name each dimension of {list(self.shape)} once")
        if self.on_chip and dims[0] != 0:
            raise NkiError("permute moves the partition dimension; on chip it must stay first")
        return self._derive([self.shape[d] for d in dims], [self.strides[d] for d in dims], self.offset)

    def broadcast(self, dim: int, size: int) -> "NkiTensor":
        dim = self._dim(dim)
        if self.on_chip and dim == 0:
            raise NkiError("broadcast over partitions is no view; use nc_stream_shuffle or a matmul with ones")
        if self.shape[dim] != 1:
            raise NkiError(f"broadcast needs size 1 in dimension {dim}, this is {list(self.shape)}")
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = size, 0
        return self._derive(shape, strides, self.offset)

    def expand_dim(self, dim: int) -> "NkiTensor":
        dim = dim % (self.ndim + 1)
        if self.on_chip and dim == 0:
            raise NkiError("expand_dim in front of the partition dimension")
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(dim, 1)
        strides.insert(dim, 1)
        return self._derive(shape, strides, self.offset)

    def squeeze_dim(self, dim: int) -> "NkiTensor":
        dim = self._dim(dim)
        if self.shape[dim] != 1 or (self.on_chip and dim == 0):
            raise NkiError(f"squeeze_dim({dim}) of {list(self.shape)}: needs size 1, and not the partition dimension")
        keep = [d for d in range(self.ndim) if d != dim]
        return self._derive([self.shape[d] for d in keep], [self.strides[d] for d in keep], self.offset)

    def reshape(self, shape: Sequence[int]) -> "NkiTensor":
        shape = tuple(shape)
        if math.prod(shape) != self.size:
            raise NkiError(f"reshape of {list(self.shape)} to {list(shape)} changes the number of elements")
        if self.on_chip and shape[0] != self.shape[0]:
            raise NkiError(f"reshape of {list(self.shape)} to {list(shape)} changes the partition dimension")
        strides = _reshaped(self.shape, self.strides, shape)
        if strides is None:
            raise NkiError(
                f"reshape of {list(self.shape)} with strides {list(self.strides)} to {list(shape)} is no view"
            )
        return self._derive(shape, strides, self.offset)

    def reshape_dim(self, dim: int, sizes: Sequence[int]) -> "NkiTensor":
        dim = self._dim(dim)
        known = math.prod(size for size in sizes if size != -1)
        sizes = [self.shape[dim] // known if size == -1 else size for size in sizes]
        return self.reshape((*self.shape[:dim], *sizes, *self.shape[dim + 1 :]))

    def flatten_dims(self, first: int, last: int) -> "NkiTensor":
        """Merge dimensions ``first`` to ``last``, both included."""
        first, last = self._dim(first), self._dim(last)
        merged = math.prod(self.shape[first : last + 1])
        return self.reshape((*self.shape[:first], merged, *self.shape[last + 1 :]))

    def rearrange(self, source, target, sizes=None) -> "NkiTensor":
        """Split, reorder and merge dimensions by name; see ``rearrange.rearrange``."""
        from trncheck.kernels.simulator.rearrange import rearrange

        return rearrange(self, source, target, sizes)

    def view(self, dtype) -> "NkiTensor":
        """The same bytes as another dtype."""
        dtype = dtypes.dtype_name(dtype)
        old, new = dtypes.itemsize(self.dtype), dtypes.itemsize(dtype)
        refuse_without_bytes(self.dtype, dtype)
        if self.is_indirect:
            raise NkiError("view(dtype) of an indirect view")
        if self.strides[-1] != 1 or (self.shape[-1] * old) % new or (self.offset * old) % new:
            raise NkiError(f"view({dtype}) of {self!r}: the last dimension must be contiguous and divide")
        strides = [*((stride * old) // new for stride in self.strides[:-1]), 1]
        shape = [*self.shape[:-1], self.shape[-1] * old // new]
        return NkiTensor(self.storage, shape, strides, self.offset * old // new, dtype)

    reinterpret_cast = view

    def indirect(self, index, num_elem):
        raise NkiError("indirect addressing within a partition exists from trn3 on")

    def ap(self, pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0, dtype=None):
        """A view by [step, count] pairs over the underlying storage; see ``pattern.access_pattern``."""
        from trncheck.kernels.simulator.pattern import access_pattern

        return access_pattern(self, pattern, offset, scalar_offset, vector_offset, indirect_dim, dtype)

    def _derive(self, shape, strides, offset: int) -> "NkiTensor":
        if len(shape) > MAX_DIMS:
            raise NkiError(f"a view of {len(shape)} dimensions; at most {MAX_DIMS}")
        by = self.indirect_by
        if by is not None and by.vector and (shape[0], strides[0]) != (self.shape[0], self.strides[0]):
            raise NkiError(f"the rows of {list(self.shape)} are chosen by a vector; dimension 0 stays as it is")
        return NkiTensor(self.storage, shape, strides, offset, self.dtype, by)

    def _dim(self, dim: int) -> int:
        if not -self.ndim <= dim < self.ndim:
            raise NkiError(f"dimension {dim} of {list(self.shape)}")
        return dim % self.ndim

    def _refuse_second_indirection(self) -> None:
        if self.is_indirect:
            raise NkiError("a view can be dynamic in one dimension only")


def refuse_without_bytes(*names: str) -> None:
    """Refuse to reinterpret floats whose bytes are not those of the hardware."""
    if not dtypes.precise() and any(dtypes.is_float(name) for name in names):
        raise NkiError("floats as another dtype need their bytes; NKI_PRECISE_FP=0 does not keep them")


def _bounds(key: slice, size: int, dim: int, tensor: NkiTensor) -> tuple[int, int, int]:
    start = 0 if key.start is None else key.start
    stop = size if key.stop is None else key.stop
    step = 1 if key.step is None else key.step
    if not type(start) is type(stop) is type(step) is int:
        try:
            start, stop, step = (bound.__index__() for bound in (start, stop, step))
        except (AttributeError, TypeError):
            raise NkiError(
                f"slice {start!r}:{stop!r} of dimension {dim} needs ints; use .ap with scalar_offset"
            ) from None
    if start < 0:
        start += size
    if stop < 0:
        stop += size
    if step < 1 or not 0 <= start < stop <= size:
        raise NkiError(
            f"slice {key.start}:{key.stop}:{step} of dimension {dim} is outside its size {size}, or empty: {tensor!r}"
        )
    if tensor.on_chip and dim == 0 and step != 1:
        raise NkiError(f"slice {key.start}:{key.stop}:{step} of the partition dimension; its step is always 1")
    return start, stop, step


def _reshaped(shape, strides, wanted) -> list[int] | None:
    """Strides of the same elements as ``wanted``, or None where that is no view."""
    groups = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    result, at = [], 0
    size, stride = groups[0] if groups else (1, 1)
    merged = []
    for size, stride in groups:
        if merged and merged[-1][1] == stride * size:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    for size in wanted:
        if size == 1:
            result.append(1)
            continue
        if at >= len(merged) or merged[at][0] % size:
            return None
        rest = merged[at][0] // size
        result.append(merged[at][1] * rest)
        if rest == 1:
            at += 1
        else:
            merged[at] = (rest, merged[at][1])
    return result
