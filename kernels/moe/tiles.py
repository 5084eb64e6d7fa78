"""What the forward and the backward kernel share: rows in and out, an expert's weights, transposes."""

import nki.isa as nisa
import nki.language as nl

ROWS = 128
"""Rows of a block: the partitions."""
COLUMNS = 512
"""fp32 columns of a PSUM bank, and of a matmul's moving operand."""


def spans(size, width):
    """Slices of at most ``width`` that cover ``size``."""
    return [slice(start, min(start + width, size)) for start in range(0, size, width)]


def zero_rows(rows_RC, core, count):
    """Zero this core's share of the rows of an HBM tensor (R, C)."""
    rows, columns = rows_RC.shape
    tiles = spans(rows, ROWS)
    zero_PC = nl.ndarray((ROWS, columns), dtype=rows_RC.dtype, buffer=nl.sbuf)
    nisa.memset(zero_PC, 0.0)
    for tile in tiles[core::count]:
        nisa.dma_copy(rows_RC[tile, :], zero_PC[: tile.stop - tile.start, :])


def rows_of_block(row_of_slot_S, block):
    """Row numbers of a block's slots, one per partition."""
    rows_P1 = nl.ndarray((ROWS, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(rows_P1, row_of_slot_S.ap(pattern=[[1, ROWS], [1, 1]], offset=block * ROWS))
    return rows_P1


def expert_of_block(expert_of_block_N1, block):
    """The expert of a block, as a 1 x 1 tile to address weights with."""
    expert_11 = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(expert_11, expert_of_block_N1[block : block + 1, :])
    return expert_11


def gather_rows(rows_RC, rows_P1):
    """The rows (128, C) of a block; those of empty slots are zero."""
    columns = rows_RC.shape[1]
    tile_PC = nl.ndarray((ROWS, columns), dtype=rows_RC.dtype, buffer=nl.sbuf)
    nisa.memset(tile_PC, 0.0)
    source = rows_RC.ap(pattern=[[columns, ROWS], [1, columns]], vector_offset=rows_P1)
    nisa.dma_copy(tile_PC, source, oob_mode=nisa.oob_mode.skip)
    return tile_PC


def scatter_rows(rows_RC, rows_P1, tile_PC):
    """Write the rows (128, C) of a block, rounded to the tensor's dtype; empty slots go nowhere."""
    columns = rows_RC.shape[1]
    rounded_PC = tile_PC
    if tile_PC.dtype != rows_RC.dtype:
        rounded_PC = nl.ndarray(tile_PC.shape, dtype=rows_RC.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(rounded_PC, tile_PC)
    target = rows_RC.ap(pattern=[[columns, ROWS], [1, columns]], vector_offset=rows_P1)
    nisa.dma_copy(target, rounded_PC, oob_mode=nisa.oob_mode.skip)


def load_weights(weights_EMK, expert, m, k):
    """Rows ``m`` and columns ``k`` of the weights (M, K) of an expert that only the hardware knows."""
    tile_MK = nl.ndarray((m.stop - m.start, k.stop - k.start), dtype=weights_EMK.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile_MK, _of_expert(weights_EMK, expert, m, k))
    return tile_MK


def add_to_weights(sums_EMK, expert, m, k, product_MK):
    """Add a product to rows ``m`` and columns ``k`` of an expert's fp32 (M, K) in HBM."""
    sum_MK = load_weights(sums_EMK, expert, m, k)
    nisa.tensor_tensor(sum_MK, sum_MK, product_MK, op=nl.add)
    nisa.dma_copy(_of_expert(sums_EMK, expert, m, k), sum_MK)


def _of_expert(weights_EMK, expert, m, k):
    inner = weights_EMK.shape[2]
    return weights_EMK.ap(
        pattern=[[inner, m.stop - m.start], [1, k.stop - k.start]],
        offset=m.start * inner + k.start,
        scalar_offset=expert,
        indirect_dim=0,
    )


def transpose(tile_PF):
    """A tile of at most 128 x 128 transposed, in SBUF."""
    partitions, free = tile_PF.shape
    result_FP = nl.ndarray((free, partitions), dtype=tile_PF.dtype, buffer=nl.sbuf)
    transpose_into(result_FP, tile_PF)
    return result_FP


def transpose_into(result_FP, tile_PF):
    """Write the transpose of a tile of at most 128 x 128 to SBUF."""
    partitions, free = tile_PF.shape
    moved_FP = nl.ndarray((free, partitions), dtype=tile_PF.dtype, buffer=nl.psum)
    nisa.nc_transpose(moved_FP, tile_PF)
    nisa.tensor_copy(result_FP, moved_FP)
