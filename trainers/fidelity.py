"""Does a folder hold what it says, and does a native configuration build the model that its config.json describes?

torchtitan's native models carry their own numbers; weights that were trained with another theta, eps or router load
without an error and start at the wrong loss. So do the weights of a folder whose head is not what config.json says.
"""

import json
from pathlib import Path

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_ROWS = 4096
"""Of a matrix, that are compared at a time."""


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


def check_head(folder: Path) -> None:
    """Raise ValueError where the weights of ``folder`` contradict ``tie_word_embeddings`` of its config.json.

    A tied model that is given a head of its own drops it without a word; an untied one without a head cannot be loaded.
    """
    tied = json.loads((folder / "config.json").read_text()).get("tie_word_embeddings")
    if tied is None:
        return
    files = _files_of({_EMBEDDING, _HEAD}, folder)
    if not tied and _HEAD not in files:
        raise ValueError(
            f"{folder} holds no {_HEAD}, and its config.json says that the head is not tied to the embedding; get the "
            "missing file, or set tie_word_embeddings to true if the model is a tied one"
        )
    if tied and len(files) == 2 and (rows := _differing_rows(files)):
        raise ValueError(
            f"{folder} holds a {_HEAD} that differs from {_EMBEDDING} in {rows} rows, and its config.json says that "
            "they are tied, so that the head would be dropped; set tie_word_embeddings to false and train an untied "
            "configuration, or remove the head from the files if it is a stale copy"
        )


def _files_of(names: set[str], folder: Path) -> dict[str, Path]:
    from safetensors import safe_open

    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as reader:
            found |= dict.fromkeys(names & set(reader.keys()), file)
    return found


def _differing_rows(files: dict[str, Path]) -> int:
    from safetensors import safe_open

    with safe_open(files[_HEAD], "pt") as with_head, safe_open(files[_EMBEDDING], "pt") as with_embedding:
        head_VD, embedding_VD = with_head.get_slice(_HEAD), with_embedding.get_slice(_EMBEDDING)
        if head_VD.get_shape() != embedding_VD.get_shape():
            return max(head_VD.get_shape()[0], embedding_VD.get_shape()[0])
        return sum(
            int((head_VD[start : start + _ROWS] != embedding_VD[start : start + _ROWS]).any(dim=1).sum())
            for start in range(0, head_VD.get_shape()[0], _ROWS)
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
