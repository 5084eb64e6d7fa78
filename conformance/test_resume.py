"""Does a restart go on exactly where the run stopped, and never by accident?"""

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case
from trncheck.conformance.runs import PEAK_RATE
from trncheck.trainers.errors import RunFailed

CASES = [
    pytest.param(Case("native", "dense-tied", 1), id="native-dense-tied-1r", marks=pytest.mark.level("smoke")),
    pytest.param(Case("native", "moe", 2), id="native-moe-2r", marks=pytest.mark.level("standard")),
    pytest.param(Case("hf", "dense-untied", 2), id="hf-dense-untied-2r", marks=pytest.mark.level("standard")),
    pytest.param(Case("hf", "moe", 1), id="hf-moe-1r", marks=pytest.mark.level("standard")),
]
each_case = pytest.mark.parametrize("case", CASES)


@each_case
@pytest.mark.parametrize("what", ["loss", "grad_norm", "lr", "tokens"])
def test_restarted(judge, runs, case, what):
    """Six steps as 2 + 2 + 2 with restarts equal six steps straight, bit for bit.

    Why: The scheduler was left out of the checkpoint, and the rate warmed up again after each restart
    (https://github.com/pytorch/torchtitan/pull/275); after the end of an epoch the data started from the beginning
    (https://github.com/pytorch/torchtitan/issues/1357). Two restarts over two epoch ends show both.

    Red when: weights, moments, schedule, position or epoch of the data are not restored exactly.

    Reading a failure: The first step that differs is the one after a restart. Tokens that differ explain everything
    else; after them the rate; then the loss of that step (weights), and the loss of the next one (moments).
    """
    straight, restarted = runs.straight(case).steps, runs.restarted(case).steps
    judge.equal("steps", [step.step for step in restarted], [step.step for step in straight], elements=len(straight))
    for a, b in zip(straight, restarted, strict=False):
        judge.equal(f"{what} of step {a.step}", getattr(b, what), getattr(a, what))


def test_schedule(judge, runs):
    """The learning rate rises over 2 warm-up steps, holds for 1, and falls in a straight line from there.

    Why: A schedule that is wrong in both runs resumes bit for bit. So it is held against the formula, too; a scheduler
    that restarts is the known failure (https://github.com/pytorch/torchtitan/pull/275).

    Red when: a step has another learning rate than warm-up, plateau and straight decay give.

    Reading a failure: The step in the message says which part is wrong: 1 and 2 are the warm-up, 3 the plateau, 4 to 6
    the decay. A shift by one step is a scheduler that steps at another moment.
    """
    steps = runs.straight(Case("native", "dense-tied", 1)).steps
    wanted = [PEAK_RATE * factor for factor in (1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6)]
    judge.equal("steps", len(steps), len(wanted))
    for step, rate in zip(steps, wanted, strict=False):
        gap = abs(step.lr / rate - 1)
        judge.at_most(f"learning rate of step {step.step}, relative error", gap, bars.EXACT)


def test_used_folder(judge, runs):
    """A dump folder that holds checkpoints does not silently replace the load that was asked for.

    Why: torchtitan resumes from whatever its folder holds. Who asks for published weights and names a used folder
    trains something else, with status 0. No public report is behind this check; it guards a repair of the kit.

    Red when: a used folder is taken without a word, or refused for another reason.

    Reading a failure: `status 0 after training steps` means that the guard in the trainer is gone. Another message
    means that the run broke before it came there; the evidence has it.
    """
    _hold_refusal(judge, runs, "already holds step-6", steps=8, load_step=-1)


def test_nothing_left(judge, runs):
    """A run that would train zero steps fails and says so.

    Why: A run that does nothing and ends with status 0 looks like one that worked, as tests that return early look like
    passes (https://github.com/SauersML/gam/issues/2422).

    Red when: a run without a step to train ends well, or fails for another reason.

    Reading a failure: `status 0 after training steps []` means that the guard in the trainer is gone. Another message
    means that the run broke before it came there; the evidence has it.
    """
    _hold_refusal(judge, runs, "nothing to train", steps=6, load_step=6)


def _hold_refusal(judge, runs, words: str, **how) -> None:
    case = Case("native", "dense-tied", 1)
    try:
        run = runs.rerun(case, **how)
    except RunFailed as error:
        judge.note("message", str(error))
        judge.equal(f"the run was refused with {words!r}", words in str(error), True)
        if judge.failures:
            judge.fail(f"it ended with: {error}")
    else:
        trained = [step.step for step in run.steps] if list(run.folder.glob("record/steps-*")) else []
        judge.equal("outcome", f"status 0 after training steps {trained}", "a refusal")
