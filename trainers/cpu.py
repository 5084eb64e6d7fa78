"""What a CPU (and torch 2.13 beside it) lacks for torchtitan's Trainer. Training on Neuron or CUDA loads none of it.

Two entry points: ``install`` sets process-wide seams before torchtitan's modules read them, ``adapt`` changes one
training configuration. Each repair is small, names its need, and ``tests/trainers/test_cpu_repairs.py`` shows that
the trainer fails without it.
"""

import functools
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
import torch.distributed
import torch.nn.functional as F

_TOO_LATE = ("torchtitan.distributed.utils", "torchtitan.components.metrics", "torchtitan.trainer")


def install() -> None:
    """Set the process-wide seams; once, and before torchtitan's trainer is imported."""
    if late := [name for name in _TOO_LATE if name in sys.modules]:
        raise RuntimeError(f"import trncheck.trainers.devices before {late[0]}, which has already read the device")
    _set_device()
    _name_set_timeout()
    _shard_without_spmd_annotations()
    _build_masks_eagerly()
    _leave_without_sleeping()


def adapt(config) -> None:
    """Change a ``Trainer.Config`` so that it runs on a CPU: SUM-only reductions, dense masks, no annotations."""
    config.model_spec.parallelize_fn = _sum_only(config.model_spec.parallelize_fn)
    _attend_with_dense_masks(config.model_spec)
    if _runs_transformers(config):
        _attend_with_dense_masks_in_transformers()
    else:
        # torch 2.13's FSDP cannot shard parameters that carry spmd_types annotations.
        config.parallelism.spmd_backend = "partial_dtensor"


def _runs_transformers(config) -> bool:
    return config.model_spec.name == "transformers_modeling_backend"


# --- process-wide


class _CpuModule(types.ModuleType):
    """``torch.cpu`` with the members that torchtitan expects of a device module."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)

    @staticmethod
    def current_device() -> int:
        return 0  # torch.cpu answers "cpu", which dist.barrier(device_ids=[...]) refuses

    @staticmethod
    def get_device_name(_device=None) -> str:
        return "cpu"

    @staticmethod
    def get_device_properties(_device=None) -> types.SimpleNamespace:
        return types.SimpleNamespace(name="cpu", total_memory=psutil.virtual_memory().total)

    @staticmethod
    def memory_stats(_device=None) -> dict:
        return {}

    @staticmethod
    def reset_peak_memory_stats(_device=None) -> None:
        pass

    @staticmethod
    def empty_cache() -> None:
        pass


def _set_device() -> None:
    import torchtitan.tools.utils

    torchtitan.tools.utils.device_type = "cpu"
    torchtitan.tools.utils.device_module = _CpuModule("trncheck_cpu")


def _name_set_timeout() -> None:
    """torchtitan 0.3.0 calls ``torch.distributed.set_timeout`` after step 1; torch 2.13 has it under a private name."""
    if not hasattr(torch.distributed, "set_timeout"):
        torch.distributed.set_timeout = torch.distributed.distributed_c10d._set_pg_timeout


def _fsdp_reads_spmd_types() -> bool:
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    return "spmd_types" in Path(_fsdp_param.__file__).read_text()


def _shard_without_spmd_annotations() -> None:
    """Give FSDP a plain one-dimensional mesh where it cannot read spmd_types annotations (torch 2.13)."""
    if _fsdp_reads_spmd_types():
        return
    from torchtitan.distributed import full_dtensor

    resolve = full_dtensor.resolve_fsdp_mesh

    @functools.wraps(resolve)
    def resolve_fsdp_mesh(parallel_dims):
        mesh, dims = resolve(parallel_dims)
        if parallel_dims.spmd_backend != "spmd_types" or dims is None:
            return mesh, dims
        if mesh.ndim != 1:
            raise ValueError(
                f"the Transformers path on torch {torch.__version__} shards over data parallel ranks only; "
                f"set tensor, context, expert and replicate degrees to 1 (mesh is {mesh})"
            )
        return mesh, None

    full_dtensor.resolve_fsdp_mesh = resolve_fsdp_mesh


def _build_masks_eagerly() -> None:
    """Compiling ``create_block_mask`` needs a C++ compiler and up to 30 s for a mask that takes microseconds."""
    from torchtitan.models.common import attention

    attention._compiled_create_block_mask = attention.create_block_mask


def _leave_without_sleeping() -> None:
    """The trainer sleeps 2 s at its end for slow ranks; one machine has none."""
    import time

    from torchtitan import trainer

    trainer.time = types.SimpleNamespace(perf_counter=time.perf_counter, monotonic=time.monotonic, sleep=lambda _: None)


# --- per configuration


def _sum_only(parallelize_fn):
    """Gloo has no PREMUL_SUM, which FSDP asks for when a gradient divide factor is set; SUM gives the same numbers."""

    @functools.wraps(parallelize_fn)
    def parallelize(model, **kwargs):
        from torch.distributed.fsdp import FSDPModule

        model = parallelize_fn(model, **kwargs)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
        return model

    return parallelize


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
        """FlexAttention's contract, computed by SDPA: flex has no backward pass on a CPU.

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
    """The same for the Transformers path, through the attention function that torchtitan registers by name."""
    from torch.nn.attention.flex_attention import BlockMask
    from torchtitan.experiments.transformers_modeling_backend.model import _ATTN_IMPLEMENTATION
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_utils import AttentionInterface

    def attend(module, query, key, value, attention_mask, **kwargs):
        if isinstance(attention_mask, BlockMask):
            attention_mask = dense_mask(attention_mask, query.shape[0], query.shape[2], query.device)
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    AttentionInterface._global_mapping[_ATTN_IMPLEMENTATION] = attend
