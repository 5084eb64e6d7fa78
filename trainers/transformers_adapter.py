"""Qwen3-MoE weights between torchtitan's Transformers backend and Hugging Face's per-expert files.

torchtitan 0.3.0's adapter for this backend only strips a prefix: loading fails on the expert bias, and its export
holds keys that Transformers cannot use.
"""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
import re
from typing import Any

from torch.distributed.tensor import DTensor
from torchtitan.models.utils import MoEStateDictAdapter

_PREFIX = "model."
_EXPERTS = re.compile(r"model\.layers\.(\d+)\.mlp\.routed_experts\.inner_experts\.(\w+)")
_HF_EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)\.weight")
_PROJECTIONS = {"w1_EFD": "gate_proj", "w3_EFD": "up_proj", "w2_EDF": "down_proj"}
_WEIGHTS = {projection: weight for weight, projection in _PROJECTIONS.items()}


class Qwen3MoeTransformersAdapter(MoEStateDictAdapter):
    """Splits the grouped experts (E, F, D) into one matrix per expert and back, and renames the router."""

    def to_hf(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """torchtitan names and grouped experts -> Hugging Face names and one matrix per expert.

        Sharded experts (DTensor) give this rank's experts, which is what the distributed writer expects.
        """
        hf_state_dict = {}
        for full_name, value in state_dict.items():
            name = full_name.removeprefix(_PREFIX)
            if match := _EXPERTS.fullmatch(name):
                hf_state_dict |= self._split(*match.groups(), value)
            elif name.endswith("mlp.router.gate.weight"):
                hf_state_dict[name.replace("mlp.router.gate", "mlp.gate")] = value
            elif not name.endswith("expert_bias_E"):
                hf_state_dict[name] = value
        if self.model_config.tie_word_embeddings:
            hf_state_dict.pop("lm_head.weight", None)
        return hf_state_dict

    def from_hf(self, hf_state_dict: dict[str, Any]) -> dict[str, Any]:
        """The inverse of ``to_hf``; a tied head is given the embedding again."""
        state_dict: dict[str, Any] = {}
        pending: dict[str, dict[str, dict[int, Any]]] = {}
        for name, value in hf_state_dict.items():
            if match := _HF_EXPERT.fullmatch(name):
                layer, expert, projection = match.groups()
                weight = _WEIGHTS[projection]
                key = _abstract(weight)
                pending.setdefault(layer, {}).setdefault(key, {})[int(expert)] = value
                grouped = self._join(pending, key, layer)
                if grouped is not None:
                    state_dict[f"{_PREFIX}model.layers.{layer}.mlp.routed_experts.inner_experts.{weight}"] = grouped
            elif name.endswith("mlp.gate.weight"):
                state_dict[_PREFIX + name.replace("mlp.gate", "mlp.router.gate")] = value
            else:
                state_dict[_PREFIX + name] = value
        if self.model_config.tie_word_embeddings:
            state_dict.setdefault(f"{_PREFIX}lm_head.weight", state_dict[f"{_PREFIX}model.embed_tokens.weight"])
        return state_dict

    def _split(self, layer: str, weight: str, grouped) -> dict[str, Any]:
        hf_key = "model.layers.{}.mlp.experts.{}." + _PROJECTIONS[weight] + ".weight"
        if not isinstance(grouped, DTensor):
            return {hf_key.format(layer, expert): matrix for expert, matrix in enumerate(grouped)}
        key = _abstract(weight)
        self.grouped_expert_weight_placements[key] = grouped.placements
        self.grouped_expert_weight_shape[key] = grouped.shape
        self.grouped_expert_weight_mesh[key] = grouped.device_mesh
        return self._get_local_experts_weights(hf_key, key, layer, grouped)

    def _join(self, pending: dict, key: str, layer: str):
        """The grouped experts of ``layer`` once all are there, else None; sharded as ``to_hf`` has found them."""
        if key in self.local_experts_indices:
            return self._concatenate_expert_weights_dtensor(pending, key, layer)
        return self._concatenate_expert_weights(pending, key, layer, self.model_config.num_experts)


def _abstract(weight: str) -> str:
    """Key of the base class' bookkeeping: one entry for all layers."""
    return f"model.layers.{{}}.mlp.experts.{weight}"
