"""A check that cannot decide: its outcome, what the run makes of it, and what counts for more."""

import pytest

PLANTED = '''
from trncheck.conformance import test_pins


def planted(function):
    function.__module__ = test_pins.__name__
    setattr(test_pins, function.__name__, function)


@planted
def test_planted_open(judge):
    """Nothing can be decided of a part."""
    judge.equal("count", 3, 3)
    judge.inconclusive("output: ill-conditioned")


@planted
def test_planted_open_and_more(judge):
    """Nothing can be decided of a part, and another part is wrong."""
    judge.inconclusive("output: ill-conditioned")
    judge.equal("count", 4, 3)


@planted
def test_planted_open_alone(judge):
    """Nothing can be decided at all."""
    judge.inconclusive("output: ill-conditioned")
'''


@pytest.fixture
def run_only(inner):
    """A run of ``pins.stack``, which passes, and of one planted check."""
    inner.plant(planted=PLANTED)

    def run(name: str, *arguments: str):
        return inner.run("-p", "planted", "--check", "pins.stack", "--check", f"pins.planted_{name}", *arguments)

    return run


@pytest.mark.parametrize("name", ["open", "open_alone"])
def test_inconclusive_check_fails_nothing_and_vouches_for_nothing(run_only, name):
    ended = run_only(name)
    result = ended.results[f"pins.planted_{name}"]
    assert (result.outcome, result.message) == ("inconclusive", "output: ill-conditioned")
    assert ended.status == 0
    assert ended.report.verdict.status == "incomplete"
    assert f"1 required checks inconclusive: pins.planted_{name}." in ended.report.verdict.reasons
    assert "1 passed, 1 skipped" in ended.out


def test_inconclusive_check_fails_a_run_that_must_be_complete(run_only):
    assert run_only("open", "--require-complete").status == 1


def test_failure_counts_for_more(run_only):
    ended = run_only("open_and_more")
    result = ended.results["pins.planted_open_and_more"]
    assert (result.outcome, result.message) == ("fail", "count: expected 3, found 4")
    assert ended.status == 1
