"""Does the same run give the same bytes in another process?"""

import hashlib

import pytest

from trncheck.conformance.cases import Case
from trncheck.conformance.unusual_runs import STEPS, UnusualRuns

CASES = tuple(
    Case(*case) for case in (("native", "dense-tied", 1), ("native", "moe", 2), ("hf", "moe", 2), ("nki", "moe", 1))
)


@pytest.fixture(scope="session")
def repeats(runs, tmp_path_factory):
    """Short runs from a random start, in this process and in another one."""
    return UnusualRuns(tmp_path_factory.mktemp("determinism"), runs)


@pytest.mark.level("standard")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_processes(judge, repeats, case):
    """Two runs in processes that hash text by different seeds agree to the last byte, from random start to export.

    Why: What hangs on the order of a set or of a folder's files, on the time, or on the seed of a process gives another
    model in every process, and a number that moves cannot be told from a fault. No public report is behind this check;
    bit-exact baselines that broke are in https://github.com/pytorch/torchtitan/pull/2474.

    Red when: a loss, gradient norm, rate or batch of any step, or a byte of an exported file differs between the two.

    Reading a failure: The first step that differs says where to look: tokens are the order of the data, the first loss
    is the random start, the first gradient norm a reduction, a later loss the optimizer. Files alone are the export.
    """
    got, want = repeats.elsewhere(CASES)[case], repeats.here(case)
    judge.equal("steps", len(want.steps), STEPS)
    for a, b in zip(got.steps, want.steps, strict=False):
        for what in ("tokens", "loss", "grad_norm", "lr", "kernel_counts"):
            judge.equal(f"{what} of step {b.step}", getattr(a, what), getattr(b, what))
    ours, theirs = _digests(want.export), _digests(got.export)
    judge.same_names("exported files", theirs, ours)
    differing = sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
    judge.equal("exported files that differ in a byte", differing, [], elements=len(ours))


def _digests(folder) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.is_file()}
