"""Experts in plain torch, one after the other."""

import torch
import torch.nn.functional as F


def experts_reference(
    x_RD: torch.Tensor,
    num_tokens_per_expert_E: torch.Tensor,
    w1_EFD: torch.Tensor,
    w2_EDF: torch.Tensor,
    w3_EFD: torch.Tensor,
) -> torch.Tensor:
    """SwiGLU of every row by its expert, ``(silu(x @ w1.T) * (x @ w3.T)) @ w2.T``; differentiable.

    Every product is rounded to the dtype of the inputs: float64 inputs give the truth, bfloat16 inputs the error of
    plain bfloat16 arithmetic.

    Args:
        x_RD: Rows sorted by expert; those behind the last expert's belong to none, and come out as zero.
        num_tokens_per_expert_E: Integers; how many rows each expert has.
        w1_EFD, w2_EDF, w3_EFD: Weights of the gate, down and up projections in x's dtype.

    Returns:
        (R, D) in x's dtype.

    Source: ``GroupedExperts.forward`` of torchtitan 0.3.0, without its cast to bfloat16.
    """
    rows_E = num_tokens_per_expert_E.tolist()
    *by_expert, unrouted = x_RD.split([*rows_E, len(x_RD) - sum(rows_E)])
    out = [
        (F.silu(x @ w1_EFD[expert].T) * (x @ w3_EFD[expert].T)) @ w2_EDF[expert].T for expert, x in enumerate(by_expert)
    ]
    return torch.cat([*out, torch.zeros_like(unrouted)])
