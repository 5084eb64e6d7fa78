"""Rotary embedding in plain torch, as Transformers' Qwen3 computes it."""

import torch


def rope_reference(
    q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cache_BSC: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q and k; differentiable.

    Tables are cast to q's dtype and every product and sum is rounded to it, so that float64 inputs give the truth and
    bfloat16 inputs the error that plain bfloat16 arithmetic makes.

    Args:
        q_BHSD, k_BHSD: (B, Hq, S, D) and (B, Hk, S, D), any floating dtype.
        cache_BSC: (1|B, S', 2D) or (S', 2D) with S' >= S: cosines of full width D, then sines.

    Returns:
        Rotated q and k, in the shapes and dtypes of q and k.

    Source: ``apply_rotary_pos_emb`` and ``Qwen3RotaryEmbedding`` of transformers 5.16.
    """
    cache_BSC = cache_BSC[..., : q_BHSD.shape[-2], :].to(q_BHSD.dtype)
    cos_B1SD, sin_B1SD = cache_BSC.unsqueeze(-3).chunk(2, dim=-1)
    return _rotate(q_BHSD, cos_B1SD, sin_B1SD), _rotate(k_BHSD, cos_B1SD, sin_B1SD)


def _rotate(x_BHSD: torch.Tensor, cos_B1SD: torch.Tensor, sin_B1SD: torch.Tensor) -> torch.Tensor:
    first, second = x_BHSD.chunk(2, dim=-1)
    return x_BHSD * cos_B1SD + torch.cat((-second, first), dim=-1) * sin_B1SD
