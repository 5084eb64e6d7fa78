"""Text from outside is shown, never obeyed: not by a browser, a Markdown or XML reader, or a terminal."""

import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

from trncheck.reports.html import render_html
from trncheck.reports.junit import render_junit
from trncheck.reports.markdown import render_markdown
from trncheck.reports.schema import Report
from trncheck.reports.store import RunFolder, load_report
from trncheck.reports.terminal import print_summary
from trncheck.reports.text import clean, first_lines, one_line

HOSTILE = {
    "script": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attribute": "\" onmouseover=alert(1) x='",
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;http://x\x1b\\link \x9b2J \x07\x08\r\x00",
    "cdata": "]]> <![CDATA[ --> <!-- &amp; &#0;",
    "surrogate": "\ud800 \udcff \ufffe \uffff",
    "bidi": "\u202eevil\u2066",
    "markup": "[bold red]x[/bold red] [/] [link=http://x]y[/link] :smile:",
    "fence": "```\n``````\n</details>\n# heading\n`````` ~~~ | cell |\n<b>",
    "mention": "@team #1 $x^2$ **bold** [a](javascript:alert(1))",
    "template": "{{ 7 * 7 }} {% include 'x' %} {# c #}",
    "long": "x" * 10_000,
}


def poisoned(report: Report, text: str) -> Report:
    """``report`` with ``text`` in every string that is free of form, keys of mappings included."""
    kept = {"schema_version", "target", "level", "status", "outcome", "kind", "relation", "direction"}

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            free = key in ("evidence", "packages", "variables")
            return {(f"{k} {text}" if free else k): walk(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(item, key) for item in value]
        return f"{value} {text}" if isinstance(value, str) and key not in kept else value

    return Report.model_validate(walk(report.model_dump()))


def printed(report: Report) -> str:
    file = io.StringIO()
    print_summary(report, Path("report.html"), Console(file=file, width=80))
    return file.getvalue()


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))


@pytest.fixture(scope="module")
def plain(make_report) -> Report:
    report = make_report()
    return report.model_copy(update={"curves": report.curves[:2]})


@pytest.fixture(scope="module")
def harmless(plain) -> Report:
    return poisoned(plain, "harmless")


@pytest.fixture(scope="module")
def harmless_tags(harmless) -> list[tuple[str, tuple[str, ...]]]:
    return Tags(render_html(harmless)).found


@pytest.fixture(scope="module", params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request, plain) -> Report:
    return poisoned(plain, request.param)


def test_page_gains_no_tag_and_no_attribute(hostile, harmless_tags):
    page = render_html(hostile)
    assert Tags(page).found == harmless_tags
    assert page == clean(page)


def test_templates_in_text_are_not_run(plain):
    page = render_html(poisoned(plain, HOSTILE["template"]))
    assert page.count("{{ 7 * 7 }}") > 100


def test_long_lines_are_told_to_wrap():
    style = (Path(render_html.__code__.co_filename).parent / "templates" / "report.css").read_text()
    assert re.search(r"body \{[^}]*overflow-wrap: anywhere", style)
    assert re.search(r"\.message \{[^}]*white-space: pre-wrap", style)


def test_junit_parses(hostile):
    text = render_junit(hostile)
    root = ET.fromstring(text.encode("utf-8"))
    assert root.get("tests") == "25"
    assert {element.tag for element in root.iter()} == {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
        "skipped",
    }


def test_terminal_prints_it_as_it_is(hostile):
    text = printed(hostile)
    assert text == clean(text)
    if "[bold red]" in hostile.release:
        assert HOSTILE["markup"] in text


def test_markdown_has_no_structure_of_its_own(hostile, harmless):
    text = render_markdown(hostile)
    assert text == clean(text)
    blocks, inline = tokens(text)
    assert blocks == tokens(render_markdown(harmless))[0]
    assert {token.type for token in inline} <= {"text", "code_inline", "strong_open", "strong_close", "softbreak"}
    plain = "".join(token.content for token in inline if token.type == "text")
    assert not re.search(r"@\w", plain)


def tokens(markdown: str) -> tuple[list[tuple[str, str]], list[Token]]:
    """Blocks with tag (and content, for HTML), and all that is in their text."""
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    blocks = [(t.type, t.content if t.type == "html_block" else t.tag) for t in parsed]
    return blocks, [child for token in parsed for child in token.children or []]


def test_store_takes_it(hostile, tmp_path):
    folder = RunFolder.create(tmp_path, hostile.model_copy(update={"release": "2.33.0", "run_id": "run"}))
    assert len(load_report(folder.path).results) == len(hostile.results)


@given(st.text(st.characters(), max_size=200))
def test_clean_text_is_safe_everywhere(text):
    once = clean(text)
    assert clean(once) == once
    once.encode("utf-8")
    element = ET.Element("a")
    element.text = once
    assert ET.fromstring(ET.tostring(element)).text == (once or None)
    assert "\n" not in one_line(text, 50)
    assert len(one_line(text, 50)) <= 50
    assert all(len(line) <= 40 for line in first_lines(text, 5, 40).split("\n"))
