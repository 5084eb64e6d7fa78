"""What a configuration builds beyond its sizes: switches, dtypes, router, initialisation, and its weights' names."""

import re

import torch

from trncheck.trainers.describe import runs_transformers


def facts_of(config, model) -> dict:
    """Facts of the model built from ``config`` on the meta device; a list where its layers or modules differ."""
    facts = _transformers_facts(model) if runs_transformers(config) else _native_facts(model)
    training = config.training
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return facts | {
        "biases": sorted(name for name in parameters if name.endswith("bias")),
        "dtype of masters": _single({str(p.dtype).removeprefix("torch.") for p in parameters.values()}),
        "dtype of training": [training.mixed_precision_param, training.mixed_precision_reduce],
        "rows of embedding and head": [len(model.tok_embeddings.weight), len(model.lm_head.weight)],
        "vocabulary of the loss": _loss_vocabulary(config.loss),
        "head is the embedding": model.lm_head.weight is model.tok_embeddings.weight,
    }


def adapter_facts(config, model, names: list[str]) -> dict:
    """How the adapter carries the weights ``names`` of a published index into the model and back.

    Every name's tensor is filled with its number in ``names``, so that it is known wherever it comes out.
    ``consumed``: names by how often they come out, other than once; ``experts``: for each stack of experts that is not
    one layer's and one projection's in the order of their numbers, what it holds; ``back``: names that do not return
    with their own tensor; ``missing`` and ``unexpected``: names in the model's state.
    """
    tensors = {name: torch.full((2, 3), float(i)) for i, name in enumerate(names)}
    adapter = config.model_spec.state_dict_adapter(config.model_spec.model, config.hf_assets_path)
    state = adapter.from_hf(dict(sorted(tensors.items())))
    found: dict[str, int] = dict.fromkeys(names, 0)
    disordered = {}
    for key, tensor in state.items():
        held = [names[int(i)] for i in tensor.reshape(-1, 6)[:, 0].tolist()]
        for name in held:
            found[name] += 1
        if tensor.ndim == 3 and held != _in_order(held[0], len(held)):
            disordered[key] = [name.removesuffix(".weight") for name in held[:3]]
    back = adapter.to_hf(dict(state))
    wrong = [name for name in names if name not in back or not torch.equal(back[name].reshape(2, 3), tensors[name])]
    tied = {"model.embed_tokens.weight"} if "lm_head.weight" not in tensors else set()
    wanted = _state_names(model)
    return {
        "consumed": {name: count for name, count in found.items() if count != 1 + (name in tied)},
        "experts": disordered,
        "back": wrong + sorted(back.keys() - tensors.keys()),
        "missing": sorted(wanted - state.keys()),
        "unexpected": sorted(state.keys() - wanted),
        "stacks": sum(tensor.ndim == 3 for tensor in state.values()),
    }


@torch.no_grad()
def initial_deviations(config, model) -> dict[str, list[float]]:
    """Kind of parameter -> standard deviations that its initialisers draw in the first and the last layer.

    Of a native model alone; in the Transformers model initialisation goes by class. Large parameters are cut to 128
    along every axis, and ones are told by `` (ones)`` behind the name.
    """
    if runs_transformers(config):
        return {}
    ends = {"0", str(len(model.layers) - 1)}
    deviations: dict[str, list[float]] = {}
    for full_name, module in model.named_modules():
        layer = re.match(r"layers\.(\d+)\.", full_name)
        if layer and layer[1] not in ends:
            continue
        for name, parameter in module.named_parameters(recurse=False):
            initialise = (getattr(module, "_param_init", None) or {}).get(name)
            if initialise is None:
                deviations.setdefault(f"{full_name}.{name} (no initialiser)", []).append(float("nan"))
                continue
            fused = full_name.endswith("wqkv")  # its initialiser wants the whole shape
            tensor = torch.full([n if fused else min(n, 128) for n in parameter.shape], float("nan"))
            initialise(tensor)
            if tensor.isnan().all():
                continue  # a tied embedding, which is left to the head
            kind = re.sub(r"layers\.\d+\.", "", f"{full_name}.{name}") + " (ones)" * bool((tensor == 1).all())
            deviations.setdefault(kind, []).append(tensor.std().item())
    return deviations


def _state_names(model) -> set[str]:
    """Names in the state of the trained model; torchtitan puts its experts into a Transformers model later."""
    names = set(model.state_dict())
    for name, layer in model.named_modules():
        if swapped := getattr(layer, "_native_moe_config", None):
            with torch.device("meta"):
                inside = swapped.build().state_dict()
            names = {other for other in names if not other.startswith(f"{name}.mlp.")}
            names |= {f"{name}.mlp.{inner}" for inner in inside}
    return names


def _in_order(first: str, count: int) -> list[str]:
    """The names of ``count`` experts from 0 on, of the layer and projection of ``first``."""
    return [re.sub(r"experts\.\d+\.", f"experts.{i}.", first) for i in range(count)]


def _native_facts(model) -> dict:
    layers = list(model.layers.values())
    routers = [layer.moe.router for layer in layers if layer.moe_enabled]
    ropes = [layer.attention.rope.config for layer in layers]
    return {
        "attention scale": _single({layer.attention.scaling for layer in layers}),
        "q and k norms": _norms(layer.attention for layer in layers),
        "theta of every layer": _single({rope.theta for rope in ropes}),
        "rotary scaling": _single({rope.scaling for rope in ropes}),
        "rotary form": _single({_kind(layer.attention.rope, "CosSinRoPE") for layer in layers}),
        "layers with experts": len(routers),
        **_router_facts(routers),
        "router bias": _single({layer.moe.load_balance_coeff for layer in layers if layer.moe_enabled}),
        "shared experts": [str(i) for i, a in enumerate(layers) if a.moe_enabled and a.moe.shared_experts is not None],
    }


def _transformers_facts(model) -> dict:
    layers, config = list(model.layers), model.model.config
    moes = [moe for layer in layers if (moe := getattr(layer, "_native_moe_config", None))]
    attentions = [layer.self_attn for layer in layers]
    activations = {type(m.act_fn).__name__ for m in model.modules() if hasattr(m, "act_fn")}
    return {
        "attention scale": _single({attention.scaling for attention in attentions}),
        "q and k norms": _norms(attentions),
        "theta of every layer": _single({a.config.rope_parameters["rope_theta"] for a in attentions}),
        "rotary scaling": {"default": "none"}.get(config.rope_parameters["rope_type"], config.rope_parameters),
        "rotary form": _kind(model.rotary_emb, "Qwen3RotaryEmbedding", "Qwen3MoeRotaryEmbedding"),
        "layers with experts": len(moes),
        **_router_facts([moe.router for moe in moes]),
        "router bias": _single({moe.load_balance_coeff for moe in moes}),
        "shared experts": [str(i) for i, moe in enumerate(moes) if moe.shared_experts is not None],
        "sliding window": _single({attention.sliding_window for attention in attentions}),
        "attention dropout": _single({attention.attention_dropout for attention in attentions}),
        "activation": _single(activations),
    }


def _router_facts(routers: list) -> dict:
    return {
        "router scores": _single({router.score_func for router in routers}),
        "router scale": _single({router.route_scale for router in routers}),
        "router normalises": _single({router.route_norm for router in routers}),
        "experts per token": _single({router.top_k for router in routers}),
        "expert groups": _single({router.num_expert_groups for router in routers}),
        "router forced to balance": _single({getattr(r, "_debug_force_load_balance", False) for r in routers}),
    }


def _norms(attentions) -> tuple | list | None:
    """Elements of the norms of queries and of keys: those of one head."""
    return _single({tuple(n is not None and len(n.weight) for n in (a.q_norm, a.k_norm)) for a in attentions})


def _kind(module, *expected: str) -> str:
    """``halves`` for a rotary embedding that is, or derives from, one of ``expected``, which rotate by halves."""
    names = {kind.__name__ for kind in type(module).__mro__}
    return "halves" if names & set(expected) else type(module).__name__


def _loss_vocabulary(loss) -> int | None:
    return getattr(getattr(loss, "loss_fn", loss), "global_vocab_size", None)


def _single(values: set):
    """The one value that all share, None for none, or all of them where they differ."""
    return next(iter(values), None) if len(values) < 2 else sorted(values, key=repr)
