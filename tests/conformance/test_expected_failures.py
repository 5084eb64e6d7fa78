"""Known failures of a release, from the manifest to the outcome, the report and the status of a run."""

import datetime as dt
import json

import pytest

from trncheck.conformance import expected_failures
from trncheck.fixtures.manifest import RELEASES_DIR, ExpectedFailure, Release
from trncheck.reports.schema import Outcome

GOOD = (RELEASES_DIR / "2.33.0.yaml").read_text()
FIELDS = {
    "check": "pins.stack",
    "says": "no stack is met",
    "reason": "the image ships another torch",
    "link": "https://github.com/aws-neuron/aws-neuron-sdk/issues/1",
    "owner": "release team",
    "added": "2026-11-01",
    "expires": "2027-02-01",
    "releases": ">=2.33,<2.34",
}
# No torch that any stack accepts, on the day given by the test.
STACKLESS = """\
import datetime

from trncheck.conformance import expected_failures, pins
from trncheck.fixtures.installed import Found

honest = pins.probe
pins.probe = lambda *_: honest() | {"torch": Found("2.12.1")}
expected_failures.today = lambda: datetime.date(2026, 12, 1)
"""
TODAY = "\n".join(line for line in STACKLESS.splitlines() if "datetime" in line or "import exp" in line)
# Ends of checks that no entry may excuse.
OTHER_ENDS = '''\
from trncheck.conformance import test_pins

def planted(function):
    function.__module__ = test_pins.__name__
    setattr(test_pins, function.__name__, function)

@planted
def test_planted_nothing(judge):
    """Nothing is compared."""

@planted
def test_planted_setup(judge, no_such_fixture):
    """Does not start."""

@planted
def test_planted_bug(judge):
    """Breaks off."""
    judge.equal("a", 1, 1)
    raise RuntimeError("compiler error 70")

@planted
def test_planted_two(judge):
    """Fails twice."""
    judge.fail("router: 0.5, allowed at most 0.1")
    judge.fail("  first at row 3")
    judge.fail("embedding: 0.7, allowed at most 0.1")

@planted
def test_planted_skip(judge):
    """Is skipped."""
    import pytest
    pytest.skip("needs 64 cores")

@planted
def test_planted_known(judge):
    """Is watched."""
    from trncheck.conformance.judge import KnownDefect
    raise KnownDefect("stock torchtitan is wrong")
'''
CRASH = """\
import os

def pytest_runtest_call(item):
    if item.name == "test_stack":
        os.kill(os.getpid(), 9)
"""


def entry(**fields) -> str:
    lines = [f"{name}: {json.dumps(value)}" for name, value in (FIELDS | fields).items() if value is not None]
    return "  - " + "\n    ".join(lines) + "\n"


@pytest.fixture
def judged(inner):
    """A run with a manifest that has these entries, on 2026-12-01."""

    def run(*entries: str, plugin: str = STACKLESS, arguments=("--check", "pins.stack")):
        (inner.folder / "mine.yaml").write_text(f"{GOOD}expected_failures:\n{''.join(entries)}")
        inner.plant(given=plugin)
        return inner.run("-p", "given", "--release", "mine.yaml", *arguments)

    return run


def line_of(number: int = 0) -> int:
    """Line of an entry in the manifest of ``judged``; all have the same number of lines."""
    return len(GOOD.splitlines()) + 2 + number * len(FIELDS)


def refusal(ended) -> str:
    assert ended.status == 4, ended.out + ended.err
    assert not ended.run_folders
    (line,) = [line for line in ended.err.splitlines() if line.strip()]
    return line


@pytest.mark.parametrize("processes", ["0", "2"])
def test_known_failure_is_expected_and_leaves_the_run_incomplete(judged, processes):
    ended = judged(entry(), arguments=("--check", "pins.stack", "-n", processes))
    assert ended.status == 0, ended.out + ended.err
    known = ended.results["pins.stack"]
    assert known.outcome == "expected-fail"
    first, second = known.message.splitlines()
    assert first == (
        "expected until 2027-02-01: the image ships another torch "
        f"(https://github.com/aws-neuron/aws-neuron-sdk/issues/1; release team; mine.yaml:{line_of()})"
    )
    assert second.startswith("no stack is met: torch is 2.12.1")
    assert known.evidence["expected failure, owner"] == "release team"
    assert known.evidence["expected failure, expires"] == "2027-02-01"
    assert known.evidence["expected failure, link"].endswith("/issues/1")
    assert ended.report.verdict.status == "incomplete"
    assert "1 required checks expected-fail: pins.stack." in ended.report.verdict.reasons
    assert ended.report.verdict.headline.startswith("Nothing failed that was not expected to, but")


def test_pages_show_reason_and_expiry(judged):
    ended = judged(entry())
    for page in ("report.html", "report.md", "junit.xml"):
        text = (ended.run_folders[0] / page).read_text()
        assert "expected until 2027-02-01: the image ships another torch" in text, page
    assert "XFAIL (expected until 2027-02-01" in judged(entry(), arguments=("--check", "pins.stack", "-v")).out


def test_without_the_entry_the_same_failure_is_red(judged):
    assert judged(entry(releases="<2.33")).results["pins.stack"].outcome == "fail"


@pytest.mark.parametrize("processes", ["0", "2"])
def test_pass_of_a_strict_entry_is_red_with_one_line_and_the_remedy(judged, processes):
    ended = judged(entry(), plugin=TODAY, arguments=("--check", "pins.stack", "-n", processes))
    assert ended.status == 1
    passed = ended.results["pins.stack"]
    assert passed.outcome == "unexpected-pass"
    assert passed.message == (
        f"passes, but mine.yaml:{line_of()} expects it to fail (the image ships another torch): remove the entry"
    )
    assert ended.report.verdict.status == "not-conformant"
    assert "UNEXPECTED-PASS pins.stack" in ended.out


def test_pass_under_a_pattern_says_that_it_may_be_narrowed(judged):
    message = judged(entry(check="pins.s*"), plugin=TODAY).results["pins.stack"].message
    assert message.endswith("remove the entry, or narrow its check, pins.s*")


def test_pass_of_an_entry_that_is_not_strict_is_a_pass_that_says_so(judged):
    ended = judged(entry(strict="false"), plugin=TODAY)
    assert ended.status == 0
    assert ended.results["pins.stack"].outcome == "pass"
    assert "did not occur" in ended.results["pins.stack"].evidence["passes"]


def test_another_failure_of_the_same_check_is_red(judged):
    ended = judged(entry(says="torch-neuronx is missing"))
    assert ended.status == 1
    assert ended.results["pins.stack"].outcome == "fail"
    assert "expected" not in ended.results["pins.stack"].message.splitlines()[0].split(":")[0]


def test_entry_for_another_target_or_release_is_ignored_whatever_is_wrong_with_it(judged):
    other = entry(check="pins.stak", target="trn2"), entry(check="pins.stak", releases="<2.33", expires="2026-11-02")
    ended = judged(*other, plugin=TODAY)
    assert ended.status == 0, ended.err
    assert ended.results["pins.stack"].outcome == "pass"


@pytest.mark.parametrize("processes", ["0", "1"])
def test_entry_that_names_no_check_is_refused_with_its_line_and_a_close_id(judged, processes):
    wrong = entry(), entry(check="pins.imposters")
    line = refusal(judged(*wrong, arguments=("--check", "pins.stack", "-n", processes)))
    assert f"mine.yaml:{line_of(1)}: " in line
    assert "no check is 'pins.imposters'; did you mean pins.impostors" in line


def test_case_that_is_none_is_refused(judged):
    line = refusal(judged(entry(check="paths.batch[native-dense-tied-3r]")))
    assert "did you mean paths.batch[native-dense-tied-" in line


@pytest.mark.parametrize("check", ["losses.full_size_random_start", "resume.restarted[l*-hf-moe-1r]", "*.pin*"])
def test_entry_may_name_what_is_not_selected_or_of_a_higher_level(judged, check):
    ended = judged(entry(check=check), plugin=TODAY, arguments=("--check", "pins.stack", "--level", "smoke"))
    assert ended.status == 0, ended.err


def test_part_of_the_suite_does_not_make_entries_for_the_rest_wrong(judged, inner):
    judged(entry(check="pins.pin[nki]"), plugin=TODAY)
    part = "trncheck.conformance.test_pins::test_pin[torch]"
    ended = inner.run("-p", "given", "--release", "mine.yaml", suite=part)
    assert ended.status == 0, ended.err


@pytest.mark.parametrize("processes", ["0", "1"])
def test_expired_entry_is_refused_with_its_line(judged, processes):
    line = refusal(judged(entry(expires="2026-11-30"), arguments=("--check", "pins.stack", "-n", processes)))
    assert f"mine.yaml:{line_of()}: the expected failure of pins.stack expired on 2026-11-30" in line
    assert "remove the entry, or renew it with its owner, release team" in line


def test_nothing_else_is_ever_expected(judged):
    entries = [entry(check="pins.planted_*", says=words) for words in ("fixture", "comparing", "needs", "router:")]
    ended = judged(
        *entries, plugin=f"{TODAY}\n{OTHER_ENDS}", arguments=("--check", "pins.planted_*", "--check", "pins.stack")
    )
    outcomes = {id.removeprefix("pins.planted_"): result.outcome.value for id, result in ended.results.items()}
    assert outcomes == {
        "nothing": "nothing-compared",
        "setup": "fail",
        "bug": "fail",
        "two": "fail",
        "skip": "not-run",
        "known": "expected-fail",
        "pins.stack": "pass",
    }
    assert ended.results["pins.planted_known"].message == "stock torchtitan is wrong"
    assert ended.status == 1


def test_every_failure_of_a_check_has_to_be_known(judged):
    entries = entry(check="pins.planted_two", says=["router:", "embedding:"])
    bug = entry(check="pins.planted_bug", says="compiler error 70")
    arguments = ("--check", "pins.planted_two", "--check", "pins.planted_bug")
    ended = judged(entries, bug, plugin=f"{TODAY}\n{OTHER_ENDS}", arguments=arguments)
    assert {result.outcome.value for result in ended.results.values()} == {"expected-fail"}
    assert "RuntimeError: compiler error 70 (given.py:" in ended.results["pins.planted_bug"].message
    assert ended.status == 0


def test_check_under_which_its_process_dies_is_not_expected(judged, inner):
    inner.plant(crash=CRASH)
    ended = judged(
        entry(says="the process died"), plugin=TODAY, arguments=("--check", "pins.*", "-p", "crash", "-n", "1")
    )
    assert ended.results["pins.stack"].outcome == "fail"
    assert ended.status == 1


# --- without a run


def known(**fields) -> ExpectedFailure:
    return ExpectedFailure(**FIELDS | fields)


def release(*entries: ExpectedFailure, version: str = "2.33.0") -> Release:
    rest = {"date": "2026-10-19", "title": "a release", "stacks": [], "pins": [], "expectations": []}
    return Release(version=version, expected_failures=entries, **rest)


@pytest.mark.parametrize(
    ("version", "counts"), [("2.32.9", False), ("2.33.0", True), ("2.33.7", True), ("2.34.0", False)]
)
def test_range_of_releases(version, counts):
    entries = expected_failures.in_force(release(known(), version=version), "cpu", dt.date(2026, 12, 1))
    assert bool(entries) is counts


def test_last_day_counts():
    of = release(known())
    assert expected_failures.in_force(of, "cpu", dt.date(2027, 2, 1))
    with pytest.raises(ValueError, match=r"expired on 2027-02-01"):
        expected_failures.in_force(of, "cpu", dt.date(2027, 2, 2))


def test_real_day_is_the_default():
    day = dt.datetime.now(dt.UTC).date()
    assert expected_failures.in_force(release(known(added="2020-01-01", expires=day)), "cpu")
    with pytest.raises(ValueError, match="expired"):
        expected_failures.in_force(release(known(added="2020-01-01", expires=day - dt.timedelta(days=2))), "cpu")


def test_place_where_a_difference_starts_is_no_failure_of_its_own():
    failures = ["no stack is met: x", "starts at layers.1"]
    judge = expected_failures.judge
    assert judge([known()], "pins.stack", Outcome.FAIL, failures, ["starts at layers.1"])
    assert judge([known()], "pins.stack", Outcome.FAIL, failures) is None
    assert judge([known()], "pins.stack", Outcome.FAIL, failures[::-1], ["starts at layers.1"]) is None


def test_failures_of_one_check_may_belong_to_two_entries():
    two = known(says="torch is missing", reason="another defect")
    judged = expected_failures.judge(
        [known(), two], "pins.stack", Outcome.FAIL, ["no stack is met", "torch is missing"]
    )
    assert judged.outcome is Outcome.EXPECTED_FAIL
    assert [line.split(" (")[0] for line in judged.message.splitlines()[:2]] == [
        "expected until 2027-02-01: the image ships another torch",
        "expected until 2027-02-01: another defect",
    ]
