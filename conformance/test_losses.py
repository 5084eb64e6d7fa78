"""Does training start where it must, and get better?"""

import math

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import each_case
from trncheck.conformance.compare import ulp
from trncheck.conformance.random_starts import head_std
from trncheck.conformance.runs import ROWS, SEQ_LEN
from trncheck.fixtures import corpus
from trncheck.fixtures.geometry import INITIALIZER_RANGE, PUBLISHED, TINY, random_init_loss

_TOKENS = ROWS * SEQ_LEN


@each_case()
def test_published_start(judge, runs, case):
    """From published weights, step 1 starts at the loss of plain Transformers, far below a random start.

    Why: Published weights that start above plain Transformers are in a model that is not theirs. Wiped rotary
    frequencies gave 11.08 instead of 3.63 (https://github.com/pytorch/torchtitan/pull/3772), and weights that were
    never loaded start near ln V (https://github.com/pytorch/torchtitan/issues/2053). To be better than random proves
    nothing: broken frequencies can do that too.

    Red when: the first loss is not that of plain Transformers on the same weights and batch.

    Reading a failure: Near ln V nothing was loaded; `losses.weights_loaded` then is red too. In between, the weights
    are there and the model is another: go to `paths.batch` and `paths.logits`. The number for plain Transformers stands
    among the measurements.
    """
    loss, expected = runs.published(case).losses[0], runs.reference(case.model).losses[0]
    judge.report("step-1 loss of plain Transformers", expected, unit="nat")
    gap, resolution = abs(loss - expected), ulp(expected)
    judge.at_most("|difference of step-1 loss|", gap, bars.STEP1_LOSS, unit="nat", elements=_TOKENS, ulp=resolution)
    judge.at_most("step-1 loss", loss, bars.far_from_random(corpus.VOCABULARY), unit="nat", elements=_TOKENS)


@each_case()
def test_weights_loaded(judge, runs, case):
    """Before step 1 the model holds the weights of the file, every tensor bit for bit.

    Why: A run can take the folder of published weights for its tokenizer alone and train from random weights
    (https://github.com/pytorch/torchtitan/issues/2053). A loading report can be clean while an initialisation after it
    wrote over the weights (https://github.com/huggingface/transformers/issues/46620). So the bits are compared, not the
    report.

    Red when: any tensor before step 1 is not the file's.

    Reading a failure: The message names tensors and how much of each differs. All of them means that nothing was
    loaded, or that something ran afterwards; a few mean a wrong name or order in the adapter, such as experts sorted as
    text.
    """
    from safetensors.torch import load_file

    published = {}
    for file in runs.published_weights(case.model).glob("*.safetensors"):
        published |= load_file(file)
    judge.bit_equal("weights before step 1", runs.published(case).weights(0), published)


@each_case(where=lambda case: case.ranks == 1 and case.path != "nki")
def test_random_start(judge, runs, case):
    """From random initialisation, step 1 starts at ln V + D sigma^2 / 2.

    A tied head lets a token predict itself, the more the less its embedding is hidden under what the layers add. In a
    model as small as these that shows where the embedding is drawn with D^-1/2, so there the start has a range.

    Why: A start far above the prediction is an initialisation that is not the documented one; Qwen3 from a seed
    checkpoint has been seen with an extremely high loss under sharding
    (https://github.com/pytorch/torchtitan/issues/1879). The prediction comes from the scheme alone, so no earlier run
    has to be right.

    Red when: the head or the embedding is drawn too wide or too narrow, or is not drawn at all.

    Reading a failure: Above the prediction the head is drawn too wide, or hidden states are not normalised. Exactly ln
    V means logits of zero. Below it, the model sees its labels.
    """
    geometry = TINY[case.model]
    sigma = head_std(case.path, geometry)
    expected = random_init_loss(geometry.vocab_size, geometry.hidden_size, sigma)
    loss = runs.random(case).losses[0]
    batch = corpus.batch(1, ROWS, SEQ_LEN)
    pairs = len(set(zip(batch["input"].ravel(), batch["labels"].ravel(), strict=True)))
    bar = bars.random_start(sigma, geometry.hidden_size, pairs)
    judge.report("prediction", expected, unit="nat", source=f"ln V + D sigma^2 / 2 with sigma = {sigma:.4g}")
    judge.report("step-1 loss", loss, unit="nat")
    if case.path == "hf" and geometry.tie_word_embeddings:
        highest = math.log(math.exp(expected) + math.exp(geometry.hidden_size * sigma))
        judge.report("prediction where a token sees its own embedding alone", highest, unit="nat")
        outside = max(expected - loss, loss - highest, 0.0)
        judge.at_most("distance of the step-1 loss from the range", outside, bar, unit="nat", elements=_TOKENS)
    else:
        judge.at_most("|step-1 loss - prediction|", abs(loss - expected), bar, unit="nat", elements=_TOKENS)


@each_case(where=lambda case: case.ranks == 1 and case.path != "nki")
def test_learning_random(judge, runs, case):
    """From random initialisation the loss falls within 20 steps.

    Why: A right start says nothing about training. An optimizer that never steps, or gradients that are rescaled as
    they are accumulated (https://github.com/pytorch/torchtitan/pull/1732), show only here and in the trajectory.

    Red when: the loss does not fall as far as the slowest healthy run.

    Reading a failure: A fall of zero means no update or a rate of zero; a rise means too high a rate or wrong
    gradients, and `paths.gradients` then says which. See the curve in the report.
    """
    losses = runs.random(case).losses
    fall = losses[0] - sum(losses[-3:]) / 3
    judge.at_least("first loss - mean of the last 3", fall, bars.LEARNING_RANDOM, unit="nat", elements=len(losses))


@each_case()
def test_learning_published(judge, runs, reloader, case):
    """From published weights, 20 more steps make the model better on the first batch, as the exported folder shows.

    Why: Losses on new batches fall and rise by chance. The same batch before and after training does not, and the
    exported folder is what a user keeps, so it is the one that has to be better.

    Red when: 20 steps leave the exported model no better on the first batch than the weights it started from.

    Reading a failure: A fall of zero means that no update happened, or that the start was exported. If
    `losses.learning_random` is green, look at the export and at `checkpoint.weights`; if both are red, at the
    optimizer.
    """
    run = runs.published(case)
    fall = run.losses[0] - reloader(run).facts["first_loss"]
    judge.at_least("fall of the loss of batch 1", fall, bars.LEARNING_PUBLISHED, unit="nat", elements=_TOKENS)


@each_case()
def test_finite(judge, runs, case):
    """Losses, gradient norms, gradients and weights are finite throughout.

    Why: Every logged loss was NaN, and training went on to its end
    (https://github.com/huggingface/optimum-neuron/issues/658). Rows that a grouped product leaves unwritten made a
    mixture of experts NaN now and then (https://github.com/pytorch/torchtitan/issues/1237).

    Red when: any loss, gradient norm, gradient or weight is infinite or NaN, or the run ends for that reason.

    Reading a failure: The first name in the message is the place to look. NaN before step 1 came with the weights;
    gradients alone point to a backward pass; weights alone to the update.
    """
    run = runs.published(case)
    for step in run.steps:
        finite = math.isfinite(step.loss) and math.isfinite(step.grad_norm)
        judge.equal(f"step {step.step}: loss and gradient norm are finite", finite, True, elements=2)
    for kind, tensors in {"gradient": run.gradients(1), "final weight": run.weights(len(run.steps))}.items():
        for name, tensor in tensors.items():
            bad = int((~tensor.isfinite()).sum())
            judge.equal(f"{kind} {name}: elements that are not finite", bad, 0, elements=tensor.numel())


@pytest.mark.level("full")
def test_full_size_random_start(judge, runs):
    """The whole Qwen3-0.6B geometry starts at ln V + D sigma^2 / 2 from random initialisation.

    Why: Faults of size, such as a vocabulary or a hidden size taken from another model, cannot show in tiny models. The
    published start of the 4B model from random initialisation, 12.43, is the same formula with other sizes.

    Red when: the whole geometry does not start where its sizes and its initialisation say.

    Reading a failure: See `losses.random_start` for what lies above and below. If that one is green, the fault depends
    on the size: read `paths.geometry` next.
    """
    geometry = PUBLISHED["Qwen3-0.6B"]
    expected = random_init_loss(geometry.vocab_size, geometry.hidden_size, INITIALIZER_RANGE)
    loss = runs.full_size().losses[0]
    judge.report("prediction", expected, unit="nat", source="ln V + D sigma^2 / 2 with sigma = 0.02")
    judge.report("step-1 loss", loss, unit="nat")
    gap = abs(loss - expected)
    judge.at_most("|step-1 loss - prediction|", gap, bars.FULL_SIZE_START, unit="nat", elements=_TOKENS)
