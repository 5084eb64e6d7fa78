"""Faults in training with the NKI kernels: in what they return there, and in how they get into the models."""

import pytest

fault = pytest.mark.fault


@pytest.fixture(autouse=True, scope="module")
def imported():
    """The kernels' modules, once for all children."""
    from trncheck.kernels import catalogue

    return [catalogue.load(name) for name in catalogue.names()]


def _wrap(owner, name: str, wrapper) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


def _become(function, other) -> None:
    """Give ``function`` the code of ``other``, whoever holds it; it sees the globals of its own module."""
    function.__code__ = other.__code__


def _spoil(direction: str, change) -> None:
    """Let ``change`` loose on the results of every launch in ``direction``."""
    from trncheck.kernels import runtime

    def launch(original, operator, of, *args, **kwargs):
        results = original(operator, of, *args, **kwargs)
        if of == direction:
            change(results)
        return results

    _wrap(runtime, "launch", launch)


def _briefly() -> None:
    """Train for two steps: the fault shows in the first."""
    from trncheck.conformance import runs, test_kernel_training, test_paths

    for module in (runs, test_kernel_training, test_paths):
        module.STEPS, module.GRADIENT_STEPS = 2, range(1, 3)


@fault(
    "kernel_training.training_executes[nki-moe-1r]",
    "never executed on rank 0 until the end of step 1: experts backward",
)
def test_experts_trained_by_torch():
    from trncheck.kernels.moe.reference import experts_reference
    from trncheck.kernels.overrides import NkiExperts

    NkiExperts.forward = lambda self, x_RD, counts_E: experts_reference(
        x_RD, counts_E, self.w1_EFD, self.w2_EDF, self.w3_EFD
    )
    _briefly()


@fault("kernel_training.training_executes[nki-moe-1r]", "'rope forward float32 simulator': 2,")
def test_rope_kernel_in_every_other_layer_alone():
    from torchtitan.models.common.rope import CosSinRoPE

    from trncheck.kernels.overrides import NkiRoPE

    kernel, calls = NkiRoPE.apply_rotary_emb, []

    def rotate(query, key, rope_cache):
        calls.append(1)
        return (kernel if len(calls) % 2 else CosSinRoPE.apply_rotary_emb)(query, key, rope_cache)

    NkiRoPE.apply_rotary_emb = staticmethod(rotate)
    _briefly()


@fault("kernel_training.switched_executes[qwen3_native_tiny_nki_rope]", "'rope forward float32 simulator': 8")
def test_rope_kernel_twice_per_layer():
    from trncheck.kernels.overrides import NkiRoPE

    rotate = NkiRoPE.apply_rotary_emb
    NkiRoPE.apply_rotary_emb = staticmethod(lambda *args: (rotate(*args), rotate(*args))[1])
    _briefly()


@fault(
    "kernel_training.switched_executes[qwen3_hf_tiny_nki_rope]",
    "kernels were asked for but model.model.layers.1.self_attn",
)
def test_one_layer_left_without_kernel():
    from trncheck.trainers import kernels

    calls = []

    def rotate(original, attention):
        calls.append(1)
        if len(calls) != 2:
            original(attention)

    _wrap(kernels, "rotate_with_kernel", rotate)
    _briefly()


@fault("kernel_training.switched_on[qwen3_moe_nki_tiny]", "step 1, gradient of experts")
def test_gradient_of_the_gate_a_thousandth_too_large():
    _spoil("backward", lambda results: results[1].mul_(1.001))
    _briefly()


@fault("kernel_training.switched_on[qwen3_native_tiny_nki_rope]", "step 1, gradient of attention")
def test_rope_backward_turns_forward():
    from trncheck.kernels import runtime

    _wrap(runtime, "launch", lambda original, *args, **kwargs: original(*args, **kwargs | {"backward": False}))
    _briefly()


@fault("kernel_training.switched_on[qwen3_hf_tiny_nki_rope]", "|difference of step-1 loss|")
def test_transformers_rope_with_cosine_and_sine_swapped():
    from trncheck.kernels.rope import layout

    def rotate(q_BHSD, k_BHSD, cos_BSD, sin_BSD):
        return _rotate(q_BHSD, k_BHSD, torch.cat((sin_BSD, cos_BSD), dim=-1))  # noqa: F821 (the layout's module has it)

    _become(layout.apply_rotary_transformers, rotate)
    _briefly()


def _without_proof() -> None:
    """Let training go on with kernels that are not attached, or never executed."""
    from trncheck.trainers import kernels, trainer

    kernels.Executions._missing = property(lambda self: set(), lambda self, value: None)
    trainer.check_attached = lambda *args: None


@fault("kernel_training.routes[overrides]", "step 1, executions on all ranks: expected")
def test_experts_of_an_override_trained_by_torch():
    test_experts_trained_by_torch()
    _without_proof()


@fault("kernel_training.routes[flags]", "step 1, executions on all ranks: expected")
def test_experts_of_a_transformers_model_not_attached():
    from trncheck.trainers import transformers_model

    _without_proof()
    _wrap(
        transformers_model,
        "attach_to_transformers",
        lambda original, layers, rope, experts: original(layers, rope=rope, experts=False),
    )


@fault("paths.gradients[nki-moe-1r]", "gradient of experts, relative error")
def test_gradient_of_w2_left_at_zero():
    _spoil("backward", lambda results: len(results) == 4 and results[2].zero_())
    _briefly()


@fault("paths.logits[nki-moe-1r]", "largest |difference|")
def test_rope_reads_the_table_one_position_off():
    from trncheck.kernels.overrides import NkiRoPE

    rotate = NkiRoPE.apply_rotary_emb
    NkiRoPE.apply_rotary_emb = staticmethod(lambda query, key, cache: rotate(query, key, cache.roll(1, dims=1)))
    _briefly()
