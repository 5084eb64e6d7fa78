"""Does every catalogued kernel compute what plain torch does, forward and backward, and does it really run?"""

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case, each_case
from trncheck.conformance.compare import relative_errors
from trncheck.conformance.kernel_runs import layouts, listed, logical_cores, outputs
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
    """Outputs agree with fp64 truth as well as plain torch's of the same dtype do, on one core and on two."""
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
    """Gradients of every differentiable input agree with fp64 truth, for random upstream gradients."""
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
    """Inputs that are not differentiable get no gradient: asking for one is refused, or gives none."""
    entry = kernels.entry(kernel)
    sample = kernels.samples(kernel)[0]
    inputs = kernels.inputs(sample)
    others = [n for n, v in inputs.items() if n not in entry.differentiable and v.is_floating_point()]
    judge.equal("results need a gradient where no input does", _needs_gradient(entry, inputs, None), False)
    for name in others:
        try:
            gets_one = _needs_gradient(entry, inputs, name)
        except ValueError:
            gets_one = False
        judge.equal(f"{name} gets a gradient", gets_one, False)


@each_kernel
def test_execution(judge, kernels, kernel):
    """A call executes the forward kernel once, and its backward pass the backward kernel once."""
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
    """With what its kernels return made wrong, an operator gives wrong outputs and gradients: it uses them."""
    entry = kernels.entry(kernel)
    sample = kernels.samples(kernel)[0]
    honest = kernels.kernel(sample, kernels.degrees[-1])
    for direction in ("forward", "backward"):
        with _spoiled_launches(direction):
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
    """The operators of a forward and backward pass satisfy torch.library's own checks."""
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
    """Fake tensors come out with the shapes, strides and dtypes of the real ones, in every operator."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    for sample in kernels.samples(kernel):
        for call in kernels.recorded(sample).calls:
            with FakeTensorMode() as mode:
                fakes = call.operator(
                    *(mode.from_tensor(arg) if hasattr(arg, "stride") else arg for arg in call.before)
                )
            described = [_described(result) for result in listed(fakes)]
            judge.equal(f"{sample}, {call.operator}", described, [_described(result) for result in call.results])


@each_kernel
@pytest.mark.level("standard")
def test_mutation(judge, kernels, kernel):
    """A call changes none of its inputs, and returns no memory of theirs."""
    for sample in kernels.samples(kernel):
        for call in kernels.recorded(sample).calls:
            judge.bit_equal(f"{sample}, inputs of {call.operator}", _tensors(call.after), _tensors(call.before))
            owned = {tensor.untyped_storage().data_ptr() for tensor in _tensors(call.after).values()}
            shared = [i for i, r in enumerate(call.results) if r.untyped_storage().data_ptr() in owned]
            judge.equal(f"{sample}, {call.operator}, outputs in an input's memory", shared, [])


@each_kernel
@pytest.mark.level("standard")
def test_layouts(judge, kernels, kernel):
    """Inputs and upstream gradients in any memory layout give the same bits as contiguous ones."""
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
                    _hold_bits(judge, f"{dtype}, {name} {layout}", got, want)
            for layout in ("sliced", "transposed", "offset in its storage"):
                views = [layouts(gradient)[layout] for gradient in upstream]
                got = gradients(entry.call, inputs, entry.differentiable, views)
                _hold_bits(judge, f"{dtype}, upstream gradients {layout}", got, want)
            spread = [gradient[:1].expand_as(gradient) for gradient in upstream]
            got = gradients(entry.call, inputs, entry.differentiable, spread)
            solid = gradients(entry.call, inputs, entry.differentiable, [g.contiguous() for g in spread])
            _hold_bits(judge, f"{dtype}, upstream gradients expanded", got, solid)


@each_kernel
@pytest.mark.level("standard")
def test_repeated(judge, kernels, kernel):
    """Calls do not depend on the calls before them: other inputs give their own result, and in between change no bit."""
    for sample in kernels.samples(kernel):
        degree = kernels.degrees[-1]
        first = kernels.kernel(sample, degree)
        got, reference, truth = kernels.run(sample, degree, 1), kernels.reference(sample, 1), kernels.truth(sample, 1)
        for i, tensors in enumerate(zip(got.outputs, reference.outputs, truth.outputs, strict=True)):
            hold(judge, f"{sample}, other inputs, output {i}", *tensors)
        for name in _present(got.gradients):
            tensors = (result.gradients[name] for result in (got, reference, truth))
            hold(judge, f"{sample}, other inputs, gradient of {name}", *tensors)
        _hold_bits(judge, str(sample), kernels.run(sample, degree), first)


@each_kernel
@pytest.mark.level("standard")
def test_refused(judge, kernels, kernel):
    """Inputs beyond the documented limits are refused with a ValueError that says what is wrong."""
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
    """Training with kernels switched on gives the losses and gradients of training without, from the same weights."""
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


@each_case(where=lambda case: case.path == "nki")
def test_training_executes(judge, runs, case):
    """Every training step executes both kernels, forward and backward, once per layer and micro-batch on each rank."""
    _hold_counts(judge, runs.published(case), case, ("experts", "rope"))


@each_switched
@pytest.mark.level("standard")
def test_switched_executes(judge, runs, config):
    """Every training step executes the kernel switched on, forward and backward, once per layer and micro-batch."""
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


def _needs_gradient(entry, inputs: dict, name: str | None) -> bool:
    """Whether any result does when the input ``name`` alone does."""
    leaves = {n: value.detach().clone().requires_grad_(n == name) for n, value in inputs.items()}
    return any(result.requires_grad for result in outputs(entry.call, leaves))


def _hold_bits(judge, name, got, want) -> None:
    judge.bit_equal(f"{name}: outputs", _numbered(got.outputs), _numbered(want.outputs))
    judge.bit_equal(f"{name}: gradients", _present(got.gradients), _present(want.gradients))


def _numbered(tensors) -> dict:
    return {str(i): tensor for i, tensor in enumerate(tensors)}


def _present(tensors: dict) -> dict:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _tensors(args: tuple) -> dict:
    return {str(i): arg for i, arg in enumerate(args) if hasattr(arg, "stride")}


def _described(tensor) -> tuple:
    return tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype), tensor.device.type


def _spoiled_launches(direction: str):
    """Double whatever kernels of ``direction`` return."""
    from unittest import mock

    from trncheck.kernels import runtime

    honest = runtime.launch

    def spoiled(operator, of, *args, **kwargs):
        results = honest(operator, of, *args, **kwargs)
        if of == direction:
            for result in listed(results):
                result.mul_(2)
        return results

    return mock.patch.object(runtime, "launch", spoiled)
