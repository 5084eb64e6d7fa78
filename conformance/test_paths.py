"""Do all paths compute the same thing as plain Transformers, from the same weights on the same batches?"""

import math

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case, each_case
from trncheck.conformance.compare import relative_errors
from trncheck.conformance.judge import KnownDefect
from trncheck.conformance.runs import MAX_NORM, RATE, ROWS, SEQ_LEN, STEPS
from trncheck.fixtures import corpus
from trncheck.fixtures.geometry import PUBLISHED, PUBLISHED_PARAMETERS
from trncheck.reports.schema import Curve

REAL_CONFIGS = {
    "qwen3_native_0_6b": "Qwen3-0.6B",
    "qwen3_native_4b_instruct_2507": "Qwen3-4B-Instruct-2507",
    "qwen3_moe_30b_a3b": "Qwen3-30B-A3B",
    "qwen3_moe_30b_a3b_4layers_64experts": "Qwen3-30B-A3B, 4 layers x 64 experts",
    "qwen3_hf_0_6b": "Qwen3-0.6B",
    "qwen3_hf_4b_instruct_2507": "Qwen3-4B-Instruct-2507",
    "qwen3_hf_30b_a3b": "Qwen3-30B-A3B",
}


@each_case()
def test_batch(judge, runs, case):
    """The trainer is fed the corpus' own batches: tokens, positions and labels, in order, on every rank."""
    run = runs.published(case)
    for step in (1, 2, STEPS):
        got, want = run.batch(step), corpus.batch(step, ROWS, SEQ_LEN)
        judge.same_names(f"step {step}", got, want)
        for name in sorted(got.keys() & want.keys()):
            _hold_column(judge, f"step {step}, {name} as the corpus has it", got[name].numpy(), want[name])


@each_case()
def test_logits(judge, runs, case):
    """Logits of the first batch equal plain Transformers'."""
    got, want = runs.published(case).logits(1), runs.reference(case.model).logits
    judge.equal("shape", tuple(got.shape), tuple(want.shape))
    largest = (got - want).abs().max().item()
    judge.at_most("largest |difference|", largest, bars.logits(want.abs().max().item()), elements=want.numel())


@each_case()
def test_gradients(judge, runs, case):
    """Gradients of the first step equal plain Transformers', by parameter group."""
    got, want = runs.published(case).gradients(1), runs.reference(case.model).gradients
    judge.same_names("parameters with a gradient", got, want)
    _hold_groups(judge, "gradient", relative_errors(got, want), bars.GRADIENT)


@each_case(where=lambda case: case.model != "dense-untied")
@pytest.mark.level("standard")
def test_clipping(judge, runs, case):
    """Gradients are clipped by the norm of all of them, over every rank: plain Transformers' times one factor."""
    run, want = runs.clipped(case), runs.reference(case.model).gradients
    norm = math.sqrt(sum(gradient.double().square().sum().item() for gradient in want.values()))
    judge.at_least("norm before clipping", norm, bars.Bar(2 * MAX_NORM, "or nothing would be clipped"))
    gap = abs(run.steps[0].grad_norm / norm - 1)
    judge.at_most("reported norm, relative error", gap, bars.GRADIENT, elements=len(want))
    scaled = {name: gradient * (MAX_NORM / norm) for name, gradient in want.items()}
    judge.same_names("parameters with a gradient", run.gradients(1), want)
    _hold_groups(judge, "clipped gradient", relative_errors(run.gradients(1), scaled), bars.GRADIENT)


@each_case()
def test_update(judge, runs, case):
    """One optimizer step later the weights still agree with plain Transformers trained by plain AdamW."""
    run, want = runs.published(case), runs.reference(case.model).weights
    start = run.weights(0)
    judge.same_names("weights", start, want)
    judge.equal("learning rate of step 1", run.steps[0].lr, RATE)
    moved = {name: want[name] - start[name] for name in start.keys() & want.keys()}
    _hold_groups(judge, "update", relative_errors(run.weights(1), want, moved), bars.UPDATE)


@each_case()
def test_trajectory(judge, runs, case):
    """Over 20 steps the loss follows plain Transformers'."""
    run, reference = runs.published(case), runs.reference(case.model)
    judge.equal("steps", len(run.losses), len(reference.losses))
    gaps = [abs(a - b) for a, b in zip(run.losses, reference.losses, strict=False)]
    worst = max(gaps, key=lambda gap: (math.isnan(gap), gap))
    judge.at_most("largest |difference of loss|", worst, bars.TRAJECTORY, unit="nat", elements=len(gaps))
    if case.level == "smoke":
        _draw(judge, case, run, reference)


@pytest.mark.level("standard")
def test_stock_experts(judge, runs):
    """torchtitan's own bfloat16 experts give plain Transformers' loss and gradients, within bfloat16's rounding."""
    run, reference = runs.stock_experts(), runs.reference("moe")
    gap = abs(run.losses[0] - reference.losses[0])
    judge.at_most("|difference of step-1 loss|", gap, bars.STOCK_EXPERTS, unit="nat", elements=ROWS * SEQ_LEN)
    errors = relative_errors(run.gradients(1), reference.gradients)
    _hold_groups(judge, "gradient", errors, bars.STOCK_EXPERTS_GRADIENT)


@pytest.mark.level("standard")
def test_torchrun(judge, runs):
    """A real torchrun with two ranks gives the losses of ranks started by forking, bit for bit."""
    case = Case("native", "dense-tied", 2)
    run, forked = runs.torchrun(case), runs.published(case)
    for got, want in zip(run.steps, forked.steps, strict=False):
        judge.equal(f"loss of step {want.step}", got.loss, want.loss)
        judge.equal(f"batch of step {want.step}", got.tokens, want.tokens)


@pytest.mark.level("standard")
@pytest.mark.parametrize("config", REAL_CONFIGS)
def test_geometry(judge, runs, config):
    """A configuration of real size builds the published model: sizes, theta, eps, router, masks and parameter count."""
    name = REAL_CONFIGS[config]
    built = runs.described(config, name)
    published = vars(PUBLISHED[name]) | {
        "parameters": PUBLISHED_PARAMETERS[name],
        "norm_topk_prob": True if PUBLISHED[name].is_moe else None,
        "attention_mask": "per document",
    }
    for field, value in built.items():
        judge.equal(field, value, published[field])


@pytest.mark.informative
@pytest.mark.level("standard")
def test_watch_rotary(judge, runs):
    """Stock torchtitan initialises the rotary frequencies of the Transformers path."""
    bad = [name for name in runs.stock("qwen3_hf_tiny")["uninitialised"] if "inv_freq" in name]
    _watch(judge, bad, "leaves these uninitialised", "upstream issue 4783")


@pytest.mark.informative
@pytest.mark.level("standard")
def test_watch_moe_start(judge, runs):
    """Stock torchtitan initialises the MoE modules that it puts into a Transformers model."""
    bad = [name for name in runs.stock("qwen3_hf_moe_tiny")["uninitialised"] if ".mlp." in name]
    _watch(judge, bad, "leaves these uninitialised", "seen in torchtitan 0.3.0")


@pytest.mark.informative
@pytest.mark.level("standard")
def test_watch_moe_export(judge, runs):
    """Stock torchtitan exports the experts of the Transformers path under names that Transformers loads."""
    exported = set(runs.stock("qwen3_hf_moe_tiny")["exported"])
    wanted = runs.reference("moe").weights.keys()
    _watch(judge, sorted(wanted - exported), "does not export these", "seen in torchtitan 0.3.0")


def _hold_column(judge, name: str, got, want) -> None:
    judge.equal(f"{name}: shape", got.shape, want.shape)
    if got.shape == want.shape:
        wrong = (got != want).nonzero()
        judge.equal(f"{name}: elements that differ", len(wrong[0]), 0, elements=want.size)
        for row, column in list(zip(*wrong, strict=True))[:1]:
            judge.fail(f"  first at row {row}, column {column}: expected {want[row, column]}, found {got[row, column]}")


def _watch(judge, wrong: list[str], what: str, where: str) -> None:
    """Known defects of the stock backend; once one is gone, this check passes and its repair can go."""
    judge.note("repair", "needed" if wrong else "no longer needed: remove it")
    judge.equal("defects", len(wrong), 0)
    if wrong:
        judge.failures.clear()
        raise KnownDefect(f"stock torchtitan {what}: {', '.join(wrong[:3])} ({len(wrong)} in all); {where}")


def _hold_groups(judge, what: str, errors: dict, bar: bars.Bar) -> None:
    for group, (error, name, elements) in sorted(errors.items()):
        judge.at_most(f"{what} of {group}, relative error, worst in {name}", error, bar, elements=elements)


def _draw(judge, case, run, reference) -> None:
    labels = {
        "native": "torchtitan native",
        "nki": "torchtitan native with NKI kernels",
        "hf": "Transformers through torchtitan",
    }
    label = labels[case.path]
    curves = {f"{label}, {case.model}": (run.losses, False)}
    if case.path == "native":
        curves[f"plain Transformers, {case.model}"] = (reference.losses, True)
    for name, (losses, is_reference) in curves.items():
        steps = list(range(1, len(losses) + 1))
        group = "from published tiny weights"
        judge.curves.append(
            Curve(name=name, group=group, model=case.model, steps=steps, losses=losses, reference=is_reference)
        )
