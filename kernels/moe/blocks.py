"""Which row of the input and which expert each slot of the expert kernels holds."""

import torch


def plan_blocks(
    num_tokens_per_expert_E: torch.Tensor, num_rows: int, block: int = 128
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad each expert's rows to whole blocks. Shapes depend on E, ``num_rows`` and ``block`` alone.

    Rows are sorted by expert: those of expert e follow those of e - 1, and rows behind the last expert's belong to
    none. The number N of blocks is the most that any split of the rows needs (a bound), made even so that two cores
    have an equal share.

    Args:
        num_tokens_per_expert_E: Integers, not negative, that sum to at most ``num_rows``; not checked here, since that
            would make a device wait, but no slot ever gets a row that does not exist.
        num_rows: R, rows of the input.
        block: Slots per block.

    Returns:
        row_of_slot_S: int32, S = N * block; the row, or R for padding.
        expert_of_block_N1: int32, (N, 1); the expert, or 0 for an unused block.
    """
    num_experts = num_tokens_per_expert_E.shape[0]
    num_blocks = num_rows // block + min(num_experts, num_rows)
    num_blocks += num_blocks % 2
    device = num_tokens_per_expert_E.device

    # int32 throughout: 64-bit integers are the exception on the hardware.
    rows_E = num_tokens_per_expert_E.to(torch.int32)
    blocks_E = (rows_E + (block - 1)) // block
    end_block_E = blocks_E.cumsum(0, dtype=torch.int32)
    end_row_E = rows_E.cumsum(0, dtype=torch.int32)
    index_N = torch.arange(num_blocks, dtype=torch.int32, device=device)
    expert_N = (index_N[:, None] >= end_block_E).sum(1, dtype=torch.int32)
    used_N = expert_N < num_experts
    expert_N = torch.where(used_N, expert_N, 0)

    start_row_N = (end_row_E - rows_E)[expert_N]
    within_N = (index_N - (end_block_E - blocks_E)[expert_N]) * block
    row_NB = (start_row_N + within_N)[:, None] + torch.arange(block, dtype=torch.int32, device=device)
    last_N = torch.where(used_N, end_row_E[expert_N].clamp(max=num_rows), 0)
    row_of_slot_S = torch.where(row_NB < last_N[:, None], row_NB, num_rows).reshape(-1)
    return row_of_slot_S.to(torch.int32), expert_N[:, None]


def plan_sums(expert_of_block_N1: torch.Tensor, num_experts: int) -> torch.Tensor:
    """To which expert's gradients each block adds, if one core has the first half of the blocks and one the second.

    Where the halves meet, both can hold the same expert: what the second adds to it goes to a spare expert,
    ``num_experts``. So does what unused blocks of the second half add, which is zero: they pass for expert 0, which is
    the first half's.

    Args:
        expert_of_block_N1: As ``plan_blocks`` gives it, sorted but for the unused blocks at its end.
        num_experts: E.

    Returns:
        int32, (N, 1), values from 0 to E.
    """
    half = expert_of_block_N1.shape[0] // 2
    first_N1, second_N1 = expert_of_block_N1[:half], expert_of_block_N1[half:]
    is_shared_N1 = (second_N1 == first_N1[-1:]) | (second_N1 == 0)
    return torch.cat([first_N1, second_N1.masked_fill(is_shared_N1, num_experts)])
