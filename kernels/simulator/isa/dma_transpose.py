"""Transposes on the way to SBUF."""

import numpy as np

from trncheck.kernels.simulator import dtypes, indirect
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.dma import check_modes, check_priority, is_out_of_bounds
from trncheck.kernels.simulator.isa.enums import dge_mode as dge_modes
from trncheck.kernels.simulator.isa.enums import oob_mode as oob_modes
from trncheck.kernels.simulator.storage import Buffer

_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_MAX_LAST = 128
"""Elements of the last dimension that the DMA engine's own transpose takes."""


@instruction
def dma_transpose(dst, src, axes=None, priority=None, dge_mode=dge_modes.unknown, oob_mode=oob_modes.error, name=None):
    """dst = src with its axes in the order (1, 0), (2, 1, 0) or (3, 1, 2, 0), bit by bit; dst is in SBUF.

    With a vector_offset (columns one after the other) the rows are gathered first.
    """
    checks.hbm_or_sbuf(dst, "dst")
    checks.hbm_or_sbuf(src, "src")
    if dst.buffer is not Buffer.sbuf:
        raise NkiError(f"dst {list(dst.shape)} is in {dst.buffer.value}; it must be in sbuf")
    if src.ndim not in _AXES:
        raise NkiError(f"src {list(src.shape)} must have 2 to 4 dimensions")
    order = _AXES[src.ndim]
    if axes is not None and tuple(axes) != order:
        raise NkiError(f"axes {tuple(axes)} of {src.ndim} dimensions; only {order} exist")
    if dst.dtype != src.dtype:
        raise NkiError(f"dst is {dst.dtype} and src is {src.dtype}; a transpose keeps the dtype")
    if dst.shape != (expected := tuple(src.shape[axis] for axis in order)):
        raise NkiError(f"dst {list(dst.shape)} must be {list(expected)}, src {list(src.shape)} with axes {order}")
    skip = check_modes(dge_mode, oob_mode, dst, src, columns=True)
    check_priority(priority)
    if indirect.is_vector(src):
        _check_gather(src)
    elif dge_mode is dge_modes.hwdge:
        _check_hardware(src)
    if skip and (is_out_of_bounds(src) or is_out_of_bounds(dst)):
        return
    values, taint, kept = indirect.load(src, "src", skip)
    if kept is not None:
        by_row = kept.reshape(-1, *[1] * (src.ndim - 1))
        kept = np.broadcast_to(by_row, src.shape).transpose(order).reshape(-1)
    indirect.store(dst, values.transpose(order), None if taint is None else taint.transpose(order), kept, skip)


def _check_gather(src) -> None:
    _check_elements(src, "a vector_offset")
    index = src.indirect_by.index
    if index.dtype != "uint32":
        raise NkiError(f"vector_offset is {index.dtype}; dma_transpose takes uint32")
    partitions, columns = index.shape
    if partitions % 16 or (columns > 1 and partitions != 128):
        raise NkiError(
            f"vector_offset {list(index.shape)} must have a multiple of 16 partitions, and 128 for several columns"
        )


def _check_hardware(src) -> None:
    _check_elements(src, "dge_mode.hwdge")
    rows = src.shape[0]
    if src.ndim == 2 and rows != 16:
        raise NkiError(f"src {list(src.shape)} has {rows} rows; dge_mode.hwdge transposes 16")
    if src.ndim > 2 and (rows not in (1, 2, 4, 8, 16) or rows * src.shape[-2] % 16):
        raise NkiError(
            f"src {list(src.shape)}: dge_mode.hwdge needs 1, 2, 4, 8 or 16 as first dimension, and a multiple of 16 "
            "as product with the last but one"
        )


def _check_elements(src, what: str) -> None:
    if dtypes.itemsize(src.dtype) != 2 or src.shape[-1] > _MAX_LAST:
        raise NkiError(
            f"src {list(src.shape)} {src.dtype}: {what} needs elements of 2 bytes and at most {_MAX_LAST} in the last "
            "dimension"
        )
