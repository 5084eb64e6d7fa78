"""Does a restart go on exactly where the run stopped, and never by accident?"""

from collections import Counter

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case
from trncheck.conformance.runs import PEAK_RATE
from trncheck.fixtures import corpus
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


@each_case
def test_epochs(judge, runs, case):
    """The second epoch has the documents of the first, each of them once, in another order.

    What `resume.restarted` holds is that a restart goes on in that order.

    Why: Position and order were lost at the end of an epoch, and the data started from the beginning
    (https://github.com/pytorch/torchtitan/issues/1357). A dataset that is read once more in the same order resumes bit
    for bit.

    Red when: a document is lost, doubled or cut at the end of an epoch, or comes in the order of the first one.

    Reading a failure: Lost and doubled documents are rows that ranks or epochs share; a number of documents that is
    another is one that was cut. The same order is a shuffle that does not know the epoch.
    """
    first, second = (_documents(runs.straight(case), steps) for steps in ((1, 2, 3), (4, 5, 6)))
    judge.equal("documents of the second epoch", len(second), len(first))
    counted = Counter(second)
    lost, doubled = Counter(first) - counted, counted - Counter(first)
    judge.equal("documents that the second epoch lacks", lost.total(), 0, elements=len(first))
    judge.equal("documents that it has too often", doubled.total(), 0, elements=len(first))
    judge.equal("the order differs", first != second, True)


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        pytest.param(Case("native", "dense-tied", 1), 2, id="from-1-to-2"),
        pytest.param(Case("native", "moe", 2), 1, id="from-2-to-1"),
    ],
)
@pytest.mark.level("standard")
def test_other_ranks(judge, runs, case, ranks):
    """A restart on another number of ranks goes on with the right rows, or is refused for the sake of the data.

    Why: The position in the data is kept by rank. Where another number of ranks takes what it finds, rows are trained
    twice or never, and no number says so; torchtitan refuses it. Position and order were lost in other ways
    (https://github.com/pytorch/torchtitan/issues/1357).

    Red when: a restart on other ranks trains on rows that are not the next ones, or fails for another reason.

    Reading a failure: `tokens` name the first step whose rows are not those of a run without a restart. Another
    message means that the run broke elsewhere; if `resume.restarted` is red as well, start there.
    """
    try:
        run = runs.rerun(case, steps=6, load_step=4, ranks=ranks)
    except RunFailed as error:
        judge.note("refusal", str(error))
        judge.equal("refused for the data", "dataloader" in str(error).lower(), True)
        if judge.failures:
            judge.fail(f"  it ended with: {error}")
        return
    for got, want in zip(run.steps, runs.straight(case).steps[4:], strict=False):
        judge.equal(f"tokens of step {want.step}", got.tokens, want.tokens)


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


def _documents(run, steps) -> list[tuple[int, ...]]:
    """Documents of the global batches, rank by rank, in the order in which each was fed them, across ends of rows."""
    found: list[list[int]] = []
    for rank in range(run.world_size):
        ended = True
        for batch in map(run.batch, steps):
            columns = (batch[name].chunk(run.world_size)[rank].flatten().tolist() for name in ("input", "labels"))
            for token, label in zip(*columns, strict=True):
                if ended:
                    found.append([])
                found[-1].append(token)
                ended = label == corpus.EOS
    return [tuple(document) for document in found]


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
