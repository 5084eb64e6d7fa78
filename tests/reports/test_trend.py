"""What many runs say together: red streaks, flaky checks, numbers that changed level, groups."""

import pytest

from trncheck.reports.history import read_history
from trncheck.reports.schema import CheckResult, Measurement, Outcome
from trncheck.reports.store import RunFolder
from trncheck.reports.trend import trend
from trncheck.reports.trend_models import CheckTrend, Group, Trend
from trncheck.reports.trend_view import gone_red, never_ran, red_now, shifts

PASS, FAIL, NOT_RUN, OPEN = Outcome.PASS, Outcome.FAIL, Outcome.NOT_RUN, Outcome.INCONCLUSIVE
KNOWN, SURPRISE = Outcome.EXPECTED_FAIL, Outcome.UNEXPECTED_PASS
ID = "losses.start[moe]"


def check(outcome: Outcome = PASS, id: str = ID, values: dict[str, float] | None = None, **fields) -> CheckResult:
    numbers = [Measurement(name=name, value=value, bar=10.0) for name, value in (values or {}).items()]
    defaults = {"title": "Training starts where it must.", "level": "smoke", "target": "cpu", "version": "a" * 12}
    return CheckResult(id=id, subject="losses", outcome=outcome, measurements=numbers, **(defaults | fields))


@pytest.fixture
def store(make_report, tmp_path):
    """Stores runs, one per list of checks and an hour apart, then gives their trend; options of runs by position."""
    anchor = check(id="losses.anchor")
    template = make_report(results=[], curves=[], kit_commit="c3931d2")

    def put(*runs: list[CheckResult], options: dict[int, dict] | None = None, **arguments) -> Trend:
        for number, checks in enumerate(runs):
            fields = {
                "run_id": f"r{number:02}",
                "started": f"2026-03-{1 + number // 24:02}T{number % 24:02}:00:00+00:00",
            }
            fields |= {"results": [anchor, *checks]} | (options or {}).get(number, {})
            RunFolder.create(tmp_path, template.model_copy(update=fields))
        return trend(read_history([tmp_path]), **arguments)

    return put


def only(found: Trend) -> Group:
    (group,) = found.groups
    return group


def of(found: Trend, id: str = ID) -> CheckTrend:
    return next(check for check in only(found).checks if check.id == id)


def outcomes(*outcomes: Outcome) -> list[list[CheckResult]]:
    return [[check(outcome)] for outcome in outcomes]


@pytest.mark.parametrize(
    ("history", "first_bad", "last_good", "runs"),
    [
        ([PASS, FAIL, FAIL], "r01", "r00", 2),
        ([FAIL, PASS, FAIL], "r02", "r01", 1),
        ([PASS, FAIL, NOT_RUN, FAIL, NOT_RUN], "r01", "r00", 2),
        ([PASS, OPEN, FAIL, OPEN], "r02", "r00", 1),
        ([KNOWN, SURPRISE], "r01", "r00", 1),
        ([FAIL, Outcome.NOTHING_COMPARED], "r00", None, 2),
    ],
)
def test_a_red_streak_starts_after_the_last_good_run(store, history, first_bad, last_good, runs):
    red = of(store(*outcomes(*history))).red
    assert red.first_bad.run_id == first_bad
    assert (red.last_good and red.last_good.run_id) == last_good
    assert red.runs == runs
    assert red.idle == len(history) - 1 - max(n for n, outcome in enumerate(history) if outcome.is_failure)


@pytest.mark.parametrize("history", [[PASS], [FAIL, PASS], [FAIL, KNOWN], [NOT_RUN, OPEN]])
def test_what_is_not_red(store, history):
    found = store(*outcomes(*history))
    assert of(found).red is None
    assert not red_now(only(found))


def test_a_streak_says_what_else_changed(store):
    red = of(store(*outcomes(PASS, FAIL), options={1: {"kit_commit": "fb5fd26", "release": "2.34.0"}})).red
    assert [(change.kind, change.old, change.new) for change in red.changes] == [("kit", "c3931d2", "fb5fd26")]
    assert (red.last_good.release, red.first_bad.release) == ("2.33.0", "2.34.0")
    assert not red.check_changed


def test_a_streak_says_that_the_check_itself_changed(store):
    assert of(store([check()], [check(FAIL, version="b" * 12)])).red.check_changed


def test_a_streak_is_followed_beyond_the_runs_shown(store):
    found = store(*outcomes(PASS, *[FAIL] * 8), last=3)
    assert of(found).outcomes == [FAIL] * 3
    assert of(found).red.first_bad.run_id == "r01"
    assert (only(found).total, len(only(found).runs)) == (9, 3)


@pytest.mark.parametrize("outcome", [PASS, FAIL])
def test_what_ran_before_the_runs_shown_is_there_only_while_it_is_red(store, outcome):
    full = check(outcome, level="full")
    options = {n: {"level": "smoke" if n else "full"} for n in range(3)}
    found = store([full], [], [], options=options, last=2)
    assert [c.id for c in only(found).checks if c.id == ID] == ([ID] if outcome is FAIL else [])
    assert [c.red.idle for c in red_now(only(found))] == ([2] if outcome is FAIL else [])


def test_incomplete_runs_do_not_count(store):
    found = store(*outcomes(PASS, PASS, FAIL), options={2: {"complete": False}})
    assert of(found).red is None
    assert [run.run_id for run in found.incomplete] == ["r02"]
    assert only(found).total == 2


@pytest.mark.parametrize(
    ("last_run", "gone"),
    [({}, True), ({"level": "smoke"}, False), ({"command": "trncheck run --check 'losses.anchor'"}, False)],
)
def test_a_check_that_left_the_suite_is_not_red_now(store, last_run, gone):
    found = store([check(FAIL, level="standard")], [], options={1: last_run})
    assert of(found).gone is gone
    assert [c.id for c in red_now(only(found))] == ([] if gone else [ID])
    assert [c.id for c in gone_red(only(found))] == ([ID] if gone else [])


def test_checks_that_never_ran_are_told_apart(store):
    found = store(*outcomes(NOT_RUN, NOT_RUN))
    assert [c.id for c in never_ran(only(found))] == [ID]


def test_the_worst_comes_first(store):
    ids = ("b.optional", "c.required", "d.flaky")
    runs = [
        [check(o, id=id, required="optional" not in id) for id, o in zip(ids, row, strict=True)]
        for row in ((PASS, PASS, PASS), (FAIL, FAIL, FAIL), (FAIL, FAIL, PASS))
    ]
    assert [c.id for c in only(store(*runs)).checks] == ["c.required", "b.optional", "d.flaky", "losses.anchor"]


@pytest.mark.parametrize(
    ("history", "options", "flips"),
    [
        ([PASS, FAIL, PASS], {}, 2),
        ([PASS, FAIL, PASS, FAIL], {}, 3),
        ([PASS, NOT_RUN, FAIL, PASS], {}, 2),
        ([PASS, OPEN, PASS], {}, 2),
        ([PASS, FAIL, FAIL], {}, None),
        ([PASS, NOT_RUN, PASS], {}, None),
        ([PASS, FAIL, PASS], {1: {"kit_commit": "x"}}, None),
        ([PASS, FAIL, PASS], {2: {"pins": []}}, None),
        ([PASS, FAIL, PASS], {n: {"kit_commit": "c3931d2+dirty"} for n in range(3)}, None),
        ([PASS, FAIL, PASS, FAIL], {3: {"seed": 7}}, 2),
    ],
)
def test_flaky_is_what_flips_while_nothing_else_changes(store, history, options, flips):
    flaky = of(store(*outcomes(*history), options=options)).flaky
    assert (flaky and flaky.flips) == flips


def test_a_flaky_check_says_where(store):
    flaky = of(store(*outcomes(PASS, PASS, FAIL, PASS), options={0: {"seed": 7}})).flaky
    assert (flaky.first.run_id, flaky.last.run_id, flaky.runs) == ("r01", "r03", 3)
    assert flaky.outcomes == {PASS: 2, FAIL: 1}


def test_another_version_of_the_check_is_no_flip(store):
    assert of(store([check()], [check(FAIL, version="b" * 12)], [check()])).flaky is None


def test_flips_before_the_runs_looked_at_are_forgiven(store):
    assert of(store(*outcomes(PASS, FAIL, *[PASS] * 6), last=6)).flaky is None


def test_a_number_that_changed_level_is_found_with_its_run_and_reason(store):
    runs = [[check(values={"gap": 1.0})]] * 8 + [[check(values={"gap": 4.0})]] * 6
    (series,) = of(store(*runs, options={n: {"kit_commit": "new"} for n in range(8, 14)})).series
    (shift,) = series.shifts
    assert (shift.last_before.run_id, shift.first_after.run_id) == ("r07", "r08")
    assert (shift.drift.old, shift.drift.new, shift.drift.worse) == (1.0, 4.0, True)
    assert shift.drift.of_bar == pytest.approx(0.3)
    assert [(change.kind, change.new) for change in shift.changes] == [("kit", "new")]
    assert (series.values[-1], series.bars[-1], series.used[0], series.used[-1]) == (4.0, 10.0, 0.1, 0.4)


def test_changes_for_the_worse_come_first_then_the_newest(store):
    levels = {"better": (4.0, 1.0, 9), "old": (1.0, 4.0, 7), "new": (1.0, 4.0, 8)}
    runs = [[check(values={n: b if run >= at else a for n, (a, b, at) in levels.items()})] for run in range(15)]
    assert [series.name for _, series, _ in shifts(only(store(*runs)))] == ["new", "old", "better"]


def test_another_version_of_the_check_is_another_number(store):
    runs = [[check(values={"gap": 1.0})]] * 8 + [[check(values={"gap": 4.0}, version="b" * 12)]] * 6
    found = store(*runs)
    (series,) = of(found).series
    assert series.runs == list(range(8, 14))
    assert series.shifts == []
    assert only(found).unversioned == 0


def test_checks_without_a_version_are_counted(store):
    assert only(store([check(values={"gap": 1.0}, version="")])).unversioned == 1


def test_a_number_keeps_its_history_when_the_place_in_its_name_varies(store):
    names = ["norms, worst in layer 1", "norms, worst in layer 3", "norms, worst in layer 1", "norms, worst in layer 2"]
    found = of(store(*[[check(values={"loss": 9.0, name: float(n)})] for n, name in enumerate(names)]))
    assert [(series.name, series.values) for series in found.series] == [
        ("loss", [9.0] * 4),
        ("norms, worst in layer 2", [0.0, 1.0, 2.0, 3.0]),
    ]


def test_numbers_that_changed_places_keep_their_names(store):
    found = of(store([check(values={"a": 1.0, "b": 2.0})], [check(values={"b": 2.0, "c": 3.0, "a": 1.0})]))
    assert {series.name: series.values for series in found.series} == {"a": [1.0] * 2, "b": [2.0] * 2, "c": [3.0]}


def test_numbers_of_checks_that_did_not_run_leave_a_gap(store):
    found = of(store([check(values={"a": 1.0})], [check(NOT_RUN)], [check(values={"a": float("nan")})]))
    assert found.series[0].runs == [0, 2]


def test_releases_follow_each_other_by_date_whenever_they_were_run(store):
    old, new = ({"release": r, "release_date": d} for r, d in (("2.32.0", "2026-01-01"), ("2.33.0", "2026-02-01")))
    found = store(*outcomes(PASS, FAIL, PASS), options={0: new, 1: new, 2: old})
    assert [run.run_id for run in only(found).runs] == ["r02", "r00", "r01"]
    assert [run.changed for run in only(found).runs] == [False, True, False]
    assert of(found).red.last_good.run_id == "r00"


def test_releases_apart(store):
    found = store(*outcomes(FAIL, PASS), options={1: {"release": "2.34.0"}}, group="release")
    assert [(group.name, group.total) for group in found.groups] == [
        ("cpu, Neuron 2.34.0", 1),
        ("cpu, Neuron 2.33.0", 1),
    ]
    assert [len(red_now(group)) for group in found.groups] == [0, 1]


def test_targets_are_always_apart(store):
    found = store(*outcomes(FAIL, PASS), options={1: {"target": "trn2"}})
    assert [group.name for group in found.groups] == ["trn2", "cpu"]


def test_at_least_one_run_is_shown(store):
    with pytest.raises(ValueError, match="at least 1 run"):
        store(*outcomes(PASS), last=0)
