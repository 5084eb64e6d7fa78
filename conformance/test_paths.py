"""Do all paths compute the same thing as plain Transformers, from the same weights on the same batches?"""

import pytest

from trncheck.conformance.cases import Case, each_case
from trncheck.conformance.compare import relative_errors
from trncheck.conformance.runs import RATE, ROWS, SEQ_LEN, STEPS
from trncheck.fixtures import corpus
from trncheck.reports.schema import Curve

FP32_EPS = 2.0**-23


@each_case()
def test_batch(judge, runs, case):
    """The trainer is fed the corpus' own batches: tokens, positions and labels, in order, on every rank."""
    run = runs.published(case)
    for step in (1, 2, STEPS):
        got, want = run.batch(step), corpus.batch(step, ROWS, SEQ_LEN)
        judge.same_names(f"step {step}", got, want)
        for name in sorted(got.keys() & want.keys()):
            wrong = int((got[name].numpy() != want[name]).sum()) if got[name].shape == want[name].shape else -1
            judge.equal(f"step {step}, {name}: elements that differ", wrong, 0, elements=want[name].size)


@each_case()
def test_logits(judge, runs, case):
    """Logits of the first batch equal plain Transformers'."""
    got, want = runs.published(case).logits(1), runs.reference(case.model).logits
    judge.equal("shape", tuple(got.shape), tuple(want.shape))
    scale = want.abs().max().item()
    judge.at_most(
        "largest |difference of logits|",
        (got - want).abs().max().item(),
        64 * FP32_EPS * scale,
        source=f"64 fp32 ulp at the largest logit, {scale:.3g}; other kernels round about D = 64 sums differently",
        elements=want.numel(),
    )


@each_case()
def test_gradients(judge, runs, case):
    """Gradients of the first step equal plain Transformers', by parameter group."""
    run, reference = runs.published(case), runs.reference(case.model)
    got, want = run.gradients(1), reference.gradients
    judge.same_names("parameters with a gradient", got, want)
    _hold_groups(
        judge,
        "gradient",
        relative_errors(got, want),
        1e-5,
        "backward passes of both kernels in fp32 differ by 1.3e-6 at most where both are right; 8 times that",
    )


@each_case()
def test_update(judge, runs, case):
    """One optimizer step later the weights still agree with plain Transformers trained by plain AdamW."""
    run, reference = runs.published(case), runs.reference(case.model)
    start = run.weights(0)
    judge.same_names("weights", start, reference.weights)
    judge.equal("learning rate of step 1", run.steps[0].lr, RATE)
    moved = {name: reference.weights[name] - start[name] for name in start.keys() & reference.weights.keys()}
    _hold_groups(
        judge,
        "update",
        relative_errors(run.weights(1), reference.weights, moved),
        5e-3,
        "AdamW's first step divides a gradient by its own size, so that rounding shows where a gradient is near zero; 2.6e-4 seen, 20 times that",
    )


@each_case()
def test_trajectory(judge, runs, case):
    """Over 20 steps the loss follows plain Transformers'."""
    run, reference = runs.published(case), runs.reference(case.model)
    judge.equal("steps", len(run.losses), len(reference.losses))
    gaps = [abs(a - b) for a, b in zip(run.losses, reference.losses, strict=False)]
    judge.at_most(
        "largest |difference of loss|",
        max(gaps),
        1e-4,
        unit="nat",
        source="rounding grows through AdamW; 5e-7 seen over 20 steps, a wrong scale or mask costs 1e-3 in the first",
        elements=len(gaps),
    )
    if case.ranks == 1 or case.model == "moe":
        _draw(judge, case, run, reference)


def test_stock_experts(judge, runs):
    """torchtitan's own bfloat16 experts start at plain Transformers' loss within bfloat16's rounding."""
    gap = abs(runs.stock_experts().losses[0] - runs.reference("moe").losses[0])
    judge.at_most(
        "|difference of step-1 loss|",
        gap,
        2e-3,
        unit="nat",
        source="2^-9 relative rounding of three products in each of 2 layers, averaged over 512 tokens; 7e-5 seen",
    )


@pytest.mark.level("standard")
def test_torchrun(judge, runs):
    """A real torchrun with two ranks gives the losses of ranks started by forking, bit for bit."""
    case = Case("native", "dense-tied", 2)
    run, forked = runs.torchrun(case), runs.published(case)
    judge.equal("losses of the first two steps", run.losses, forked.losses[:2], elements=2)
    judge.equal(
        "hashes of the first two batches",
        [s.tokens for s in run.steps],
        [s.tokens for s in forked.steps[:2]],
        elements=2,
    )


def _hold_groups(judge, what: str, errors: dict, bar: float, source: str) -> None:
    for group, (error, name, elements) in sorted(errors.items()):
        judge.at_most(
            f"{what} of {group}, relative error (worst: {name})", error, bar, source=source, elements=elements
        )


def _draw(judge, case, run, reference) -> None:
    label = {"native": "torchtitan native", "hf": "Transformers through torchtitan"}[case.path]
    curves = {f"{label}, {case.model}": (run.losses, False)}
    if case.path == "native":
        curves[f"plain Transformers, {case.model}"] = (reference.losses, True)
    for name, (losses, is_reference) in curves.items():
        judge.curves.append(
            Curve(
                name=name,
                group="from published tiny weights",
                model=case.model,
                steps=list(range(1, len(losses) + 1)),
                losses=losses,
                reference=is_reference,
            )
        )
