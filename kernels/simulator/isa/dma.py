"""DMA: copies and sums between HBM and SBUF, with gather and scatter of rows."""

import numpy as np

from trncheck.kernels.simulator import access, indirect
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa import checks
from trncheck.kernels.simulator.isa.enums import dge_mode as dge_modes
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.isa.enums import oob_mode as oob_modes
from trncheck.kernels.simulator.platform import nc_version
from trncheck.kernels.simulator.tensor import NkiTensor

_MAX_SOURCES = 16


@instruction
def dma_copy(
    dst,
    src,
    priority=None,
    oob_mode=oob_modes.error,
    dge_mode=dge_modes.unknown,
    engine=engines.unknown,
    name=None,
):
    """dst = src in row-major order, HBM or SBUF on either side; shapes may differ, the number of elements may not.

    Equal dtypes copy bit by bit, others through fp32. A vector_offset on ``src`` gathers rows, on ``dst`` it scatters
    them; ``oob_mode.skip`` leaves out rows whose index is out of bounds.
    """
    checks.hbm_or_sbuf(dst, "dst")
    checks.hbm_or_sbuf(src, "src")
    if dst.size != src.size:
        raise NkiError(f"dst {list(dst.shape)} has {dst.size} elements and src {list(src.shape)} has {src.size}")
    if engine is not engines.unknown:
        _check_queue(engine, dge_mode)
    plain = priority is None and dge_mode is dge_modes.unknown and oob_mode is oob_modes.error
    if plain and dst.indirect_by is src.indirect_by is None and dst.dtype == src.dtype:
        access.write(dst, *access.read(src, "src"))
        return
    skip = check_modes(dge_mode, oob_mode, dst, src)
    check_priority(priority)
    if skip and any(is_out_of_bounds(tensor) for tensor in (dst, src)):
        return
    values, taint, kept = indirect.load(src, "src", skip)
    if src.dtype != dst.dtype:
        if dge_mode is dge_modes.hwdge:
            raise NkiError(f"dst is {dst.dtype} and src is {src.dtype}; hwdge moves bytes and cannot convert")
        values = values.astype(np.float32)
    indirect.store(dst, values, taint, kept, skip)


def check_modes(dge_mode, oob_mode, *tensors: NkiTensor, columns: bool = False) -> bool:
    """Check what goes with dynamic operands; returns whether rows out of bounds are skipped.

    ``columns`` allows a vector_offset of several.
    """
    if not isinstance(dge_mode, dge_modes):
        raise NkiError(f"dge_mode {dge_mode!r} must be one of nisa.dge_mode")
    if not isinstance(oob_mode, oob_modes):
        raise NkiError(f"oob_mode {oob_mode!r} must be one of nisa.oob_mode")
    dynamic = False
    for tensor in tensors:
        if tensor.indirect_by is None:
            continue
        dynamic = True
        if not tensor.indirect_by.vector:
            continue
        if dge_mode not in (dge_modes.unknown, dge_modes.swdge):
            raise NkiError(f"{dge_mode} does not take a vector_offset; only dge_mode.unknown and swdge do")
        if (rows := tensor.shape[0]) != 1 and rows % 16:
            raise NkiError(f"{rows} rows by vector_offset; the number must be 1 or a multiple of 16")
        if not columns and (index := tensor.indirect_by.index).size != rows:
            raise NkiError(f"vector_offset {list(index.shape)} must be [{rows}, 1] here")
    if oob_mode is oob_modes.skip and not dynamic:
        raise NkiError("oob_mode.skip needs an operand with a scalar_offset or vector_offset")
    return oob_mode is oob_modes.skip


def check_priority(priority) -> None:
    if priority is not None and (platform := current().platform).version < nc_version.gen4:
        raise NkiError(f"priority exists from trn3 on, this is {platform.name}")


def _check_queue(engine, dge_mode) -> None:
    if engine not in (engines.sync, engines.scalar):
        raise NkiError(f"engine {engine} cannot start a DMA; engine.sync and engine.scalar can")
    if dge_mode is not dge_modes.hwdge:
        raise NkiError(f"engine {engine} needs dge_mode.hwdge")


def is_out_of_bounds(tensor: NkiTensor) -> bool:
    """Whether a scalar_offset leads outside of the tensor."""
    by = tensor.indirect_by
    return by is not None and not by.vector and not 0 <= access.index_value(by.index) < by.limit


@instruction
def dma_compute(dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_modes.error, name=None):
    """dst = the sum of ``srcs`` in fp32, rounded once into ``dst``.

    With a vector_offset there are two sources: [the rows of dst, data] adds data to rows in HBM, [rows, dst] adds rows
    to a tile. The rows that one call writes must be distinct.
    """
    checks.hbm_or_sbuf(dst, "dst")
    if not isinstance(srcs, list | tuple) or not 1 <= len(srcs) <= _MAX_SOURCES:
        raise NkiError(f"srcs must be a list of 1 to {_MAX_SOURCES} tensors, not {srcs!r}")
    for i, src in enumerate(srcs):
        checks.hbm_or_sbuf(src, f"srcs[{i}]")
        if src.size != dst.size:
            raise NkiError(
                f"srcs[{i}] {list(src.shape)} has {src.size} elements and dst {list(dst.shape)} has {dst.size}"
            )
    if checks.op(reduce_op, "reduce_op").name != "add":
        raise NkiError(f"reduce_op {reduce_op!r} must be nl.add")
    if scales is not None and (len(scales) != len(srcs) or any(scale != 1.0 for scale in scales)):
        raise NkiError(f"scales {scales!r} must be 1.0 for each of {len(srcs)} sources")
    skip = check_modes(dge_modes.unknown, oob_mode, dst, *srcs)
    if any(indirect.is_vector(tensor) for tensor in (dst, *srcs)):
        _check_rows(dst, srcs, unique_indices, skip)
    if skip and any(is_out_of_bounds(tensor) for tensor in (dst, *srcs)):
        return
    total, taint, kept = None, None, None
    for i, src in enumerate(srcs):
        values, its_taint, its_kept = indirect.load(src, f"srcs[{i}]", skip)
        values = values.astype(np.float32).reshape(-1)
        total = values if total is None else np.add(total, values, out=total)
        taint = access.combine(taint, None if its_taint is None else its_taint.reshape(-1))
        kept = its_kept if kept is None else kept if its_kept is None else kept & its_kept
    indirect.store(dst, total, taint, kept, skip)


def _check_rows(dst, srcs, unique_indices, skip: bool) -> None:
    if len(srcs) != 2:
        raise NkiError(f"a vector_offset needs exactly 2 sources, not {len(srcs)}")
    if unique_indices is not True:
        raise NkiError("a vector_offset needs unique_indices=True")
    if indirect.is_vector(dst) and indirect.has_duplicates(rows := indirect.destination_rows(dst, skip)):
        raise NkiError(f"dst: {indirect.repeated(rows)}; additions to one row in one call get lost")
