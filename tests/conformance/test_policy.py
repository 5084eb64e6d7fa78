"""The verdict, and the exit status that follows from it."""

import pytest

from trncheck.conformance import policy
from trncheck.reports.schema import CheckResult, Outcome, Verdict, VerdictStatus

FAILURES = {Outcome.FAIL, Outcome.UNEXPECTED_PASS, Outcome.NOTHING_COMPARED}


def result(outcome="pass", *, required=True, name="paths.logits", target="trn2") -> CheckResult:
    return CheckResult(
        id=name,
        subject=name.split(".")[0],
        title="a claim",
        outcome=outcome,
        level="smoke",
        target=target,
        required=required,
    )


def judge(*results, target="trn2", unselected=0, finished=True) -> Verdict:
    return policy.verdict("2.33.0", target, results, unselected, finished)


def test_everything_passed_on_the_target_is_conformant():
    verdict = judge(result(), result(name="losses.finite"))
    assert verdict.status is VerdictStatus.CONFORMANT
    assert verdict.headline == "Neuron 2.33.0 passed every required check on trn2."
    assert verdict.reasons == []


@pytest.mark.parametrize("outcome", sorted(FAILURES))
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("target", ["cpu", "trn2"])
@pytest.mark.parametrize(
    ("how", "gaps"),
    [
        ({}, []),
        ({"unselected": 3}, ["3 checks of this level were not selected."]),
        ({"finished": False}, ["The run was stopped before its end."]),
    ],
)
def test_any_failure_decides_against_the_release_and_gaps_are_told(outcome, required, target, how, gaps):
    verdict = judge(result(), result(outcome, required=required, name="losses.finite"), target=target, **how)
    assert verdict.status is VerdictStatus.NOT_CONFORMANT
    assert verdict.headline == "Neuron 2.33.0 must not be trusted: 1 of 2 checks failed."
    assert verdict.reasons == ["losses: 1 failed (losses.finite)", *gaps]


def test_outcomes_that_fail_a_run():
    assert {outcome for outcome in Outcome if outcome.is_failure} == FAILURES


def test_failures_are_listed_by_subject_and_checks_that_did_not_run_do_not_count():
    failed = [result("fail", name=f"paths.gradients[{case}]") for case in "abcde"]
    verdict = judge(*failed, result("fail", name="losses.finite"), result("not-run"))
    assert "6 of 6 checks failed" in verdict.headline
    assert verdict.reasons == [
        "paths: 5 failed (paths.gradients[a], paths.gradients[b], paths.gradients[c] and 2 more)",
        "losses: 1 failed (losses.finite)",
    ]


def test_cpu_is_never_conformant():
    verdict = judge(result(target="cpu"), target="cpu")
    assert verdict.status is VerdictStatus.INCOMPLETE
    assert verdict.reasons == ["This was a CPU: no Neuron device or compiler took part."]


@pytest.mark.parametrize("outcome", ["not-run", "inconclusive", "expected-fail"])
def test_open_required_check_leaves_the_verdict_incomplete_and_is_named(outcome):
    verdict = judge(result(), result(outcome, name="walkthrough.expectation[loss]"))
    assert verdict.status is VerdictStatus.INCOMPLETE
    assert verdict.reasons == [f"1 required checks {outcome}: walkthrough.expectation[loss]."]


@pytest.mark.parametrize("outcome", ["not-run", "inconclusive", "expected-fail", "pass"])
def test_informative_check_does_not_matter(outcome):
    assert judge(result(), result(outcome, required=False)).status is VerdictStatus.CONFORMANT


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"unselected": 2}, "2 checks of this level were not selected."),
        ({"finished": False}, "The run was stopped before its end."),
    ],
)
def test_part_of_a_run_is_incomplete(how, reason):
    verdict = judge(result(), **how)
    assert verdict.status is VerdictStatus.INCOMPLETE
    assert verdict.reasons == [reason]


def test_run_without_a_result_is_incomplete():
    assert judge().status is VerdictStatus.INCOMPLETE
    assert judge().reasons == ["No check has ended yet."]


@pytest.mark.parametrize(
    ("status", "usual", "complete_required"),
    [("conformant", 0, 0), ("incomplete", 0, 1), ("not-conformant", 1, 1)],
)
def test_exit_status(status, usual, complete_required):
    verdict = Verdict(status=status, headline="")
    assert policy.exit_status(verdict, require_complete=False) == usual
    assert policy.exit_status(verdict, require_complete=True) == complete_required


def test_levels_hold_each_other():
    runs = {chosen: [level for level in policy.LEVELS if policy.within(level, chosen)] for chosen in policy.LEVELS}
    assert runs == {
        "smoke": ["smoke"],
        "standard": ["smoke", "standard"],
        "full": ["smoke", "standard", "full"],
    }


def test_rehearsal_is_never_conformant_and_says_nothing_about_the_release():
    verdict = judge(result(), target="trn2-rehearsal")
    assert verdict.status is VerdictStatus.INCOMPLETE
    assert verdict.reasons[0].startswith("This was a rehearsal on a stand-in")
    verdict = judge(result("fail"), target="trn2-rehearsal")
    assert verdict.headline == "On the stand-in, which says nothing about Neuron 2.33.0: 1 of 1 checks failed."
    assert policy.exit_status(verdict, require_complete=False) == 1


def test_report_of_a_rehearsal_does_not_call_itself_trn2(monkeypatch, tmp_path):
    assert policy.reported("trn2") == "trn2"
    monkeypatch.setenv("TRNCHECK_REHEARSAL", str(tmp_path))
    assert policy.reported("trn2") == "trn2-rehearsal"
    assert policy.reported("cpu") == "cpu"
