"""Is everything written before it is read?"""

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import each_case
from trncheck.conformance.compare import relative_errors
from trncheck.conformance.unusual_runs import UnusualRuns


@pytest.fixture(scope="session")
def poisoned(runs, tmp_path_factory):
    """First steps in memory that holds NaN, by case."""
    return UnusualRuns(tmp_path_factory.mktemp("memory"), runs).poisoned


@each_case(where=lambda case: case.model == "moe" or (case.model == "dense-tied" and case.ranks == 1))
@pytest.mark.level("standard")
def test_poison(judge, runs, poisoned, case):
    """With NaN in all fresh memory, every buffer is written before it is read, and the first step stays what it is.

    What modules are materialised in, and on a CPU whatever `torch.empty` gives in the whole step, holds NaN, and for
    integers their largest value.

    Why: torchtitan's Transformers backend leaves the rotary frequencies as memory held them
    (https://github.com/pytorch/torchtitan/issues/4783), which overflows at some positions in some processes
    (https://github.com/huggingface/transformers/issues/45902). Rows that a grouped product leaves unwritten made a
    mixture of experts NaN now and then (https://github.com/pytorch/torchtitan/issues/1237). Fresh memory is often zero,
    so that both look right until they do not.

    Red when: a parameter or buffer is not written when weights are drawn or loaded, or the step reads memory that
    nobody wrote.

    Reading a failure: `not written` names parameters and buffers; what is not written when weights are drawn is left
    out of the model's initialisation. No name and a NaN all the same is memory inside of the step: the group of
    gradients that is red first, from the head to the embedding, has it.
    """
    run, error = poisoned(case)
    for when in ("drawn", "loaded"):
        if list(run.folder.glob(f"record/poison-{when}-*")):
            judge.equal(f"not written when weights are {when}", run.poisoned(when), [])
    if error:
        judge.fail(f"in poisoned memory the run ended with {error}")
        return
    usual = runs.published(case)
    gap = abs(run.losses[0] - usual.losses[0])
    judge.at_most("|difference of step-1 loss|", gap, bars.STEP1_LOSS, unit="nat")
    got, want = run.gradients(1), usual.gradients(1)
    judge.same_names("parameters with a gradient", got, want)
    for group, (off, name, elements) in sorted(relative_errors(got, want).items()):
        what = f"gradient of {group}, relative error, worst in {name}"
        judge.at_most(what, off, bars.GRADIENT, elements=elements)
