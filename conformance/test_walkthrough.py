"""The walkthrough's three paths at their published sizes on a whole trn2.48xlarge, and its published numbers."""

import math
from collections import Counter
from collections.abc import Callable

import pytest

from trncheck.conformance import bars
from trncheck.conformance.hardware import JOBS, STEPS
from trncheck.conformance.random_starts import head_std
from trncheck.reports.schema import Curve, Expectation

pytestmark = [pytest.mark.trn2, pytest.mark.cores(64)]

_MEASURED: dict[str, Callable] = {
    "step1_loss_published_weights": lambda instance, _: instance.published_start(JOBS["hf-4b"]).losses[0],
    "step1_loss_random_init": lambda instance, _: instance.random_start(JOBS["hf-4b"]).losses[0],
    "reload_missing_or_unexpected_keys": lambda instance, reloader: float(
        sum(len(reloader.keys(instance.random_start(JOBS["hf-4b"]).export)[kind]) for kind in KEYS[:2])
    ),
}
"""How the expectations of the manifests are measured, by name."""
KEYS = ("missing_keys", "unexpected_keys", "mismatched_keys")

DENSE = [job for job in JOBS.values() if job.path != "nki"]
MOE = JOBS["moe-4layers-64experts"]

each_job = pytest.mark.parametrize("job", JOBS.values(), ids=str)
each_dense = pytest.mark.parametrize("job", DENSE, ids=str)


@each_job
@pytest.mark.level("standard")
@pytest.mark.minutes(20)
def test_random_start(judge, instance, job):
    """From random initialisation each path starts at ln V + D sigma^2 / 2 and stays finite for five steps.

    Why: The published start of the 4B model, 12.43, is this formula with its sizes. A start that depends on the number
    of ranks is an initialisation that sharding breaks (https://github.com/pytorch/torchtitan/issues/1879), and at 64
    ranks nothing smaller shows it.

    Red when: the loss of step 1 is not what the scheme predicts, or a loss or gradient norm is not finite.

    Reading a failure: The tiny runs of `losses.random_start` on the same device say whether size matters. Above the
    prediction the head is drawn too wide; exactly ln V means logits of zero; NaN comes from a kernel or a collective.
    """
    run = instance.random_start(job)
    geometry = instance.shape(job).geometry
    judge.equal("steps", len(run.losses), STEPS)
    for step in run.steps:
        finite = math.isfinite(step.loss) and math.isfinite(step.grad_norm)
        judge.equal(f"step {step.step}: loss and gradient norm are finite", finite, True, elements=2)
    batch = run.batch(1)
    pairs = len(set(zip(batch["input"].ravel().tolist(), batch["labels"].ravel().tolist(), strict=True)))
    expected, sigma = instance.predicted_start(job), head_std(job.path, geometry)
    bar = bars.random_start(sigma, geometry.hidden_size, pairs)
    judge.report("prediction", expected, unit="nat", source=f"ln V + D sigma^2 / 2 with sigma = {sigma:.4g}")
    judge.report("step-1 loss", run.losses[0], unit="nat")
    gap = abs(run.losses[0] - expected)
    judge.at_most("|step-1 loss - prediction|", gap, bar, unit="nat", elements=batch["labels"].numel())
    judge.report("time of a step", run.seconds_per_step, unit="s")
    steps = [step.step for step in run.steps]
    group = "published size, random start"
    judge.curves.append(Curve(name=str(job), group=group, model=job.name, steps=steps, losses=run.losses))


@each_dense
@pytest.mark.level("standard")
@pytest.mark.minutes(20)
def test_published_start(judge, instance, job):
    """From published weights step 1 has the loss of plain Transformers on the same weights and batch.

    Why: The walkthrough's 6.54 is high for healthy 4B weights, and torchtitan's Transformers backend is known to leave
    rotary frequencies uninitialised without any error (https://github.com/pytorch/torchtitan/issues/4783). So the bar
    is plain Transformers, in fp32 on the host's CPU, on the batch that the device trained on.

    Red when: the first loss differs from that of plain Transformers by more than bfloat16 explains.

    Reading a failure: Near ln V = 11.93 nothing was loaded. In between, the model is another: `paths.logits` on the
    tiny models says where. `not-run`: the weights are not here; the message says where they have to lie.
    """
    run, expected = instance.published_start(job), instance.plain_start(job)
    judge.report("step-1 loss", run.losses[0], unit="nat")
    judge.report("step-1 loss of plain Transformers", expected, unit="nat")
    judge.at_most("|difference of step-1 loss|", abs(run.losses[0] - expected), bars.MIXED_LOSS, unit="nat")


@each_job
@pytest.mark.level("standard")
@pytest.mark.minutes(3)
def test_export(judge, instance, reloader, job):
    """What a run at published size exports reloads in stock Transformers with no missing or unexpected key.

    Why: A shard of 64 ranks is gathered by other code than one of two, and a file of several GB is split, which tiny
    models do not show (https://github.com/pytorch/torchtitan/issues/2137).

    Red when: a key is missing, unexpected or of another shape, a tied head aside.

    Reading a failure: The message names the keys. Keys of single layers or experts point to the adapter; all of them to
    a prefix.
    """
    facts = reloader.keys(instance.random_start(job).export)
    for kind in KEYS:
        judge.same_names(kind.replace("_", " "), facts[kind], [])


@pytest.mark.level("standard")
@pytest.mark.minutes(1)
def test_kernels(judge, instance):
    """The mixture of experts at published size runs its kernels in every layer, step and rank, forward and backward.

    Why: "Use kernels" was accepted and replaced nothing (https://github.com/huggingface/transformers/pull/46755).

    Red when: the number of executions is not layers x micro-batches x steps x ranks, or nothing was executed.

    Reading a failure: Expected and found are executions by operator and direction over all ranks and steps.
    """
    run, shape = instance.random_start(MOE), instance.shape(MOE)
    micro_batches = len(run.batch(1)["labels"]) // instance.rows(MOE)
    once = shape.geometry.num_hidden_layers * micro_batches * shape.ranks
    for step in run.steps:
        counted = Counter()
        for name, count in step.kernel_counts.items():
            operator, direction, *_ = name.split()
            counted[operator, direction] += count
        for operator in ("experts", "rope"):
            forward, backward = counted[operator, "forward"], counted[operator, "backward"]
            judge.equal(f"step {step.step}: {operator} backward, executions", backward, once)
            # Activation checkpointing may run a forward pass twice.
            enough = forward in (once, 2 * once)
            judge.equal(f"step {step.step}: {operator} forward, {forward} executions for {once}", enough, True)
    total = sum(map(Counter, run.kernel_counts), Counter())
    judge.executed(f"{shape.config}, {len(run.steps)} steps, {shape.ranks} ranks", total)


@pytest.mark.level("standard")
@pytest.mark.minutes(15)
def test_kernels_agree(judge, instance):
    """The mixture of experts at published size has the same losses with its kernels and without.

    Why: Kernels are judged on small inputs elsewhere; 64 experts of width 768 over 64 ranks are other tiles, other
    blocks and other collectives. Vendor ranges end below these sizes.

    Red when: losses with and without kernels differ by more than bfloat16 explains.

    Reading a failure: If `kernels.forward` and `kernels.gradient` are green on the device, look at shapes: token counts
    per expert at this size, blocks, padding. A first loss that agrees and later ones that do not is a gradient.
    """
    on, off = instance.random_start(MOE), instance.without_kernels(MOE)
    _hold_losses(judge, on, off)


@each_job
@pytest.mark.level("full")
@pytest.mark.minutes(30)
def test_compiled(judge, instance, job):
    """Compiled with the device's own backend, a path has the losses that it has in eager mode.

    Why: Eager and compiled are two ways through the compiler: operators one by one, or graphs with their own fusions
    and layouts. A release can break one and not the other.

    Red when: losses differ by more than bfloat16 explains, or compilation fails.

    Reading a failure: A message of the compiler names the graph; its log lies in the run's folder. Losses that differ
    from step 1 on are the forward pass, from step 2 on the backward pass.
    """
    _hold_losses(judge, instance.compiled(job), instance.random_start(job))


@pytest.mark.parametrize("job", [job for job in JOBS.values() if job.path != "hf"], ids=str)
@pytest.mark.level("full")
@pytest.mark.minutes(20)
def test_tensor_parallel(judge, instance, job):
    """Laid out as TP 4 x FSDP 16 a path has the losses that it has as FSDP 64, from the same weights.

    Why: Participant sets were mixed up between meshes and data corrupted without an error (fixed in the runtime of
    Neuron 2.32), which only more than one mesh can show.

    Red when: losses differ by more than bfloat16 explains.

    Reading a failure: `layouts` has the same on tiny models: if it is green there, the collective's size or its
    participants matter. The Transformers path is not among them: torch 2.13 has no tensor parallelism for it.
    """
    run = instance.tensor_parallel(job)
    judge.equal("mesh", run.mesh.get("tp"), instance.tensor_parallel_degree)
    _hold_losses(judge, run, instance.continued(job))


@each_job
@pytest.mark.level("full")
@pytest.mark.minutes(10)
def test_repeated(judge, instance, job):
    """The same run twice gives the same losses and gradient norms to the last bit.

    Why: Runs that differ cannot be compared with anything: neither two releases nor two layouts. A race in a collective
    or a kernel shows first as a digit that changes from run to run.

    Red when: any loss or gradient norm differs.

    Reading a failure: The first step that differs says how early. If step 1 has equal losses and other gradient norms,
    it is the backward pass.
    """
    first, second = instance.random_start(job), instance.again(job)
    for a, b in zip(first.steps, second.steps, strict=True):
        judge.equal(f"step {a.step}: loss and gradient norm", (b.loss, b.grad_norm), (a.loss, a.grad_norm), elements=2)


@pytest.mark.level("standard")
def test_expectation(judge, request, expectation):
    """The published number holds at published size on the target.

    Why: The numbers published with a release are what its users will look for. They count on the hardware and at the
    size that they were published for, each with its source; where a number is in doubt, the manifest says why.

    Red when: the measurement on the target lies outside of the tolerance that the manifest gives.

    Reading a failure: The published number stands in the report, with its source and its doubt. A number without a
    tolerance is only reported. Nothing is concluded from a check that did not run: `not-run` says what it needs.
    """
    on = expectation.measured_on
    shown = Expectation(
        name=expectation.title,
        published=expectation.published,
        unit=expectation.unit,
        source=f"{expectation.provenance.source}; {on.config}, {on.target}, {on.cores} cores",
        note=expectation.doubt,
    )
    judge.expectations.append(shown)
    instance, reloader = request.getfixturevalue("instance"), request.getfixturevalue("reloader")
    measure = _MEASURED.get(expectation.name)
    if measure is None:
        pytest.skip("this version of the kit does not measure it")
    value = measure(instance, reloader)
    judge.report(expectation.title, value, unit=expectation.unit)
    judge.equal("it is a finite number", math.isfinite(value), True)
    if instance.rehearsal:  # whose models are small
        return
    shown.measured = value
    if expectation.tolerance is not None:
        bar = bars.Bar(expectation.tolerance.value, expectation.tolerance.reason)
        judge.at_most("distance from the published number", abs(value - expectation.published), bar)


def _hold_losses(judge, run, other) -> None:
    """Losses of two runs over the same batches, and their first gradient norms."""
    judge.equal("steps", len(run.losses), len(other.losses))
    gaps = [abs(a - b) for a, b in zip(run.losses, other.losses, strict=False)]
    judge.at_most("|difference of step-1 loss|", gaps[0], bars.MIXED_LOSS, unit="nat")
    judge.at_most("largest |difference of loss|", max(gaps), bars.MIXED_TRAJECTORY, unit="nat", elements=len(gaps))
    norms = run.steps[0].grad_norm, other.steps[0].grad_norm
    ratio = abs(norms[0] / norms[1] - 1)
    judge.at_most("relative difference of step 1's gradient norm", ratio, bars.MIXED_NORM)
