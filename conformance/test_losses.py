"""Does training start where it must, and get better?"""

import math

import pytest

from trncheck.conformance.cases import each_case
from trncheck.conformance.runs import ROWS, SEQ_LEN
from trncheck.fixtures import corpus
from trncheck.fixtures.geometry import INITIALIZER_RANGE, PUBLISHED, TINY, random_init_loss

# Standard deviation of a normal distribution cut at 3 sigma, as the Transformers backend draws its LM head.
_CUT_AT_3_SIGMA = 0.98658


@each_case()
def test_published_start(judge, runs, case):
    """From published weights, step 1 starts at the loss of plain Transformers, far below a random start."""
    loss, expected = runs.published(case).losses[0], runs.reference(case.model).losses[0]
    judge.report("step-1 loss", loss, unit="nat")
    judge.report("step-1 loss of plain Transformers", expected, unit="nat")
    judge.at_most(
        "|difference of step-1 loss|",
        abs(loss - expected),
        1e-5,
        unit="nat",
        source="fp32 rounding of a mean over 512 tokens; 5e-7 seen between kernels that are right",
        elements=ROWS * SEQ_LEN,
    )
    judge.at_most(
        "step-1 loss",
        loss,
        math.log(corpus.VOCABULARY) / 2,
        unit="nat",
        source="half of ln V, which the published weights were trained to beat",
    )


@each_case()
def test_weights_loaded(judge, runs, case):
    """Before step 1 the model holds the weights of the file, every tensor bit for bit."""
    from safetensors.torch import load_file

    files = runs.published_weights(case.model).glob("*.safetensors")
    judge.bit_equal(
        "weights before step 1",
        runs.published(case).weights(0),
        {k: v for file in files for k, v in load_file(file).items()},
    )


@each_case(where=lambda case: case.ranks == 1 and (case.path, case.model) != ("hf", "dense-tied"))
def test_random_start(judge, runs, case):
    """From random initialisation, step 1 starts at ln V + D sigma^2 / 2."""
    geometry = TINY[case.model]
    sigma = INITIALIZER_RANGE if case.path == "native" else _CUT_AT_3_SIGMA * geometry.hidden_size**-0.5
    expected = random_init_loss(geometry.vocab_size, geometry.hidden_size, sigma)
    loss = runs.random(case).losses[0]
    batch = corpus.batch(1, ROWS, SEQ_LEN)
    pairs = len(set(zip(batch["input"].ravel(), batch["labels"].ravel(), strict=True)))
    spread = sigma * math.sqrt(geometry.hidden_size / pairs)
    judge.report("step-1 loss", loss, unit="nat")
    judge.report(
        "prediction",
        expected,
        unit="nat",
        source=f"ln {geometry.vocab_size} + {geometry.hidden_size} sigma^2 / 2, sigma = {sigma:.4g}",
    )
    judge.at_most(
        "|step-1 loss - prediction|",
        abs(loss - expected),
        4 * spread,
        unit="nat",
        source=f"4 standard errors: logits have deviation sigma sqrt(D), {pairs} distinct (input, label) pairs",
        elements=ROWS * SEQ_LEN,
    )


@each_case(where=lambda case: case.ranks == 1)
def test_learning_random(judge, runs, case):
    """From random initialisation the loss falls within 20 steps."""
    losses = runs.random(case).losses
    judge.at_least(
        "loss of step 1 - mean loss of the last 3 steps",
        losses[0] - sum(losses[-3:]) / 3,
        0.3,
        unit="nat",
        source="0.45 to 2.2 seen in 20 steps; batches differ by 0.1",
        elements=len(losses),
    )


@each_case()
def test_learning_published(judge, runs, reloader, case):
    """From published weights, 20 more steps make the model better on the first batch, as the exported folder shows."""
    run = runs.published(case)
    after = reloader(run.export, run.final_batch(), run.batch(1)).facts["first_loss"]
    judge.report("loss of batch 1 before", run.losses[0], unit="nat")
    judge.at_least(
        "fall of the loss of batch 1", run.losses[0] - after, 0.1, unit="nat", source="SEE", elements=ROWS * SEQ_LEN
    )


@each_case()
def test_finite(judge, runs, case):
    """Losses, gradient norms, gradients and weights are finite throughout."""
    run = runs.published(case)
    for step in run.steps:
        judge.equal(
            f"step {step.step}: loss and gradient norm are finite",
            math.isfinite(step.loss) and math.isfinite(step.grad_norm),
            True,
            elements=2,
        )
    tensors = {f"gradient of {k}": v for k, v in run.gradients(1).items()} | {
        f"weight {k} after the last step": v for k, v in run.weights(len(run.steps)).items()
    }
    for name, tensor in tensors.items():
        judge.equal(
            f"{name}: elements that are not finite", int((~tensor.isfinite()).sum()), 0, elements=tensor.numel()
        )


@pytest.mark.level("full")
def test_full_size_random_start(judge, runs):
    """The whole Qwen3-0.6B geometry starts at ln V + D sigma^2 / 2 from random initialisation."""
    geometry = PUBLISHED["Qwen3-0.6B"]
    expected = random_init_loss(geometry.vocab_size, geometry.hidden_size, INITIALIZER_RANGE)
    run = runs.full_size()
    judge.report("prediction", expected, unit="nat", source="ln V + D sigma^2 / 2, V = 151936, D = 1024, sigma = 0.02")
    judge.report("seconds per step", run.seconds_per_step, unit="s")
    judge.at_most(
        "|step-1 loss - prediction|",
        abs(run.losses[0] - expected),
        0.1,
        unit="nat",
        source="3.5 standard errors: logits have deviation 0.64, 512 tokens",
        elements=ROWS * SEQ_LEN,
    )
