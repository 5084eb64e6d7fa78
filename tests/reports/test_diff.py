"""What a comparison says of each check: every category, what counts as worse, and what else differs."""

import pytest

from trncheck.reports.diff import Category, CheckDiff, ReportDiff, diff_reports
from trncheck.reports.schema import CheckResult, Execution, Outcome, PinStatus, Report, Verdict, VerdictStatus

PASS, FAIL, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.NOT_RUN
KNOWN, SURPRISE, OPEN = Outcome.EXPECTED_FAIL, Outcome.UNEXPECTED_PASS, Outcome.INCONCLUSIVE
NOTHING = Outcome.NOTHING_COMPARED


def check(outcome: Outcome = PASS, id: str = "losses.start[moe]", **fields) -> CheckResult:
    defaults = {"title": "Training starts where it must.", "level": "smoke", "target": "cpu", "version": "aaaaaaaaaaaa"}
    return CheckResult(id=id, subject="losses", outcome=outcome, **(defaults | fields))


@pytest.fixture
def compare(make_report):
    """Compares runs that have these checks beside one that passes in both; options of the runs by keyword."""

    def run(old: list[CheckResult], new: list[CheckResult], old_run=None, new_run=None) -> ReportDiff:
        anchor = check(id="losses.anchor")
        before = make_report(results=[anchor, *old], run_id="20260101T000000-000001", **(old_run or {}))
        after = make_report(results=[anchor, *new], run_id="20260102T000000-000002", **(new_run or {}))
        return diff_reports(before, after)

    return run


def of(diff: ReportDiff, id: str = "losses.start[moe]") -> CheckDiff:
    return next(check for check in diff.checks if check.id == id)


@pytest.mark.parametrize(
    ("old", "new", "category", "status"),
    [
        (PASS, PASS, Category.SAME, 0),
        (FAIL, PASS, Category.FIXED, 0),
        (NOTHING, PASS, Category.FIXED, 0),
        (SURPRISE, PASS, Category.FIXED, 0),
        (KNOWN, PASS, Category.FIXED, 0),
        (PASS, FAIL, Category.BROKEN, 1),
        (PASS, NOTHING, Category.BROKEN, 1),
        (PASS, KNOWN, Category.BROKEN, 1),
        (KNOWN, SURPRISE, Category.BROKEN, 1),
        (OPEN, FAIL, Category.BROKEN, 1),
        (FAIL, FAIL, Category.STILL_BROKEN, 0),
        (FAIL, NOTHING, Category.STILL_BROKEN, 0),
        (FAIL, KNOWN, Category.STILL_BROKEN, 0),
        (KNOWN, KNOWN, Category.SAME, 0),
        (PASS, OPEN, Category.NO_LONGER_COVERED, 1),
        (PASS, NOT_RUN, Category.NO_LONGER_COVERED, 1),
        (FAIL, NOT_RUN, Category.NO_LONGER_COVERED, 1),
        (PASS, None, Category.NO_LONGER_COVERED, 1),
        (OPEN, PASS, Category.NEWLY_COVERED, 0),
        (NOT_RUN, PASS, Category.NEWLY_COVERED, 0),
        (None, PASS, Category.NEWLY_COVERED, 0),
        (None, FAIL, Category.NEWLY_COVERED, 1),
        (NOT_RUN, NOT_RUN, Category.SAME, 0),
        (None, NOT_RUN, Category.SAME, 0),
    ],
)
def test_category_and_exit_status(compare, old, new, category, status):
    diff = compare([check(old)] if old else [], [check(new)] if new else [])
    found = of(diff)
    assert (found.category, found.old, found.new) == (category, old, new)
    assert diff.counts[category] == (2 if category is Category.SAME else 1)
    assert diff.exit_status == status
    assert diff.checks[0 if category is not Category.SAME else -1] == found, "the worst comes first"


def test_what_nobody_requires_is_never_worse(compare):
    optional = [check(outcome, required=False) for outcome in (PASS, FAIL)]
    diff = compare(optional[:1], optional[1:])
    assert of(diff).category is Category.BROKEN
    assert not diff.worse
    assert compare([check(PASS)], [check(FAIL, required=False)]).worse, "it was required"


@pytest.mark.parametrize(("old", "new", "status"), [(PASS, FAIL, 1), (FAIL, FAIL, 0), (FAIL, PASS, 0), (PASS, PASS, 0)])
def test_a_changed_check_is_shown_but_not_compared(compare, old, new, status):
    diff = compare([check(old)], [check(new, version="bbbbbbbbbbbb")])
    assert of(diff).category is Category.CHANGED
    assert (of(diff).old, of(diff).new) == (old, new)
    assert diff.exit_status == status, "red now and not before is worse, whatever changed"


def test_losing_a_changed_check_still_loses_it(compare):
    assert of(compare([check()], [check(NOT_RUN, version="bbbbbbbbbbbb")])).category is Category.NO_LONGER_COVERED


def test_an_unknown_version_is_compared_with_a_warning(compare):
    diff = compare([check(PASS, version="")], [check(FAIL)])
    assert of(diff).category is Category.BROKEN
    assert any("version of 1 check is not known" in warning for warning in diff.warnings)
    assert compare([check()], [check()]).warnings == []


def test_a_renamed_check_keeps_its_history(compare):
    new = "losses.first_step[moe]"
    diff = compare([check()], [check(id=new)])
    assert (of(diff, new).category, of(diff, new).renamed_from) == (Category.RENAMED, "losses.start[moe]")
    assert diff.counts[Category.NO_LONGER_COVERED] == diff.counts[Category.NEWLY_COVERED] == 0
    broken = compare([check()], [check(FAIL, id=new)])
    assert (of(broken, new).category, of(broken, new).renamed_from) == (Category.BROKEN, "losses.start[moe]")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param([check()], [check(id="a.b[moe]"), check(id="a.c[moe]")], id="two candidates"),
        pytest.param([check(), check(id="a.b[moe]")], [check(id="a.c[moe]")], id="two origins"),
        pytest.param([check()], [check(id="a.b[moe]", title="Another claim.")], id="another claim"),
        pytest.param([check()], [check(id="a.b[moe]", version="bbbbbbbbbbbb")], id="another version"),
        pytest.param([check(version="")], [check(id="a.b[moe]", version="")], id="no version"),
        pytest.param([check()], [check(id="losses.start[dense]")], id="another case"),
    ],
)
def test_no_rename_where_there_is_a_doubt(compare, old, new):
    diff = compare(old, new)
    assert not any(check.renamed_from for check in diff.checks)
    assert diff.counts[Category.NO_LONGER_COVERED] == len(old)
    assert diff.counts[Category.NEWLY_COVERED] == len(new)


def test_of_several_attempts_the_last_counts(compare):
    diff = compare([check()], [check(FAIL), check(PASS, attempt=2)])
    assert of(diff).category is Category.SAME


def test_levels_that_differ_are_said_and_do_not_count(compare):
    deep = check(level="standard", id="losses.deep")
    diff = compare([check(), deep], [check()], {"level": "standard"}, {"level": "smoke"})
    assert of(diff, "losses.deep").category is Category.NO_LONGER_COVERED
    assert "level standard" in of(diff, "losses.deep").note
    assert any("levels differ" in warning for warning in diff.warnings)
    assert diff.exit_status == 0
    lost = compare([check(), deep], [deep], {"level": "standard"}, {"level": "smoke"})
    assert lost.exit_status == 1, "a check of the common level is gone"


def test_targets_that_differ_are_said_and_do_not_count(compare):
    diff = compare([check()], [check(NOT_RUN, target="trn2")], {}, {"target": "trn2"})
    assert of(diff).note == "OLD ran on cpu, NEW on trn2"
    assert any("targets differ" in warning for warning in diff.warnings)
    assert diff.exit_status == 0
    assert compare([check()], [check(FAIL)], {}, {"target": "trn2"}).exit_status == 1


def test_nothing_compared_is_not_good(make_report):
    old = make_report(results=[check(NOT_RUN)], run_id="1")
    diff = diff_reports(old, make_report(results=[check()], run_id="2"))
    assert (diff.worse, diff.compared, diff.exit_status) == (False, 0, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"complete": False}, "NEW did not finish"),
        ({"command": "pytest -W ignore::X --check 'losses.*'"}, "NEW ran selected checks only"),
        ({"command": "pytest --pyargs trncheck.conformance.test_pins"}, "NEW ran selected checks only"),
        ({"seed": 7}, "seeds differ"),
        ({"started": "2020-01-01T00:00:00+00:00"}, "started before"),
        ({"run_id": "20260101T000000-000001"}, "same run"),
    ],
)
def test_what_limits_the_comparison_is_said(make_report, change, words):
    old = make_report(results=[check()], run_id="20260101T000000-000001")
    new = make_report(**{"results": [check()], "run_id": "20260102T000000-000002"} | change)
    assert [warning for warning in diff_reports(old, new).warnings if words in warning]


def executions(where: str = "tiny, 20 steps, 1 rank", check: str = "losses.start[moe]", **counts: int):
    """Executions of the experts by backend."""
    return [
        Execution(
            operator="trncheck::experts",
            direction="forward",
            dtype="float32",
            backend=backend,
            where=where,
            count=count,
            check=check,
        )
        for backend, count in counts.items()
    ]


@pytest.mark.parametrize(
    ("old", "new", "outcome", "told"),
    [
        (executions(simulator=40), executions(simulator=0), PASS, ["trncheck::experts forward on simulator"]),
        (executions(simulator=40), [], FAIL, ["trncheck::experts forward on simulator"]),
        (executions(simulator=40), executions(neuron=40), PASS, ["trncheck::experts forward on simulator"]),
        (executions(simulator=40), executions(simulator=39), PASS, []),
        (executions(simulator=40), executions("another run", simulator=1), PASS, []),
        (executions(simulator=40), [], NOT_RUN, []),
        (executions(simulator=40), [], None, []),
        (executions(simulator=0), [], PASS, []),
        ([], executions(simulator=40), PASS, []),
    ],
)
def test_kernels_that_ran_no_more_are_named_and_decide_nothing(compare, old, new, outcome, told):
    checks = [check(outcome)] if outcome else []
    diff = compare([check()], checks, {"executions": old}, {"executions": new})
    found = [change for change in diff.changes if change.kind == "kernel"]
    assert [change.name for change in found] == told
    gone = "no longer executed" if new else "none recorded"
    assert all((change.old, change.new) == ("40 executions", gone) for change in found)
    assert diff.worse is (outcome is not PASS)


def test_other_changes(report: Report):
    old, new = report, report.model_copy(deep=True, update={"run_id": "later", "kit_commit": "0123abc"})
    new.environment.python = "3.12.1"
    new.environment.accelerator = "16 Neuron devices"
    new.environment.memory_gib = 512.0
    new.environment.variables = {"OMP_NUM_THREADS": "2", "NEURON_CC_FLAGS": "-O1"}
    new.environment.packages["safetensors"] = "0.7.0"
    new.pins[0].expected = "2.14.0"
    new.pins[3].found, new.pins[3].status = "release-2.33", PinStatus.EQUAL
    found = {(change.kind, change.name): (change.old, change.new) for change in diff_reports(old, new).changes}
    assert found == {
        ("kit", "commit"): ("c3931d2+dirty", "0123abc"),
        ("pinned", "torch"): ("2.14.0 or 2.13.0", "2.14.0"),
        ("installed", "torchtitan-neuron"): (None, "release-2.33"),
        ("installed", "safetensors"): ("0.6.2", "0.7.0"),
        ("environment", "Python"): ("3.11.7", "3.12.1"),
        ("environment", "accelerator"): ("none", "16 Neuron devices"),
        ("variable", "NEURON_RT_VISIBLE_CORES"): ("0-3", None),
        ("variable", "NEURON_CC_FLAGS"): (None, "-O1"),
    }


def test_verdicts_are_those_of_the_reports(make_report):
    good = Verdict(status=VerdictStatus.CONFORMANT, headline="Fine.")
    diff = diff_reports(make_report(), make_report(run_id="2", verdict=good, complete=False))
    assert diff.old.status is VerdictStatus.NOT_CONFORMANT
    assert diff.new.status is VerdictStatus.INCOMPLETE, "a run that did not finish vouches for nothing"


def test_a_broken_check_carries_the_command_that_runs_it_again(compare):
    assert of(compare([check()], [check(FAIL)])).again.startswith("trncheck run --check 'losses.start[moe]'")
    assert of(compare([check(FAIL)], [check()])).again == ""
