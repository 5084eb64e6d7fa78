"""From the layouts of torchtitan and Transformers to the operator's, and back.

Padding, cutting and transposing are plain differentiable torch, so gradients take the same path.
"""

import torch
import torch.nn.functional as F

from trncheck.kernels import runtime
from trncheck.kernels.rope.operator import TILE, rope, validate


def apply_rotary(
    q_BSHD: torch.Tensor, k_BSHD: torch.Tensor, cache_BS1C: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What torchtitan's ``CosSinRoPE.apply_rotary_emb`` computes, by the operator.

    Args:
        q_BSHD, k_BSHD: (B, S, Hq, D) and (B, S, Hk, D), both float32 or both bfloat16, of any strides and any S.
        cache_BS1C: (1|B, S', 1, 2D) with S' >= S: cosines of full width D, then sines.

    Returns:
        Rotated q and k in the shapes and dtype of q and k; not contiguous.

    Raises:
        ValueError: Shapes or dtypes other than these.
    """
    if q_BSHD.ndim != 4 or k_BSHD.ndim != 4:
        raise ValueError(f"rope: q and k need 4 dimensions, got {tuple(q_BSHD.shape)} and {tuple(k_BSHD.shape)}")
    if cache_BS1C.ndim != 4 or cache_BS1C.shape[2] != 1:
        raise ValueError(f"rope: torchtitan's table has the shape (1 or B, S, 1, 2D), got {tuple(cache_BS1C.shape)}")
    q_BHSD, k_BHSD = _rotate(q_BSHD.transpose(1, 2), k_BSHD.transpose(1, 2), cache_BS1C.squeeze(2))
    return q_BHSD.transpose(1, 2), k_BHSD.transpose(1, 2)


def apply_rotary_transformers(
    q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cos_BSD: torch.Tensor, sin_BSD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What Transformers' ``apply_rotary_pos_emb`` computes, by the operator.

    Args:
        q_BHSD, k_BHSD: (B, Hq, S, D) and (B, Hk, S, D), both float32 or both bfloat16, of any strides and any S.
        cos_BSD, sin_BSD: (1|B, S, D).

    Returns:
        Rotated q and k in the shapes and dtype of q and k; contiguous unless S was padded.

    Raises:
        ValueError: Shapes or dtypes other than these.
    """
    if cos_BSD.shape != sin_BSD.shape:
        raise ValueError(f"rope: cos and sin need one shape, got {tuple(cos_BSD.shape)} and {tuple(sin_BSD.shape)}")
    return _rotate(q_BHSD, k_BHSD, torch.cat((cos_BSD, sin_BSD), dim=-1))


def _rotate(q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cache_BSC: torch.Tensor):
    """Pad the sequence with zeros to what the kernel takes, rotate, cut."""
    validate(q_BHSD, k_BHSD, cache_BSC)
    length = q_BHSD.shape[2]
    cache_BSC = cache_BSC[..., :length, :]
    if missing := -length % (TILE * runtime.lnc()):
        q_BHSD, k_BHSD, cache_BSC = (F.pad(part, (0, 0, 0, missing)) for part in (q_BHSD, k_BHSD, cache_BSC))
    q_BHSD, k_BHSD = rope(q_BHSD, k_BHSD, cache_BSC)
    return q_BHSD[:, :, :length], k_BHSD[:, :, :length]
