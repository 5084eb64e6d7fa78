"""torchtitan's native Qwen3, built from a geometry."""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
from functools import partial

import torch.nn as nn
from torchtitan.components.optimizer import register_moe_load_balancing_hook
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.common import CosSinRoPE, Embedding, Linear
from torchtitan.models.common.config_utils import (
    get_attention_config,
    make_ffn_config,
    make_gqa_config,
    make_moe_config,
    make_routed_experts_config,
    make_router_config,
)
from torchtitan.models.common.nn_modules import RMSNorm
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.models.qwen3 import Qwen3Model, parallelize_qwen3
from torchtitan.models.qwen3.model import Qwen3TransformerBlock
from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec

from trncheck.fixtures.geometry import INITIALIZER_RANGE, Geometry

_INIT = {"weight": partial(nn.init.normal_, std=INITIALIZER_RANGE), "bias": nn.init.zeros_}


def model_spec(name: str, geometry: Geometry) -> ModelSpec:
    """The native model of ``geometry``: FlexAttention, fused QKV, every weight drawn with the published sigma 0.02.

    The router keeps no trained bias (``load_balance_coeff`` None): Qwen3 has none, and a Hugging Face export could
    not hold it.
    """
    return ModelSpec(
        name="qwen3",
        flavor=name,
        model=Qwen3Model.Config(
            vocab_size=geometry.vocab_size,
            dim=geometry.hidden_size,
            norm=_norm(geometry, geometry.hidden_size),
            enable_weight_tying=geometry.tie_word_embeddings,
            tok_embeddings=Embedding.Config(
                num_embeddings=geometry.vocab_size,
                embedding_dim=geometry.hidden_size,
                param_init={"weight": skip_param_init} if geometry.tie_word_embeddings else _INIT,
            ),
            lm_head=Linear.Config(in_features=geometry.hidden_size, out_features=geometry.vocab_size, param_init=_INIT),
            layers=[_layer(geometry) for _ in range(geometry.num_hidden_layers)],
        ),
        parallelize_fn=parallelize_qwen3,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=register_moe_load_balancing_hook,
        state_dict_adapter=Qwen3StateDictAdapter,
    )


def _norm(geometry: Geometry, dim: int) -> RMSNorm.Config:
    return RMSNorm.Config(normalized_shape=dim, eps=geometry.rms_norm_eps, param_init={"weight": nn.init.ones_})


def _layer(geometry: Geometry) -> Qwen3TransformerBlock.Config:
    dim = geometry.hidden_size
    block = partial(
        Qwen3TransformerBlock.Config,
        attention_norm=_norm(geometry, dim),
        ffn_norm=_norm(geometry, dim),
        attention=make_gqa_config(
            dim=dim,
            n_heads=geometry.num_attention_heads,
            n_kv_heads=geometry.num_key_value_heads,
            head_dim=geometry.head_dim,
            wqkv_param_init=_INIT,
            wo_param_init=_INIT,
            inner_attention=get_attention_config("flex"),
            fuse_qkv=True,
            rope=CosSinRoPE.Config(
                dim=geometry.head_dim, max_seq_len=geometry.max_position_embeddings, theta=geometry.rope_theta
            ),
            qk_norm=_norm(geometry, geometry.head_dim),
        ),
    )
    if not geometry.is_moe:
        return block(
            feed_forward=make_ffn_config(
                dim=dim, hidden_dim=geometry.intermediate_size, w1_param_init=_INIT, w2w3_param_init=_INIT
            )
        )
    moe = make_moe_config(
        load_balance_coeff=None,
        num_experts=geometry.num_experts,
        router=make_router_config(
            dim=dim,
            num_experts=geometry.num_experts,
            gate_param_init=_INIT,
            top_k=geometry.num_experts_per_tok,
            score_func="softmax",
            route_norm=True,
        ),
        routed_experts=make_routed_experts_config(
            dim=dim,
            hidden_dim=geometry.moe_intermediate_size,
            num_experts=geometry.num_experts,
            top_k=geometry.num_experts_per_tok,
            param_init=dict.fromkeys(("w1_EFD", "w2_EDF", "w3_EFD"), _INIT["weight"]),
            comm_backend="standard",
        ),
    )
    return block(moe=moe)
