"""Faults around the NKI kernels: in their catalogue, in how they are launched, and in what they return."""

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


# --- are they there, and tried in the dtypes that they are for?


def _announce(change) -> None:
    """Let ``change`` loose on the entry points of kernels, as a list."""
    import importlib.metadata

    def entry_points(original, **params):
        points = original(**params)
        return change(list(points)) if params.get("group") == "trncheck.kernels" else points

    _wrap(importlib.metadata, "entry_points", entry_points)


@fault("kernels.catalogue", "kernels of the kit: 1 missing: experts")
def test_experts_not_announced():
    _announce(lambda points: [point for point in points if point.name != "experts"])


@fault("kernels.catalogue", "entry points named 'rope': expected 1, found 2")
def test_another_package_takes_the_name():
    import importlib.metadata

    another = importlib.metadata.EntryPoint("rope", "acme.rope:entry", "trncheck.kernels")
    _announce(lambda points: [*points, another])


@fault("kernels.forward[rope]", "bfloat16: inputs are float32, asked bfloat16")
def test_inputs_all_in_fp32():
    import torch

    from trncheck.kernels import catalogue

    entry = catalogue.load("rope")
    make = entry.inputs
    object.__setattr__(entry, "inputs", lambda shape, dtype, generator: make(shape, torch.float32, generator))


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


@fault("kernels.execution[experts]", "LNC 2, cores: expected {'forward': 2, 'backward': 2}, found {'forward': 1, 'b")
def test_one_core_whatever_was_asked_for():
    from trncheck.kernels import runtime

    _wrap(runtime, "launch", lambda original, *args, **kwargs: original(*args, **kwargs | {"cores": 1}))
    _small()


@fault("kernels.execution[rope]", "cores that executed nothing: expected [], found ['core 0, forward', 'core 0, back")
def test_launch_that_computes_by_reference_and_counts_itself():
    from trncheck.kernels import runtime
    from trncheck.kernels.rope.reference import rope_reference

    def simulate(kernel, cores, args, kwargs):
        q, k, *outputs = args
        results = rope_reference(q, k, kwargs["rope_cache"])
        return tuple(out.copy_(result) for out, result in zip(outputs, results, strict=True)), None

    runtime._simulate = simulate
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
    _spoil("backward", lambda results: results[3][-2].zero_())  # behind it is what rows of no expert give
    _small()


@fault("kernels.gradient[rope]", "gradient of q_BHSD, worst element")
def test_one_nan_in_a_gradient():
    def poison(results):
        results[0].flatten()[-1] = float("nan")

    _spoil("backward", poison)
    _small()


@fault("kernels.gradient[experts]", "gradient of x_RD, elements that must be zero and are not: expected 0, found 192")
def test_small_gradient_of_rows_without_an_expert():
    _spoil("backward", lambda results: results[0][-3:].add_(1e-12))
    _small()


# --- state that outlives a call


@fault("kernels.repeated[rope]", "kept while others were computed: outputs: 2 of 2 tensors differ: 0 (")
def test_outputs_in_the_memory_of_the_call_before():
    from trncheck.kernels import runtime

    kept = {}

    def launch(original, operator, direction, *args, **kwargs):
        results = original(operator, direction, *args, **kwargs)
        held = kept.setdefault((direction, args[1].shape, args[1].dtype), results)
        return tuple(old.detach().copy_(new) for old, new in zip(held, results, strict=True))

    _wrap(runtime, "launch", launch)
    _small()


@fault("kernels.repeated[experts]", "gradients: 1 of 4 tensors differ: w1_EFD")
def test_gradients_of_the_call_before_added():
    kept = []

    def add(results):
        if results[1].shape == (17, 47, 64):
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
