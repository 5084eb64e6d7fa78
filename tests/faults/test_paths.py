"""Faults that make one path compute something else than the others."""

import pytest
import torch

fault = pytest.mark.fault


def _wrap(owner, name: str, wrapper) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


@fault("paths.batch[native-dense-tied-2r]", "input as the corpus has it")
def test_rows_in_reverse_order():
    from types import SimpleNamespace

    from trncheck.fixtures import corpus
    from trncheck.trainers import data

    data.corpus = SimpleNamespace(rows=lambda *args: corpus.rows(*args)[::-1])


@fault("paths.batch[native-moe-1r]", "labels as the corpus has it")
def test_labels_cross_documents():
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataset

    def shifted(original, self):
        for inputs, labels in original(self):
            yield inputs, torch.cat([labels[1:], labels[:1]])

    _wrap(HuggingFaceTextDataset, "__iter__", shifted)


@fault("paths.logits[native-dense-tied-1r]", "largest |difference|")
def test_wrong_rotary_base():
    from trncheck.trainers.trainer import NativeTrainer

    def build(original, self, config):
        for layer in config.model_spec.model.layers:
            layer.attention.rope.theta = 1e4
        original(self, config)

    _wrap(NativeTrainer, "__init__", build)


@fault("paths.logits[hf-dense-tied-1r]", "largest |difference|")
def test_documents_see_each_other():
    from trncheck.trainers import substitutes

    def causal(_original, block_mask, batch, length, device):
        return torch.ones(batch, 1, length, length, dtype=torch.bool, device=device).tril()

    _wrap(substitutes, "dense_mask", causal)


@fault("paths.gradients[native-dense-tied-1r]", "gradient of embedding")
def test_head_and_embedding_untied():
    from torchtitan.models.qwen3 import Qwen3Model

    def untie(original, self, config):
        original(self, config)
        self.enable_weight_tying = False
        self.tok_embeddings.weight = torch.nn.Parameter(torch.empty_like(self.lm_head.weight))

    _wrap(Qwen3Model, "__init__", untie)


@fault("paths.gradients[native-moe-2r]", "relative error")
def test_gradients_doubled_on_two_ranks():
    from torch.distributed.fsdp import FSDPModule

    from trncheck.trainers import substitutes

    def doubled(original, parallelize_fn):
        def parallelize(model, **kwargs):
            model = original(parallelize_fn)(model, **kwargs)
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.set_gradient_divide_factor(0.5)
            return model

        return parallelize

    _wrap(substitutes, "sum_only", doubled)


@fault("paths.clipping[native-moe-2r]", "clipped gradient of")
def test_every_rank_clips_by_its_own_norm():
    from torch.distributed.tensor import DTensor
    from torchtitan.distributed import utils

    def by_own_norm(original, parameters, max_norm, **kwargs):
        total = original(parameters, 1e9, **kwargs)
        gradients = [p.grad._local_tensor if isinstance(p.grad, DTensor) else p.grad for p in parameters]
        own = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.mul_(min(1.0, max_norm / own.item()))
        return total

    _wrap(utils, "clip_grad_norm_", by_own_norm)


@fault("paths.update[native-dense-tied-1r]", "update of")
def test_optimizer_with_another_epsilon():
    from trncheck.trainers import config_registry

    _wrap(config_registry, "default_adamw", lambda original, **kwargs: original(**kwargs, eps=1e-4))


@fault("paths.trajectory[hf-dense-tied-1r]", "largest |difference of loss|")
def test_moments_forgotten_after_every_step():
    from torchtitan.components.optimizer import OptimizersContainer

    def forget(original, self, *args, **kwargs):
        for optimizer in self.optimizers:
            optimizer.state.clear()
        return original(self, *args, **kwargs)

    _wrap(OptimizersContainer, "step", forget)


@fault("paths.stock_experts", "|difference of step-1 loss|")
def test_gate_and_up_swapped():
    from torchtitan.models.common.moe import GroupedExperts

    def swapped(original, self, *args):
        w1, w3 = self._parameters["w1_EFD"], self._parameters["w3_EFD"]
        self._parameters |= {"w1_EFD": w3, "w3_EFD": w1}
        try:
            return original(self, *args)
        finally:
            self._parameters |= {"w1_EFD": w1, "w3_EFD": w3}

    _wrap(GroupedExperts, "forward", swapped)


@fault("paths.torchrun", "loss of step 1")
def test_torchrun_reads_another_corpus():
    from trncheck.trainers import launch

    _wrap(launch, "_torchrun", lambda original, flags, *rest: original([*flags, "--dataloader.seed", "1"], *rest))


@fault("paths.geometry[qwen3_native_0_6b]", "num_attention_heads: expected 16, found 32")
def test_registry_entry_with_another_models_heads():
    from torchtitan.models import qwen3

    qwen3.qwen3_configs["0.6B"] = lambda attn_backend: _with_heads(attn_backend, 32)


def _with_heads(attn_backend: str, heads: int):
    from torchtitan.models.qwen3 import _0_6b, _build_qwen3_layers

    model = _0_6b(attn_backend)
    sizes = {"n_layers": 28, "dim": 1024, "n_kv_heads": 8, "head_dim": 128, "hidden_dim": 3072}
    rope = model.layers[0].attention.rope
    model.layers = _build_qwen3_layers(n_heads=heads, attn_backend=attn_backend, rope=rope, **sizes)
    return model


@fault("paths.watch_rotary", "the backend moved")
def test_stock_backend_fails_in_a_new_way():
    _stock_backend_fails()


@fault("paths.watch_moe_start", "the backend moved")
def test_stock_moe_start_fails_in_a_new_way():
    _stock_backend_fails()


@fault("paths.watch_moe_export", "the backend moved")
def test_stock_moe_export_fails_in_a_new_way():
    _stock_backend_fails()


def _stock_backend_fails() -> None:
    from trncheck.trainers.stock import PoisonedModel

    def fail(_original, self, **kwargs):
        raise RuntimeError("the backend moved")

    _wrap(PoisonedModel, "to_empty", fail)
