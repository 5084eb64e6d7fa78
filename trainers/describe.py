"""What a configuration builds, read off the built model on the meta device rather than off its configuration."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import torch

from trncheck.trainers.reference import file_named


def describe(config_name: str, assets: Path, out: Path) -> None:
    """Build ``config_name`` on the meta device and write its geometry, as JSON under config.json's names, to ``out``.

    ``assets`` needs a config.json for the Transformers path. No weights are allocated.
    """
    config, model = build(config_name, assets)
    spec = config.model_spec
    if runs_transformers(config):
        tensors, facts = file_named(model.model), _transformers_facts(model)
    else:
        tensors, facts = spec.state_dict_adapter(spec.model, None).to_hf(model.state_dict()), _native_facts(model)
    out.write_text(json.dumps(_geometry({name: tuple(tensor.shape) for name, tensor in tensors.items()}) | facts))


def build(config_name: str, assets: Path, change: Callable = lambda config: None):
    """``(config, model)`` of ``config_name`` on the meta device, as the Trainer builds it, after ``change(config)``."""
    from trncheck.trainers import config_registry

    config = getattr(config_registry, config_name)()
    config.hf_assets_path = str(assets)
    change(config)
    config.model_spec.model.update_from_config(config=config)
    with torch.device("meta"):
        return config, config.model_spec.model.build()


def runs_transformers(config) -> bool:
    """Whether this is a configuration of the Transformers path."""
    from trncheck.trainers import trainer

    return isinstance(config, trainer.TransformersTrainer.Config)


def _geometry(shapes: dict[str, tuple[int, ...]]) -> dict:
    layer = "model.layers.0."
    head_dim = shapes[layer + "self_attn.q_norm.weight"][0]
    vocab_size, hidden_size = shapes["model.embed_tokens.weight"]
    experts = {int(match[1]) for name in shapes if (match := re.match(layer + r"mlp\.experts\.(\d+)\.", name))}
    moe = {
        "num_experts": len(experts),
        "moe_intermediate_size": shapes.get(layer + "mlp.experts.0.gate_proj.weight", (0,))[0],
    }
    dense = {} if experts else {"intermediate_size": shapes[layer + "mlp.gate_proj.weight"][0]}
    return {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "num_hidden_layers": len({match[1] for name in shapes if (match := re.match(r"model\.layers\.(\d+)\.", name))}),
        "num_attention_heads": shapes[layer + "self_attn.q_proj.weight"][0] // head_dim,
        "num_key_value_heads": shapes[layer + "self_attn.k_proj.weight"][0] // head_dim,
        "head_dim": head_dim,
        "tie_word_embeddings": "lm_head.weight" not in shapes,
        "parameters": sum(torch.Size(shape).numel() for shape in shapes.values()),
        **dense,
        **moe,
    }


def _native_facts(model) -> dict:
    rope = model.config.layers[0].attention.rope
    moe = model.config.layers[0].moe
    return {
        "rope_theta": rope.theta,
        "rms_norm_eps": _single({m.eps for m in model.modules() if hasattr(m, "eps")}),
        "num_experts_per_tok": moe.router.top_k if moe else 0,
        "norm_topk_prob": moe.router.route_norm if moe else None,
        "attention_mask": _native_mask(model.config.layers[0].attention.inner_attention),
    }


def _native_mask(attention) -> str:
    """torchtitan's Decoder gives FlexAttention a mask by document, and other kinds none."""
    from torchtitan.models.common.attention import FlexAttention

    return "per document" if isinstance(attention, FlexAttention.Config) else type(attention).__qualname__


def _transformers_facts(model) -> dict:
    config = model.model.config
    moe = getattr(next(iter(model.layers)), "_native_moe_config", None)
    return {
        "rope_theta": config.rope_parameters["rope_theta"],
        "rms_norm_eps": _single(
            {norm.variance_epsilon for norm in model.modules() if hasattr(norm, "variance_epsilon")}
        ),
        "num_experts_per_tok": moe.router.top_k if moe else 0,
        "norm_topk_prob": moe.router.route_norm if moe else None,
        "attention_mask": {"block_causal": "per document"}.get(config.attn_mask_type, config.attn_mask_type),
    }


def _single(values: set):
    """The one value that all modules share, or all of them where they differ."""
    return values.pop() if len(values) == 1 else sorted(values)
