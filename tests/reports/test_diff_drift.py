"""How far numbers moved: which are compared, in units of the budget, beside the noise."""

import math

import pytest

from trncheck.reports.diff import diff_reports
from trncheck.reports.drift import Drift, drifts
from trncheck.reports.schema import CheckResult, Measurement, Outcome

NAN, INF = math.nan, math.inf


def m(value: float, bar: float | None = 1.0, relation: str = "<=", name: str = "gap", **fields) -> Measurement:
    return Measurement(name=name, value=value, bar=bar, relation=relation, **fields)


def one(old: Measurement, new: Measurement, *repeats: float) -> Drift:
    (drift,) = drifts([old], [new], [[old.model_copy(update={"value": value})] for value in repeats])
    return drift


@pytest.mark.parametrize(
    ("old", "new", "of_bar", "worse"),
    [
        (m(0.2), m(0.5), 0.3, True),
        (m(0.5), m(0.2), 0.3, False),
        (m(0.5), m(0.5), 0.0, False),
        (m(0.2), m(0.5, bar=2.0), 0.15, True),
        (m(5.0, 2.0, ">="), m(4.0, 2.0, ">="), 0.5, True),
        (m(4.0, 2.0, ">="), m(5.0, 2.0, ">="), 0.5, False),
        (m(24, 24, "=="), m(23, 24, "=="), None, True),
        (m(6.5, None), m(7.5, None), None, False),
        (m(0.2), m(NAN), INF, True),
        (m(NAN), m(0.2), INF, False),
        (m(NAN), m(NAN), 0.0, False),
        (m(INF), m(INF), 0.0, False),
        (m(0.0, 0.0), m(0.0, 0.0), 0.0, False),
        (m(0.0, 0.0), m(1e-9, 0.0), INF, True),
    ],
)
def test_move_in_units_of_the_budget(old, new, of_bar, worse):
    drift = one(old, new)
    assert drift.of_bar == (of_bar if of_bar is None else pytest.approx(of_bar))
    assert drift.worse is worse


def test_effect_size_against_repeats():
    drift = one(m(0.10), m(0.20), 0.12, 0.14)
    assert (drift.runs, drift.effect) == (3, pytest.approx(4.0))
    assert one(m(0.10), m(0.05), 0.12, 0.14).effect == pytest.approx(-3.5)


def test_fewer_than_three_runs_estimate_no_noise():
    assert one(m(0.10), m(0.20)).effect is None
    assert (one(m(0.10), m(0.20), 0.12).effect, one(m(0.10), m(0.20), 0.12).runs) == (None, 2)


def test_repeats_that_agree_make_any_move_infinite():
    assert one(m(0.1), m(0.1), 0.1, 0.1).effect == 0.0
    assert one(m(0.1), m(0.2), 0.1, 0.1).effect == INF
    assert one(m(0.1), m(0.0), 0.1, 0.1).effect == -INF


@pytest.mark.parametrize("values", [(NAN, 0.1), (INF, 0.1)])
def test_no_noise_from_what_is_no_number(values):
    assert one(m(0.1), m(0.2), *values).effect is None


@pytest.mark.parametrize(
    ("old", "new", "repeats", "notable"),
    [
        pytest.param(m(0.1), m(0.3), (), True, id="much of the budget"),
        pytest.param(m(0.1), m(0.15), (), False, id="little of the budget"),
        pytest.param(m(0.1), m(0.15), (0.101, 0.102), True, id="little, out of the noise"),
        pytest.param(m(0.1), m(0.15), (0.05, 0.15), False, id="little, within the noise"),
        pytest.param(m(0.1), m(0.1001), (0.1, 0.1), False, id="negligible, however precise"),
        pytest.param(m(6.5, None), m(7.5, None), (), True, id="reported only"),
        pytest.param(m(6.5, None), m(6.51, None), (), False, id="reported only, negligible"),
        pytest.param(m(6.5, None), m(7.5, None), (8.0, 9.5), False, id="reported only, within the noise"),
    ],
)
def test_notable(old, new, repeats, notable):
    assert one(old, new, *repeats).notable is notable


def test_pairs_by_name_then_by_place():
    old = [m(1, name="loss"), m(2, name="gap, worst in q"), m(3, name="norm")]
    new = [m(10, name="loss"), m(20, name="gap, worst in k"), m(30, name="norm")]
    assert [(d.name, d.old, d.new) for d in drifts(old, new)] == [
        ("loss", 1, 10),
        ("gap, worst in k", 2, 20),
        ("norm", 3, 30),
    ]
    assert [d.old for d in drifts(old, new[::-1])] == [3, 2, 1]


def test_no_pair_of_different_kinds():
    assert drifts([m(1, name="a", unit="nat")], [m(1, name="b", unit="bytes")]) == []
    assert drifts([m(1, name="a")], [m(1, name="b"), m(1, name="c")]) == []


def test_equal_names_pair_in_order():
    assert [(d.old, d.new) for d in drifts([m(1), m(2)], [m(3), m(4)])] == [(1, 3), (2, 4)]


def with_value(make_report, run_id: str, value: float, version: str = "a" * 12, **fields):
    result = CheckResult(
        id="losses.start",
        subject="losses",
        title="t",
        outcome=Outcome.PASS,
        level="smoke",
        target="cpu",
        version=version,
        measurements=[m(value)],
    )
    return make_report(run_id=run_id, results=[result], **fields)


def test_only_repeats_of_the_old_run_count(make_report):
    old, new = with_value(make_report, "1", 0.10), with_value(make_report, "2", 0.20)
    repeats = [
        with_value(make_report, "3", 0.12),
        with_value(make_report, "4", 0.14),
        with_value(make_report, "4", 0.14),
        old,
        new,
        with_value(make_report, "5", 9.0, release="2.32.0"),
        with_value(make_report, "6", 9.0, level="full"),
        with_value(make_report, "7", 9.0, kit_commit="0000000"),
        with_value(make_report, "8", 9.0, complete=False),
        with_value(make_report, "9", 9.0, version="b" * 12),
    ]
    (drift,) = diff_reports(old, new, repeats).checks[0].drifts
    assert (drift.runs, drift.effect) == (3, pytest.approx(4.0))


def test_numbers_of_a_changed_check_are_not_compared(make_report):
    diff = diff_reports(with_value(make_report, "1", 0.1), with_value(make_report, "2", 0.9, version="b" * 12))
    assert diff.checks[0].drifts == []
