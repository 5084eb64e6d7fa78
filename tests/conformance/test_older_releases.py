"""Runs against releases other than the newest known one."""

import pytest


@pytest.mark.parametrize("version", ["2.31.0", "2.32.0"])
def test_release_without_published_numbers_is_judged_and_never_conformant(inner, version):
    ended = inner.run(
        "--release", version, "--level", "full", "--check", "pins.*", "--check", "walkthrough.expectation"
    )
    assert ended.status == 1, ended.err
    assert "INTERNALERROR" not in ended.out
    numbers = ended.results["walkthrough.expectation[none]"]
    assert (numbers.outcome.value, numbers.required) == ("not-run", False)
    assert numbers.message == f"no number is published for {version}"
    assert ended.report.verdict.status == "not-conformant"
    assert "pins.stack" in {id for id, result in ended.results.items() if result.outcome.is_failure}


def test_unknown_versions_are_not_run_and_leave_the_verdict_incomplete(inner):
    inner.plant(trn2=TRN2)
    ended = inner.run("-p", "trn2", "--release", "2.33.1", "--check", "pins.*")
    assert ended.status == 0, ended.err
    nki = ended.results["pins.pin[nki]"]
    assert (nki.outcome.value, nki.required) == ("not-run", True)
    assert nki.message == "cannot be judged: the package list of 2.33.1 was not found"
    assert ended.report.verdict.status == "incomplete"


# An installation in which everything that is known of 2.33.1 is right; the run itself stays one on a CPU.
TRN2 = """\
from trncheck.conformance import pins
from trncheck.fixtures.installed import Found

found = {"torch": "2.13.0", "torch-neuronx": "2.13.3.0.1", "transformers": "5.16.0", "torchtitan": "0.3.0"}
pins.probe = lambda *_: {name: Found(version) for name, version in (found | {"nki": "0.7.1"}).items()}
"""
