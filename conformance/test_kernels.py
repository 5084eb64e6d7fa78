"""Does every catalogued kernel compute what plain torch does, forward and backward, and does it really run?"""

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case, each_case
from trncheck.conformance.compare import relative_errors
from trncheck.conformance.kernel_compare import hold_bits, layout_of, needs_gradient, present, sabotaged, tensors_of
from trncheck.conformance.kernel_runs import layouts, listed, logical_cores
from trncheck.conformance.localise import say_where
from trncheck.conformance.parity import hold
from trncheck.conformance.runs import GRADIENT_STEPS, STEPS
from trncheck.fixtures.geometry import TINY
from trncheck.kernels import catalogue

SWITCHED = {
    "qwen3_moe_nki_tiny": (Case("native", "moe", 1), ("experts",)),
    "qwen3_native_tiny_nki_rope": (Case("native", "dense-tied", 1), ("rope",)),
    "qwen3_hf_tiny_nki_rope": (Case("hf", "dense-tied", 1), ("rope",)),
}
"""Configuration -> the same without kernels, and the kernels that it switches on."""

each_kernel = pytest.mark.parametrize("kernel", catalogue.names())
each_switched = pytest.mark.parametrize("config", SWITCHED)


@each_kernel
def test_forward(judge, kernels, kernel):
    """Outputs agree with fp64 truth as well as plain torch's of the same dtype do, on one core and on two.

    Why: One element was about twice too large, and the tolerance was raised for it
    (https://github.com/ROCm/rocm-libraries/pull/8043); an absolute tolerance failed kernels that were right
    (https://github.com/sgl-project/sglang/pull/35795). So the bar is plain torch's own error, with a cap on the worst
    element.
    Reading a failure: Relative error tells of the whole, the worst element of one row; its index says where. Red in
    bfloat16 alone is a sum in too low a precision. A message of the simulator (partition, capacity, barrier) is what
    hardware would refuse. Green in a simulator is not green on hardware
    (https://github.com/aws-neuron/aws-neuron-sdk/issues/1138).
    """
    judge.note("kernel from", kernels.entry(kernel).provider())
    for sample in kernels.samples(kernel):
        truth, reference = kernels.truth(sample).outputs, kernels.reference(sample).outputs
        for degree in kernels.degrees:
            got = kernels.kernel(sample, degree).outputs
            judge.equal(f"{sample}, outputs", len(got), len(truth))
            for i, tensors in enumerate(zip(got, reference, truth, strict=False)):
                hold(judge, f"{sample}, LNC {degree}, output {i}", *tensors)


@each_kernel
def test_gradient(judge, kernels, kernel):
    """Gradients of every differentiable input agree with fp64 truth, for random upstream gradients.

    Why: Operators were registered for the forward pass and forgotten for the backward one
    (https://github.com/tile-ai/TileOPs/issues/648). Upstream gradients are random, because ones hide sums over the
    wrong axis.
    Reading a failure: A missing input has no gradient at all: look at the registration. One gradient red points to its
    product in the backward kernel; all of them to what the forward pass saved.
    """
    wanted = kernels.entry(kernel).differentiable
    for sample in kernels.samples(kernel):
        truth, reference = kernels.truth(sample).gradients, kernels.reference(sample).gradients
        for degree in kernels.degrees:
            got = kernels.kernel(sample, degree).gradients
            have = {name for name, value in got.items() if value is not None}
            judge.same_names(f"{sample}, LNC {degree}, inputs with a gradient", have, wanted)
            for name in have & {*wanted}:
                hold(judge, f"{sample}, LNC {degree}, gradient of {name}", got[name], reference[name], truth[name])


@each_kernel
def test_no_other_gradient(judge, kernels, kernel):
    """Inputs that are not differentiable get no gradient: asking for one is refused, or gives none.

    Why: A gradient for a table or an index is memory that nobody asked for, or a value that nobody checks. A result
    that needs a gradient where no input does keeps graphs alive.
    Reading a failure: The message names the input. Mark it as not differentiable in the operator, or make it
    differentiable in the entry.
    """
    entry = kernels.entry(kernel)
    sample = kernels.samples(kernel)[0]
    inputs = kernels.inputs(sample)
    others = [n for n, v in inputs.items() if n not in entry.differentiable and v.is_floating_point()]
    judge.equal("results need a gradient where no input does", needs_gradient(entry, inputs, None), False)
    for name in others:
        try:
            gets_one = needs_gradient(entry, inputs, name)
        except ValueError:
            gets_one = False
        judge.equal(f"{name} gets a gradient", gets_one, False)


@each_kernel
def test_execution(judge, kernels, kernel):
    """A call executes the forward kernel once, and its backward pass the backward kernel once.

    Why: "Use kernels" was accepted and replaced nothing (https://github.com/huggingface/transformers/pull/46755).
    Parity cannot see that: plain torch agrees with plain torch.
    Reading a failure: Expected and found are executions by operator, direction and dtype. None is a fallback; two are a
    call made twice; another dtype is a cast on the way.
    """
    entry = kernels.entry(kernel)
    for sample in kernels.samples(kernel):
        counted = kernels.recorded(sample).executions
        seen = {(key.operator, key.direction, key.dtype): n for key, n in counted.items()}
        wanted = {(entry.operator, direction, sample.dtype): 1 for direction in ("forward", "backward")}
        judge.equal(f"{sample}, executions", seen, wanted)
        names = {f"{kernel} {key.direction} {key.dtype} {key.backend}": n for key, n in counted.items()}
        judge.executed(f"catalogue: {sample}", names)


@each_kernel
def test_sabotage(judge, kernels, kernel):
    """With what its kernels return made wrong, an operator gives wrong outputs and gradients: it uses them.

    Why: A kernel that runs, and whose result is thrown away, is counted like any other. Results that do not change when
    the kernel is made wrong come from elsewhere (as in https://github.com/huggingface/transformers/pull/46755).
    Reading a failure: The message lists outputs, or gradients, that do not depend on the kernel. Look for a reference
    that the operator computes beside it.
    """
    entry = kernels.entry(kernel)
    sample = kernels.samples(kernel)[0]
    honest = kernels.kernel(sample, kernels.degrees[-1])
    for direction in ("forward", "backward"):
        with sabotaged(direction):
            spoiled = kernels.run(sample, kernels.degrees[-1])
        if direction == "forward":
            same = [i for i, (a, b) in enumerate(zip(spoiled.outputs, honest.outputs, strict=True)) if a.equal(b)]
            judge.equal(
                "outputs that did not change when the forward kernel's result did",
                same,
                [],
                elements=len(honest.outputs),
            )
        else:
            same = [n for n, gradient in spoiled.gradients.items() if gradient.equal(honest.gradients[n])]
            judge.equal(
                "gradients that did not change when the backward kernel's result did",
                same,
                [],
                elements=len(honest.gradients),
            )
    judge.note("operator", entry.operator)


@each_kernel
@pytest.mark.level("standard")
def test_registration(judge, kernels, kernel):
    """The operators of a forward and backward pass satisfy torch.library's own checks.

    Why: A schema that hides a write gives other results when compiled than eager
    (https://github.com/pytorch/pytorch/issues/130487).
    Reading a failure: The name is that of a test of torch.library.opcheck: schema, autograd, fake tensors or dispatch.
    Run opcheck on that operator by hand for the whole trace.
    """
    import torch

    calls = kernels.recorded(kernels.samples(kernel)[0]).calls
    if not calls:
        judge.fail("no operator of the entry's namespace was called")
    for call in calls:
        for name, verdict in torch.library.opcheck(call.operator, call.before, raise_exception=False).items():
            judge.equal(f"{call.operator}, {name}", str(verdict).splitlines()[0], "SUCCESS")


@each_kernel
@pytest.mark.level("standard")
def test_fake(judge, kernels, kernel):
    """Fake tensors come out with the shapes, strides and dtypes of the real ones, in every operator.

    Why: Nobody checks a fake implementation before the first compilation, which then fails
    (https://github.com/pytorch/pytorch/issues/181851).
    Reading a failure: Found is what fake tensors gave, expected what the kernel gave: shape, stride, dtype, device.
    Mend the fake implementation.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    for sample in kernels.samples(kernel):
        for call in kernels.recorded(sample).calls:
            with FakeTensorMode() as mode:
                fakes = call.operator(
                    *(mode.from_tensor(arg) if hasattr(arg, "stride") else arg for arg in call.before)
                )
            described = [layout_of(result) for result in listed(fakes)]
            judge.equal(f"{sample}, {call.operator}", described, [layout_of(result) for result in call.results])


@each_kernel
@pytest.mark.level("standard")
def test_mutation(judge, kernels, kernel):
    """A call changes none of its inputs, and returns no memory of theirs.

    Why: A write that is not declared gives wrong results when compiled
    (https://github.com/pytorch/pytorch/issues/130487); an output that was a view of an input in the branch without
    padding crashed later (https://github.com/vllm-project/vllm/pull/44130).
    Reading a failure: The message names the operator, and the inputs that changed or the outputs that lie in their
    memory. Copy before writing; return fresh memory.
    """
    for sample in kernels.samples(kernel):
        for call in kernels.recorded(sample).calls:
            judge.bit_equal(f"{sample}, inputs of {call.operator}", tensors_of(call.after), tensors_of(call.before))
            owned = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(call.after).values()}
            shared = [i for i, r in enumerate(call.results) if r.untyped_storage().data_ptr() in owned]
            judge.equal(f"{sample}, {call.operator}, outputs in an input's memory", shared, [])


@each_kernel
@pytest.mark.level("standard")
def test_layouts(judge, kernels, kernel):
    """Inputs and upstream gradients in any memory layout give the same bits as contiguous ones.

    Why: A backward pass read strided memory as if it were contiguous, under a forward pass that was right
    (https://github.com/ByteDance-Seed/VeOmni/pull/958); the gradient of a sum has one element, and was read past its
    end (https://github.com/ROCm/TransformerEngine/pull/623).
    Reading a failure: The message names the tensor and its layout. Make it contiguous before the launch, in the
    direction that is red.
    """
    from trncheck.conformance.kernel_runs import gradients

    entry = kernels.entry(kernel)
    for dtype in entry.dtypes:
        sample = next(s for s in kernels.samples(kernel) if s.dtype == dtype)
        inputs, upstream = kernels.inputs(sample), kernels.upstream(sample)
        with logical_cores(kernels.degrees[-1]):
            want = gradients(entry.call, inputs, entry.differentiable, upstream)
            for name, value in inputs.items():
                for layout, view in layouts(value).items():
                    got = gradients(entry.call, inputs | {name: view}, entry.differentiable, upstream)
                    hold_bits(judge, f"{dtype}, {name} {layout}", got, want)
            for layout in ("sliced", "transposed", "offset in its storage"):
                views = [layouts(gradient)[layout] for gradient in upstream]
                got = gradients(entry.call, inputs, entry.differentiable, views)
                hold_bits(judge, f"{dtype}, upstream gradients {layout}", got, want)
            spread = [gradient[:1].expand_as(gradient) for gradient in upstream]
            got = gradients(entry.call, inputs, entry.differentiable, spread)
            solid = gradients(entry.call, inputs, entry.differentiable, [g.contiguous() for g in spread])
            hold_bits(judge, f"{dtype}, upstream gradients expanded", got, solid)


@each_kernel
@pytest.mark.level("standard")
def test_repeated(judge, kernels, kernel):
    """Calls do not depend on the calls before them: other inputs get their own result, and change no bit later.

    Why: The second call of a kernel crashed, because the first had changed the kernel object
    (https://github.com/aws-neuron/nkipy/issues/21).
    Reading a failure: Bits that change between equal calls are state or memory that was not written. Other inputs that
    give the old result are a cache with too short a key.
    """
    for sample in kernels.samples(kernel):
        degree = kernels.degrees[-1]
        first = kernels.kernel(sample, degree)
        got, reference, truth = kernels.run(sample, degree, 1), kernels.reference(sample, 1), kernels.truth(sample, 1)
        for i, tensors in enumerate(zip(got.outputs, reference.outputs, truth.outputs, strict=True)):
            hold(judge, f"{sample}, other inputs, output {i}", *tensors)
        for name in present(got.gradients):
            tensors = (result.gradients[name] for result in (got, reference, truth))
            hold(judge, f"{sample}, other inputs, gradient of {name}", *tensors)
        hold_bits(judge, str(sample), kernels.run(sample, degree), first)


@each_kernel
@pytest.mark.level("standard")
def test_refused(judge, kernels, kernel):
    """Inputs beyond the documented limits are refused with a ValueError that says what is wrong.

    Why: An attention kernel that was right in bf16 took fp32 as well and did not match
    (https://github.com/aws-neuron/neuronx-distributed/issues/43). What a kernel cannot do it has to refuse.
    Reading a failure: `accepted` means that the operator computed something. Another text means that the error does not
    say what is wrong.
    """
    entry = kernels.entry(kernel)
    inputs = kernels.inputs(kernels.samples(kernel)[0])
    for name, refusal in entry.refused.items():
        try:
            entry.call(**refusal.change(dict(inputs)))
        except ValueError as error:
            judge.equal(f"{name}: {refusal.says!r} in {str(error)!r}", refusal.says in str(error), True)
        else:
            judge.fail(f"{name}: accepted")


@each_switched
@pytest.mark.level("standard")
def test_switched_on(judge, runs, config):
    """Training with kernels switched on gives the losses and gradients of training without, from the same weights.

    Why: A fusion was tested on a model without QK-norm, and Qwen3 came out uncorrelated
    (https://github.com/tenstorrent/tt-mlir/pull/9042). So kernels are judged in the model too.
    Reading a failure: If the kernel's own checks are green, the fault is in how it is wired: `starts at` names the
    module. A first step that agrees, with later ones that do not, is a gradient.
    """
    case, _ = SWITCHED[config]
    on, off = runs.switched(config, case.model), runs.published(case)
    judge.equal("steps", (len(on.losses), len(off.losses)), (STEPS, STEPS))
    gaps = [abs(a - b) for a, b in zip(on.losses, off.losses, strict=False)]
    judge.at_most("|difference of step-1 loss|", gaps[0], bars.STEP1_LOSS)
    judge.at_most(f"largest |difference of loss| in {STEPS} steps", max(gaps), bars.TRAJECTORY, elements=STEPS)
    for step in GRADIENT_STEPS:
        got, want = on.gradients(step), off.gradients(step)
        judge.same_names(f"step {step}, parameters with a gradient", got, want)
        for group, (error, name, elements) in relative_errors(got, want).items():
            bar = bars.GRADIENT if step == 1 else bars.SWITCHED_GRADIENT
            judge.at_most(f"step {step}, gradient of {group} ({name})", error, bar, elements=elements)
    say_where(judge, lambda: runs.activations(case, config), lambda: runs.activations(case), "the run without kernels")


@each_case(where=lambda case: case.path == "nki")
def test_training_executes(judge, runs, case):
    """Every training step executes both kernels, forward and backward, once per layer and micro-batch on each rank.

    Why: A kernel without a backward pass falls back in training, silently
    (https://github.com/huggingface/transformers/pull/46755).
    Reading a failure: Counts are per step, over all ranks. Zero is a fallback; half is one layer, one micro-batch or
    one rank without the kernel.
    """
    _hold_counts(judge, runs.published(case), case, ("experts", "rope"))


@each_switched
@pytest.mark.level("standard")
def test_switched_executes(judge, runs, config):
    """Every training step executes the kernel switched on, forward and backward, once per layer and micro-batch.

    Why: A patch that came after the model was built changed nothing, or some layers alone
    (https://github.com/linkedin/Liger-Kernel/pull/170).
    Reading a failure: Zero means that the override did not reach the model; a part of the count, that it reached some
    layers.
    """
    case, kernels_on = SWITCHED[config]
    _hold_counts(judge, runs.switched(config, case.model), case, kernels_on, config)


def _hold_counts(judge, run, case: Case, kernels_on: tuple[str, ...], config: str = "") -> None:
    """Both micro-batches of the global batch pass every layer, on one rank or one on each of two."""
    from trncheck.kernels import runtime

    wanted = {
        f"{kernel} {direction} float32 {runtime.cpu_backend()}": TINY[case.model].num_hidden_layers * 2
        for kernel in kernels_on
        for direction in ("forward", "backward")
    }
    for step, counts in enumerate(run.kernel_counts, start=1):
        judge.equal(f"step {step}, executions on all ranks", counts, wanted)
    judge.equal("steps", len(run.kernel_counts), STEPS)
    total = {name: sum(counts.get(name, 0) for counts in run.kernel_counts) for name in wanted}
    judge.executed(f"{config or case.config}, {STEPS} steps, {case.ranks} rank{'s' * (case.ranks > 1)}", total)
