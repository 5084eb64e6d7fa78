"""Faults in what real configurations build and compute, and in the names of their weights."""

import pytest
import torch

fault = pytest.mark.fault


def _wrap(owner, name: str, wrapper) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


def _change_config(name: str, change) -> None:
    """Pass what the registry's ``name`` returns through ``change(config)``."""
    from trncheck.trainers import config_registry

    def changed(original):
        config = original()
        change(config)
        return config

    _wrap(config_registry, name, changed)


def _change_layers(name: str, change) -> None:
    _change_config(name, lambda config: [change(layer) for layer in config.model_spec.model.layers])


# --- switches


@fault("fidelity.switches[qwen3_moe_30b_a3b_4layers_64experts]", "router scores: expected 'softmax', found 'sigmoid'")
def test_sigmoid_router():
    _change_layers(
        "qwen3_moe_30b_a3b_4layers_64experts", lambda layer: setattr(layer.moe.router, "score_func", "sigmoid")
    )


@fault("fidelity.switches[qwen3_moe_30b_a3b_4layers_64experts]", "router scale: expected 1.0, found 2.5")
def test_router_scale_of_another_model():
    _change_layers("qwen3_moe_30b_a3b_4layers_64experts", lambda layer: setattr(layer.moe.router, "route_scale", 2.5))


@fault("fidelity.switches[qwen3_moe_30b_a3b_4layers_64experts]", "router bias: expected None, found 0.001")
def test_trained_router_bias_left_on():
    _change_layers("qwen3_moe_30b_a3b_4layers_64experts", lambda layer: setattr(layer.moe, "load_balance_coeff", 1e-3))


@fault("fidelity.switches[qwen3_hf_0_6b]", "sliding window: expected None, found 4096")
def test_sliding_window_on():
    from transformers.models.qwen3 import modeling_qwen3

    def windowed(original, self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.sliding_window = 4096

    _wrap(modeling_qwen3.Qwen3Attention, "__init__", windowed)


@fault("fidelity.switches[qwen3_hf_0_6b]", "head is the embedding: expected True, found False")
def test_tied_head_with_a_matrix_of_its_own():
    from trncheck.trainers.transformers_model import RepairedTransformersModel

    def untied(original, self, config):
        original(self, config)
        self.lm_head.weight = torch.nn.Parameter(torch.empty_like(self.lm_head.weight))

    _wrap(RepairedTransformersModel, "__init__", untied)


@fault("fidelity.switches[qwen3_native_0_6b]", "rows of embedding and head: expected [151936, 151936]")
def test_vocabulary_padded():
    def pad(config):
        model = config.model_spec.model
        model.lm_head.out_features = model.tok_embeddings.num_embeddings = model.vocab_size = 152064

    _change_config("qwen3_native_0_6b", pad)


# --- arithmetic


@fault("fidelity.arithmetic[qwen3_native_0_6b]", "attention, relative error")
def test_norms_of_queries_and_keys_after_rotation():
    from torchtitan.models.common.attention import GQAttention

    def swapped(original, self, x_BLD, masks, positions=None):
        norms, rotate = (self.q_norm, self.k_norm), self.rope.forward
        self.q_norm = self.k_norm = torch.nn.Identity()
        self.rope.forward = lambda *heads: tuple(norm(x) for norm, x in zip(norms, rotate(*heads), strict=True))
        return original(self, x_BLD, masks, positions)

    _wrap(GQAttention, "forward", swapped)


@fault("fidelity.arithmetic[qwen3_hf_0_6b]", "attention, relative error")
def test_one_norm_over_all_heads():
    from transformers.models.qwen3 import modeling_qwen3

    def over_all(self, x_BLNH):
        deviation = torch.rsqrt(x_BLNH.square().mean((-2, -1), keepdim=True) + self.variance_epsilon)
        return self.weight * x_BLNH * deviation

    modeling_qwen3.Qwen3RMSNorm.forward = over_all


@fault("fidelity.arithmetic[qwen3_hf_0_6b]", "attention, relative error")
def test_attention_scale_not_passed_on():
    """The attention function ignores the scale and takes that of the whole width"""
    from transformers.integrations import sdpa_attention

    def unscaled(original, module, *args, scaling=None, **kwargs):
        return original(module, *args, scaling=module.config.hidden_size**-0.5, **kwargs)

    _wrap(sdpa_attention, "sdpa_attention_forward", unscaled)


@fault("fidelity.arithmetic[qwen3_moe_30b_a3b_4layers_64experts]", "attention, relative error")
def test_epsilon_of_the_query_norm():
    name = "qwen3_moe_30b_a3b_4layers_64experts"
    _change_layers(name, lambda layer: setattr(layer.attention.qk_norm, "eps", 1e-5))


@fault("fidelity.arithmetic[qwen3_hf_0_6b]", "feed_forward, relative error")
def test_gelu_for_silu():
    from transformers.models.qwen3 import modeling_qwen3

    modeling_qwen3.ACT2FN = dict(modeling_qwen3.ACT2FN.items()) | {"silu": torch.nn.GELU()}


@fault("fidelity.arithmetic[qwen3_hf_30b_a3b]", "routing, relative error")
def test_routing_weights_do_not_add_up_to_one():
    from torchtitan.models.common.moe import TokenChoiceTopKRouter

    def unnormalised(original, self, *args):
        self.route_norm = False
        return original(self, *args)

    _wrap(TokenChoiceTopKRouter, "forward", unnormalised)


# --- rotary tables


@fault("fidelity.rotary[qwen3_native_0_6b]", "rotary: error in roundings of the angle")
def test_table_in_bfloat16():
    from torchtitan.models.common.rope import CosSinRoPE

    _wrap(CosSinRoPE, "_precompute_cache", lambda original, self: original(self).bfloat16().float())


@fault("fidelity.rotary[qwen3_hf_4b_instruct_2507]", "rotary_built_in_bfloat16: error in roundings of the angle")
def test_frequencies_in_the_default_dtype():
    from transformers.models.qwen3 import modeling_qwen3

    def frequencies(config, device=None, **_):
        dim, theta = config.head_dim, config.rope_parameters["rope_theta"]
        return (1 / theta ** (torch.arange(0, dim, 2).to(torch.get_default_dtype()) / dim)).float(), 1.0

    from trncheck.trainers import transformers_model

    def unchecked(_name, module):
        module.inv_freq.copy_(frequencies(module.config)[0])

    modeling_qwen3.Qwen3RotaryEmbedding.compute_default_rope_parameters = staticmethod(frequencies)
    transformers_model.restore_rotary = unchecked


@fault("fidelity.rotary[qwen3_hf_0_6b]", "rotary: theta, relative error")
def test_theta_of_an_older_model_in_the_transformers_config():
    from trncheck.trainers.transformers_model import RepairedTransformersModel

    def older(original, self, *, config=None, **kwargs):
        original(self, config=config, **kwargs)
        self.rope_parameters = self.rope_parameters | {"rope_theta": 1e4}
        return self

    _wrap(RepairedTransformersModel.Config, "update_from_config", older)


# --- names


@fault("fidelity.names[qwen3_moe_30b_a3b_4layers_64experts]", "experts out of order")
def test_experts_sorted_as_text():
    from torchtitan.models.utils import MoEStateDictAdapter

    def as_text(original, self, by_layer, key, layer, count):
        stack = original(self, by_layer, key, layer, count)
        return stack if stack is None else stack[sorted(range(count), key=str)]

    _wrap(MoEStateDictAdapter, "_concatenate_expert_weights", as_text)


@fault("fidelity.names[qwen3_hf_30b_a3b]", "consumed other than once")
def test_router_left_out():
    from trncheck.trainers.transformers_adapter import Qwen3MoeTransformersAdapter

    def forget(original, self, tensors):
        return original(self, {name: tensor for name, tensor in tensors.items() if "layers.47.mlp.gate." not in name})

    _wrap(Qwen3MoeTransformersAdapter, "from_hf", forget)


# --- initialisers


@fault("fidelity.initialisers[qwen3_moe_30b_a3b]", "attention.wo.weight: distance from 0.002041")
def test_residual_output_drawn_like_the_rest():
    def wide(layer):
        layer.attention.wo.param_init = layer.moe.router.gate.param_init

    _change_layers("qwen3_moe_30b_a3b", wide)
