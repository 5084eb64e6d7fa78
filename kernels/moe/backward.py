"""Expert computation over blocks of 128 rows, each of one expert: backward, an NKI kernel.

The cores share the blocks: the first half of them is one core's, the second half the other's. Blocks are sorted by
expert, so both halves can hold one and the same expert only where they meet. What the second half adds to that expert's
weights goes to a spare expert behind the last, so that no two cores add to the same weights; after a barrier the spare
one is added to it. Every row belongs to one block, so cores never write the same row.
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
def experts_backward(
    dout_RD, x_RD, gate_RF, up_RF, w1_EFD, w2_EDF, w3_EFD, row_of_slot_S, expert_of_block_N1, sum_of_block_N1
):
    """Gradients of ``experts_forward``: dx (R, D) in x's dtype, dw1, dw3 (E + 1, F, D) and dw2 (E + 1, D, F) in fp32.

    ``dout_RD`` is the gradient of the output, ``gate_RF`` and ``up_RF`` are what the forward kernel saved, and
    ``sum_of_block_N1`` int32 (N, 1) comes from ``blocks.plan_sums``. Experts without rows get zeros, and so do rows in
    no slot; the last expert of the gradients is the spare one.
    """
    rows, dim = x_RD.shape
    experts, hidden, _ = w1_EFD.shape
    blocks = expert_of_block_N1.shape[0]
    count, core = cores()
    dx_RD = nl.ndarray((rows, dim), dtype=x_RD.dtype, buffer=nl.shared_hbm)
    dw1_EFD = nl.ndarray((experts + 1, hidden, dim), dtype=nl.float32, buffer=nl.shared_hbm)
    dw2_EDF = nl.ndarray((experts + 1, dim, hidden), dtype=nl.float32, buffer=nl.shared_hbm)
    dw3_EFD = nl.ndarray((experts + 1, hidden, dim), dtype=nl.float32, buffer=nl.shared_hbm)
    zero_rows(dx_RD, core, count)
    for sums_EMK in (dw1_EFD, dw2_EDF, dw3_EFD):
        zero_rows(sums_EMK.flatten_dims(0, 1), core, count)
    if count > 1:
        nisa.core_barrier(dx_RD, (0, 1))  # a block may hold rows, and an expert, that the other core has zeroed

    share = blocks // count
    for block in range(core * share, (core + 1) * share):
        rows_P1 = rows_of_block(row_of_slot_S, block)
        expert = expert_of_block(expert_of_block_N1, block)
        into = expert_of_block(sum_of_block_N1, block)
        x_PD = gather_rows(x_RD, rows_P1)
        dout_PD = gather_rows(dout_RD, rows_P1)
        gate_PF = gather_rows(gate_RF, rows_P1)
        up_PF = gather_rows(up_RF, rows_P1)
        dh_PF = _gradient_of_hidden(dout_PD, w2_EDF, expert)
        h_PF, dgate_PF, dup_PF = _through_swiglu(gate_PF, up_PF, dh_PF)
        dx_PD = _gradient_of_rows(((dgate_PF, w1_EFD), (dup_PF, w3_EFD)), expert, dim)
        scatter_rows(dx_RD, rows_P1, dx_PD)
        _add_product(dw1_EFD, into, dgate_PF, x_PD)
        _add_product(dw3_EFD, into, dup_PF, x_PD)
        _add_product(dw2_EDF, into, dout_PD, h_PF)
    if count > 1:
        nisa.core_barrier(dw1_EFD, (0, 1))
    shared = expert_of_block(expert_of_block_N1, blocks // 2 - 1)
    for sums_EMK in (dw1_EFD, dw2_EDF, dw3_EFD):
        _add_spare(sums_EMK, shared, core, count)
    return dx_RD, dw1_EFD, dw2_EDF, dw3_EFD


def _gradient_of_hidden(dout_PD, w2_EDF, expert):
    """dout (128, D) times an expert's w2 (D, F), in fp32 (128, F)."""
    _, dim, hidden = w2_EDF.shape
    doutT_DP = [transpose(dout_PD[:, d]) for d in spans(dim, ROWS)]
    dh_PF = nl.ndarray((ROWS, hidden), dtype=nl.float32, buffer=nl.sbuf)
    for f in spans(hidden, COLUMNS):
        sum_PF = nl.ndarray((ROWS, f.stop - f.start), dtype=nl.float32, buffer=nl.psum)
        for index, d in enumerate(spans(dim, ROWS)):
            w2_DF = load_weights(w2_EDF, expert, d, f)
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


def _gradient_of_rows(factors, expert, dim):
    """The sum over (gradient (128, F), weights (E, F, D)) of their products, fp32 (128, D)."""
    dx_PD = nl.ndarray((ROWS, dim), dtype=nl.float32, buffer=nl.sbuf)
    parts = spans(factors[0][0].shape[1], ROWS)
    transposed = [[transpose(gradient_PF[:, f]) for f in parts] for gradient_PF, _ in factors]
    for d in spans(dim, COLUMNS):
        sum_PD = nl.ndarray((ROWS, d.stop - d.start), dtype=nl.float32, buffer=nl.psum)
        for factor, (_, weights_EFD) in enumerate(factors):
            for index, f in enumerate(parts):
                w_FD = load_weights(weights_EFD, expert, f, d)
                nisa.nc_matmul(sum_PD, stationary=transposed[factor][index], moving=w_FD)
        nisa.tensor_copy(dx_PD[:, d], sum_PD)
    return dx_PD


def _add_product(sums_EMK, expert, left_PM, right_PK):
    """Add left^T right, summed over the block's rows, to an expert's sums."""
    for m in spans(left_PM.shape[1], ROWS):
        for k in spans(right_PK.shape[1], COLUMNS):
            product_MK = nl.ndarray((m.stop - m.start, k.stop - k.start), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(product_MK, stationary=left_PM[:, m], moving=right_PK[:, k])
            add_to_weights(sums_EMK, expert, m, k, product_MK)


def _add_spare(sums_EMK, expert, core, count):
    """Add this core's rows of the last expert's sums to those of ``expert``."""
    experts, rows, columns = sums_EMK.shape
    for m in spans(rows, ROWS)[core::count]:
        spare_MK = nl.ndarray((m.stop - m.start, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(spare_MK, sums_EMK[experts - 1, m, :])
        add_to_weights(sums_EMK, expert, m, slice(0, columns), spare_MK)
