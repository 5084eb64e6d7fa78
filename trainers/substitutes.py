"""What stands in where a device cannot do what torchtitan asks for: dense masks for FlexAttention, SUM for PREMUL_SUM.

Devices decide what they need (``cpu``, ``neuron``); nothing here looks at the device.
"""

import functools
import time
import types
from dataclasses import dataclass

import torch
import torch.nn.functional as F

FLEX = "FlexAttention"
DENSE = "SDPA with dense masks"
"""Names of the two kinds of attention, as runs record them."""


def runs_transformers(config) -> bool:
    return config.model_spec.name == "transformers_modeling_backend"


# --- attention


def attend_with_dense_masks(config) -> None:
    """Let a ``Trainer.Config`` attend by SDPA under the same masks, evaluated for every pair of tokens."""
    build_masks_eagerly()
    _attend_with_dense_masks(config.model_spec)
    if runs_transformers(config):
        _attend_with_dense_masks_in_transformers()


def attention_of(model_parts) -> str:
    """The attention of a built model: ``FLEX``, ``DENSE`` or the name of another one's class."""
    named = [pair for model in model_parts for pair in model.named_modules()]
    if kinds := {type(module).__name__ for name, module in named if name.endswith(".inner_attention")}:
        return " and ".join(sorted(DENSE if kind == "DenseMaskAttention" else kind for kind in kinds))
    from torchtitan.experiments.transformers_modeling_backend import model

    return DENSE if hasattr(model.flex_attention_forward, "dense_masks") else FLEX


def build_masks_eagerly() -> None:
    """Compiling ``create_block_mask`` needs a compiler and up to 30 s for a mask that takes microseconds."""
    from torchtitan.models.common import attention

    attention._compiled_create_block_mask = attention.create_block_mask


def dense_mask(block_mask, batch: int, length: int, device) -> torch.Tensor:
    """The BlockMask as a boolean tensor (B, 1, L, L), True where a query may look; exact at document borders."""
    b = torch.arange(batch, device=device)[:, None, None]
    q = torch.arange(length, device=device)[None, :, None]
    kv = torch.arange(length, device=device)[None, None, :]
    head = torch.zeros((), dtype=torch.long, device=device)
    return block_mask.mask_mod(b, head, q, kv).expand(batch, length, length)[:, None]


@functools.cache
def _dense_mask_attention():
    from torchtitan.models.common.attention import FlexAttention

    class DenseMaskAttention(FlexAttention):
        """FlexAttention's contract, computed by SDPA.

        A subclass, so that the Trainer goes on building the BlockMask.
        """

        @dataclass(kw_only=True, slots=True)
        class Config(FlexAttention.Config):
            pass

        # The three names are part of the contract: torchtitan's local_map finds the inputs by name.
        def forward(self, q_BLNH, k_BLNH, v_BLNH, *, attention_masks, scale=None, enable_gqa=False, **_):
            batch, length = q_BLNH.shape[:2]
            out_BNLH = F.scaled_dot_product_attention(
                q_BLNH.transpose(1, 2),
                k_BLNH.transpose(1, 2),
                v_BLNH.transpose(1, 2),
                attn_mask=dense_mask(attention_masks, batch, length, q_BLNH.device),
                scale=scale,
                enable_gqa=enable_gqa,
            )
            return out_BNLH.transpose(1, 2)

    return DenseMaskAttention


def _attend_with_dense_masks(model_spec) -> None:
    from torchtitan.config import derive
    from torchtitan.models.common.attention import FlexAttention

    for _, attention, parent, name in list(model_spec.traverse(FlexAttention.Config)):
        setattr(parent, name, derive(attention, _dense_mask_attention().Config))


def _attend_with_dense_masks_in_transformers() -> None:
    """The same for the Transformers path, where torchtitan calls Transformers' FlexAttention by name.

    There tensors are this rank's own, whatever the parallelism.
    """
    from torchtitan.experiments.transformers_modeling_backend import model
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def attend(module, query, key, value, attention_mask, **kwargs):
        mask = dense_mask(attention_mask, query.shape[0], query.shape[2], query.device)
        return sdpa_attention_forward(module, query, key, value, mask, **kwargs)

    attend.dense_masks = True
    model.flex_attention_forward = attend


# --- reductions


def sum_only(parallelize_fn):
    """For process groups without PREMUL_SUM, which FSDP asks for when a gradient divide factor is set.

    SUM gives the same numbers. Returns ``parallelize_fn``, followed by what switches FSDP to it.
    """

    @functools.wraps(parallelize_fn)
    def parallelize(model, **kwargs):
        from torch.distributed.fsdp import FSDPModule

        model = parallelize_fn(model, **kwargs)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
        return model

    return parallelize


# --- the end


def leave_without_sleeping() -> None:
    """The trainer sleeps 2 s at its end for slow ranks; one machine without a device has none."""
    from torchtitan import trainer

    trainer.time = types.SimpleNamespace(perf_counter=time.perf_counter, monotonic=time.monotonic, sleep=lambda _: None)
