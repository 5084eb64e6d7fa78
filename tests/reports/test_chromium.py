"""The page in a real browser: what its script does, and what text from outside does not."""

import re

import pytest

from trncheck.reports.html import render_html
from trncheck.reports.schema import Report

from .browser import Browser, find_chromium

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome is on the path")
HOSTILE = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>\" onload=\"window.ran = 3"
FILTER = """
const form = document.getElementById("filter"), out = document.getElementById("shown");
const type = (text) => {
  form.elements.text.value = text;
  form.dispatchEvent(new Event("input", { bubbles: true }));
  return out.textContent;
};
const seen = () => [...document.querySelectorAll("#checks .check")].filter((check) => check.checkVisibility())
  .map((check) => check.querySelector("code").textContent);
"""


@pytest.fixture
def ask(tmp_path):
    """``ask(report, question, flags)``: what a browser answers on the page of ``report``."""

    def ask(report: Report, question: str, *flags: str):
        page = tmp_path / "report.html"
        page.write_text(render_html(report), encoding="utf-8")
        opened = Browser(CHROMIUM, tmp_path).run(page, question, *flags)
        assert "error" not in opened.result, opened.result
        return opened

    return ask


@pytest.fixture
def short(make_report) -> Report:
    """Of the sample what a browser test needs, with few curves to draw."""
    report = make_report()
    return report.model_copy(update={"curves": report.curves[:2]})


def test_filter_and_search(ask, short):
    question = """
    const all = out.textContent, words = type("ROPE bf16"), found = seen();
    // What a failure says is with the failures, and found all the same.
    const message = type("every position from 1 on"), failed = seen();
    const none = type("no such words"), subjects = document.querySelectorAll("#checks .subject:not([hidden])").length;
    type("");
    for (const box of form.querySelectorAll('[name="outcome"]:not([value="not-run"])')) box.click();
    const outcomes = out.textContent, idle = seen().length;
    form.querySelector("button").click();
    setTimeout(() => done({ all, words, found, message, failed, none, subjects, outcomes, idle,
                            reset: out.textContent }), 20);
    """
    opened = ask(short, FILTER + question)
    found = opened.result
    assert opened.console == []
    assert found["all"] == found["reset"] == "25 of 25 checks shown"
    assert found["words"] == "2 of 25 checks shown"
    assert all("rope" in id for id in found["found"])
    assert found["failed"] == ["kernels.rope_backward[bf16, transposed cotangent]"]
    assert (found["none"], found["subjects"]) == ("0 of 25 checks shown", 0)
    assert (found["outcomes"], found["idle"]) == ("6 of 25 checks shown", 6)


def test_links_have_targets_and_keyboard_reaches_the_controls(ask, short):
    question = """
    const links = [...document.querySelectorAll('a[href^="#"]')].map((link) => link.hash.slice(1));
    const dead = links.filter((id) => !document.getElementById(id));
    const controls = [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")];
    const unreached = controls.filter((control) => {
      const folded = control.closest("details:not([open])");
      if (folded && control !== folded.querySelector("summary")) return false;
      control.focus();
      return document.activeElement !== control || control.tabIndex < 0;
    }).map((control) => control.outerHTML.slice(0, 80));
    const unnamed = [...document.querySelectorAll("input")].filter((input) => !input.labels.length).length;
    const skip = document.querySelector(".skip");
    skip.focus();
    const shows = skip.getBoundingClientRect().left >= 0, outline = getComputedStyle(skip).outlineStyle;
    done({ links: links.length, dead, controls: controls.length, unreached, unnamed, shows, outline,
           first: controls[0] === skip });
    """
    found = ask(short, question).result
    assert found["links"] >= 10
    assert found["controls"] > 30
    assert (found["dead"], found["unreached"], found["unnamed"]) == ([], [], 0)
    assert (found["first"], found["shows"]) == (True, True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(ask, short, scheme):
    question = """
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    const rgb = (colour) => {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    };
    const light = (colour) => {
      const [r, g, b] = rgb(colour).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort(); return (y + 0.05) / (x + 0.05); };
    const page = getComputedStyle(document.body).backgroundColor;
    const of = (where) => contrast(getComputedStyle(document.querySelector(where)).color, page);
    done({ page: light(page), scheme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
           contrasts: ["h1", ".meta", ".note", ".status", "nav a", ".badge.pass", "#shown"].map(of) });
    """
    flags = ("--blink-settings=preferredColorScheme=0",) if scheme == "dark" else ()
    found = ask(short, question, *flags).result
    assert found["scheme"] == scheme
    assert (found["page"] < 0.1) is (scheme == "dark")
    assert min(found["contrasts"]) >= 4.5


def test_prints_everything_but_the_controls(ask, short):
    """Rules for print are applied by hand: headless Chromium has no way to show them to a script."""
    question = """
    const rules = [...document.styleSheets[0].cssRules].filter((rule) => rule.media?.mediaText === "print");
    const sheet = document.createElement("style");
    sheet.textContent = rules.flatMap((rule) => [...rule.cssRules]).map((rule) => rule.cssText).join("\\n");
    document.head.append(sheet);
    dispatchEvent(new Event("beforeprint"));
    const display = (where) => getComputedStyle(document.querySelector(where)).display;
    done({ rules: rules.length, gone: ["nav", "#filter", ".skip"].map(display),
           closed: document.querySelectorAll("details:not([open])").length,
           waiting: [...document.querySelectorAll(".check")].filter(
             (check) => getComputedStyle(check).contentVisibility !== "visible").length });
    """
    found = ask(short, question).result
    assert found["rules"] == 1
    assert set(found["gone"]) == {"none"}
    assert (found["closed"], found["waiting"]) == (0, 0)


def test_prints_as_a_document(ask, short, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(render_html(short), encoding="utf-8")
    pdf = Browser(CHROMIUM, tmp_path).pdf(page)
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 40


def test_text_from_outside_runs_nothing(ask, short):
    for result in short.results:
        result.title, result.message = HOSTILE, HOSTILE
        result.evidence = {HOSTILE: HOSTILE}
        result.measurements = [m.model_copy(update={"name": HOSTILE, "source": HOSTILE}) for m in result.measurements]
    for curve in short.curves:
        curve.name = HOSTILE
    short.command = short.stack = HOSTILE
    question = FILTER + "done({ ran: window.ran ?? null, images: document.images.length, all: out.textContent });"
    opened = ask(short, question)
    assert (opened.result["ran"], opened.result["images"]) == (None, 0)
    assert opened.result["all"] == "25 of 25 checks shown"
    assert opened.console == []


def test_policy_stops_what_is_not_the_page_s_own(ask, short):
    """The witness of the tests above: scripts are refused, and the console is heard."""
    question = """
    const foreign = document.createElement("script");
    foreign.textContent = "window.ran = 1";
    document.body.append(foreign);
    console.error("heard");
    setTimeout(() => done({ ran: window.ran ?? null }), 20);
    """
    opened = ask(short, question)
    assert opened.result["ran"] is None
    assert any("Content Security Policy" in line for line in opened.console)
    assert "heard" in opened.console
