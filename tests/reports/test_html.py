"""The page: what is on it, that it asks for nothing, and that nobody overlooks an incomplete run."""

import itertools
import re
from html.parser import HTMLParser

import pytest

from trncheck.reports.html import on_scale, render_html
from trncheck.reports.schema import Measurement, Outcome, Verdict, VerdictStatus
from trncheck.reports.summary import budget_used

VOID = {"meta", "link", "input", "col", "br", "path", "line", "use", "rect"}


class Page(HTMLParser):
    """Tags with attributes, visible text, and whether every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def html(make_report) -> str:
    return render_html(make_report())


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def test_well_formed(page):
    assert page.open == []
    ids = [attrs["id"] for tag, attrs in page.tags if "id" in attrs and tag not in ("path", "clippath", "g")]
    assert len(ids) == len(set(ids))
    anchors = {attrs["href"][1:] for attrs in page.all("a")}
    assert anchors <= set(ids)


def test_all_of_the_run_is_on_the_page(page, make_report):
    report = make_report()
    shown = " ".join(page.text.split())
    wanted = [report.verdict.headline, *report.verdict.reasons, report.stack, report.command, report.kit_commit]
    wanted += [result.id for result in report.results] + [result.title for result in report.results]
    wanted += [" ".join(result.message.split()) for result in report.results]
    wanted += [m.name for result in report.results for m in result.measurements]
    wanted += [text for pin in report.pins for text in (pin.name, pin.expected, pin.found or "", pin.note)]
    wanted += [curve.name for curve in report.curves] + [e.source for e in report.expectations]
    wanted += ["NOT CONFORMANT", "0.0272", "≤ 0.008", "340 %", "12.43", "12.44", "6.54", "1,234,567 elements"]
    assert [text for text in wanted if text not in shown] == []


def test_verdict_comes_first(page):
    assert page.text.index("NOT CONFORMANT") < page.text.index("executed") < page.text.index("Loss curves")


def test_asks_for_nothing(html, page):
    for tag, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "action", "data"):
            value = attrs.get(name) or "#"
            assert value.startswith(("#", "data:")), (tag, name, value)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_screen_readers_find_their_way(page):
    tags = [tag for tag, _ in page.tags]
    assert tags.count("main") == tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    assert all(attrs.get("aria-label") for attrs in page.all("svg") if attrs.get("role") == "img")
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 or (before, after) == (2, 4) for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("status", list(VerdictStatus))
def test_incomplete_is_loud_and_never_conformant(make_report, status):
    verdict = Verdict(status=status, headline="All is well.")
    page = Page(render_html(make_report(complete=False, finished=None, duration_s=None, verdict=verdict, curves=[])))
    first_screen = page.text[: page.text.index("executed")]
    assert "This run did not finish" in first_screen
    assert "RUN DID NOT FINISH" in first_screen
    assert not re.search(r"(?<!NOT )CONFORMANT", page.text)
    assert "conformant" not in page.all("body")[0]["class"].replace("not-conformant", "").split()


def test_complete_run_does_not_say_it_did_not_finish(page):
    assert "did not finish" not in page.text.lower()


def test_a_bare_report_renders(make_report):
    bare = make_report(results=[], curves=[], pins=[], expectations=[], stack="")
    text = Page(render_html(bare)).text
    assert "No check has a result" in text
    assert "Loss curves" not in text


def test_same_report_same_page(html, make_report):
    assert render_html(make_report()) == html


def test_filter_knows_each_check_and_outcome(page, make_report):
    report = make_report()
    offered = {attrs["value"] for attrs in page.all("input") if attrs.get("name") == "outcome"}
    assert offered == {result.outcome.value for result in report.results}
    listed = [attrs["data-outcome"] for attrs in page.all("li") if "data-outcome" in attrs]
    assert len(listed) == len(report.results)
    assert listed.count(Outcome.NOT_RUN.value) == 6


@pytest.mark.parametrize(
    ("value", "relation", "bar", "used"),
    [
        (0.5, "<=", 1.0, 0.5),
        (3.0, "<=", 1.0, 3.0),
        (-1.0, "<=", 1.0, 0.0),
        (8.0, ">=", 2.0, 0.25),
        (0.0, ">=", 2.0, float("inf")),
        (1.0, "<=", 0.0, None),
        (1.0, "==", 1.0, None),
        (float("nan"), "<=", 1.0, None),
        (1.0, "<=", float("inf"), None),
        (1.0, "<=", None, None),
    ],
)
def test_budget(value, relation, bar, used):
    assert budget_used(Measurement(name="m", value=value, relation=relation, bar=bar)) == used


def test_scale_is_monotone_and_bounded():
    places = [on_scale(fraction) for fraction in (0.0, 1e-9, 1e-3, 0.5, 1.0, 2.0, 50.0, 1e9, float("inf"))]
    assert places == sorted(places)
    assert places[0] == 0.0
    assert places[-1] == 100.0
