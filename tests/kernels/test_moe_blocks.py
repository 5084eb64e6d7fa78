"""Slots and blocks of the expert kernels, against a plain loop."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from trncheck.kernels.moe.blocks import plan_blocks, plan_sums

BLOCK = 128
ROWS = st.integers(0, 3) | st.integers(0, 400) | st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])


def loop(counts: list[int], num_rows: int, block: int) -> tuple[list[int], list[int]]:
    """The used blocks alone."""
    row_of_slot, expert_of_block, row = [], [], 0
    for expert, count in enumerate(counts):
        for start in range(0, count, block):
            rows = list(range(row + start, row + min(start + block, count)))
            row_of_slot += rows + [num_rows] * (block - len(rows))
            expert_of_block.append(expert)
        row += count
    return row_of_slot, expert_of_block


@given(st.lists(ROWS, min_size=1, max_size=12), st.integers(0, 300), st.sampled_from([1, 16, BLOCK, 256]))
@example([0, 0, 0], 0, BLOCK)
@example([1], 0, BLOCK)
@example([0, 0, 1], 0, BLOCK)
@example([1, 1, 1], 0, BLOCK)
@example([0, 500, 0], 0, BLOCK)
@example([128, 256, 0, 128], 7, BLOCK)
@example([0, 0], 300, BLOCK)
def test_plan_is_that_of_a_loop(counts, unrouted, block):
    num_rows = sum(counts) + unrouted
    row_of_slot_S, expert_of_block_N1 = plan_blocks(torch.tensor(counts), num_rows, block)
    rows, experts = loop(counts, num_rows, block)

    num_blocks = len(expert_of_block_N1)
    assert num_blocks >= len(experts)
    assert num_blocks <= num_rows // block + min(len(counts), num_rows) + 1
    assert num_blocks % 2 == 0
    assert row_of_slot_S.tolist() == rows + [num_rows] * (num_blocks * block - len(rows))
    assert expert_of_block_N1.tolist() == [[expert] for expert in experts + [0] * (num_blocks - len(experts))]
    assert row_of_slot_S.dtype == expert_of_block_N1.dtype == torch.int32


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_shapes_do_not_depend_on_counts(dtype):
    plans = [
        plan_blocks(torch.tensor([300, 0, 0], dtype=dtype), 300),
        plan_blocks(torch.tensor([100, 100, 100], dtype=dtype), 300),
        plan_blocks(torch.zeros(3, dtype=dtype, device="meta"), 300),
    ]
    shapes = [[(part.shape, part.dtype) for part in plan] for plan in plans]
    assert shapes[0] == shapes[1] == shapes[2]


def test_no_slot_gets_a_row_that_does_not_exist():
    row_of_slot_S, _ = plan_blocks(torch.tensor([200, 200]), 300)
    assert row_of_slot_S.max() == 300
    assert row_of_slot_S.min() >= 0


@given(st.lists(ROWS, min_size=1, max_size=12).filter(any), st.integers(0, 300))
@example([500], 0)
@example([1, 400], 0)
@example([400, 1, 1], 0)
@example([0, 0, 1], 0)
def test_halves_of_the_blocks_add_to_different_experts(counts, unrouted):
    num_experts, num_rows = len(counts), sum(counts) + unrouted
    row_of_slot_S, expert_of_block_N1 = plan_blocks(torch.tensor(counts), num_rows)
    sum_of_block_N1 = plan_sums(expert_of_block_N1, num_experts)
    half = len(expert_of_block_N1) // 2
    into, experts = sum_of_block_N1[:, 0].tolist(), expert_of_block_N1[:, 0].tolist()

    assert sum_of_block_N1.shape == expert_of_block_N1.shape
    assert sum_of_block_N1.dtype == torch.int32
    assert into[:half] == experts[:half]
    assert not {*into[:half]} & {*into[half:]}
    used = row_of_slot_S[::BLOCK] < num_rows
    for block in range(half, len(into)):
        assert into[block] in (experts[block], num_experts)
        if used[block] and into[block] == num_experts:
            assert experts[block] == experts[half - 1]
