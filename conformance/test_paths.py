"""Do all paths compute the same thing as plain Transformers, from the same weights on the same batches?"""

import math

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case, each_case
from trncheck.conformance.compare import relative_errors, ulp
from trncheck.conformance.judge import KnownDefect
from trncheck.conformance.localise import say_where
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
    """The trainer is fed the corpus' own batches: tokens, positions and labels, in order, on every rank.

    Why: Two paths that compute the same differ in loss when they are fed different rows, labels or positions. Packed
    documents are where they part: one path resets positions and masks between documents, and the other does not
    (https://github.com/VLR-CVC/vlm-training/pull/2).

    Red when: rows come in another order, are lost or doubled between ranks, or a label crosses the end of a document.

    Reading a failure: The message names the step, the column, how many elements differ, and the first of them. All
    checks below stand on this one: while it is red, logits and gradients say nothing. Red on two ranks alone means that
    the rows are shared out wrong.
    """
    run = runs.published(case)
    for step in (1, 2, STEPS):
        got, want = run.batch(step), corpus.batch(step, ROWS, SEQ_LEN)
        judge.same_names(f"step {step}", got, want)
        for name in sorted(got.keys() & want.keys()):
            _hold_column(judge, f"step {step}, {name} as the corpus has it", got[name].numpy(), want[name])


@each_case()
def test_logits(judge, runs, case):
    """Logits of the first batch equal plain Transformers'.

    Why: A wrong rotary base, attention scale, axis order or norm epsilon gives logits that are finite, plausible and
    wrong. Wiped rotary frequencies started Qwen3-0.6B at a loss of 11.08 instead of 3.63
    (https://github.com/pytorch/torchtitan/pull/3772); two attention variants of the same shape disagreed by a transpose
    (https://github.com/pytorch/torchtitan/pull/2229).

    Red when: any module of the forward pass computes something else than plain Transformers on the same weights and
    tokens.

    Reading a failure: Just above the bar it is rounding, or a kernel that sums in another order; a thousand times the
    bar is another formula. `starts at` names the first module that departs. Then see which cases are red: one path, one
    kind of model, tied or untied, two ranks alone.
    """
    got, want = runs.published(case).logits(1), runs.reference(case.model).logits
    judge.equal("shape", tuple(got.shape), tuple(want.shape))
    off, most = (got - want).abs().max().item(), want.abs().max().item()
    judge.at_most("largest |difference|", off, bars.logits(most), elements=want.numel(), ulp=ulp(most))
    _say_where(judge, runs, case)


@each_case()
def test_gradients(judge, runs, case):
    """Gradients of the first step equal plain Transformers', by parameter group.

    Why: A backward pass can be wrong under a forward pass that is right, and AdamW hides a constant factor, so that the
    loss looks normal. Expert gradients were multiplied by the number of expert-parallel ranks
    (https://github.com/pytorch/pytorch/issues/160285), and a tied matrix got its gradient twice
    (https://github.com/pytorch/torchtitan/pull/3174).

    Red when: a parameter group's gradient is off, missing, or there for a parameter that should have none.

    Reading a failure: If `paths.logits` is red for the same case, start there. One group red points to its module;
    embedding alone points to tying; all groups by one factor point to the scale of the loss or to the reduction over
    ranks.
    """
    got, want = runs.published(case).gradients(1), runs.reference(case.model).gradients
    judge.same_names("parameters with a gradient", got, want)
    _hold_groups(judge, "gradient", relative_errors(got, want), bars.GRADIENT)
    _say_where(judge, runs, case)


@each_case(where=lambda case: case.model != "dense-untied")
@pytest.mark.level("standard")
def test_clipping(judge, runs, case):
    """Gradients are clipped by the norm of all of them, over every rank: plain Transformers' times one factor.

    Why: Where each group of ranks clips by its own norm, replicas drift apart while the logs look fine
    (https://github.com/NVIDIA-NeMo/Automodel/issues/3816).

    Red when: the norm leaves out a rank or a parameter, or gradients are scaled by another factor than the reported
    norm asks for.

    Reading a failure: A red `reported norm` means that the sum of squares is not over everything. A norm that is right
    with clipped gradients that are wrong means that another factor was applied. Red on two ranks alone is the
    reduction.
    """
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
    """One optimizer step later the weights still agree with plain Transformers trained by plain AdamW.

    Why: An optimizer with another epsilon, decay or rate shows in no gradient, and for some steps hardly in the loss.
    No public report is behind this check; it closes the gap between gradients and weights.

    Red when: the first AdamW step moves a group of weights by something else than plain AdamW does.

    Reading a failure: Look at `paths.gradients` first; while it is red, this follows. A learning rate that differs is
    named apart. All groups red means a setting of the optimizer, one group red means that it is in the wrong parameter
    group.
    """
    run, want = runs.published(case), runs.reference(case.model).weights
    start = run.weights(0)
    judge.same_names("weights", start, want)
    judge.equal("learning rate of step 1", run.steps[0].lr, RATE)
    moved = {name: want[name] - start[name] for name in start.keys() & want.keys()}
    _hold_groups(judge, "update", relative_errors(run.weights(1), want, moved), bars.UPDATE)
    _say_where(judge, runs, case)


@each_case()
def test_trajectory(judge, runs, case):
    """Over 20 steps the loss follows plain Transformers'.

    Why: What needs state goes wrong after the first step only: moments that are lost, or gradients that are accumulated
    like a moving average (https://github.com/pytorch/torchtitan/pull/1732).

    Red when: the loss leaves that of plain Transformers anywhere within 20 steps.

    Reading a failure: The loss plot shows at which step the curves part. At the first step, `paths.logits` is the check
    to read; at the second, `paths.update`; later, look for state that is forgotten or for the data of that step.
    """
    run, reference = runs.published(case), runs.reference(case.model)
    judge.equal("steps", len(run.losses), len(reference.losses))
    gaps = [abs(a - b) for a, b in zip(run.losses, reference.losses, strict=False)]
    worst = max(gaps, key=lambda gap: (math.isnan(gap), gap))
    resolution = ulp(max(reference.losses))
    judge.at_most(
        "largest |difference of loss|", worst, bars.TRAJECTORY, unit="nat", elements=len(gaps), ulp=resolution
    )
    _say_where(judge, runs, case)
    if case.level == "smoke":
        _draw(judge, case, run, reference)


@pytest.mark.level("standard")
def test_stock_experts(judge, runs):
    """torchtitan's own bfloat16 experts give plain Transformers' loss and gradients, within bfloat16's rounding.

    Why: The other checks of the mixture of experts compute experts in the dtype of training, so that bars can be tight;
    torchtitan's own always round to bfloat16. A swapped or transposed expert matrix has the right shape when sizes
    coincide (https://github.com/pytorch/torchtitan/pull/4373).

    Red when: torchtitan's stock experts lay out, route or weigh their products differently.

    Reading a failure: A miss by a small factor may be another rounding of bfloat16; more is another formula. If only
    the group of experts is red, look at gate and up and at their orientation; if the router is, at the scores.
    """
    run, reference = runs.stock_experts(), runs.reference("moe")
    gap = abs(run.losses[0] - reference.losses[0])
    judge.at_most("|difference of step-1 loss|", gap, bars.STOCK_EXPERTS, unit="nat", elements=ROWS * SEQ_LEN)
    errors = relative_errors(run.gradients(1), reference.gradients)
    _hold_groups(judge, "gradient", errors, bars.STOCK_EXPERTS_GRADIENT)


@pytest.mark.level("standard")
def test_torchrun(judge, runs):
    """A real torchrun with two ranks gives the losses of ranks started by forking, bit for bit.

    Why: The suite starts ranks by forking, which takes a second; users start them with torchrun. What is shown of
    forked ranks has to hold for theirs, so not one bit may differ.

    Red when: the launcher, the environment that it sets, or the order of ranks changes what is trained.

    Reading a failure: While the other paths are green, the difference is in the start: threads, seeds, variables,
    ranks. A batch that differs comes before a loss that does.
    """
    case = Case("native", "dense-tied", 2)
    run, forked = runs.torchrun(case), runs.published(case)
    for got, want in zip(run.steps, forked.steps, strict=False):
        judge.equal(f"loss of step {want.step}", got.loss, want.loss)
        judge.equal(f"batch of step {want.step}", got.tokens, want.tokens)


@pytest.mark.level("standard")
@pytest.mark.parametrize("config", REAL_CONFIGS)
def test_geometry(judge, runs, config):
    """A configuration of real size builds the published model: sizes, theta, eps, router, masks and parameter count.

    Why: Sizes in a hand-written registry are copied wrong: an entry for 30B-A3B had the dimensions of 32B dense
    (https://github.com/pytorch/torchtitan/pull/1760). Defaults of a wrapper replaced what config.json says
    (https://github.com/pytorch/torchtitan/pull/3772). Tiny models show neither.

    Red when: a real configuration builds a model that is not the published one in any field or in its parameter count.

    Reading a failure: The message names the field, the published value and the value that was built. A parameter count
    that is wrong alone means a tensor too many or too few, such as a tied head that became a matrix of its own
    (https://github.com/pytorch/torchtitan/issues/2252).
    """
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
    """Stock torchtitan initialises the rotary frequencies of the Transformers path.

    Why: torchtitan's Transformers backend leaves the rotary frequencies uninitialised with transformers 5.16.0, without
    an error, and loaded weights start too high (https://github.com/pytorch/torchtitan/issues/4783). The kit repairs it;
    this check watches whether the repair is still needed.

    Red when: the stock backend fails in another way than the known one.

    Reading a failure: `expected-fail` is the normal outcome: the defect is there, and the repair is needed. A pass
    means that the repair in `trainers/transformers_model.py` can go. A failure means that the stock backend has moved:
    read its error before anything else.
    """
    bad = [name for name in runs.stock("qwen3_hf_tiny")["uninitialised"] if "inv_freq" in name]
    _watch(judge, bad, "leaves these uninitialised", "upstream issue 4783")


@pytest.mark.informative
@pytest.mark.level("standard")
def test_watch_moe_start(judge, runs):
    """Stock torchtitan initialises the MoE modules that it puts into a Transformers model.

    Why: The MoE modules that torchtitan 0.3.0 puts into a Transformers model keep whatever their memory held, so that a
    random start is not one. Seen in torchtitan 0.3.0; no public report is known. The kit repairs it, and this check
    watches.

    Red when: the stock backend fails in another way than the known one.

    Reading a failure: `expected-fail` is the normal outcome and lists what stays uninitialised. A pass means that the
    repair in `trainers/transformers_model.py` can go. A failure means that the stock backend has moved.
    """
    bad = [name for name in runs.stock("qwen3_hf_moe_tiny")["uninitialised"] if ".mlp." in name]
    _watch(judge, bad, "leaves these uninitialised", "seen in torchtitan 0.3.0")


@pytest.mark.informative
@pytest.mark.level("standard")
def test_watch_moe_export(judge, runs):
    """Stock torchtitan exports the experts of the Transformers path under names that Transformers loads.

    Why: torchtitan 0.3.0 exports the experts of the Transformers path under names that Transformers does not load. Seen
    in torchtitan 0.3.0; an export that only its own loader takes is a known kind of failure
    (https://github.com/NVIDIA-NeMo/Automodel/pull/2741). The kit repairs it, and this check watches.

    Red when: the stock backend fails in another way than the known one.

    Reading a failure: `expected-fail` is the normal outcome and lists names that are missing from the export. A pass
    means that `trainers/transformers_adapter.py` can go. A failure means that the stock backend has moved.
    """
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


def _say_where(judge, runs, case) -> None:
    say_where(judge, lambda: runs.activations(case), lambda: runs.reference_activations(case.model))


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
