"""Computes with single parts of a real configuration, where the whole model would not fit.

Of the model that ``describe`` builds on the meta device, layer 0's attention, feed-forward or router and the rotary
embedding are filled with generated weights and run on the host, as a training step would call them.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from trncheck.fixtures.geometry import Geometry
from trncheck.trainers import formulas
from trncheck.trainers.describe import build, runs_transformers
from trncheck.trainers.facts import facts_of

DOCUMENTS = (5, 11)
"""Lengths of the documents that are packed into the row that attention is given."""


@dataclass(frozen=True)
class Parts:
    """The parts of layer 0 as callables, whatever the path. Weights are read and written under config.json's names."""

    attention: torch.nn.Module
    attend: object
    """(x_BLD, positions_BL) -> (B, L, D)"""
    rotate: object
    """(x_LD, positions_L) -> x rotated, for one head."""
    dense: torch.nn.Module | None
    """The feed-forward module of a dense model."""
    router: torch.nn.Module | None
    weights: object
    """module -> its weights by the last words of their names in a file, such as ``q_proj``."""


@torch.no_grad()
def probe(config_name: str, assets: Path, geometry: Geometry, positions: list[int], out: Path) -> None:
    """Write what ``config_name`` builds (``facts.json``) and computes (``computed.safetensors``) to ``out``.

    Of every computed part there is ``<part>`` and, by plain formulas of ``geometry`` in fp64, ``<part>.formula``:
    attention, feed_forward or routing, and ``rotary`` (angles' cosines and sines at ``positions``; also built while
    bfloat16 is the default dtype, and applied to bfloat16 heads).
    """
    from trncheck.trainers import cpu

    config, model = build(config_name, assets, change=cpu.adapt)
    (out / "facts.json").write_text(json.dumps(facts_of(config, model)))
    computed = {}
    for name, default in {"rotary": torch.float32, "rotary_built_in_bfloat16": torch.bfloat16}.items():
        parts = _parts(config, model, geometry, default)
        computed[name] = _rotated(parts, geometry, positions, torch.float32)
        if default == torch.float32:
            computed["rotary_of_bfloat16"] = _rotated(parts, geometry, positions, torch.bfloat16)
            computed |= _layer(parts, geometry)
    angle_LI = formulas.angles(torch.tensor(positions), geometry.rope_theta, geometry.head_dim)
    computed["rotary.formula"] = torch.cat([angle_LI.cos(), angle_LI.sin()], dim=-1)
    computed["rotary.angles"] = angle_LI
    save_file({name: tensor.contiguous() for name, tensor in computed.items()}, out / "computed.safetensors")


def _rotated(parts: Parts, geometry: Geometry, positions: list[int], dtype: torch.dtype) -> torch.Tensor:
    """cos beside sin (L, head_dim): what becomes of ones in the first half of a head and zeros in the second."""
    half = geometry.head_dim // 2
    ones_LD = torch.cat([torch.ones(len(positions), half), torch.zeros(len(positions), half)], dim=-1).to(dtype)
    return parts.rotate(ones_LD, torch.tensor(positions))


def _layer(parts: Parts, geometry: Geometry) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    positions_L = torch.cat([torch.arange(length) for length in DOCUMENTS])
    x_LD = torch.randn(len(positions_L), geometry.hidden_size, generator=generator)
    spread = geometry.hidden_size**-0.5
    _fill(parts.attention, generator, spread)
    weights = parts.weights(parts.attention)
    # Queries and keys so small that the norms' epsilon counts, then so large that the scale of the scores does.
    for name in ("q_proj", "k_proj"):
        weights[name].mul_(math.sqrt(geometry.rms_norm_eps))
    for name in ("q_norm", "k_norm"):
        weights[name].copy_(2 + torch.randn(geometry.head_dim, generator=generator))
    parts.attention.load_state_dict(parts.attention.state_dict() | _as_state(parts.attention, weights))
    computed = {
        "attention": parts.attend(x_LD[None], positions_L[None])[0],
        "attention.formula": formulas.attention(x_LD, weights, positions_L, geometry),
    }
    if parts.dense is not None:
        _fill(parts.dense, generator, spread)
        computed["feed_forward"] = parts.dense(x_LD[None])[0]
        computed["feed_forward.formula"] = formulas.feed_forward(x_LD, parts.weights(parts.dense))
    if parts.router is not None:
        _fill(parts.router, generator, spread)
        (gate_ED,) = parts.router.parameters()
        scores_BLK, ids_BLK, all_BLE = parts.router(x_LD[None])
        computed["routing"] = torch.zeros_like(all_BLE[0]).scatter(-1, ids_BLK[0], scores_BLK[0])
        computed["routing.formula"] = formulas.routing(x_LD, gate_ED, geometry.num_experts_per_tok)
    return computed
