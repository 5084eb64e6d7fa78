"""Faults that make training start in the wrong place, or stand still."""

import re

import pytest
import torch

fault = pytest.mark.fault


def _after_load(change) -> None:
    """Call ``change(trainer)`` when weights are loaded, before the trainer looks at them."""
    from trncheck.trainers.trainer import NativeTrainer, TransformersTrainer

    for trainer in (NativeTrainer, TransformersTrainer):
        original = trainer._check_loaded

        def check(self, original=original):
            with torch.no_grad():
                change(self)
            original(self)

        trainer._check_loaded = check


@fault("losses.published_start[hf-dense-tied-1r]", "|difference of step-1 loss|")
def test_rotary_frequencies_wiped_after_load():
    def wipe(trainer):
        for module in trainer.model_parts[0].modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq.zero_()

    _after_load(wipe)


@fault("losses.published_start[native-dense-tied-1r]", "half of ln V")
def test_published_weights_not_loaded():
    from trncheck.conformance import runs

    runs._LOAD = "--checkpoint.enable"


@fault("losses.published_start[native-dense-tied-1r]", "is below one ulp, 2.38e-07, of what is compared")
def test_bar_that_fp32_cannot_meet():
    from trncheck.conformance import bars

    bars.STEP1_LOSS = bars.Bar(1e-8, "a wish")


@fault("losses.weights_loaded[hf-dense-untied-1r]", "tensors differ")
def test_published_weights_not_loaded_by_transformers_path():
    from trncheck.conformance import runs

    runs._LOAD = "--checkpoint.enable"


@fault("losses.weights_loaded[native-dense-tied-1r]", "q_norm.weight (32 of 32 elements")
def test_norm_weights_swapped():
    from torchtitan.models.qwen3 import Qwen3StateDictAdapter

    original = Qwen3StateDictAdapter.from_hf

    def swap(self, hf_state_dict):
        other = {"q_norm": "k_norm", "k_norm": "q_norm"}
        partners = {name: re.sub("[qk]_norm", lambda match: other[match[0]], name) for name in hf_state_dict}
        return original(self, {name: hf_state_dict[partner] for name, partner in partners.items()})

    Qwen3StateDictAdapter.from_hf = swap


@fault("losses.weights_loaded[hf-moe-2r]", "mlp.experts.10.")
def test_experts_sorted_as_text():
    from trncheck.trainers.transformers_adapter import Qwen3MoeTransformersAdapter

    original = Qwen3MoeTransformersAdapter._concatenate_expert_weights_dtensor

    def as_text(self, pending, key, layer):
        experts = pending[layer][key]
        pending[layer][key] = dict(zip(sorted(experts), (experts[i] for i in sorted(experts, key=str)), strict=True))
        return original(self, pending, key, layer)

    Qwen3MoeTransformersAdapter._concatenate_expert_weights_dtensor = as_text


@fault("losses.random_start[native-dense-untied-1r]", "|step-1 loss - prediction|")
def test_head_drawn_too_wide():
    from functools import partial

    from trncheck.trainers import native

    native._INIT["weight"] = partial(torch.nn.init.normal_, std=0.1)


@fault("losses.learning_random[native-moe-1r]", "first loss - mean of the last 3")
def test_learning_rate_zero():
    from trncheck.trainers import config_registry

    original = config_registry.default_adamw
    config_registry.default_adamw = lambda lr: original(lr=0.0)


@fault("losses.learning_published[hf-dense-tied-1r]", "fall of the loss of batch 1")
def test_optimizer_never_steps():
    from torchtitan.components.optimizer import OptimizersContainer

    OptimizersContainer.step = lambda self, *args, **kwargs: None


@fault("losses.finite[native-dense-tied-1r]", "holds 1 non-finite values before step 1")
def test_nan_in_one_loaded_weight():
    def poison(trainer):
        weight = trainer.model_parts[0].layers["1"].attention.wo.weight
        weight._local_tensor[0, 0] = float("nan")

    _after_load(poison)


@fault("losses.finite[native-moe-2r]", "elements that are not finite")
def test_nan_in_the_last_update():
    from trncheck.trainers.recorder import Recorder

    original = Recorder.note_step

    def poison(self):
        if self._trainer.step == 20:
            with torch.no_grad():
                self._trainer.model_parts[0].norm.weight._local_tensor[0] = float("nan")
        original(self)

    Recorder.note_step = poison


@fault("losses.full_size_random_start", "|step-1 loss - prediction|")
def test_another_model_in_place_of_the_full_size():
    from trncheck.conformance.cases import Case
    from trncheck.conformance.runs import RunBook

    RunBook.full_size = lambda self: self.random(Case("native", "dense-tied", 1))
