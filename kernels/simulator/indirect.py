"""Rows of HBM tensors that a vector_offset chooses, read and written by DMA; and writes that leave rows out."""

import numpy as np

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.access import Taint
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.storage import UNWRITTEN, WRITTEN
from trncheck.kernels.simulator.tensor import NkiTensor

Kept = np.ndarray | None
"""None for all rows, or for each row of an indirect operand whether it takes part."""


def is_vector(tensor: NkiTensor) -> bool:
    return tensor.indirect_by is not None and tensor.indirect_by.vector


def load(tensor: NkiTensor, operand: str, skip: bool) -> tuple[np.ndarray, Taint, Kept]:
    """Values of any tensor; ``skip`` leaves out rows whose index is out of bounds, else they are an error."""
    if not is_vector(tensor):
        return (*access.read(tensor, operand), None)
    window, rows, kept = _choose(tensor, operand, skip)
    tensor.storage.touch(current())
    view, state = access.peek(window)
    taint = None if state is None else access.taint_of(state[rows], tensor, operand)
    if kept is None:
        return view[rows], taint, None
    values = np.zeros(tensor.shape, view.dtype)
    values[kept] = view[rows]
    if taint is not None:
        whole = np.zeros(tensor.shape, np.uint16)
        whole[kept] = taint
        taint = whole
    return values, taint, kept


def store(tensor: NkiTensor, values: np.ndarray, taint: Taint, kept: Kept, skip: bool) -> None:
    """Write ``values``, in ``tensor``'s row-major order, but for rows that are not ``kept`` or out of bounds.

    A row that is written twice with different values is a warning: which one stays is undefined.
    """
    if not is_vector(tensor):
        if kept is None:
            access.write(tensor, values, taint)
            return
        window = NkiTensor(tensor.storage, tensor.shape, tensor.strides, access.start(tensor), tensor.dtype)
        by_row = tensor.shape[0] == kept.size
        part = kept if by_row else np.repeat(kept, tensor.size // kept.size).reshape(tensor.shape)
        _put(window, part, part, values.reshape(tensor.shape), taint, recount=False)
        return
    window, rows, inside = _choose(tensor, "dst", skip)
    part = slice(None) if inside is None else inside
    if kept is not None:
        rows = rows[kept if inside is None else kept[inside]]
        part = kept if inside is None else kept & inside
    values = values.reshape(tensor.shape)
    twice = has_duplicates(rows)
    _put(window, rows, part, values, taint, recount=twice)
    if twice:
        written, wanted = access.peek(window)[0][rows], dtypes.cast(values[part], tensor.dtype)
        if written.tobytes() != wanted.tobytes():
            current().warn(f"dst: {repeated(rows)}; which of them stays is undefined")


def destination_rows(tensor: NkiTensor, skip: bool) -> np.ndarray:
    """Rows, within bounds, of an indirect destination."""
    return _choose(tensor, "dst", skip)[1]


def has_duplicates(rows: np.ndarray) -> bool:
    if (rows[1:] > rows[:-1]).all():
        return False
    ordered = np.sort(rows)
    return bool((ordered[1:] == ordered[:-1]).any())


def repeated(rows: np.ndarray) -> str:
    found, counts = np.unique(rows, return_counts=True)
    return f"{int((counts > 1).sum())} indices occur more than once, such as {int(found[counts > 1][0])}"


def _choose(tensor: NkiTensor, operand: str, skip: bool) -> tuple[NkiTensor, np.ndarray, Kept]:
    """The direct tensor (N, ...) of all rows that exist, the rows of it that are within bounds, and which these are."""
    by, storage = tensor.indirect_by, tensor.storage
    values, taint = access.read(by.index, f"{operand}'s vector_offset")
    if taint is not None and taint.any():
        raise NkiError(f"{operand}'s vector_offset comes from memory that was never written: {by.index!r}")
    rows = values.T.reshape(-1)[: tensor.shape[0]].astype(np.int64)
    spans = [(count - 1) * step for count, step in zip(tensor.shape[1:], tensor.strides[1:], strict=True)]
    low = tensor.offset + sum(span for span in spans if span < 0)
    high = tensor.offset + sum(span for span in spans if span > 0)
    size = storage.size * dtypes.itemsize(storage.dtype) // dtypes.itemsize(tensor.dtype)
    if by.scale:
        first, end = max(0, -(low // by.scale)), min(by.limit, (size - 1 - high) // by.scale + 1)
    else:
        first, end = 0, by.limit if low >= 0 and high < size else 0
    kept, rows = None, rows - first
    inside = rows.view(np.uint64) < max(0, end - first)  # what is negative is large then
    if not inside.all():
        if not skip:
            at, row = int(np.argmin(inside)), int(rows[np.argmin(inside)]) + first
            raise NkiError(
                f"{operand}'s vector_offset[{at}] is {row}, outside rows {first} to {end - 1} of {storage!r} "
                f"({int((~inside).sum())} of {rows.size} indices)"
            )
        kept, rows = inside, rows[inside]
    shape, strides = (max(0, end - first), *tensor.shape[1:]), (by.scale, *tensor.strides[1:])
    start = tensor.offset + first * by.scale if end > first else 0
    return NkiTensor(storage, shape, strides, start, tensor.dtype), rows, kept


def _put(window: NkiTensor, at: np.ndarray, part, values: np.ndarray, taint: Taint, recount: bool) -> None:
    """``window[at] = values[part]``, with the state of these elements; ``recount`` where some are written twice."""
    storage = window.storage
    storage.touch(current())
    storage.claim()
    view, state = access.peek(window)
    view[at] = access.rounded(values[part], window.dtype)
    if taint is not None:
        taint = np.maximum(taint, WRITTEN).reshape(values.shape)[part]
    if state is None:
        if taint is None or not (taint > WRITTEN).any():
            return
        storage.state = np.full(storage.size, WRITTEN, np.uint16)
        state = access.peek(window)[1]
    mark = WRITTEN if taint is None else taint
    if state.base is None:  # a copy, because the view's dtype has another size than the storage's
        storage.state[access.covering(window, window.offset)[at]] = mark
        recount = True
    elif storage.missing and not recount:
        before = state[at]
        storage.missing -= before.size - int(np.count_nonzero(before))
        state[at] = mark
    else:
        state[at] = mark
    if storage.missing and recount:
        storage.missing = int(np.count_nonzero(storage.state == UNWRITTEN))
    storage.forget_if_clean()
    if storage.awaited:
        access.note_late(storage)
