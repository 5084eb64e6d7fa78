"""Markdown, JUnit and terminal: what a reader of each finds."""

import io
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console

from trncheck.reports.html import render_html
from trncheck.reports.junit import render_junit
from trncheck.reports.markdown import render_markdown
from trncheck.reports.schema import CheckResult, Measurement, Outcome, Report, Target, Verdict, VerdictStatus
from trncheck.reports.summary import message_alone, message_beside_table
from trncheck.reports.terminal import print_summary

PAGE = Path("results/2.33.0/cpu/run/report.html")


def printed(report: Report, **console: object) -> str:
    file = io.StringIO()
    print_summary(report, PAGE, Console(**({"file": file, "width": 80} | console)))
    return file.getvalue()


def test_markdown_starts_with_the_verdict(report):
    lines = render_markdown(report).split("\n")
    assert lines[0] == "## NOT CONFORMANT: Neuron 2.33.0 must not be trusted: 3 required checks fail on cpu."
    assert "**19 executed, 6 not run, 3 failed; 14 of 23 required checks passed**" in lines


def test_markdown_has_pins_failures_reasons_and_numbers(report):
    text = render_markdown(report)
    assert "| `transformers` | 5.16.0 | 5.15.2 | different |" in text
    assert "  pattern   every position from 1 on" in text
    assert "* needs a Neuron device, this machine has none (5): `environment.driver`" in text
    assert "| 0.0272 | ≤ 0.008 | **missed** |" in text
    assert r"step-1 loss, \|path - transformers\|" in text
    assert "| 12.43 | 12.44 |" in text


def test_markdown_tables_are_rectangular(report):
    report.pins[0].note = "a | b\n| c |"
    rows = [line for line in render_markdown(report).split("\n") if line.startswith("| ")]
    widths = {row.replace("\\|", "").count("|") for row in rows}
    assert widths == {6, 7}


def test_markdown_of_many_failures_fits_a_comment(report):
    failed = next(r for r in report.results if r.outcome is Outcome.FAIL)
    report.results = [failed.model_copy(update={"id": f"s.c[{k}]", "message": "x" * 10_000}) for k in range(100)]
    text = render_markdown(report)
    assert len(text) < 65_536
    assert all(f"`s.c[{k}]`" in text for k in range(100))


def test_junit_counts_and_outcomes(report):
    root = ET.fromstring(render_junit(report))
    assert [root.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["25", "3", "0", "8"]
    assert len(list(root)) == len({result.subject for result in report.results})
    cases = {case.get("name"): case for case in root.iter("testcase")}
    for result in report.results:
        case = cases[result.id]
        assert case.get("classname") == result.subject
        assert (case.find("failure") is not None) is result.outcome.is_failure
        passed = result.outcome is Outcome.PASS
        assert passed is (case.find("failure") is None and case.find("skipped") is None)
    skipped = cases["environment.driver"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "not-run: needs a Neuron device, this machine has none"
    values = {p.get("name"): p.get("value") for p in cases["kernels.rope_forward[fp32]"].iter("property")}
    assert values["max relative error"] == "3.1e-07 <= 1.24e-06"
    assert values["compared.elements"] == "1234567"


def test_junit_of_an_unfinished_run_is_red(make_report):
    root = ET.fromstring(render_junit(make_report(complete=False, results=[])))
    assert root.get("errors") == "1"
    error = root.find(".//testcase[@name='run.finished']/error")
    assert error is not None
    assert "did not finish" in error.get("message", "")


def test_terminal_ends_with_verdict_and_page(report):
    lines = printed(report).rstrip("\n").split("\n")
    assert lines[-2] == "NOT CONFORMANT: Neuron 2.33.0 must not be trusted: 3 required checks fail on cpu."
    assert lines[-1] == str(PAGE)
    assert "FAIL kernels.rope_backward[bf16, transposed cotangent]" in lines
    assert "  5 checks (environment, sharding, paths): needs a Neuron device, this machine has none" in lines


def test_terminal_has_colours_only_on_a_terminal(report):
    assert "\x1b" not in printed(report)
    assert "\x1b[" in printed(report, force_terminal=True, color_system="standard")


def test_terminal_survives_a_log_without_unicode(report):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", newline="")
    print_summary(report, PAGE, Console(file=file, width=80))
    file.flush()
    assert b"NOT CONFORMANT: " in raw.getvalue()


def test_terminal_shortens_long_messages(report):
    report.results[1].message = "\n".join(f"line {k}" for k in range(200))
    text = printed(report)
    assert "line 7\n" in text
    assert "line 8\n" not in text
    assert "… 192 more lines" in text


@pytest.mark.parametrize("render", [render_markdown, printed])
def test_incomplete_is_loud_in_text(make_report, render):
    verdict = Verdict(status=VerdictStatus.CONFORMANT, headline="All is well.")
    text = render(make_report(complete=False, verdict=verdict))
    assert "INCOMPLETE (RUN DID NOT FINISH): All is well." in text
    assert "CONFORMANT" not in text


@pytest.mark.parametrize("render", [render_markdown, render_junit, printed])
def test_a_bare_report_renders(make_report, render):
    assert render(make_report(results=[], curves=[], pins=[], expectations=[], stack=""))


def test_optional_failures_come_last_and_say_so(report):
    extra = CheckResult(
        id="aaa.first", subject="aaa", title="T.", outcome=Outcome.FAIL, level="smoke", target="cpu", required=False
    )
    report.results.insert(0, extra)
    text = printed(report)
    assert text.index("FAIL aaa.first (not required)") > text.index("NOTHING-COMPARED losses")


SOURCE = "error of plain bfloat16 against float64 on the same inputs, times 2, with a floor of four ulps"


def with_long_sources(report: Report) -> CheckResult:
    """A failure that names the source of its bar three times, and has more measurements than are listed."""
    failed = next(result for result in report.results if result.outcome is Outcome.FAIL)
    failed.measurements = [
        Measurement(name=f"part {k:02}", value=k / 10, bar=1.0, source=SOURCE, ok=k <= 10) for k in range(14)
    ]
    failed.message = "\n".join(f"part {k}: {k / 10}, allowed at most 1; bar: {SOURCE}" for k in (11, 12, 13))
    return failed


def test_message_names_a_source_in_full_where_no_table_has_it(report):
    result = with_long_sources(report)
    beside, alone = message_beside_table(result), message_alone(result)
    assert SOURCE not in beside
    assert beside.count("error of plain bfloat16 against …") == 3
    assert alone.count(SOURCE) == 1
    assert alone.index(SOURCE) < alone.index("part 12")
    assert all(
        f"part {k}: {k / 10}, allowed at most 1; bar: error" in text for k in (11, 12, 13) for text in (beside, alone)
    )
    assert printed(report).count(SOURCE) == 1
    short = result.model_copy(update={"measurements": []})
    assert message_alone(short) == message_beside_table(short) == result.message


def test_junit_lists_what_used_most_of_its_bar(report):
    id = with_long_sources(report).id
    root = ET.fromstring(render_junit(report))
    values = {p.get("name"): p.get("value") for p in root.find(f".//testcase[@name='{id}']/properties")}
    assert [name for name in values if name.startswith("part")] == [f"part {k:02}" for k in range(13, 5, -1)]
    assert values["measurements.not_listed"] == "6 more measurements, which used less of their bars"


def test_required_checks_are_those_of_the_level_where_they_are_known(make_report):
    report = make_report(required_checks=250, complete=False)
    assert "14 of 250 required checks passed" in render_markdown(report)
    assert "14 of 250 required checks passed" in printed(report)
    # Files of the suite that a run was not given hold cases that it cannot count.
    assert "14 of 23 required checks passed" in render_markdown(make_report(required_checks=2))


def test_rehearsal_is_the_first_word_of_every_form(report):
    report.target = Target.REHEARSAL
    assert render_markdown(report).startswith("## REHEARSAL, NOT CONFORMANT: ")
    assert "REHEARSAL, NOT CONFORMANT: " in printed(report)
    assert '<span class="status">REHEARSAL, NOT CONFORMANT</span>' in render_html(report)
    properties = ET.fromstring(render_junit(report)).iter("property")
    assert any(p.get("value").startswith("REHEARSAL, ") for p in properties if p.get("name") == "verdict")
    assert "--target trn2 --rehearse" in render_markdown(report)
