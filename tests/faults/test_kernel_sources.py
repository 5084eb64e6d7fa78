"""Faults in the source of the NKI kernels: one edit each, as a slip of its author would make it."""

import inspect
from pathlib import Path
from types import CodeType

import pytest

fault = pytest.mark.fault

ROPE = "trncheck.kernels.rope.kernel"
FORWARD, BACKWARD = "trncheck.kernels.moe.forward", "trncheck.kernels.moe.backward"
BLOCKS, TILES = "trncheck.kernels.moe.blocks", "trncheck.kernels.moe.tiles"
WRAPPER = "trncheck.kernels.rope.operator"


def _edit(module: str, old: str, new: str, *, shape: str = "tiny", dtype: str = "float32") -> None:
    """Replace ``old``, which occurs once, and give the functions of ``module`` their new code, whoever holds them.

    The check looks at one shape and dtype alone: there the fault shows already.
    """
    from trncheck.kernels import runtime

    loaded = runtime.load(module)
    text = Path(loaded.__file__).read_text()
    assert text.count(old) == 1, f"{text.count(old)} times in {module}: {old}"
    code = compile(text.replace(old, new), loaded.__file__, "exec")
    for part in (part for part in code.co_consts if isinstance(part, CodeType)):
        function = getattr(loaded, part.co_name)
        inspect.unwrap(function).__code__ = part  # of a kernel, and of what is decorated
    _only(shape, dtype)


@pytest.fixture(autouse=True, scope="module")
def imported():
    """The kernels' modules, once for all children."""
    from trncheck.kernels import catalogue

    return [catalogue.load(name) for name in catalogue.names()]


def _only(shape: str, dtype: str = "float32") -> None:
    from trncheck.conformance.kernel_runs import KernelRuns

    every = KernelRuns.samples
    KernelRuns.samples = lambda self, kernel: [
        sample for sample in every(self, kernel) if str(sample) == f"{shape} {dtype}"
    ]


# --- rotary embedding


@fault("kernels.forward[rope]", "LNC 1, output 0, relative error")
def test_rope_turns_one_half_the_other_way():
    _edit(ROPE, "else (nl.subtract, nl.add)", "else (nl.subtract, nl.subtract)")


@fault("kernels.gradient[rope]", "gradient of q_BHSD, relative error")
def test_rope_backward_turns_one_half_the_other_way():
    _edit(ROPE, "(nl.add, nl.subtract) if backward", "(nl.add, nl.add) if backward")


@fault("kernels.gradient[rope]", "gradient of k_BHSD, relative error")
def test_rope_backward_turns_forward():
    _edit(ROPE, "(nl.add, nl.subtract) if backward", "(nl.subtract, nl.add) if backward")


@fault("kernels.forward[rope]", "output 0, relative error")
def test_rope_takes_the_halves_of_the_sine_in_the_wrong_order():
    _edit(ROPE, "else (low, high)", "else (high, low)")


@fault("kernels.gradient[rope]", "gradient of q_BHSD, relative error")
def test_rope_backward_takes_the_halves_of_the_sine_as_forward():
    _edit(ROPE, "(high, low) if backward", "(low, high) if backward")


@fault("kernels.forward[rope]", "output 1, worst element")
def test_rope_rotates_every_row_by_the_first_table():
    _edit(ROPE, "row = start + (b * length if len(table.shape) == 3 else 0)", "row = start")


@fault("kernels.forward[rope]", "LNC 1, output 0, relative error: nan")
def test_rope_leaves_the_last_tile_unwritten():
    _edit(ROPE, "(core + 1) * tiles_per_core)", "(core + 1) * tiles_per_core - (core + 1) // cores)")


@fault("kernels.mutation[rope]", "inputs of trncheck.rope.default: ")
def test_rope_writes_into_its_input():
    out = "nisa.dma_copy(_positions_first(out, b, first, heads, start), result_PHD)"
    _edit(ROPE, out, f"{out}; nisa.dma_copy(_positions_first(x, b, first, heads, start), result_PHD)")


@fault("kernels.forward[rope]", "33 heads float32, LNC 1, output 0, relative error")
def test_rope_reads_the_first_heads_in_every_group():
    load = "nisa.dma_copy(x_PHD, _positions_first(x, b, first, heads, start))"
    _edit(ROPE, load, load.replace("first, heads", "0, heads"), shape="33 heads")


@fault("kernels.forward[rope]", "tiny float32, LNC 1, output 0, relative error")
def test_rope_reads_a_longer_table_from_its_end():
    _edit(WRAPPER, "[..., : q_BHSD.shape[2], :]", "[..., -q_BHSD.shape[2] :, :]")


@fault("kernels.forward[rope]", "several tiles float32, LNC 1, output 0, relative error")
def test_rope_reads_a_table_without_batch_one_position_off():
    shared = "cache_BSC.shape[0] == 1 else cache_BSC"
    rolled = "(cache_BSC.roll(1, dims=0) if cache_BSC.ndim == 2 else cache_BSC)"
    _edit(WRAPPER, shared, f"cache_BSC.shape[0] == 1 else {rolled}", shape="several tiles")


@fault("kernels.execution[rope]", "LNC 2, cores that executed nothing: expected [], found ['core 1, forward'")
def test_one_core_rotates_for_both():
    every = "range(core * tiles_per_core, (core + 1) * tiles_per_core)"
    _edit(ROPE, every, "range(0, (1 - core) * length // positions)")


# --- what the hardware refuses


@fault("kernels.forward[experts]", "SBUF capacity exceeded")
def test_tile_larger_than_sbuf():
    silu = "silu_PF = nl.ndarray((ROWS, hidden), dtype=nl.float32, buffer=nl.sbuf)"
    _edit(FORWARD, silu, silu.replace("hidden", "60000") + "[:, :hidden]")


@fault("kernels.forward[experts]", "partition")
def test_tile_of_256_partitions():
    silu = "silu_PF = nl.ndarray((ROWS, hidden), dtype=nl.float32, buffer=nl.sbuf)"
    _edit(FORWARD, silu, silu.replace("ROWS", "2 * ROWS") + "[:ROWS, :]")


@fault("kernels.forward[experts]", "at most 512")
def test_matmul_moves_640_columns():
    from trncheck.kernels import runtime

    runtime.load(FORWARD).COLUMNS = 1024
    _only("wide")


@fault("kernels.forward[experts]", "comes from memory that was never written")
def test_silu_is_read_and_never_computed():
    _edit(FORWARD, "nisa.activation(silu_PF, op=nl.silu, data=gate_PF)", "pass")


@fault("kernels.forward[experts]", "was never written")
def test_last_rows_of_the_output_are_never_written():
    _edit(TILES, "in tiles[core::count]", "in tiles[:-1][core::count]")


@fault("kernels.forward[experts]", "a core_barrier is missing")
def test_forward_without_barrier():
    _edit(FORWARD, "nisa.core_barrier(out_RD, (0, 1))", "pass")


@fault("kernels.gradient[experts]", "a core_barrier is missing")
def test_backward_without_barrier():
    _edit(BACKWARD, "nisa.core_barrier(dx_RD, (0, 1))", "pass")


# --- experts, forward


@fault("kernels.forward[experts]", "LNC 1, output 0, relative error")
def test_gate_and_up_swapped():
    _edit(FORWARD, "op=nl.silu, data=gate_PF)", "op=nl.silu, data=up_PF); up_PF = gate_PF")


@fault("kernels.forward[experts]", "output 0, relative error: 1,")
def test_output_left_at_zero():
    _edit(FORWARD, "((out_PD, out_RD), (gate_PF", "((gate_PF")


@fault("kernels.forward[experts]", "output 0, relative error")
def test_rows_written_where_those_of_the_next_block_belong():
    _edit(
        FORWARD,
        "scatter_rows(rows_tensor, rows_P1,",
        "scatter_rows(rows_tensor, rows_of_block(row_of_slot_S, block ^ 1),",
    )


@fault("kernels.forward[experts]", "output 0, relative error")
def test_sums_go_on_in_psum_that_is_not_fresh():
    fresh = "sum_PM = nl.ndarray((ROWS, wide.stop - wide.start), dtype=nl.float32, buffer=nl.psum)"
    loop = "for wide in spans(outputs, COLUMNS):"
    _edit(
        FORWARD,
        f"{loop}\n        {fresh}",
        "bank_PM = nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.psum)\n"
        f"    {loop}\n        sum_PM = bank_PM[:, : wide.stop - wide.start]",
        shape="wide",
    )


@fault("kernels.forward[experts]", "several tiles float32, LNC 1, output 0, relative error")
def test_sums_over_several_tiles_in_bfloat16():
    matmul = "nisa.nc_matmul(sum_PM, stationary=aT_KP[index], moving=wT_KM)"
    _edit(
        FORWARD,
        f"            {matmul}\n        nisa.tensor_copy(product_PM[:, wide], sum_PM)",
        "            part_PM = nl.ndarray(sum_PM.shape, dtype=nl.float32, buffer=nl.psum)\n"
        f"            {matmul.replace('sum_PM', 'part_PM')}\n"
        "            if index == 0:\n"
        "                low_PM = nl.ndarray(sum_PM.shape, dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "                nisa.tensor_copy(low_PM, part_PM)\n"
        "            else:\n"
        "                nisa.tensor_tensor(low_PM, low_PM, part_PM, op=nl.add)\n"
        "        nisa.tensor_copy(product_PM[:, wide], low_PM)",
        shape="several tiles",
    )


@fault("kernels.forward[experts]", "output 0, worst element")
def test_last_block_dropped():
    _edit(BLOCKS, "used_N = expert_N < num_experts", "used_N = index_N < end_block_E[-1] - 1")


@fault("kernels.forward[experts]", "output 0, relative error")
def test_too_few_blocks_planned():
    _edit(BLOCKS, "num_blocks += num_blocks % 2", "num_blocks -= 1 + num_blocks % 2", shape="wide")


@fault("kernels.forward[experts]", "output 0, relative error")
def test_experts_in_reverse_order():
    _edit(
        BLOCKS,
        "return row_of_slot_S.to(torch.int32), expert_N[:, None]",
        "return row_of_slot_S.to(torch.int32), num_experts - 1 - expert_N[:, None]",
    )


@fault("kernels.forward[experts]", "busy expert float32, LNC 1, output 0, relative error")
def test_two_blocks_at_most_for_an_expert():
    blocks = "blocks_E = (rows_E + (block - 1)) // block"
    _edit(BLOCKS, blocks, f"{blocks}; blocks_E = blocks_E.clamp(max=2)", shape="busy expert")


@fault("kernels.forward[experts]", "busy expert float32, LNC 1, output 0, relative error")
def test_wrong_expert_where_the_first_is_empty():
    expert = "torch.where(used_N, expert_N, 0)"
    _edit(BLOCKS, expert, expert.replace("expert_N,", "expert_N - (rows_E[0] == 0).int(),"), shape="busy expert")


@fault("kernels.forward[experts]", "busy expert float32, LNC 1, output 0, worst element")
def test_first_block_by_the_expert_of_the_second():
    result = "return row_of_slot_S.to(torch.int32), expert_N[:, None]"
    _edit(BLOCKS, result, result.replace("[:, None]", "[index_N.clamp(min=1)][:, None]"), shape="busy expert")


@fault("kernels.forward[experts]", "busy expert float32, LNC 1, output 0, relative error")
def test_int32_counts_of_the_experts_before():
    rows = "rows_E = num_tokens_per_expert_E.to(torch.int32)"
    moved = "rows_E = rows_E.roll(1) if num_tokens_per_expert_E.dtype == torch.int32 else rows_E"
    _edit(BLOCKS, rows, f"{rows}; {moved}", shape="busy expert")


@fault("kernels.forward[experts]", "was never written")
def test_only_the_last_rows_zeroed():
    _edit(TILES, "in tiles[core::count]", "in tiles[-1:][core::count]", shape="busy expert")


@fault("kernels.forward[experts]", "a row for each float32, LNC 1, output 0, relative error: nan")
def test_silu_that_overflows():
    silu = "nisa.activation(silu_PF, op=nl.silu, data=gate_PF)"
    _edit(
        FORWARD,
        silu,
        "exp_PF = nl.ndarray((ROWS, hidden), dtype=nl.float32, buffer=nl.sbuf)\n"
        "        nisa.activation(exp_PF, op=nl.exp, data=gate_PF)\n"
        "        nisa.tensor_scalar(silu_PF, exp_PF, nl.add, 1.0)\n"
        "        nisa.reciprocal(silu_PF, silu_PF)\n"
        "        nisa.tensor_tensor(silu_PF, silu_PF, exp_PF, op=nl.multiply)\n"
        "        nisa.tensor_tensor(silu_PF, silu_PF, gate_PF, op=nl.multiply)",
        shape="a row for each",
    )


@fault("kernels.mutation[experts]", "inputs of trncheck.experts.default: ")
def test_experts_write_into_their_input():
    gather = "x_PD = gather_rows(x_RD, rows_P1)"
    _edit(
        FORWARD,
        gather,
        f"{gather}; nisa.tensor_scalar(x_PD, x_PD, nl.multiply, 2.0); scatter_rows(x_RD, rows_P1, x_PD)",
    )


# --- experts, backward


@fault("kernels.gradient[experts]", "gradient of w1_EFD, relative error")
def test_gradient_of_gate_without_the_slope_of_silu():
    _edit(BACKWARD, "nisa.activation(slope_PF, op=nl.silu_dx, data=gate_PF)", "nisa.memset(slope_PF, 1.0)")


@fault("kernels.gradient[experts]", "gradient of w2_EDF, relative error")
def test_gradient_of_w2_from_the_last_block_alone():
    add = "nisa.tensor_tensor(sum_MK, sum_MK, product_MK, op=nl.add)"
    _edit(TILES, add, "nisa.tensor_copy(sum_MK, product_MK)")


@fault("kernels.gradient[experts]", "busy expert float32, LNC 1, gradient of w1_EFD, relative error")
def test_gradient_of_weights_from_one_core_alone():
    _edit(BACKWARD, "_add_spare(sums_EMK, shared, core, count)", "pass", shape="busy expert")


@fault("kernels.gradient[experts]", "busy expert float32, LNC 2, gradient of w1_EFD, relative error")
def test_second_core_leaves_its_share_of_the_last_sum():
    _edit(
        BACKWARD, "in spans(rows, ROWS)[core::count]:", "in spans(rows, ROWS)[core * 9 :: count]:", shape="busy expert"
    )


@fault("kernels.gradient[experts]", "depends on which core runs first: a core_barrier is missing")
def test_sum_of_the_cores_without_barrier():
    _edit(BACKWARD, "nisa.core_barrier(dw1_EFD, (0, 1))", "pass", shape="busy expert")


@fault("kernels.gradient[experts]", "depends on which core runs first: a core_barrier is missing")
def test_both_cores_add_to_the_same_weights():
    _edit(BACKWARD, "into = expert_of_block(sum_of_block_N1, block)", "into = expert", shape="busy expert")


@fault("kernels.gradient[experts]", "hidden 1100 float32, LNC 1, gradient of x_RD, relative error")
def test_every_span_of_columns_reads_the_first_of_w2():
    load = "w2_DF = load_weights(w2_EDF, expert, d, f)"
    first = "w2_DF = load_weights(w2_EDF, expert, d, slice(0, f.stop - f.start))"
    _edit(BACKWARD, load, first, shape="hidden 1100")


@fault("kernels.gradient[experts]", "busy expert bfloat16, LNC 1, gradient of w1_EFD, relative error")
def test_gradients_of_weights_summed_in_bfloat16():
    add = "nisa.tensor_tensor(sum_MK, sum_MK, product_MK, op=nl.add)"
    _edit(
        TILES,
        add,
        "low_MK = nl.ndarray(sum_MK.shape, dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        f"    {add.replace('(sum_MK, sum', '(low_MK, sum')}\n"
        "    nisa.tensor_copy(sum_MK, low_MK)",
        shape="busy expert",
        dtype="bfloat16",
    )
