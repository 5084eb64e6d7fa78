"""A run against a baseline: exactly or within the band, and what has no counterpart; in every format."""

import json
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from trncheck.reports.baseline import Baseline
from trncheck.reports.baseline_build import build
from trncheck.reports.baseline_check import BaselineComparison, check_run
from trncheck.reports.baseline_output import emit, render
from trncheck.reports.schema import CheckResult, Measurement, Outcome, Report
from trncheck.reports.text import clean

FORMATS = ("text", "markdown", "json")
FINITE = st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-12)


def check(*values: float, id: str = "losses.start", bar: float | None = 1.0, **changes) -> CheckResult:
    """A green check with measurements a, b, ..."""
    named = zip("abcdefgh", values, strict=False)
    measurements = [Measurement(name=name, value=value, bar=bar, unit="nat") for name, value in named]
    fields = {"outcome": Outcome.PASS, "version": "a" * 12, "measurements": measurements} | changes
    return CheckResult(id=id, subject="losses", title="Training starts.", level="smoke", target="cpu", **fields)


@pytest.fixture(scope="module")
def run(make_report):
    """``run(n, checks)``: the n-th repeat."""

    def run(n: int, *checks: CheckResult, **changes) -> Report:
        fields = {"run_id": f"run-{n}", "started": f"2026-03-0{n}T10:15:00+00:00", "kit_commit": "c3931d2"} | changes
        return make_report(results=list(checks), **fields)

    return run


@pytest.fixture(scope="module")
def baseline(run) -> Baseline:
    """``a`` is 0.5 in every run, ``b`` is 1, 2 and 3; two more checks."""
    others = check(4.0, id="checkpoint.a"), check(5.0, id="paths.a")
    return build([run(n, check(0.5, float(n)), *others) for n in (1, 2, 3)], "measured", None)[0]


@pytest.fixture
def against(run, baseline):
    """``against(checks)``: a run with these checks against the baseline."""

    def against(*checks: CheckResult, change=lambda report: None, **changes) -> BaselineComparison:
        report = run(4, *checks, **changes)
        change(report)
        return check_run(report, baseline, "baseline.json")

    return against


def another_torch(report: Report) -> None:
    report.environment.packages = report.environment.packages | {"torch": "2.14.0", "numpy": "9"}


def test_the_same_environment_is_held_to_the_last_bit(against):
    comparison = against(check(0.5, 2.5))
    assert [(n.name, n.how, n.inside) for n in comparison.numbers] == [("a", "golden", True), ("b", "band", True)]
    assert (comparison.mismatch, comparison.exit_status) == (None, 0)
    text = render(comparison, "text")
    assert "1 number held to the exact value, bit for bit; 1 to the band, because the baseline's runs varied." in text
    assert text.strip().split("\n")[-1].startswith("INSIDE: 2 numbers inside")

    comparison = against(check(math.nextafter(0.5, 1), 2.5))
    assert [number.name for number in comparison.outside] == ["a"]
    assert comparison.exit_status == 1
    assert "0.5000000000000001 nat, expected exactly 0.5 (3 runs): differs by 1.11e-16" in render(comparison, "text")


def test_another_environment_is_held_to_the_band_and_says_why(against):
    comparison = against(check(math.nextafter(0.5, 1), 2.5), change=another_torch)
    assert {number.how for number in comparison.numbers} == {"band"}
    assert comparison.exit_status == 0
    assert comparison.mismatch.item == "package numpy"
    assert "first in this: package numpy is 9 here, absent in the baseline." in render(comparison, "text")
    assert [n.name for n in against(check(0.61, 2.5), change=another_torch).outside] == ["a"]


@pytest.mark.parametrize(
    ("change", "item"),
    [
        (lambda report: setattr(report.environment, "cpu", "Graviton"), "CPU"),
        (lambda report: setattr(report.environment, "os", "Linux 7"), "OS"),
        (lambda report: setattr(report.environment, "python", "3.12.1"), "Python"),
        (lambda report: setattr(report.environment, "variables", {}), "variable OMP_NUM_THREADS"),
        (lambda report: setattr(report, "pins", []), "pin torch-neuronx"),
        (lambda report: setattr(report, "target", "trn2"), "target"),
        (lambda report: setattr(report, "seed", 7), "seed"),
        (lambda report: setattr(report, "kit_commit", "bbbbbbb"), None),
        (lambda report: setattr(report.environment, "memory_gib", 1.0), None),
        (lambda report: report.environment.packages.update(trncheck="9"), None),
    ],
)
def test_what_makes_bit_exact_agreement_plausible(against, change, item):
    mismatch = against(check(0.5), change=change).mismatch
    assert (mismatch and mismatch.item) == item


@pytest.mark.parametrize(
    ("value", "off"), [(80.0, "above"), (-80.0, "below"), (math.nan, "no number"), (math.inf, "∞ above")]
)
def test_by_how_much_a_number_is_outside(against, value, off):
    comparison = against(check(0.5, value))
    (number,) = comparison.outside
    assert (number.name, number.how, number.n) == ("b", "band", 3)
    distance = max(number.low - value, value - number.high)
    assert number.by == (math.inf if math.isnan(value) else pytest.approx(distance))
    text = render(comparison, "text")
    assert f"(mean 2, 3 runs): {'' if math.isfinite(value) else off}" in text
    assert off in text
    assert "OUTSIDE: 1 of 2 numbers outside" in text


def test_what_has_no_counterpart(against):
    comparison = against(
        check(0.5, 2.0, 9.0),
        check(4.0, id="checkpoint.a", version="b" * 12),
        check(5.0, id="paths.a", outcome=Outcome.NOT_RUN, message="no\ndevice"),
        check(1.0, id="new.a"),
        check(1.0, id="idle.a", outcome=Outcome.NOT_RUN),
    )
    assert [(c.id, c.baseline, c.run) for c in comparison.changed] == [("checkpoint.a", "a" * 12, "b" * 12)]
    assert [(u.id, u.name, u.reason) for u in comparison.missing] == [("paths.a", "a", "not-run: no device")]
    assert [(u.id, u.name) for u in comparison.new] == [("losses.start", "c"), ("new.a", "a")]
    assert (comparison.compared, comparison.exit_status) == (2, 0)
    assert "INSIDE: 2 numbers inside, 1 check of another version, 1 number missing, 2 numbers new." in render(
        comparison, "text"
    )
    assert len(against(check(0.5)).missing) == 3
    assert against(check(0.5, 2.0, outcome=Outcome.INCONCLUSIVE)).missing[1].reason == "inconclusive"
    assert against(check(0.5, version="")).changed[0].run == ""


@pytest.mark.parametrize("checks", [(), (check(0.5, version="b" * 12),), (check(1.0, id="other.a"),)])
def test_nothing_compared_is_no_success(against, checks):
    comparison = against(*checks)
    assert (comparison.compared, comparison.exit_status) == (0, 1)
    assert "\nNOTHING COMPARED: " in render(comparison, "text")


def test_a_failed_check_is_held_against_it_too(against):
    assert against(check(0.6, 2.0, outcome=Outcome.FAIL)).exit_status == 1


def test_what_limits_the_comparison_is_said(against):
    comparison = against(check(0.5), check(0.5), complete=False, level="smoke", kit_commit=None, run_id="run-2")
    words = (
        "level differs",
        "did not finish",
        "1 check took more than one attempt",
        "commit is not known",
        "one of those",
    )
    assert [word for word, warning in zip(words, comparison.warnings, strict=True) if word not in warning] == []


def test_numbers_outside_come_first_and_all_are_shown(run):
    names = [f"number {n}" for n in range(60)]
    checks = [check(measurements=[Measurement(name=name, value=value) for name in names]) for value in (1.0, 2.0)]
    baseline, _ = build([run(n, checks[0]) for n in (1, 2, 3)], "why", None)
    checks[1].measurements[0].value = 1.0
    comparison = check_run(run(4, checks[1]), baseline, "b.json")
    assert [number.inside for number in comparison.numbers] == [False] * 59 + [True]
    assert all(name in render(comparison, "text") for name in names[1:])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(FINITE, min_size=3, max_size=3), min_size=3, max_size=14), st.none() | FINITE, st.booleans())
def test_a_baseline_accepts_its_own_runs_and_flags_what_left_the_band(run, values, bar, elsewhere):
    base = run(9)

    def like(n: int, row: list[float]) -> Report:
        return base.model_copy(update={"run_id": f"run-{n}", "results": [check(*row, bar=bar)]})

    runs = [like(n, row) for n, row in enumerate(values)]
    baseline, left_out = build(runs, "why", None)
    assert left_out == []
    if elsewhere:
        base.environment.cpu = "another"
    for report in runs:
        comparison = check_run(report, baseline, "b.json")
        assert (comparison.compared, comparison.outside) == (3, [])
        assert {number.how for number in comparison.numbers} <= ({"band"} if elsewhere else {"golden", "band"})
    for sign in (1, -1):
        numbers = baseline.checks["losses.start"].numbers
        halves = [(numbers[name].high - numbers[name].low) / 2 for name in "abc"]
        away = [numbers[name].mean + sign * 3 * half for name, half in zip("abc", halves, strict=True)]
        outside = {n.name for n in check_run(like(99, away), baseline, "b.json").outside}
        assert outside >= {name for name, half in zip("abc", halves, strict=True) if half > 0}


HOSTILE = {
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J\r\x00",
    "surrogate": "\ud800 \ufffe",
    "bidi": "\u202eevil\u2066",
    "markup": "[bold red]x[/bold red] [/]",
    "fence": "```\n</details>\n# heading\n~~~ | cell |\n<b>",
    "mention": "@team #1 $x^2$ **bold** [a](javascript:alert(1))",
}


def everything(run, text: str) -> BaselineComparison:
    """A comparison with something of everything, and ``text`` wherever text is."""
    checks = [check(0.5, 1.0, id=f"{name}{text}", version=f"v{text}") for name in ("out", "gone", "changed")]
    for result in checks:
        for measurement in result.measurements:
            measurement.name += text
            measurement.unit += text
    runs = [run(n, *checks, run_id=f"run-{n}{text}", release=f"2.33.0{text}") for n in (1, 2, 3)]
    for report in runs:
        report.environment.cpu += text
    baseline, _ = build(runs, f"why{text}", "0" * 64)
    new = run(4, *(result.model_copy(deep=True) for result in checks), run_id=f"run-4{text}")
    out, gone, changed = new.results
    out.measurements[0].value = 9.0
    gone.outcome, gone.message = Outcome.NOT_RUN, f"no device{text}"
    changed.version = f"w{text}"
    new.environment.cpu = f"another{text}"
    new.results.append(check(1.0, id=f"new{text}"))
    return check_run(new, baseline, f"baseline{text}.json")


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_text_from_outside_stays_text(run, hostile):
    comparison = everything(run, hostile)
    harmless = everything(run, "harmless")
    for format in ("text", "markdown"):
        text = render(comparison, format)
        assert text == clean(text)
    if "[bold" in hostile:
        assert hostile in render(comparison, "text")

    def blocks(markdown: str) -> list[tuple[str, str]]:
        tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
        inline = {child.type for token in tokens for child in token.children or []}
        assert inline <= {"text", "code_inline", "strong_open", "strong_close", "softbreak"}
        return [(token.type, token.tag) for token in tokens]

    assert blocks(render(comparison, "markdown")) == blocks(render(harmless, "markdown"))
    data = json.loads(render(comparison, "json"))
    assert (data["compared"], data["inside"]) == (2, False)


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_all_that_matters_is_said(run, format):
    shown = " ".join(re.sub(r"\\(.)", r"\1", render(everything(run, ""), format)).split())
    words = (
        *("baseline.json", "Neuron 2.33.0 on cpu, level standard, 3 runs from 2026-03-01 10:15 UTC", "c3931d2"),
        *("CPU is another here", "out", "0.4 to 0.6 (mean 0.5, 3 runs)", "8.4 above", "no device", "changed", "new"),
        "OUTSIDE: 1 of 2 numbers outside, 1 check of another version, 2 numbers missing, 1 number new.",
    )
    assert [word for word in words if word not in shown] == []


def test_json_is_strict_and_reads_back(against):
    comparison = against(check(math.nan, 2.0))

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(render(comparison, "json"), parse_constant=refuse)
    assert data["numbers"][0]["by"] == "Infinity"
    assert BaselineComparison.model_validate(data).model_dump_json() == comparison.model_dump_json()


@pytest.mark.parametrize("format", FORMATS)
def test_onto_standard_output(against, format, capsys):
    emit(against(check(0.9, 2.0)), format)
    assert "losses.start" in capsys.readouterr().out
