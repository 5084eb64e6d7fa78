"""Expert computation over blocks of 128 rows, each of one expert: forward, an NKI kernel.

Rows of a block lie on partitions. Which rows a block holds and whose expert it is are data: row numbers are gathered
and scattered by DMA, weights are addressed by the block's expert. Blocks are dealt to the cores in turns; every row
belongs to one block, so cores never write the same row.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from trncheck.kernels.grid import cores
from trncheck.kernels.moe.tiles import (
    COLUMNS,
    ROWS,
    expert_of_block,
    gather_rows,
    load_weights,
    rows_of_block,
    scatter_rows,
    spans,
    transpose,
    transpose_into,
    zero_rows,
)


@nki.jit
def experts_forward(x_RD, w1_EFD, w2_EDF, w3_EFD, row_of_slot_S, expert_of_block_N1):
    """SwiGLU of each row by the expert of its block: (silu(x w1^T) * (x w3^T)) w2^T.

    x (R, D); w1, w3 (E, F, D) and w2 (E, D, F) in x's dtype, float32 or bfloat16. ``row_of_slot_S`` int32 (N * 128)
    names the row in each slot, R in empty ones; ``expert_of_block_N1`` int32 (N, 1). Returns out (R, D), and for the
    backward pass gate = x w1^T and up = x w3^T, (R, F), all in x's dtype; rows in no slot are zero.
    """
    rows, dim = x_RD.shape
    hidden = w1_EFD.shape[1]
    blocks = expert_of_block_N1.shape[0]
    dtype = x_RD.dtype
    out_RD = nl.ndarray((rows, dim), dtype=dtype, buffer=nl.shared_hbm)
    gate_RF = nl.ndarray((rows, hidden), dtype=dtype, buffer=nl.shared_hbm)
    up_RF = nl.ndarray((rows, hidden), dtype=dtype, buffer=nl.shared_hbm)
    count, core = cores()
    for rows_tensor in (out_RD, gate_RF, up_RF):
        zero_rows(rows_tensor, core, count)
    if count > 1:
        nisa.core_barrier(out_RD, (0, 1))  # a block may hold rows that the other core has zeroed

    for block in range(core, blocks, count):
        rows_P1 = rows_of_block(row_of_slot_S, block)
        expert = expert_of_block(expert_of_block_N1, block)
        x_PD = gather_rows(x_RD, rows_P1)
        xT_DP = [transpose(x_PD[:, columns]) for columns in spans(dim, ROWS)]
        gate_PF = _times_transposed(xT_DP, w1_EFD, expert)
        up_PF = _times_transposed(xT_DP, w3_EFD, expert)
        silu_PF = nl.ndarray((ROWS, hidden), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(silu_PF, op=nl.silu, data=gate_PF)
        h_PF = nl.ndarray((ROWS, hidden), dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(h_PF, silu_PF, up_PF, op=nl.multiply)
        hT_FP = [transpose(h_PF[:, columns]) for columns in spans(hidden, ROWS)]
        out_PD = _times_transposed(hT_FP, w2_EDF, expert)
        for tile_PC, rows_tensor in ((out_PD, out_RD), (gate_PF, gate_RF), (up_PF, up_RF)):
            scatter_rows(rows_tensor, rows_P1, tile_PC)
    return out_RD, gate_RF, up_RF


def _times_transposed(aT_KP, weights_EMK, expert):
    """a (128 rows, K) times the transpose of an expert's weights (M, K), accumulated and left in fp32 (128, M).

    ``aT_KP`` is a's transpose in tiles of up to 128 of K.
    """
    outputs, inner = weights_EMK.shape[1:]
    product_PM = nl.ndarray((ROWS, outputs), dtype=nl.float32, buffer=nl.sbuf)
    for wide in spans(outputs, COLUMNS):
        sum_PM = nl.ndarray((ROWS, wide.stop - wide.start), dtype=nl.float32, buffer=nl.psum)
        for index, k in enumerate(spans(inner, ROWS)):
            wT_KM = nl.ndarray((k.stop - k.start, wide.stop - wide.start), dtype=weights_EMK.dtype, buffer=nl.sbuf)
            for m in spans(wide.stop - wide.start, ROWS):
                w_MK = load_weights(weights_EMK, expert, slice(wide.start + m.start, wide.start + m.stop), k)
                transpose_into(wT_KM[:, m], w_MK)
            nisa.nc_matmul(sum_PM, stationary=aT_KP[index], moving=wT_KM)
        nisa.tensor_copy(product_PM[:, wide], sum_PM)
    return product_PM
