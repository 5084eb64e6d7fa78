"""Does a native configuration build the model that the folder's config.json describes?

torchtitan's native models carry their own numbers; weights that were trained with another theta, eps or router load
without an error and start at the wrong loss.
"""

import json
from pathlib import Path


def check_config_json(config) -> None:
    """Raise ValueError naming every field of ``hf_assets_path``/config.json that the native model builds otherwise."""
    model = config.model_spec.model
    folder = Path(config.hf_assets_path)
    described = json.loads((folder / "config.json").read_text())
    rope = described.get("rope_parameters") or {}
    described = {"num_experts": described.get("num_local_experts")} | rope | described
    built = _built(model)
    differing = [
        f"{field} {described[field]} (built: {value})"
        for field, value in built.items()
        if described.get(field) is not None and described[field] != value
    ]
    if differing:
        raise ValueError(
            f"{folder / 'config.json'} describes another model than the configuration builds: {', '.join(differing)}; "
            "use a configuration of that model, or a qwen3_hf_* one, which reads config.json"
        )


def _built(model) -> dict:
    layer = model.layers[0]
    built = {
        "vocab_size": model.vocab_size,
        "hidden_size": model.dim,
        "num_hidden_layers": len(model.layers),
        "num_attention_heads": layer.attention.n_heads,
        "num_key_value_heads": layer.attention.n_kv_heads,
        "head_dim": layer.attention.head_dim,
        "rope_theta": layer.attention.rope.theta,
        "rms_norm_eps": layer.attention_norm.eps,
        "tie_word_embeddings": model.enable_weight_tying,
    }
    if layer.moe is not None:
        built |= {
            "num_experts": layer.moe.num_experts,
            "num_experts_per_tok": layer.moe.router.top_k,
            "norm_topk_prob": layer.moe.router.route_norm,
        }
    return built
