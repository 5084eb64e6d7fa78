"""torchtitan's Transformers backend, repaired for Transformers 5.16.

Stock torchtitan 0.3.0 builds the model on the meta device and fills it again, but misses three things: the rotary
frequencies, which Transformers 5 no longer offers under the name that torchtitan asks for (upstream issue 4783);
the MoE modules that it swaps in and then empties; and the expert weights' names. Only the last fails loudly. The
first two are repaired here, the names in ``transformers_adapter``. Every repair checks that it took effect.

It also gives every rank all experts of all layers in host memory, only to empty them later; here they stay on the meta
device, from which FSDP need not move them. To a device that comes with a package of its own it could not.
"""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
import functools
from dataclasses import asdict, dataclass

import torch
from torch.distributed.tensor import DTensor
from torchtitan.experiments.transformers_modeling_backend import (
    HFTransformerModel,
    TitanModelConfig,
    TitanMoeModelConfig,
    model_registry,
    moe_replacement,
)
from torchtitan.models.common.moe import MoE
from torchtitan.protocols.model_spec import ModelSpec

from trncheck.trainers.experts import same_dtype
from trncheck.trainers.kernels import attach_to_transformers
from trncheck.trainers.transformers_adapter import Qwen3MoeTransformersAdapter


class RepairedTransformersModel(HFTransformerModel):
    """``HFTransformerModel`` whose buffers and MoE modules are initialised after materialisation."""

    @dataclass(kw_only=True, slots=True, init=False)
    class Config(HFTransformerModel.Config):
        # Transformers wraps the constructor of every subclass that does not define one, and the wrapper wants fields.
        def __init__(self, model_config, **kwargs):
            HFTransformerModel.Config.__init__(self, model_config, **kwargs)

        def update_from_config(self, *, config=None, **kwargs):
            self.same_dtype_experts = config.training.mixed_precision_param == "float32"
            self.kernels = asdict(config.kernels)
            return HFTransformerModel.Config.update_from_config(self, config=config, **kwargs)

    def __init__(self, config: Config):
        super().__init__(config)
        if config.same_dtype_experts:
            for layer in self.layers:
                if moe := getattr(layer, "_native_moe_config", None):
                    moe.routed_experts.inner_experts = same_dtype(moe.routed_experts.inner_experts)
        attach_to_transformers(self.layers, **config.kernels)

    def init_states(self, *, buffer_device: torch.device | None = None) -> None:
        moe_modules = [module for module in self.modules() if isinstance(module, MoE)]
        for moe in moe_modules:
            _fill_with_nan(moe)
        super().init_states(buffer_device=buffer_device)
        for moe in moe_modules:
            moe.init_states(buffer_device=buffer_device)
        for name, module in self.named_modules():
            if hasattr(module, "inv_freq"):
                restore_rotary(name, module)
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            if tensor.is_floating_point() and not _local(tensor).isfinite().all():
                raise RuntimeError(f"{name} was left uninitialised by the Transformers path's random start")


def restore_rotary(name: str, module) -> None:
    """Recompute a rotary module's frequencies, and check them against theta^(-2i/d) in fp64.

    Only the default rotary type is restored; Qwen3 is published with it.
    """
    parameters = module.config.rope_parameters
    if parameters["rope_type"] != "default":
        raise ValueError(f"{name}: rope_type {parameters['rope_type']!r} is not supported, only 'default'")
    inv_freq, module.attention_scaling = module.compute_default_rope_parameters(module.config, module.inv_freq.device)
    for buffer in (module.inv_freq, module.original_inv_freq):
        buffer.copy_(inv_freq)
    dim = module.config.head_dim
    exact = parameters["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    error = (module.inv_freq.double().cpu() / exact - 1).abs().max().item()
    if not error < 1e-6:
        raise RuntimeError(f"{name}: rotary frequencies are off by a factor of up to {error:.1e} after their repair")


def model_spec(*, moe: bool) -> ModelSpec:
    """The Transformers model of ``hf_assets_path``, masked per document.

    Architecture and sizes come from the folder's config.json. The router keeps no trained bias, as in ``native``.
    """
    spec = model_registry("full_moe" if moe else "full")
    sizes = TitanMoeModelConfig(load_balance_coeff=None) if moe else TitanModelConfig()
    sizes.attn_mask_type = "block_causal"
    spec.model = RepairedTransformersModel.Config(model_config=sizes)
    if moe:
        spec.parallelize_fn = _with_experts_on_meta(spec.parallelize_fn)
        spec.state_dict_adapter = Qwen3MoeTransformersAdapter
    return spec


class _MetaMoE(moe_replacement._HFContiguousMoE):
    """Stays on the meta device while torchtitan builds it; the Trainer materialises it with the rest of the model."""

    def to_empty(self, *, device, recurse: bool = True):
        return self

    def init_states(self, *, buffer_device: torch.device | None = None) -> None:
        if not any(parameter.is_meta for parameter in self.parameters()):
            super().init_states(buffer_device=buffer_device)


def _with_experts_on_meta(parallelize_fn):
    """``parallelize_fn`` of the Transformers backend, in which what is swapped in is a ``_MetaMoE``."""

    @functools.wraps(parallelize_fn)
    def parallelize(model, **kwargs):
        stock = moe_replacement._HFContiguousMoE
        moe_replacement._HFContiguousMoE = _MetaMoE
        try:
            return parallelize_fn(model, **kwargs)
        finally:
            moe_replacement._HFContiguousMoE = stock

    return parallelize


def _fill_with_nan(module: torch.nn.Module) -> None:
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            _local(tensor).fill_(float("nan"))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor
