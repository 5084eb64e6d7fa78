"""Qwen3's parts as plain formulas in fp64, written from the architecture and from nothing that is under judgement."""

import torch

from trncheck.fixtures.geometry import Geometry


def angles(positions_L: torch.Tensor, theta: float, head_dim: int) -> torch.Tensor:
    """Rotary angles (L, head_dim / 2), radians: position times theta^(-2i / head_dim)."""
    frequency_I = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return positions_L.double()[:, None] * frequency_I


def attention(x_LD: torch.Tensor, weights: dict, positions_L: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Causal attention of one packed row within its documents, fp64 (L, D).

    ``weights`` has ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj`` (out, in), ``q_norm`` and ``k_norm`` (head_dim).
    Positions restart at 0 with each document. Queries and keys are normalised per head, then rotated by halves.
    """
    dim, eps = geometry.head_dim, geometry.rms_norm_eps
    weights = {name: weight.double() for name, weight in weights.items()}
    x_LD = x_LD.double()

    def heads(name: str) -> torch.Tensor:
        return (x_LD @ weights[name].T).unflatten(-1, (-1, dim)).transpose(0, 1)

    def ready(name: str) -> torch.Tensor:
        of_HLD = heads(f"{name}_proj")
        normed_HLD = of_HLD * torch.rsqrt(of_HLD.square().mean(-1, keepdim=True) + eps) * weights[f"{name}_norm"]
        low, high = normed_HLD.chunk(2, dim=-1)
        angle_LI = angles(positions_L, geometry.rope_theta, dim)
        cos, sin = angle_LI.cos(), angle_LI.sin()
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)

    repeats = geometry.num_attention_heads // geometry.num_key_value_heads
    q_HLD, k_HLD, v_HLD = ready("q"), *(part.repeat_interleave(repeats, 0) for part in (ready("k"), heads("v_proj")))
    document_L = (positions_L == 0).cumsum(0)
    seen_LL = (document_L[:, None] == document_L[None]) & torch.ones(len(x_LD), len(x_LD), dtype=torch.bool).tril()
    scores_HLL = (q_HLD @ k_HLD.transpose(1, 2) / dim**0.5).masked_fill(~seen_LL, float("-inf"))
    out_HLD = scores_HLL.softmax(-1) @ v_HLD
    return out_HLD.transpose(0, 1).flatten(1) @ weights["o_proj"].T


def feed_forward(x_LD: torch.Tensor, weights: dict) -> torch.Tensor:
    """SwiGLU, fp64 (L, D); ``weights`` has ``gate_proj``, ``up_proj`` and ``down_proj`` (out, in)."""
    gate, up, down = (weights[f"{name}_proj"].double() for name in ("gate", "up", "down"))
    gate_LF = x_LD.double() @ gate.T
    return (gate_LF * gate_LF.sigmoid() * (x_LD.double() @ up.T)) @ down.T


def routing(x_LD: torch.Tensor, gate_ED: torch.Tensor, top_k: int) -> torch.Tensor:
    """Weight of every expert for every token, fp64 (L, E): the ``top_k`` largest of a softmax over all, to sum 1."""
    scores_LE = (x_LD.double() @ gate_ED.double().T).softmax(-1)
    kept = scores_LE.topk(top_k, dim=-1)
    weights_LE = torch.zeros_like(scores_LE).scatter(-1, kept.indices, kept.values)
    return weights_LE / weights_LE.sum(-1, keepdim=True)
