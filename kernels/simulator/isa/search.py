"""The largest values of a partition, where values are, and gathers along the free dimensions."""

import numpy as np

from trncheck.kernels.simulator import access
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

_MOST = 16384
_INDICES = ("uint16", "uint32")
_CORE = 16
"""Partitions of one GpSimd core."""


@instruction
def max8(dst, src, name=None):
    """dst (P, 8) = the 8 largest elements of each partition of src, descending."""
    checks.tile(src, "src")
    checks.tile(dst, "dst")
    _check_free(src, "src")
    _check_eight(dst, "dst", src)
    values, taint = access.read_f32(src, "src")
    rows = values.reshape(src.shape[0], -1)
    top = np.partition(rows, rows.shape[1] - 8, axis=1)[:, -8:]
    top.sort(axis=1)
    access.write(dst, top[:, ::-1], _of_rows(src, taint))


@instruction
def nc_find_index8(dst, data, vals, name=None):
    """dst (P, 8) = where each of vals (P, 8) is in data's partition; the n-th equal value is the n-th occurrence.

    A value that is not there gives the largest index of dst's dtype.
    """
    checks.tile(data, "data")
    checks.tile(vals, "vals")
    checks.tile(dst, "dst")
    _check_free(data, "data")
    _check_eight(vals, "vals", data)
    _check_eight(dst, "dst", data)
    _check_index(dst, "dst")
    rows, taint = _rows(data, "data")
    wanted, wanted_taint = _rows(vals, "vals")
    index, _ = _locate(rows, wanted)
    if (index < 0).any():
        current().warn(f"{int((index < 0).sum())} of vals are not in data; their index is all ones")
    index = np.where(index < 0, np.iinfo(dst.dtype).max, index)
    access.write(dst, index, access.combine(_of_rows(data, taint), _of_rows(vals, wanted_taint)))


@instruction
def nc_match_replace8(dst, data, vals, imm, dst_idx=None, name=None):
    """dst = data with one occurrence of each of vals (P, 8) replaced by the number imm; dst_idx (P, 8) says where."""
    checks.tile(data, "data")
    checks.tile(vals, "vals")
    checks.tile(dst, "dst")
    checks.same_extent(dst=dst, data=data)
    _check_free(data, "data", least=1)
    _check_eight(vals, "vals", data)
    if isinstance(imm, bool) or not isinstance(imm, int | float | np.number):
        raise NkiError(f"imm {imm!r} must be a number")
    rows, taint = _rows(data, "data")
    wanted, wanted_taint = _rows(vals, "vals")
    index, replaced = _locate(rows, wanted)
    if (index < 0).any():
        current().warn(f"{int((index < 0).sum())} of vals are not in data; they replace nothing")
    row_taint = access.combine(_of_rows(data, taint), _of_rows(vals, wanted_taint))
    values = np.where(replaced, np.float32(imm), rows)
    if dst_idx is not None:
        checks.tile(dst_idx, "dst_idx")
        _check_eight(dst_idx, "dst_idx", data)
        _check_index(dst_idx, "dst_idx")
        access.write(dst_idx, np.where(index < 0, np.iinfo(dst_idx.dtype).max, index), row_taint)
    # Which element is replaced depends on the whole partition.
    access.write(dst, values, None if row_taint is None else np.repeat(row_taint[:, :1], rows.shape[1], axis=1))


@instruction
def nc_n_gather(dst, data, indices, name=None):
    """dst[p, i] = data[p, indices[p, i]], free dimensions flattened."""
    for tensor, operand in ((data, "data"), (indices, "indices"), (dst, "dst")):
        checks.tile(tensor, operand, buffers=(Buffer.sbuf,))
    checks.same_extent(dst=dst, indices=indices)
    _check_gather(dst, data, indices, "data", "uint32")
    index, index_taint = access.read(indices, "indices")
    index = index.reshape(index.shape[0], -1).astype(np.int64)
    _gather(dst, data, "data", index, index_taint)


@instruction
def local_gather(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None):
    """dst[p, n] = src_buffer[p, n-th index of p's 16 partitions]; they count down the partitions first."""
    for tensor, operand in ((src_buffer, "src_buffer"), (index, "index"), (dst, "dst")):
        checks.tile(tensor, operand, buffers=(Buffer.sbuf,))
    if num_elem_per_idx != 1:
        raise NkiError(f"num_elem_per_idx {num_elem_per_idx!r}: only 1 is simulated")
    _check_gather(dst, src_buffer, index, "src_buffer", "uint16")
    partitions = index.shape[0]
    if partitions % _CORE:
        raise NkiError(f"index {list(index.shape)} has {partitions} partitions; not a multiple of {_CORE}")
    available = index.size // (partitions // _CORE)
    count = available if num_valid_indices is None else num_valid_indices
    if not 1 <= count <= min(available, 4096):
        raise NkiError(f"num_valid_indices {count} must be 1 to {min(available, 4096)}")
    if dst.shape[0] != partitions or dst.size != partitions * count:
        raise NkiError(f"dst {list(dst.shape)} must have {partitions} partitions with {count} elements each")
    values, taint = access.read(index, "index")
    _gather(dst, src_buffer, "src_buffer", *(_per_core(part, partitions, count) for part in (values, taint)))


def _per_core(values, partitions: int, count: int):
    """The indices of each partition: those of its 16 partitions, counted down the partitions first."""
    if values is None:
        return None
    cores = values.reshape(partitions // _CORE, _CORE, -1).transpose(0, 2, 1).reshape(partitions // _CORE, -1)
    return np.repeat(cores[:, :count].astype(np.int64), _CORE, axis=0)


def _check_gather(dst, data, indices, operand: str, dtype: str) -> None:
    if data.shape[0] != indices.shape[0]:
        raise NkiError(f"{operand} {list(data.shape)} and indices {list(indices.shape)} differ in partitions")
    if dst.dtype != data.dtype:
        raise NkiError(f"{operand} is {data.dtype} and dst is {dst.dtype}; a gather keeps the dtype")
    if indices.dtype != dtype:
        raise NkiError(f"the indices are {indices.dtype}; they must be {dtype}")


def _gather(dst, data, operand: str, index: np.ndarray, index_taint: access.Taint) -> None:
    free = data.size // data.shape[0]
    if (index >= free).any():
        raise NkiError(f"index {int(index.max())} is outside the {free} elements per partition of {operand}")
    values, taint = access.read(data, operand)
    result = np.take_along_axis(values.reshape(-1, free), index, axis=1)
    taint = None if taint is None else np.take_along_axis(taint.reshape(-1, free), index, axis=1)
    index_taint = None if index_taint is None else index_taint.reshape(index.shape).astype(np.uint16)
    access.write(dst, result, access.combine(taint, index_taint))


def _locate(rows: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each wanted value its index, or -1, taking every element once; and which elements were taken."""
    taken = np.zeros(rows.shape, bool)
    index = np.full(wanted.shape, -1, np.int64)
    every = np.arange(rows.shape[0])
    for j in range(wanted.shape[1]):
        hits = (rows == wanted[:, j : j + 1]) & ~taken
        first, found = hits.argmax(axis=1), hits.any(axis=1)
        index[found, j] = first[found]
        taken[every[found], first[found]] = True
    return index, taken


def _rows(tensor: NkiTensor, operand: str) -> tuple[np.ndarray, access.Taint]:
    values, taint = access.read_f32(tensor, operand)
    return values.reshape(tensor.shape[0], -1), taint


def _of_rows(tensor: NkiTensor, taint: access.Taint) -> access.Taint:
    """(P, 8): the taint of each partition."""
    return None if taint is None else np.repeat(taint.reshape(tensor.shape[0], -1).max(axis=1)[:, None], 8, axis=1)


def _check_free(tensor: NkiTensor, operand: str, least: int = 8) -> None:
    free = tensor.size // tensor.shape[0]
    if not least <= free <= _MOST:
        raise NkiError(f"{operand} {list(tensor.shape)} has {free} elements per partition, not {least} to {_MOST}")


def _check_eight(tensor: NkiTensor, operand: str, data: NkiTensor) -> None:
    if tensor.shape[0] != data.shape[0] or tensor.size != 8 * data.shape[0]:
        raise NkiError(f"{operand} {list(tensor.shape)} must be [{data.shape[0]}, 8]")


def _check_index(tensor: NkiTensor, operand: str) -> None:
    if tensor.dtype not in _INDICES:
        raise NkiError(f"{operand} is {tensor.dtype}; it must be {' or '.join(_INDICES)}")
