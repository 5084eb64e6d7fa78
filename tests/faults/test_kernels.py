"""Faults around the NKI kernels: in their wrappers, in what they return, and in the models that train with them."""

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


def _small() -> None:
    """Look at the first shape alone, as at level smoke: there the fault shows already."""
    from trncheck.conformance.kernel_runs import KernelRuns

    every = KernelRuns.samples
    KernelRuns.samples = lambda self, kernel: [
        sample for sample in every(self, kernel) if str(sample) == "tiny float32"
    ]


def _spoil(direction: str, change) -> None:
    """Let ``change`` loose on the results of every launch in ``direction``."""
    from trncheck.kernels import runtime

    def launch(original, operator, of, *args, **kwargs):
        results = original(operator, of, *args, **kwargs)
        if of == direction:
            change(results)
        return results

    _wrap(runtime, "launch", launch)


# --- do they run, and is what they return used?


@fault("kernels.execution[rope]", "executions: expected")
def test_rope_by_reference():
    from trncheck.kernels.rope import operator

    def rope(q_BHSD, k_BHSD, cache_BSC):
        from trncheck.kernels.rope.reference import rope_reference

        return rope_reference(q_BHSD, k_BHSD, cache_BSC)

    _become(operator.rope, rope)
    _small()


@fault("kernels.execution[experts]", "found {('trncheck::experts', 'forward', 'float32'): 1}")
def test_backward_of_experts_by_reference():
    from trncheck.kernels.moe import operator

    def gradient(ctx, dout_RD, _dgate_RF, _dup_RF):
        from trncheck.kernels.moe.reference import experts_reference

        x_RD, _, _, counts_E, *weights = ctx.saved_tensors
        leaves = [part.detach().requires_grad_() for part in (x_RD, *weights)]
        with torch.enable_grad():  # noqa: F821 (the operator's module has it)
            out_RD = experts_reference(leaves[0], counts_E, *leaves[1:])
        dx_RD, *dw = torch.autograd.grad(out_RD, leaves, dout_RD)  # noqa: F821
        return dx_RD, None, *dw

    _become(operator._gradient, gradient)
    _small()


@fault("kernels.execution[experts]", "'forward', 'float32'): 2")
def test_forward_kernel_executed_twice():
    from trncheck.kernels import runtime

    def twice(original, operator, direction, *args, **kwargs):
        if direction == "forward":
            original(operator, direction, *args, **kwargs)
        return original(operator, direction, *args, **kwargs)

    _wrap(runtime, "launch", twice)
    _small()


@fault("kernels.sabotage[experts]", "outputs that did not change when the forward kernel's result did")
def test_output_of_the_forward_kernel_thrown_away():
    from trncheck.kernels.moe import operator

    def experts(x_RD, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD):
        from trncheck.kernels.moe.reference import experts_reference

        inputs = x_RD, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD
        out_RD = _experts(*inputs)[0]  # noqa: F821 (the operator's module has it)
        return out_RD + (experts_reference(*inputs) - out_RD).detach()

    _become(operator.experts, experts)


@fault("kernels.sabotage[rope]", "gradients that did not change when the backward kernel's result did")
def test_result_of_the_backward_kernel_thrown_away():
    from trncheck.kernels.rope import operator

    def backward(dq_BHSD, dk_BHSD, cache_BSC):
        from trncheck.kernels.rope.reference import rope_reference

        _launch("backward", dq_BHSD, dk_BHSD, cache_BSC)  # noqa: F821 (the operator's module has it)
        cos_BSD, sin_BSD = cache_BSC.chunk(2, dim=-1)
        return rope_reference(dq_BHSD, dk_BHSD, torch.cat([cos_BSD, -sin_BSD], dim=-1))  # noqa: F821

    _become(operator._backward, backward)


# --- what they return


@fault("kernels.forward[experts]", "output 0, worst element")
def test_two_rows_of_a_block_swapped():
    def swap(results):
        results[0][[3, 4]] = results[0][[4, 3]]

    _spoil("forward", swap)
    _small()


@fault("kernels.gradient[experts]", "gradient of w1_EFD, relative error")
def test_gradient_of_one_expert_missing():
    _spoil("backward", lambda results: results[1][1].zero_())
    _small()


@fault("kernels.gradient[experts]", "gradient of w3_EFD, relative error")
def test_gradient_of_the_expert_with_one_row_missing():
    _spoil("backward", lambda results: results[3][-1].zero_())
    _small()


@fault("kernels.gradient[rope]", "gradient of q_BHSD, worst element")
def test_one_nan_in_a_gradient():
    def poison(results):
        results[0].flatten()[-1] = float("nan")

    _spoil("backward", poison)
    _small()


# --- state that outlives a call


@fault("kernels.repeated[experts]", "gradients: 1 of 4 tensors differ: w1_EFD")
def test_gradients_of_the_call_before_added():
    kept = []

    def add(results):
        if results[1].shape == (16, 48, 64):
            now = results[1].clone()
            results[1].add_(kept.pop() if kept else 0)
            kept.append(now)

    _spoil("backward", add)
    _small()


@fault("kernels.repeated[rope]", "other inputs, output 0, relative error")
def test_results_of_the_first_call_with_these_shapes_given_again():
    from trncheck.kernels import runtime

    kept = {}

    def launch(original, operator, direction, kernel, q, *args, **kwargs):
        key = (direction, q.shape, q.dtype)
        if key not in kept:
            kept[key] = original(operator, direction, kernel, q, *args, **kwargs)
        return tuple(part.clone() for part in kept[key])

    _wrap(runtime, "launch", launch)
    _small()


# --- training


def _briefly() -> None:
    """Train for two steps: the fault shows in the first."""
    from trncheck.conformance import runs, test_kernels, test_paths

    for module in (runs, test_kernels, test_paths):
        module.STEPS, module.GRADIENT_STEPS = 2, range(1, 3)


@fault("kernels.training_executes[nki-moe-1r]", "never executed on rank 0 until the end of step 1: experts backward")
def test_experts_trained_by_torch():
    from trncheck.kernels.moe.reference import experts_reference
    from trncheck.kernels.overrides import NkiExperts

    NkiExperts.forward = lambda self, x_RD, counts_E: experts_reference(
        x_RD, counts_E, self.w1_EFD, self.w2_EDF, self.w3_EFD
    )
    _briefly()


@fault("kernels.training_executes[nki-moe-1r]", "'rope forward float32 simulator': 2,")
def test_rope_kernel_in_every_other_layer_alone():
    from torchtitan.models.common.rope import CosSinRoPE

    from trncheck.kernels.overrides import NkiRoPE

    kernel, calls = NkiRoPE.apply_rotary_emb, []

    def rotate(query, key, rope_cache):
        calls.append(1)
        return (kernel if len(calls) % 2 else CosSinRoPE.apply_rotary_emb)(query, key, rope_cache)

    NkiRoPE.apply_rotary_emb = staticmethod(rotate)
    _briefly()


@fault("kernels.switched_executes[qwen3_native_tiny_nki_rope]", "'rope forward float32 simulator': 8")
def test_rope_kernel_twice_per_layer():
    from trncheck.kernels.overrides import NkiRoPE

    rotate = NkiRoPE.apply_rotary_emb
    NkiRoPE.apply_rotary_emb = staticmethod(lambda *args: (rotate(*args), rotate(*args))[1])
    _briefly()


@fault("kernels.switched_executes[qwen3_hf_tiny_nki_rope]", "kernels were asked for but model.model.layers.1.self_attn")
def test_one_layer_left_without_kernel():
    from trncheck.trainers import kernels

    calls = []

    def rotate(original, attention):
        calls.append(1)
        if len(calls) != 2:
            original(attention)

    _wrap(kernels, "rotate_with_kernel", rotate)
    _briefly()


@fault("kernels.switched_on[qwen3_moe_nki_tiny]", "step 1, gradient of experts")
def test_gradient_of_the_gate_a_thousandth_too_large():
    _spoil("backward", lambda results: results[1].mul_(1.001))
    _briefly()


@fault("kernels.switched_on[qwen3_native_tiny_nki_rope]", "step 1, gradient of attention")
def test_rope_backward_turns_forward():
    from trncheck.kernels import runtime

    _wrap(runtime, "launch", lambda original, *args, **kwargs: original(*args, **kwargs | {"backward": False}))
    _briefly()


@fault("kernels.switched_on[qwen3_hf_tiny_nki_rope]", "|difference of step-1 loss|")
def test_transformers_rope_with_cosine_and_sine_swapped():
    from trncheck.kernels.rope import layout

    def rotate(q_BHSD, k_BHSD, cos_BSD, sin_BSD):
        return _rotate(q_BHSD, k_BHSD, torch.cat((sin_BSD, cos_BSD), dim=-1))  # noqa: F821 (the layout's module has it)

    _become(layout.apply_rotary_transformers, rotate)
    _briefly()


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
