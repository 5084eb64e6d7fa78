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
    """Six steps as 2 + 2 + 2 with restarts equal six steps straight, bit for bit."""
    straight, restarted = runs.straight(case).steps, runs.restarted(case).steps
    judge.equal("steps", [step.step for step in restarted], [step.step for step in straight], elements=len(straight))
    for a, b in zip(straight, restarted, strict=False):
        judge.equal(f"{what} of step {a.step}", getattr(b, what), getattr(a, what))


def test_schedule(judge, runs):
    """The learning rate rises over 2 warm-up steps, holds for 1, and falls in a straight line from there."""
    steps = runs.straight(Case("native", "dense-tied", 1)).steps
    wanted = [PEAK_RATE * factor for factor in (1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6)]
    judge.equal("steps", len(steps), len(wanted))
    for step, rate in zip(steps, wanted, strict=False):
        gap = abs(step.lr / rate - 1)
        judge.at_most(f"learning rate of step {step.step}, relative error", gap, bars.EXACT)


def test_used_folder(judge, runs):
    """A dump folder that holds checkpoints does not silently replace the load that was asked for."""
    _hold_refusal(judge, runs, "already holds step-6", steps=8, load_step=-1)


def test_nothing_left(judge, runs):
    """A run that would train zero steps fails and says so."""
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
