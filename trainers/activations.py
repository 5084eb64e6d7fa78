"""What leaves the modules of a model, and its gradient, under Transformers' names, whoever built the model."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

_PARTS = {
    "tok_embeddings": "embed_tokens",
    "attention_norm": "input_layernorm",
    "attention": "self_attn",
    "ffn_norm": "post_attention_layernorm",
    "feed_forward": "mlp",
    "moe": "mlp",
    "router": "gate",
}
"""Parts of torchtitan's names -> Transformers'. A Transformers model trained by torchtitan has a ``router``, too."""
_LEFT_OUT = ("model", "_checkpoint_wrapped_module", "_orig_mod")
_RECORDED = re.compile(
    r"embed_tokens|norm|lm_head"
    r"|layers\.\d+(\.(input_layernorm|self_attn(\.[qk]_norm)?|post_attention_layernorm|mlp(\.gate)?))?"
)


class Activation(NamedTuple):
    """What left one module, fp32, with the rows of all ranks and micro-batches."""

    output: torch.Tensor
    """(B, L, ...); of a router its weights (B L, E), zero for experts that were not chosen."""
    gradient: torch.Tensor | None
    """Of the loss with respect to ``output``; None where no backward pass reached it."""


class Activations:
    """Keeps what leaves the modules of ``models`` that ``common_name`` names, until it is saved."""

    def __init__(self, models: Iterable[torch.nn.Module]):
        self._outputs: dict[str, list[torch.Tensor]] = {}
        self._gradients: dict[str, list[torch.Tensor]] = {}
        for model in models:
            for name, module in model.named_modules():
                if common := common_name(name):
                    module.register_forward_hook(partial(self._note, common))

    def save(self, file: Path) -> None:
        """Write everything since the last call, and forget it."""
        tensors = {f"output {name}": torch.cat(parts) for name, parts in self._outputs.items()}
        tensors |= {f"gradient {name}": torch.cat(parts) for name, parts in self._gradients.items()}
        # Modules note their outputs in the order in which they end.
        save_file(tensors, file, {"order": json.dumps([*self._outputs])})
        self._outputs.clear()
        self._gradients.clear()

    def _note(self, name: str, _module, _args, output) -> None:
        if not torch.is_grad_enabled():
            return
        tensor, form = _routing(output) if isinstance(output, tuple) and len(output) == 3 else (output, _copy)
        tensor = tensor[0] if isinstance(tensor, tuple) else tensor
        self._outputs.setdefault(name, []).append(form(tensor))
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: self._gradients.setdefault(name, []).append(form(gradient)))


def common_name(name: str) -> str | None:
    """Transformers' name of the module that torchtitan or Transformers calls ``name``; None for one not recorded.

    ``layers.0.attention.q_norm`` -> ``layers.0.self_attn.q_norm``, ``model.norm`` -> ``norm``.
    """
    common = ".".join(_PARTS.get(part, part) for part in name.split(".") if part not in _LEFT_OUT)
    return common if _RECORDED.fullmatch(common) else None


def load(files: Sequence[Path]) -> dict[str, Activation]:
    """What ``Activations.save`` wrote on every rank, by name, in the order of execution."""
    parts: list[dict[str, torch.Tensor]] = []
    for file in files:
        with safe_open(file, "pt") as reader:
            order = json.loads(reader.metadata()["order"])
            parts.append({key: reader.get_tensor(key) for key in reader.keys()})  # noqa: SIM118 (not a dict)

    def join(key: str) -> torch.Tensor | None:
        return torch.cat([part[key] for part in parts]) if all(key in part for part in parts) else None

    return {name: Activation(join(f"output {name}"), join(f"gradient {name}")) for name in order}


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return tensor.detach().to("cpu", torch.float32, copy=True)


def _routing(output: tuple):
    """A router's weights of the chosen experts, and what puts them, or their gradients, in the order of experts.

    Transformers returns (logits, weights, experts), torchtitan (weights, experts, scores); only Transformers sorts.
    """
    experts = next(tensor for tensor in output if not tensor.is_floating_point())
    weights = next(tensor for tensor in output if tensor.is_floating_point() and tensor.shape == experts.shape)
    width = max(tensor.shape[-1] for tensor in output)
    experts_TK = _copy(experts).long().flatten(0, -2)

    def in_order(tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(experts_TK), width).scatter(1, experts_TK, _copy(tensor).flatten(0, -2))

    return weights, in_order
