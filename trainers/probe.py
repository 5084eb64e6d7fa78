"""Computes with single parts of a real configuration, where the whole model would not fit.

Of the model that ``describe`` builds on the meta device, layer 0's attention, feed-forward or router and the rotary
embedding are given generated weights and run on the host, as a training step would call them.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from trncheck.fixtures.geometry import Geometry
from trncheck.trainers import formulas
from trncheck.trainers.describe import build, runs_transformers
from trncheck.trainers.facts import adapter_facts, facts_of, initial_deviations
from trncheck.trainers.substitutes import attend_with_dense_masks

DOCUMENTS = (5, 11)
"""Lengths of the documents in the row that attention is given."""
_NATIVE_NAMES = {
    "q_proj": "qkv_linear.wq",
    "k_proj": "qkv_linear.wk",
    "v_proj": "qkv_linear.wv",
    "o_proj": "wo",
    "gate_proj": "w1",
    "up_proj": "w3",
    "down_proj": "w2",
}


@dataclass(frozen=True)
class _Parts:
    """The parts of layer 0, whatever the path."""

    attention: torch.nn.Module
    attend: Callable
    """(x_BLD, positions_BL) -> (B, L, D)"""
    dense: torch.nn.Module | None
    """The feed-forward module of a dense model."""
    router: torch.nn.Module | None
    native: bool

    def load(self, module: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
        names = {name: _NATIVE_NAMES.get(name, name) if self.native else name for name in weights}
        module.load_state_dict({f"{names[name]}.weight": tensor for name, tensor in weights.items()})


@torch.no_grad()
def probe(config_name: str, assets: Path, geometry: Geometry, names: list[str], positions: list[int], out: Path):
    """Write what ``config_name`` builds (``facts.json``) and computes (``computed.safetensors``) to ``out``.

    ``names`` are those of the published index, for the adapter. Of every computed part there is ``<part>`` and, by
    formulas of ``geometry`` in fp64, ``<part>.formula``: attention, feed_forward, routing, and ``rotary`` (cosines
    beside sines at ``positions``, also built while bfloat16 is the default dtype, and of bfloat16 heads).
    """
    # Layer 0 is computed on the host, whatever the device is, and FlexAttention is not for a CPU.
    config, model = build(config_name, assets, change=attend_with_dense_masks)
    torch.manual_seed(0)
    facts = facts_of(config, model)
    facts |= {"adapter": adapter_facts(config, model, names), "initial_deviations": initial_deviations(config, model)}
    (out / "facts.json").write_text(json.dumps(facts))
    rotate = _rotary(config, model, positions)
    computed = {
        "rotary": _rotated(rotate, geometry, positions, torch.float32),
        "rotary_of_bfloat16": _rotated(rotate, geometry, positions, torch.bfloat16),
    }
    torch.set_default_dtype(torch.bfloat16)
    rotate = _rotary(config, model, positions)
    torch.set_default_dtype(torch.float32)
    computed["rotary_built_in_bfloat16"] = _rotated(rotate, geometry, positions, torch.float32)
    angle_LI = formulas.angles(torch.tensor(positions), geometry.rope_theta, geometry.head_dim)
    computed |= {"rotary.formula": torch.cat([angle_LI.cos(), angle_LI.sin()], dim=-1), "rotary.angles": angle_LI}
    computed |= _layer(_parts(config, model), geometry)
    save_file({name: tensor.contiguous() for name, tensor in computed.items()}, out / "computed.safetensors")


def _rotary(config, model, positions: list[int]) -> Callable:
    """(x_LD, positions_L) -> x rotated, for one head; by a table that is built now."""
    if not runs_transformers(config):
        rope = replace(config.model_spec.model.layers[0].attention.rope, max_seq_len=max(positions) + 1).build()
        return lambda x_LD, positions_L: rope(x_LD[None, :, None], x_LD[None, :, None], positions_L[None])[0][0, :, 0]
    rotary = _restored_rotary(model)
    apply = type(next(iter(model.layers)).self_attn).forward.__globals__["apply_rotary_pos_emb"]

    def rotate(x_LD, positions_L):
        return apply(x_LD[None, None], x_LD[None, None], *rotary(x_LD[None], positions_L[None]))[0][0, 0]

    return rotate


def _restored_rotary(model) -> torch.nn.Module:
    from trncheck.trainers.transformers_model import restore_rotary

    rotary = type(model.rotary_emb)(model.rotary_emb.config)
    for buffer in rotary.buffers():
        buffer.fill_(float("nan"))
    restore_rotary("rotary_emb", rotary)
    return rotary


def _rotated(rotate: Callable, geometry: Geometry, positions: list[int], dtype: torch.dtype) -> torch.Tensor:
    """cos beside sin (L, head_dim): what becomes of ones in the first half of a head and zeros in the second."""
    x_LD = torch.zeros(len(positions), geometry.head_dim, dtype=dtype)
    x_LD[:, : geometry.head_dim // 2] = 1
    return rotate(x_LD, torch.tensor(positions))


def _parts(config, model) -> _Parts:
    if not runs_transformers(config):
        layer = config.model_spec.model.layers[0]
        attention = layer.attention.build()
        return _Parts(
            attention,
            lambda x_BLD, positions_BL: attention(x_BLD, model.get_attention_masks(positions_BL), positions_BL),
            None if layer.moe else layer.feed_forward.build(),
            layer.moe.router.build() if layer.moe else None,
            native=True,
        )
    layer, rotary = next(iter(model.layers)), _restored_rotary(model)
    attention = layer.self_attn.to_empty(device="cpu")
    moe = getattr(layer, "_native_moe_config", None)

    def attend(x_BLD, positions_BL):
        mask, tables = model.get_attention_masks(positions_BL), rotary(x_BLD, positions_BL)
        return attention(hidden_states=x_BLD, position_embeddings=tables, attention_mask=mask)[0]

    dense = None if moe else layer.mlp.to_empty(device="cpu")
    return _Parts(attention, attend, dense, moe.router.build() if moe else None, native=False)


def _layer(parts: _Parts, geometry: Geometry) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    size, heads = geometry.hidden_size, geometry.num_attention_heads * geometry.head_dim
    pairs = geometry.num_key_value_heads * geometry.head_dim

    def matrix(rows: int, columns: int, scale: float = 1.0) -> torch.Tensor:
        # Uniform with the deviation that keeps the size of its input, times ``scale``.
        bound = scale * math.sqrt(3 / columns)
        return torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)

    positions_L = torch.cat([torch.arange(length) for length in DOCUMENTS])
    x_LD = torch.randn(len(positions_L), size, generator=generator)
    # Queries and keys are so small that the epsilon of their norms counts, and then so large that their scale does.
    small = math.sqrt(geometry.rms_norm_eps)
    weights = {
        "q_proj": matrix(heads, size, small),
        "k_proj": matrix(pairs, size, small),
        "v_proj": matrix(pairs, size),
        "o_proj": matrix(size, heads),
        "q_norm": 2 + torch.randn(geometry.head_dim, generator=generator),
        "k_norm": 2 + torch.randn(geometry.head_dim, generator=generator),
    }
    parts.load(parts.attention, weights)
    computed = {
        "attention": parts.attend(x_LD[None], positions_L[None])[0],
        "attention.formula": formulas.attention(x_LD, weights, positions_L, geometry),
    }
    if parts.dense is not None:
        hidden = geometry.intermediate_size
        weights = {
            "gate_proj": matrix(hidden, size),
            "up_proj": matrix(hidden, size),
            "down_proj": matrix(size, hidden),
        }
        parts.load(parts.dense, weights)
        computed["feed_forward"] = parts.dense(x_LD[None])[0]
        computed["feed_forward.formula"] = formulas.feed_forward(x_LD, weights)
    if parts.router is not None:
        gate_ED = matrix(geometry.num_experts, size)
        parts.load(parts.router, {"gate": gate_ED})
        scores_BLK, ids_BLK, all_BLE = parts.router(x_LD[None])
        computed["routing"] = torch.zeros_like(all_BLE[0]).scatter(-1, ids_BLK[0], scores_BLK[0])
        computed["routing.formula"] = formulas.routing(x_LD, gate_ED, geometry.num_experts_per_tok)
    return computed
