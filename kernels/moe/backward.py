"""Expert computation over blocks of 128 rows, each of one expert: backward, an NKI kernel.

The cores share the expert's hidden dimension F: each computes the gradients of its part of w1, w2 and w3, over all
blocks, so that no two cores add to the same weights. The gradient of x sums over F, so each core leaves its part in
shared HBM, and after a barrier each adds up half of the rows.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from trncheck.kernels.grid import cores
from trncheck.kernels.moe.tiles import (
    COLUMNS,
    ROWS,
    add_to_weights,
    expert_of_block,
    gather_rows,
    load_weights,
    rows_of_block,
    scatter_rows,
    spans,
    transpose,
    zero_rows,
)


@nki.jit
def experts_backward(dout_RD, x_RD, gate_RF, up_RF, w1_EFD, w2_EDF, w3_EFD, row_of_slot_S, expert_of_block_N1):
    """Gradients of ``experts_forward``: dx (R, D) in x's dtype, dw1, dw3 (E, F, D) and dw2 (E, D, F) in fp32.

    ``dout_RD`` is the gradient of the output, ``gate_RF`` and ``up_RF`` are what the forward kernel saved. Experts
    without rows get zeros, and so do rows in no slot.
    """
    rows, dim = x_RD.shape
    experts, hidden, _ = w1_EFD.shape
    blocks = expert_of_block_N1.shape[0]
    count, core = cores()
    dx_RD = nl.ndarray((rows, dim), dtype=x_RD.dtype, buffer=nl.shared_hbm)
    dw1_EFD = nl.ndarray((experts, hidden, dim), dtype=nl.float32, buffer=nl.shared_hbm)
    dw2_EDF = nl.ndarray((experts, dim, hidden), dtype=nl.float32, buffer=nl.shared_hbm)
    dw3_EFD = nl.ndarray((experts, hidden, dim), dtype=nl.float32, buffer=nl.shared_hbm)
    parts_RD = [nl.ndarray((rows, dim), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(count)]

    share = -(-hidden // count)
    mine = slice(min(core * share, hidden), min((core + 1) * share, hidden))
    _zero_share(dw1_EFD, mine, dim)
    _zero_share(dw3_EFD, mine, dim)
    _zero_columns(dw2_EDF, mine)
    zero_rows(parts_RD[core], 0, 1)
    for block in range(blocks if mine.stop > mine.start else 0):
        rows_P1 = rows_of_block(row_of_slot_S, block)
        expert = expert_of_block(expert_of_block_N1, block)
        x_PD = gather_rows(x_RD, rows_P1)
        dout_PD = gather_rows(dout_RD, rows_P1)
        gate_PF = gather_rows(gate_RF, rows_P1)
        up_PF = gather_rows(up_RF, rows_P1)
        dh_PF = _gradient_of_hidden(dout_PD, w2_EDF, expert, mine)
        h_PF, dgate_PF, dup_PF = _through_swiglu(gate_PF[:, mine], up_PF[:, mine], dh_PF)
        dx_PD = _gradient_of_rows(((dgate_PF, w1_EFD), (dup_PF, w3_EFD)), expert, mine, dim)
        scatter_rows(parts_RD[core], rows_P1, dx_PD)
        for f in spans(mine.stop - mine.start, ROWS):
            target = slice(mine.start + f.start, mine.start + f.stop)
            _add_product(dw1_EFD, expert, target, slice(0, dim), dgate_PF[:, f], x_PD)
            _add_product(dw3_EFD, expert, target, slice(0, dim), dup_PF[:, f], x_PD)
        for d in spans(dim, ROWS):
            _add_product(dw2_EDF, expert, d, mine, dout_PD[:, d], h_PF)
    if count > 1:
        nisa.core_barrier(parts_RD[0], (0, 1))
    _sum_rows(dx_RD, parts_RD, core, count)
    return dx_RD, dw1_EFD, dw2_EDF, dw3_EFD


def _zero_share(sums_EFD, mine, dim):
    """Zero this core's F rows of an fp32 (E, F, D) in HBM."""
    zero_FD = nl.ndarray((ROWS, dim), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(zero_FD, 0.0)
    for expert in range(sums_EFD.shape[0]):
        for f in spans(mine.stop - mine.start, ROWS):
            target_FD = sums_EFD[expert, mine.start + f.start : mine.start + f.stop, :]
            nisa.dma_copy(target_FD, zero_FD[: f.stop - f.start, :])


def _zero_columns(sums_EDF, mine):
    """Zero this core's F columns of an fp32 (E, D, F) in HBM."""
    width = mine.stop - mine.start
    if width == 0:
        return
    experts, dim, _ = sums_EDF.shape
    zero_DF = nl.ndarray((ROWS, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(zero_DF, 0.0)
    for expert in range(experts):
        for d in spans(dim, ROWS):
            nisa.dma_copy(sums_EDF[expert, d, mine], zero_DF[: d.stop - d.start, :])


def _gradient_of_hidden(dout_PD, w2_EDF, expert, mine):
    """dout (128, D) times this core's columns of an expert's w2 (D, F), in fp32 (128, F)."""
    dim, width = dout_PD.shape[1], mine.stop - mine.start
    doutT_DP = [transpose(dout_PD[:, d]) for d in spans(dim, ROWS)]
    dh_PF = nl.ndarray((ROWS, width), dtype=nl.float32, buffer=nl.sbuf)
    for f in spans(width, COLUMNS):
        sum_PF = nl.ndarray((ROWS, f.stop - f.start), dtype=nl.float32, buffer=nl.psum)
        for index, d in enumerate(spans(dim, ROWS)):
            w2_DF = load_weights(w2_EDF, expert, d, slice(mine.start + f.start, mine.start + f.stop))
            nisa.nc_matmul(sum_PF, stationary=doutT_DP[index], moving=w2_DF)
        nisa.tensor_copy(dh_PF[:, f], sum_PF)
    return dh_PF


def _through_swiglu(gate_PF, up_PF, dh_PF):
    """h = silu(gate) up and the gradients of gate and up, rounded to the dtype of ``gate_PF``."""
    silu_PF = nl.ndarray(gate_PF.shape, dtype=nl.float32, buffer=nl.sbuf)
    slope_PF = nl.ndarray(gate_PF.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(silu_PF, op=nl.silu, data=gate_PF)
    nisa.activation(slope_PF, op=nl.silu_dx, data=gate_PF)
    h_PF = nl.ndarray(gate_PF.shape, dtype=gate_PF.dtype, buffer=nl.sbuf)
    dgate_PF = nl.ndarray(gate_PF.shape, dtype=gate_PF.dtype, buffer=nl.sbuf)
    dup_PF = nl.ndarray(gate_PF.shape, dtype=gate_PF.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(h_PF, silu_PF, up_PF, op=nl.multiply)
    nisa.tensor_tensor(dup_PF, silu_PF, dh_PF, op=nl.multiply)
    nisa.tensor_tensor(slope_PF, slope_PF, up_PF, op=nl.multiply)
    nisa.tensor_tensor(dgate_PF, slope_PF, dh_PF, op=nl.multiply)
    return h_PF, dgate_PF, dup_PF


def _gradient_of_rows(factors, expert, mine, dim):
    """The sum over (gradient (128, F), weights (E, F, D)) of their products on this core's part of F, fp32 (128, D)."""
    dx_PD = nl.ndarray((ROWS, dim), dtype=nl.float32, buffer=nl.sbuf)
    parts = spans(mine.stop - mine.start, ROWS)
    transposed = [[transpose(gradient_PF[:, f]) for f in parts] for gradient_PF, _ in factors]
    for d in spans(dim, COLUMNS):
        sum_PD = nl.ndarray((ROWS, d.stop - d.start), dtype=nl.float32, buffer=nl.psum)
        for factor, (_, weights_EFD) in enumerate(factors):
            for index, f in enumerate(parts):
                w_FD = load_weights(weights_EFD, expert, slice(mine.start + f.start, mine.start + f.stop), d)
                nisa.nc_matmul(sum_PD, stationary=transposed[factor][index], moving=w_FD)
        nisa.tensor_copy(dx_PD[:, d], sum_PD)
    return dx_PD


def _add_product(sums_EMK, expert, m, k, left_PM, right_PK):
    """Add left^T right, summed over the block's rows, to rows ``m`` and columns ``k`` of an expert's sums."""
    for part in spans(k.stop - k.start, COLUMNS):
        product_MK = nl.ndarray((m.stop - m.start, part.stop - part.start), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product_MK, stationary=left_PM, moving=right_PK[:, part])
        add_to_weights(sums_EMK, expert, m, slice(k.start + part.start, k.start + part.stop), product_MK)


def _sum_rows(dx_RD, parts_RD, core, count):
    """Add the cores' parts of this core's share of the rows, rounded once."""
    rows, dim = dx_RD.shape
    for tile in spans(rows, ROWS)[core::count]:
        height = tile.stop - tile.start
        sum_PD = nl.ndarray((height, dim), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(sum_PD, parts_RD[0][tile, :])
        for part_RD in parts_RD[1:]:
            part_PD = nl.ndarray((height, dim), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(part_PD, part_RD[tile, :])
            nisa.tensor_tensor(sum_PD, sum_PD, part_PD, op=nl.add)
        rounded_PD = nl.ndarray((height, dim), dtype=dx_RD.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(rounded_PD, sum_PD)
        nisa.dma_copy(dx_RD[tile, :], rounded_PD)
