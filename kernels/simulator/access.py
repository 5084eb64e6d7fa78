"""How instructions read and write tensors: values, their rounding, and what was never written."""

import numpy as np

from trncheck.kernels.simulator import dtypes
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError, kernel_line
from trncheck.kernels.simulator.registers import Register
from trncheck.kernels.simulator.storage import TAINT, UNWRITTEN, WRITTEN, Buffer, Storage
from trncheck.kernels.simulator.tensor import NkiTensor

_F32 = np.dtype(np.float32)

Taint = np.ndarray | None
"""None, or for each element 0 or the mark of the never-written memory that it comes from."""


def read(tensor: NkiTensor, operand: str) -> tuple[np.ndarray, Taint]:
    """Values of ``tensor`` in their storage dtype (a view), and their taint."""
    storage = tensor.storage
    storage.touch(current())
    if storage.state is None and not storage.fresh:
        offset = tensor.offset if tensor.indirect_by is None else start(tensor)
        return _view(storage, tensor, offset), None
    values, state = peek(tensor)
    return values, None if state is None else taint_of(state, tensor, operand)


def read_where(tensor: NkiTensor, operand: str, chosen: np.ndarray) -> tuple[np.ndarray, Taint]:
    """``read`` of the ``chosen`` elements: what the others hold is of no consequence."""
    tensor.storage.touch(current())
    values, state = peek(tensor)
    if state is None:
        return values, None
    state = np.where(chosen.reshape(tensor.shape), state, WRITTEN)
    return values, taint_of(state, tensor, operand)


def peek(tensor: NkiTensor) -> tuple[np.ndarray, np.ndarray | None]:
    """Values and states of ``tensor`` as they are, without any judgement."""
    storage, offset = tensor.storage, tensor.offset if tensor.indirect_by is None else start(tensor)
    if storage.fresh:
        storage.settle()
    state = None if storage.state is None else _state(storage, tensor, offset)
    return _view(storage, tensor, offset), state


def read_f32(tensor: NkiTensor, operand: str) -> tuple[np.ndarray, Taint]:
    """Values of ``tensor`` as fp32, the precision that engines compute in."""
    values, taint = read(tensor, operand)
    return values if values.dtype == _F32 else values.astype(_F32), taint


def read_like(tensor: NkiTensor, operand: str, shape: tuple[int, ...]) -> tuple[np.ndarray, Taint]:
    """``read_f32`` in ``shape``, which has as many elements per partition."""
    values, taint = read_f32(tensor, operand)
    if values.shape == shape:
        return values, taint
    return values.reshape(shape), None if taint is None else taint.reshape(shape)


def write(tensor: NkiTensor, values: np.ndarray, taint: Taint = None) -> None:
    """Round ``values`` into ``tensor``; shapes may differ as long as their row-major order agrees."""
    view, offset = _target(tensor, taint)
    if values.dtype != view.dtype:
        values = rounded(values, tensor.dtype)
    view[...] = values if values.shape == view.shape else values.reshape(view.shape)
    mark(tensor, offset, taint)


def fill(tensor: NkiTensor, value: np.ndarray) -> None:
    """Write one value of ``tensor``'s own dtype into all of its elements."""
    view, offset = _target(tensor, None)
    view[...] = value
    mark(tensor, offset)


def write_result(tensor: NkiTensor, function, operands: tuple, taint: Taint = None) -> None:
    """Write ``function(*operands)``; a ufunc computes straight into fp32 memory (and copes with operands there)."""
    if type(function) is not np.ufunc or tensor.dtype != "float32" or tensor.storage.dtype != "float32":
        write(tensor, function(*operands), taint)
        return
    view, offset = _target(tensor, taint)
    function(*operands, out=view)
    mark(tensor, offset, taint)


def write_where(tensor: NkiTensor, chosen: np.ndarray, values: np.ndarray, taint: Taint = None) -> None:
    """Round ``values`` into the ``chosen`` elements of ``tensor``; the others stay as they are, or stay unwritten."""
    storage = tensor.storage
    if storage.fresh:
        storage.settle()
    view, offset = _target(tensor, taint)
    view[...] = np.where(chosen, rounded(values, tensor.dtype), view)
    if storage.opened is not False:
        opened = mask(storage, tensor, offset)
        opened[...] = opened & ~chosen
    if storage.state is None:
        if taint is None or not taint[chosen].any():
            return
        storage.state = np.full(storage.size, WRITTEN, np.uint16)
    index = covering(tensor, offset)[chosen]
    storage.missing -= np.unique(index[storage.state[index] == UNWRITTEN]).size
    storage.state[index] = WRITTEN if taint is None else np.maximum(taint, WRITTEN)[chosen]
    storage.forget_if_clean()


def _target(tensor: NkiTensor, taint: Taint) -> tuple[np.ndarray, int]:
    """The memory that ``tensor`` is about to be written to, and where in its storage it starts."""
    storage = tensor.storage
    storage.touch(current())
    offset = tensor.offset if tensor.indirect_by is None else start(tensor)
    if storage.fresh:
        if taint is None and _is_whole(tensor, offset):
            storage.fresh = False
        else:
            storage.settle()
    if not storage.dirty:
        storage.claim()
    return _view(storage, tensor, offset), offset


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """``dtypes.cast``, with a warning for what it turns into something else entirely."""
    result = dtypes.cast(values, dtype)
    if result is values or values.dtype.kind in "iub":
        return result
    if not dtypes.is_float(dtype):
        if dtype != "bool" and np.isnan(values.astype(np.float32, copy=False)).any():
            current().warn(f"NaN becomes 0 in {dtype}; what the hardware stores is not documented")
    elif dtype.startswith("float8"):
        lost = np.isfinite(values.astype(np.float32, copy=False)) & ~np.isfinite(result.astype(np.float32))
        if lost.any():
            largest = np.abs(values[lost].astype(np.float32)).max()
            current().warn(
                f"{int(lost.sum())} finite values up to {largest:g} overflow {dtype}; clamp them before the cast"
            )
    return result


def mark(tensor: NkiTensor, offset: int, taint: Taint = None) -> None:
    """Note that ``tensor`` was written, by anything but a matmul."""
    storage = tensor.storage
    if storage.state is None and taint is None and storage.opened is False:
        return
    _mark(tensor, offset, taint)
    if storage.awaited:
        note_late(tensor.storage)


def note_late(storage: Storage) -> None:
    """Note of elements that were read too early whether the other core has now written them."""
    core = current()
    for awaited in list(storage.awaited):
        index, reader, origin = awaited
        if storage.state is None or storage.state[index] != UNWRITTEN:
            storage.awaited.remove(awaited)
            if core.index != reader:
                core.shared.late[origin] = f"core {core.index} writes it only later, at {kernel_line()}"


def _mark(tensor: NkiTensor, offset: int, taint: Taint) -> None:
    storage = tensor.storage
    if storage.opened is not False:
        note_opened(tensor, offset, False)
    if storage.state is None:
        if taint is None or not taint.any():
            return
        storage.state = np.full(storage.size, WRITTEN, np.uint16)
    if taint is not None:
        taint = np.maximum(taint, WRITTEN).reshape(tensor.shape)
    elif _is_whole(tensor, offset):
        storage.state, storage.missing = None, 0
        return
    state = _state(storage, tensor, offset)
    if state.base is None:  # a copy, because the view's dtype has another size than the storage's
        index = covering(tensor, offset)
        before = storage.state[index]
        storage.missing -= np.unique(index[before == UNWRITTEN]).size
        storage.state[index] = WRITTEN if taint is None else taint
    else:
        storage.mark(state, taint)


def _is_whole(tensor: NkiTensor, offset: int) -> bool:
    """Whether ``tensor`` is all of its storage, in its order."""
    storage = tensor.storage
    if offset != 0 or tensor.dtype != storage.dtype:
        return False
    if tensor.shape == storage.shape and tensor.strides == storage.strides:
        return True
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if stride != expected and size != 1:
            return False
        expected *= size
    return expected == storage.size


def start(tensor: NkiTensor) -> int:
    """Offset of the first element, with a scalar offset read now."""
    by = tensor.indirect_by
    if by is None:
        return tensor.offset
    if by.vector:
        raise NkiError("only DMA takes a vector_offset")
    index = index_value(by.index)
    if not 0 <= index < by.limit:
        raise NkiError(f"scalar offset {index} is outside the {by.limit} entries of {tensor.storage!r}")
    offset, storage = tensor.offset + index * by.scale, tensor.storage
    old, new = dtypes.itemsize(storage.dtype), dtypes.itemsize(tensor.dtype)
    spans = [(n - 1) * s if s > 0 else 0 for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    last, limit = offset + sum(spans), storage.size * old // new
    if storage.buffer.on_chip and last < limit:
        limit = storage.free * old // new
        last = offset % limit + sum(spans[1:])
    if last >= limit:
        raise NkiError(f"scalar offset {index} reaches element {last}, of {limit}, of {storage!r}")
    return offset


def index_value(index) -> int:
    """The value of a 1-element tensor or register."""
    if isinstance(index, Register):
        return int(index.value)
    values, taint = read(index, "scalar_offset")
    if taint is not None and taint.any():
        raise NkiError(f"the offset comes from memory that was never written: {index!r}")
    return int(values.reshape(-1)[0])


def taint_of(state: np.ndarray, tensor: NkiTensor, operand: str) -> Taint:
    """What is tainted among elements of ``state``; a first read of unwritten memory is noted with its place."""
    unwritten = state == UNWRITTEN
    if not unwritten.any():
        return np.where(state >= TAINT, state, 0) if (state >= TAINT).any() else None
    core = current()
    first = [int(i) for i in np.argwhere(unwritten)[0]]
    core.warn(
        f"{operand}{first} was never written ({int(unwritten.sum())} of {state.size} elements): {tensor.storage!r}"
    )
    text = list(core.warnings)[-1]
    if text not in core.shared.origins:
        core.shared.origins.append(text)
        storage = tensor.storage
        if core.degree == 2 and storage.buffer is Buffer.shared_hbm and state.shape == tensor.shape:
            index = covering(tensor, tensor.offset if tensor.is_indirect else start(tensor))[tuple(first)]
            storage.awaited.append((int(index), core.index, text))
    return np.where(unwritten, TAINT + core.shared.origins.index(text), np.where(state >= TAINT, state, 0)).astype(
        np.uint16
    )


def combine(*taints: Taint) -> Taint:
    """The taint of an elementwise result; all must have one shape."""
    present = [taint for taint in taints if taint is not None]
    if not present:
        return None
    result = present[0]
    for taint in present[1:]:
        result = np.maximum(result, taint)
    return result


def mask(storage: Storage, tensor: NkiTensor, offset: int) -> np.ndarray:
    """The part of a PSUM storage's accumulation mask that ``tensor`` covers."""
    return np.ndarray(tensor.shape, bool, storage.mask(), offset, tensor.strides)


def opened(tensor: NkiTensor, offset: int) -> bool | np.ndarray:
    """Which elements a matmul has written and nothing else since: True for all, False for none, or a mask."""
    storage = tensor.storage
    if isinstance(storage.opened, bool):
        return storage.opened
    part = mask(storage, tensor, offset)
    return True if part.all() else part.copy() if part.any() else False


def note_opened(tensor: NkiTensor, offset: int, value: bool) -> None:
    """Note whether it was a matmul that has written ``tensor``."""
    storage = tensor.storage
    if _is_whole(tensor, offset):
        storage.opened = value
    elif storage.opened is not value:
        mask(storage, tensor, offset)[...] = value


def _view(storage: Storage, tensor: NkiTensor, offset: int) -> np.ndarray:
    whole = storage.whole
    if tensor.dtype == storage.dtype:
        if offset == 0 and tensor.strides == storage.strides and tensor.shape == storage.shape:
            return whole
        dtype = whole.dtype
    else:
        dtype = dtypes.stored(tensor.dtype)
    size = dtype.itemsize
    return np.ndarray(
        tensor.shape, dtype, storage.bytes, offset * size, tuple([stride * size for stride in tensor.strides])
    )


def _state(storage: Storage, tensor: NkiTensor, offset: int) -> np.ndarray:
    if dtypes.itemsize(tensor.dtype) == dtypes.itemsize(storage.dtype):
        return np.ndarray(tensor.shape, np.uint16, storage.state, offset * 2, tuple(s * 2 for s in tensor.strides))
    return storage.state[covering(tensor, offset)]


def covering(tensor: NkiTensor, offset: int) -> np.ndarray:
    """Index into the storage's own elements, for every element of a view in a dtype of another size."""
    index = element_index(tensor, offset)
    return index * dtypes.itemsize(tensor.dtype) // dtypes.itemsize(tensor.storage.dtype)


def element_index(tensor: NkiTensor, offset: int) -> np.ndarray:
    """Flat index of every element of ``tensor``, in elements of its dtype."""
    index = np.full(tensor.shape, offset)
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.strides, strict=True)):
        index += (np.arange(size) * stride).reshape([-1 if d == dim else 1 for d in range(tensor.ndim)])
    return index
