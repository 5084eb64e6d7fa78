"""Attribution of what differs between two kits on two stacks: planted effects come back as what they are."""

import math

import pytest

from trncheck.reports.attribution import attribute
from trncheck.reports.attribution_effects import Cause
from trncheck.reports.schema import CheckResult, Measurement, Outcome, Report

PASS, FAIL, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.NOT_RUN
KITS = ("c3931d2", "e8cffe7", "c3931d2", "e8cffe7")
STACKS = ("2.13.0", "2.13.0", "2.14.0", "2.14.0")


def check(value: float = 0.5, outcome: Outcome = PASS, bar: float | None = 1.0, **fields) -> CheckResult:
    measurement = Measurement(name="gap", value=value, bar=bar, unit="nat")
    defaults = {"id": "losses.start", "subject": "losses", "title": "Training starts where it must.", "level": "smoke"}
    defaults |= {"target": "cpu", "version": "a" * 12, "measurements": [measurement]}
    return CheckResult(outcome=outcome, **(defaults | fields))


@pytest.fixture
def cells(make_report):
    """Four reports from the results of each cell."""

    def make(*results: list[CheckResult], run: str = "") -> list[Report]:
        reports = []
        for place, of in enumerate(results):
            report = make_report(run_id=f"run-{place}{run}", kit_commit=KITS[place], results=of, pins=[])
            report.environment.packages["torch"] = STACKS[place]
            reports.append(report)
        return reports

    return make


def only(attribution):
    assert len(attribution.findings) == 1, attribution.findings
    return attribution.findings[0]


@pytest.mark.parametrize(
    ("values", "cause", "effects"),
    [
        ((0.1, 0.3, 0.1, 0.3), Cause.KIT, (0.2, 0, 0)),
        ((0.1, 0.1, 0.3, 0.3), Cause.STACK, (0, 0.2, 0)),
        ((0.1, 0.2, 0.4, 0.5), Cause.BOTH, (0.1, 0.3, 0)),
        ((0.1, 0.2, 0.4, 0.3), Cause.STACK, (0, 0.2, -0.1)),
        ((0.1, 0.1, 0.1, 0.5), Cause.INTERACTION, (0.2, 0.2, 0.2)),
        ((0.1, 0.5, 0.5, 0.1), Cause.INTERACTION, (0, 0, -0.4)),
        ((0.1, 0.5, 0.5, 0.5), Cause.INTERACTION, (0.2, 0.2, -0.2)),
        ((0.1, 0.5, 0.102, 0.7), Cause.KIT, (0.499, 0.101, 0.099)),
        ((0.1, 0.101, 0.102, 0.103), Cause.NOISE, (0.001, 0.002, 0)),
    ],
)
def test_planted_effects_on_a_number(cells, values, cause, effects):
    attribution = attribute(cells(*([check(value)] for value in values)))
    finding = only(attribution)
    assert finding.cause is cause
    assert (finding.effects.kit, finding.effects.stack, finding.effects.interaction) == pytest.approx(
        effects, abs=1e-12
    )
    assert attribution.exit_status == int(cause is not Cause.NOISE)


def test_nothing_moved(cells):
    attribution = attribute(cells(*[[check()]] * 4))
    assert not attribution.findings
    assert attribution.counts[Cause.SAME] == 2
    assert (attribution.exit_status, attribution.compared) == (0, 1)


def test_nothing_compared_is_no_success(cells):
    attribution = attribute(cells(*[[check(outcome=NOT_RUN, measurements=[])]] * 4))
    assert (attribution.exit_status, attribution.compared) == (1, 0)


@pytest.mark.parametrize(
    ("values", "bar", "limit", "words"),
    [
        ((0.5, 0.5, 0.5, 0.6), 2.0, 0.02, "1% of the bar 2"),
        ((12.0, 12.0, 12.0, 12.1), None, 12.1 * 2**-23, "float32 ulp"),
        ((12.0, 12.0, 12.0, 12.1), 1e-9, 12.1 * 2**-23, "float32 ulp"),
        ((0.5, 0.5, 0.5, 0.6), 0.0, 0.6 * 2**-23, "float32 ulp"),
    ],
)
def test_the_floor_without_repeats_says_where_it_comes_from(cells, values, bar, limit, words):
    found = only(attribute(cells(*([check(value, bar=bar)] for value in values)))).limit
    assert found.value == pytest.approx(limit)
    assert words in found.source
    assert "no repeats" in found.source


def test_repeats_tell_the_noise(cells):
    four = cells(*([check(value)] for value in (0.1, 0.3, 0.1, 0.3)))
    assert only(attribute(four)).cause is Cause.KIT
    again = [
        cells(*([check(value + noise)] for value in (0.1, 0.3, 0.1, 0.3)), run=f"-{noise}") for noise in (0.2, -0.2)
    ]
    finding = only(attribute(four, list(zip(*again, strict=True))))
    assert finding.cause is Cause.NOISE
    assert finding.limit.value == pytest.approx(0.6)
    assert finding.limit.source == "3 std of 12 runs"


def test_repeats_that_agree_make_a_small_move_count(cells):
    values = (0.1, 0.1001, 0.1, 0.1001)
    four = cells(*([check(value)] for value in values))
    assert only(attribute(four)).cause is Cause.NOISE
    again = [cells(*([check(value)] for value in values), run=f"-{n}") for n in range(2)]
    assert only(attribute(four, list(zip(*again, strict=True)))).cause is Cause.KIT


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ((0.1, math.nan, 0.1, math.nan), Cause.KIT),
        ((0.1, 0.1, math.inf, math.inf), Cause.STACK),
        ((0.1, 0.2, 0.1, math.nan), Cause.INTERACTION),
    ],
)
def test_no_number_any_more(cells, values, cause):
    finding = only(attribute(cells(*([check(value)] for value in values))))
    assert (finding.cause, finding.effects, finding.size) == (cause, None, math.inf)


def test_never_a_number(cells):
    assert not attribute(cells(*[[check(math.nan)]] * 4)).findings


@pytest.mark.parametrize(
    ("outcomes", "cause"),
    [
        ((PASS, FAIL, PASS, FAIL), Cause.KIT),
        ((FAIL, PASS, FAIL, PASS), Cause.KIT),
        ((PASS, PASS, FAIL, FAIL), Cause.STACK),
        ((PASS, PASS, NOT_RUN, NOT_RUN), Cause.STACK),
        ((PASS, FAIL, FAIL, FAIL), Cause.BOTH),
        ((PASS, PASS, PASS, FAIL), Cause.INTERACTION),
        ((PASS, FAIL, FAIL, PASS), Cause.INTERACTION),
    ],
)
def test_outcomes(cells, outcomes, cause):
    attribution = attribute(cells(*([check(outcome=outcome)] for outcome in outcomes)))
    finding = only(attribution)
    assert (finding.cause, finding.name, finding.outcomes) == (cause, "", list(outcomes))
    assert attribution.exit_status == 1


def test_an_outcome_that_repeats_do_not_confirm_is_noise(cells):
    four = cells(*([check(outcome=outcome)] for outcome in (PASS, FAIL, PASS, FAIL)))
    finding = only(attribute(four, [(), (), cells(*[[check(outcome=FAIL)]] * 4, run="-again")[2:3], ()]))
    assert finding.cause is Cause.NOISE
    assert "repeats" in finding.note


def test_a_changed_check_is_not_compared(cells):
    four = cells(*([check(value, version=v * 12)] for value, v in ((0.1, "a"), (0.9, "b"), (0.1, "a"), (0.9, "b"))))
    attribution = attribute(four)
    assert only(attribution).cause is Cause.CHANGED
    assert (attribution.moved, attribution.compared, attribution.exit_status) == (0, 0, 1)


def test_checks_that_are_not_everywhere(cells):
    added, lost = check(id="losses.added"), check(id="losses.lost")
    found = attribute(cells([check(), lost], [check(), lost, added], [check(), lost], [check(), added])).findings
    told = {finding.check: (finding.cause, finding.note) for finding in found}
    assert told["losses.added"] == (Cause.CHANGED, "only the new kit has it")
    assert told["losses.lost"] == (Cause.NOT_COMPARED, "not every run has it")


def test_numbers_that_a_red_check_did_not_reach(cells):
    red = check(outcome=FAIL, measurements=[])
    found = attribute(cells([check()], [check()], [red], [red])).findings
    assert [finding.cause for finding in found] == [Cause.STACK, Cause.NOT_COMPARED]
    assert found[1].note == "1 number not measured in every run"


def test_what_moved_most_comes_first(cells):
    def four(place: int) -> list[CheckResult]:
        new_kit, new_stack = place in (1, 3), place in (2, 3)
        return [
            check(0.1 + 0.0001 * new_kit, id="a.noise"),
            check(0.1 + 0.1 * new_kit, id="b.small"),
            check(0.1 + 0.5 * new_stack, id="c.large"),
            check(outcome=FAIL if new_kit else PASS, id="d.outcome"),
            check(id="e.changed", version="cd"[new_kit] * 12),
        ]

    found = attribute(cells(*map(four, range(4)))).findings
    assert [finding.check[0] for finding in found] == list("dcbea")
