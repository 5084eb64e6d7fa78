"""A comparison as text, Markdown, JSON and page: what is on it, and that text from outside stays text."""

import io
import json
import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from trncheck.reports.diff import ReportDiff, diff_reports
from trncheck.reports.diff_output import emit, render
from trncheck.reports.diff_text import print_diff
from trncheck.reports.schema import Measurement, Outcome, Report
from trncheck.reports.text import clean

FORMATS = ("text", "markdown", "html", "json")
HOSTILE = {
    "script": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attribute": "\" onmouseover=alert(1) x='",
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x07\x08\r\x00",
    "surrogate": "\ud800 \ufffe",
    "bidi": "\u202eevil\u2066",
    "markup": "[bold red]x[/bold red] [/] [link=http://x]y[/link]",
    "fence": "```\n</details>\n# heading\n~~~ | cell |\n<b>",
    "mention": "@team #1 $x^2$ **bold** [a](javascript:alert(1))",
    "template": "{{ 7 * 7 }} {% include 'x' %}",
}
VOID = {"meta", "link", "input", "col", "br"}


class Page(HTMLParser):
    """Tags with the names of their attributes, visible text, and whether every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def two_reports(make_report, text: str = "") -> tuple[Report, Report]:
    """Runs that differ in every way, with ``text`` in every name and message."""
    old = make_report(run_id=f"20260201T101500-000001{text}", release=f"2.32.0{text}", started="2026-02-01T10:15:00Z")
    new = make_report(run_id=f"20260301T101500-3fa9c1{text}", release=f"2.33.0{text}", level="smoke")
    new.environment.python = f"3.12.1{text}"
    new.environment.variables = {f"NEURON_CC_FLAGS{text}": f"-O1{text}"}
    for report in (old, new):
        report.kit_commit = f"c3931d2{text}"
        for result in report.results:
            result.id += text
            result.title += text
            result.message += text and f"{text}\n{text}"
            result.version = "a" * 12
            result.level = "smoke" if result.id.startswith("checkpoints") else result.level
            for measurement in result.measurements:
                measurement.name += text
                measurement.unit += text
    results = {result.id.removesuffix(text): result for result in new.results}
    results["environment.pins"].outcome = Outcome.PASS
    results["paths.loss[native]"].outcome = Outcome.FAIL
    results["paths.loss[native]"].message = f"step-1 loss: 0.0031 nats{text}"
    results["paths.loss[native]"].measurements[0].value = 3.1e-3
    results["kernels.moe_forward[12 experts, empty expert]"].measurements[0].value = 3.2e-3
    results["checkpoints.reload"].outcome = Outcome.NOT_RUN
    results["checkpoints.keys"].version = "b" * 12
    results["kernels.nki_simulate"].outcome = Outcome.PASS
    results["kernels.moe_negative"].id = f"kernels.moe_refusal{text}"
    results["kernels.moe_negative"].version = old_version = "c" * 12
    next(r for r in old.results if r.id == f"kernels.moe_negative{text}").version = old_version
    return old, new


@pytest.fixture(scope="module")
def diff(make_report) -> ReportDiff:
    return diff_reports(*two_reports(make_report))


@pytest.fixture(scope="module", params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request, make_report) -> ReportDiff:
    return diff_reports(*two_reports(make_report, request.param))


@pytest.fixture(scope="module")
def harmless(make_report) -> ReportDiff:
    return diff_reports(*two_reports(make_report, "harmless"))


SAID = [
    "2.32.0",
    "2.33.0",
    "The levels differ",
    "paths.loss[native]",
    "step-1 loss: 0.0031 nats",
    "checkpoints.reload",
    "kernels.rope_backward[bf16, transposed cotangent]",
    "kernels.moe_refusal",
    "kernels.moe_negative",
    "environment.pins",
    "checkpoints.keys",
    "better by 20 % of the bar",
    "no noise estimate",
    "NEURON_CC_FLAGS",
    "3.12.1",
]


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_all_that_matters_is_said(diff, format):
    text = render(diff, format)
    shown = " ".join((Page(text).text if format == "html" else re.sub(r"\\(.)", r"\1", text)).split())
    assert [words for words in SAID if words not in shown] == []
    assert re.search("WORSE:? 1 broken, 1 no longer covered, 2 still broken, 1 changed, 1 fixed, 1 renamed", shown)
    assert shown.index("checkpoints.reload") < shown.index("environment.pins"), "the worst comes first"


def test_text_ends_with_its_conclusion(diff):
    *_, last = render(diff, "text").strip().split("\n")
    assert last.startswith("WORSE: 1 broken, ")
    assert last.endswith("; verdict still not-conformant.")
    assert len(render(diff, "text").split("\n")) < 60


def test_text_is_short_for_many_failures(make_report):
    old, new = make_report(run_id="1"), make_report(run_id="2")
    check = old.results[0]
    old.results = [check.model_copy(update={"id": f"a.b[{n}]"}) for n in range(300)]
    new.results = [r.model_copy(update={"outcome": Outcome.FAIL, "message": "x\n" * 50}) for r in old.results]
    text = render(diff_reports(old, new), "text")
    assert "and 290 more checks" in text
    assert len(text.split("\n")) < 80


def test_equal_runs_say_so(make_report):
    text = render(diff_reports(make_report(run_id="1"), make_report(run_id="2")), "text")
    assert "\nNOTHING GOT WORSE: 3 still broken, 16 same, 6 not run by either; verdict still not-con" in text


def test_page_is_well_formed_and_asks_for_nothing(diff):
    html = render(diff, "html")
    page = Page(html)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "default-src 'none'" in html
    assert not [tag for tag, _ in page.tags if tag == "script"]


def test_json_is_strict_and_reads_back(make_report):
    old, new = two_reports(make_report)
    for report, value in ((old, 1.0), (new, float("nan"))):
        report.results[0].measurements = [Measurement(name="loss", value=value, bar=2.0)]
    difference = diff_reports(old, new)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(render(difference, "json"), parse_constant=refuse)
    assert data["worse"] is True
    assert data["checks"][0]["category"] == "broken"
    assert ReportDiff.model_validate(data).model_dump_json() == difference.model_dump_json()


def test_page_gains_no_tag_and_no_attribute(hostile, harmless):
    html = render(hostile, "html")
    assert Page(html).tags == Page(render(harmless, "html")).tags
    assert html == clean(html)


def test_markdown_has_no_structure_of_its_own(hostile, harmless):
    def blocks(markdown: str) -> list[tuple[str, str]]:
        tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
        inline = {child.type for token in tokens for child in token.children or []}
        assert inline <= {"text", "code_inline", "strong_open", "strong_close", "softbreak"}
        return [(token.type, token.tag) for token in tokens]

    text = render(hostile, "markdown")
    assert text == clean(text)
    assert blocks(text) == blocks(render(harmless, "markdown"))


def test_terminal_prints_it_as_it_is(hostile):
    file = io.StringIO()
    print_diff(hostile, Console(file=file, width=80))
    assert file.getvalue() == clean(file.getvalue())
    if "[bold red]" in hostile.new.release:
        assert HOSTILE["markup"] in file.getvalue()


def test_json_takes_it(hostile):
    assert json.loads(render(hostile, "json"))["worse"] is True


@pytest.mark.parametrize("format", FORMATS)
def test_into_a_file(diff, format, tmp_path, capsys):
    emit(diff, format, tmp_path / "diff")
    assert (tmp_path / "diff").read_text(encoding="utf-8") == render(diff, format)
    assert capsys.readouterr().out.startswith("WORSE: ")


@pytest.mark.parametrize("format", FORMATS)
def test_onto_standard_output(diff, format, capsys):
    emit(diff, format, None)
    assert "kernels.rope_backward[bf16, transposed cotangent]" in capsys.readouterr().out


def test_an_unwritable_file_is_one_line(diff, tmp_path):
    with pytest.raises(ValueError, match=r"cannot be written \(.*\); choose another file") as caught:
        emit(diff, "text", tmp_path / "absent" / "diff.txt")
    assert "\n" not in str(caught.value)
