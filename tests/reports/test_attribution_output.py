"""An attribution as text, Markdown and JSON: what is on it, and that text from outside stays text."""

import json
import math
import re

import pytest
from markdown_it import MarkdownIt

from trncheck.reports.attribution import Attribution, attribute
from trncheck.reports.attribution_output import emit, render
from trncheck.reports.schema import Outcome, PinRow, PinStatus

HOSTILE = {
    "script": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x07\x08\r\x00",
    "surrogate": "\ud800 \ufffe",
    "bidi": "\u202eevil\u2066",
    "markup": "[bold red]x[/bold red] [/] [link=http://x]y[/link]",
    "fence": "```\n</details>\n# heading\n~~~ | cell |\n<b>",
    "mention": "@team #1 $x^2$ **bold** [a](javascript:alert(1))",
}


@pytest.fixture
def attribution(make_report):
    """Of the sample, in which the new kit doubles one number and breaks a check, and the new stack loses another."""

    def make(text: str = "") -> Attribution:
        cells = []
        for place in range(4):
            new_kit, new_stack = place in (1, 3), place in (2, 3)
            cell = make_report(run_id=f"run-{place}{text}", kit_commit=f"{'new' if new_kit else 'old'}{text}")
            pin = {"name": f"torch{text}", "kind": "distribution", "expected": "2", "status": PinStatus.EQUAL}
            cell.pins = [PinRow(**pin, found=f"2.1{4 if new_stack else 3}.0{text}")]
            results = {result.id: result for result in cell.results}
            for result in cell.results:
                result.id += text
                result.title += text
                result.version = "a" * 12
                for measurement in result.measurements:
                    measurement.name += text
                    measurement.unit += text
            if new_kit:
                results["kernels.moe_forward[12 experts, empty expert]"].measurements[0].value *= 2
                results["checkpoints.keys"].outcome = Outcome.FAIL
                results["checkpoints.reload"].version = "b" * 12
            if new_stack:
                results["sharding.two_ranks"].measurements[0].value = math.nan
            cells.append(cell)
        return attribute(cells)

    return make


def test_text(attribution):
    text = render(attribution(), "text")
    assert "KIT   0.1.0 (old) -> 0.1.0 (new)" in text
    assert "STACK torch 2.13.0 -> 2.14.0" in text
    assert "kit          checkpoints.keys, outcome" in text
    assert "old/old pass, new kit fail, new stack pass, new/new fail" in text
    assert "old/old 6.4e-06, new kit 6.4e-06, new stack NaN, new/new NaN; bar ≤ 0.0001" in text
    assert "kit +0.004, stack 0, interaction 0; 98 times the limit 4.1e-05 (1% of the bar 0.0041; no repeats" in text
    assert "check changed: checkpoints.reload: its code or its bars differ" in text
    last = text.strip().split("\n")[-1]
    assert last.startswith("MOVED: of outcomes and numbers 2 by the kit, 1 by the stack, 1 of another version")


def test_markdown_is_one_table(attribution):
    markdown = render(attribution(), "markdown")
    tables = MarkdownIt("gfm-like", {"linkify": False}).render(markdown)
    assert tables.count("<table>") == 1
    assert tables.count("<tr>") == 4
    assert "<code>checkpoints.keys</code>" in tables


def test_json_carries_numbers_that_are_none(attribution):
    data = json.loads(render(attribution(), "json"))
    values = [finding["values"] for finding in data["findings"] if finding["check"] == "sharding.two_ranks"]
    assert values == [[6.4e-06, 6.4e-06, "NaN", "NaN"]]
    assert Attribution.model_validate(data).moved == 3


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_strings_stay_text(attribution, name):
    made = attribution(HOSTILE[name])
    text, markdown = render(made, "text"), render(made, "markdown")
    for shown in (text, markdown):
        shown.encode()
        assert not any(c in shown for c in "\x1b\x07\x08\x00\r\x9b\u202e\u2066")
    assert len(text.split("\n")) == len(render(attribution(), "text").split("\n"))
    html = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(markdown)
    assert html.count("<table>") == 1
    assert html.count("<tr>") == 4
    for bad in ("<script", "<img", "<b>", "<a ", "<h1", "@team"):
        # GitHub makes no mention of what is code.
        assert bad not in re.sub("<code>.*?</code>", "", html)
    assert json.loads(render(made, "json"))["findings"]


def test_a_long_list_is_cut_and_says_so(attribution):
    made = attribution()
    made.findings = [made.findings[0]] * 200
    assert "and 170 more moved outcomes and numbers" in render(made, "text")
    assert "and 150 more rows" in render(made, "markdown")


def test_into_a_file(attribution, tmp_path, capsys):
    emit(attribution(), "markdown", tmp_path / "a.md")
    assert capsys.readouterr().out.startswith("MOVED: ")
    assert (tmp_path / "a.md").read_text().startswith("## MOVED: ")
    with pytest.raises(ValueError, match="cannot be written"):
        emit(attribution(), "json", tmp_path / "absent" / "a.json")
