"""A trend as text, JSON and page: what is on it, how large it is, and that text from outside stays text."""

import io
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from trncheck.reports.history import read_history
from trncheck.reports.schema import CheckResult, Measurement, Outcome
from trncheck.reports.sparkline import HEIGHT, WIDTH, sparkline
from trncheck.reports.store import RunFolder
from trncheck.reports.text import clean
from trncheck.reports.trend import trend
from trncheck.reports.trend_models import RunRef, Series, Trend
from trncheck.reports.trend_output import emit, render
from trncheck.reports.trend_text import print_trend

FORMATS = ("text", "html", "json")
HOSTILE = {
    "script": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attribute": "\" onmouseover=alert(1) x='",
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x07\x08\r\x00",
    "bidi": "\u202eevil\u2066 \ufffe",
    "markup": "[bold red]x[/bold red] [/] [link=http://x]y[/link]",
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
        self.cells: Counter[str] = Counter()
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-2:] == ["td", "b"]:
            self.cells[data] += 1
        if self.open[-1:] not in (["style"], ["script"]):
            self.text += data


def make_trend(make_report, folder, text: str = "", runs: int = 16) -> Trend:
    """Runs with a check that broke, a flaky one and a number that moved, all with ``text`` in what is free of form."""
    template = make_report(curves=[], kit_commit=f"c3931d2{text}")
    for number in range(runs):
        report = template.model_copy(deep=True)
        # A hostile id cannot name a folder, but a file may hold it.
        path = RunFolder.create(folder, report.model_copy(update={"run_id": f"r{number:02}", "complete": number != 2}))
        report.run_id, report.complete = f"r{number:02}{text}", number != 2
        report.release = ("2.32.0" if number < 8 else "2.33.0") + text
        report.release_date = "2026-01-01" if number < 8 else "2026-02-01"
        report.started = f"2026-03-01T{number:02}:00:00+00:00{text}"
        results = {result.id: result for result in report.results}
        if number > 11:
            results["checkpoints.reload"].outcome = Outcome.FAIL
            results["checkpoints.reload"].message = f"differs by 3.1{text}"
        if number % 2:
            results["sharding.two_ranks"].outcome = Outcome.FAIL
        if number > 9:
            results["paths.loss[native]"].measurements[0].value *= 3
        for result in report.results:
            result.id, result.title, result.version = result.id + text, result.title + text, "a" * 12
            for measurement in result.measurements:
                measurement.name, measurement.unit = measurement.name + text, measurement.unit + text
        path.write(report)
    (folder / "broken").mkdir()
    (folder / "broken" / "report.json").write_text(f'{{"schema_version": {json.dumps("9" + text)}}}')
    return trend(read_history([folder]))


@pytest.fixture(scope="module")
def found(make_report, tmp_path_factory) -> Trend:
    return make_trend(make_report, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module", params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request, make_report, tmp_path_factory) -> Trend:
    return make_trend(make_report, tmp_path_factory.mktemp("store"), request.param)


@pytest.fixture(scope="module")
def harmless(make_report, tmp_path_factory) -> Trend:
    return make_trend(make_report, tmp_path_factory.mktemp("store"), "harmless")


SAID = [
    "cpu: 15 complete runs: Neuron 2.32.0, 2.33.0",
    "since r12 (2026-03-01 12:00 UTC, Neuron 2.33.0, kit c3931d2); last good in r11 (",
    "nothing else changed",
    "red in 4 runs",
    "differs by 3.1",
    "never good before",
    "from r10 (",
    "2.1e-06 -> 6.3e-06 nats, worse, bar ≤ 1e-05, now 63 % of the bar, was 21 %",
    "flips in ",
    "r02 (2026-03-01 02:00 UTC",
    "schema version 9",
]
CONCLUSION = "5 checks red now, 1 change point (1 for the worse), 1 flaky, 1 incomplete run, 1 skipped file; "


@pytest.mark.parametrize("format", ["text", "html"])
def test_all_that_matters_is_said(found, format):
    text = render(found, format)
    shown = " ".join((Page(text).text if format == "html" else text).split())
    assert [words for words in SAID if words not in shown] == []
    assert CONCLUSION in shown
    assert shown.index("checkpoints.reload") < shown.index("environment.pins"), "the newest break comes first"


def test_text_ends_with_its_conclusion(found):
    lines = render(found, "text").strip().split("\n")
    assert lines[-1] == f"RED: {CONCLUSION}13 of 19 checks green, over 15 runs."
    assert len(lines) < 40


def test_green_and_nothing_known(make_report, tmp_path):
    report = make_report(results=[result for result in make_report().results if not result.outcome.is_failure])
    RunFolder.create(tmp_path, report.model_copy(update={"complete": False}))
    nothing = render(trend(read_history([tmp_path])), "text").strip().split("\n")[-1]
    assert nothing.startswith(
        "NOTHING KNOWN: 0 checks red now, 0 change points, 0 flaky, 1 incomplete run; 0 of 0 checks"
    )
    RunFolder.create(tmp_path, report.model_copy(update={"run_id": "2"}))
    assert render(trend(read_history([tmp_path])), "text").strip().split("\n")[-1].startswith("GREEN: 0 checks red now")


def test_text_is_short_for_many_failures(make_report, tmp_path):
    fields = {"title": "x", "outcome": Outcome.FAIL, "message": "x\n" * 50, "level": "smoke", "target": "cpu"}
    results = [CheckResult(id=f"a.b[{n}]", subject="a", **fields) for n in range(300)]
    RunFolder.create(tmp_path, make_report(results=results))
    text = render(trend(read_history([tmp_path])), "text")
    assert "and 290 more" in text
    assert len(text.split("\n")) < 40


def test_json_is_strict_and_reads_back(found):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(render(found, "json"), parse_constant=refuse)
    checks = {check["id"]: check for check in data["groups"][0]["checks"]}
    assert checks["checkpoints.reload"]["red"]["first_bad"]["run_id"] == "r12"
    assert Trend.model_validate(data) == found


def test_page_is_well_formed_and_asks_for_nothing(found):
    html = render(found, "html")
    page = Page(html)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "default-src 'none'" in html
    assert [tag for tag, _ in page.tags].count("script") == 1


def test_grid_has_a_cell_with_words_for_each_outcome(found):
    expected = Counter(
        outcome.value
        for group in found.groups
        for check in group.checks
        if check.now is not None
        for outcome in check.outcomes
        if outcome
    )
    assert Page(render(found, "html")).cells == expected


def test_grid_marks_the_boundary_between_releases(found):
    html = render(found, "html")
    assert html.count('<col class="release">') == 1
    assert re.search('colspan="7">2.32.0</th><th scope="colgroup" colspan="8">2.33.0</th>', html)


def test_page_says_what_it_leaves_out(make_report, tmp_path):
    for number in range(5):
        RunFolder.create(tmp_path, make_report(run_id=f"r{number}", results=make_report().results[:2]))
    history = read_history([tmp_path])
    shown = " ".join(Page(render(trend(history, last=3), "html")).text.split())
    assert "The newest 3 runs of 5; --last N shows more." in shown
    assert "--last N shows more" not in Page(render(trend(history, last=5), "html")).text


def test_page_states_its_rules(found):
    text = Page(render(found, "html")).text
    assert "A change point is where the median of the 5 to 10 values" in text
    assert "A check is flaky where its outcome changed at least 2 times" in text


def test_page_stays_small(make_report, tmp_path):
    numbers = [Measurement(name=f"n{k}", value=1.0 / 3, bar=4.0) for k in range(3)]
    fields = {"title": "A claim that holds.", "outcome": Outcome.PASS, "level": "smoke", "target": "cpu"}
    results = [CheckResult(id=f"subject.check[{n}]", subject="a", measurements=numbers, **fields) for n in range(100)]
    report = make_report(results=results, curves=[], kit_commit="c")
    history = read_history([RunFolder.create(tmp_path, report).path])
    history.runs = [replace(history.runs[0], run_id=str(number)) for number in range(2000)]
    html = render(trend(history), "html")
    assert html.count("<svg") > 300
    assert len(html) < 1.5e6


def test_page_gains_no_tag_and_no_attribute(hostile, harmless):
    html = render(hostile, "html")
    assert Page(html).tags == Page(render(harmless, "html")).tags
    assert html == clean(html)


def test_terminal_prints_it_as_it_is(hostile):
    file = io.StringIO()
    print_trend(hostile, Console(file=file, width=80))
    assert file.getvalue() == clean(file.getvalue())
    if "[bold red]" in hostile.groups[0].runs[0].release:
        assert HOSTILE["markup"] in file.getvalue()


def test_json_takes_it(hostile):
    assert json.loads(render(hostile, "json"))["groups"][0]["checks"][0]["red"]


@pytest.mark.parametrize("format", FORMATS)
def test_into_a_file_and_onto_standard_output(found, format, tmp_path, capsys):
    emit(found, format, tmp_path / "trend")
    assert (tmp_path / "trend").read_text(encoding="utf-8") == render(found, format)
    assert capsys.readouterr().out == f"RED: {CONCLUSION}13 of 19 checks green, over 15 runs.\n{tmp_path / 'trend'}\n"
    emit(found, format, None)
    assert "checkpoints.reload" in capsys.readouterr().out


def test_an_unwritable_file_is_one_line(found, tmp_path):
    with pytest.raises(ValueError, match=r"cannot be written \(.*\); choose another file") as caught:
        emit(found, "text", tmp_path / "absent" / "trend.txt")
    assert "\n" not in str(caught.value)


def drawn(values: list[float], bar: float | None = None) -> ET.Element:
    fields = {
        "release": "2.33.0",
        "target": "cpu",
        "level": "smoke",
        "started": "",
        "kit_version": "1",
        "kit_commit": None,
    }
    runs = [RunRef(run_id=str(n), **fields) for n in range(len(values))]
    fields = {"name": "loss", "unit": "", "relation": "<=", "shifts": [], "used": [None] * len(values)}
    return ET.fromstring(
        sparkline(Series(runs=list(range(len(values))), values=values, bars=[bar] * len(values), **fields), runs)
    )


def paths(svg: ET.Element) -> dict[str, str]:
    return {path.get("class"): path.get("d") for path in svg}


def heights(d: str) -> list[float]:
    return [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", d)]


def test_sparkline_has_values_and_bar_on_one_scale():
    drawing = drawn([1.0, 2.0, 3.0], bar=4.0)
    one, two, three = heights(paths(drawing)["line"])
    assert one > two > three > heights(paths(drawing)["bar"])[0] > 0
    assert drawing.get("aria-label") == "3 values from 1 to 3, now 3, bar 4"


@pytest.mark.parametrize(("bar", "edge"), [(1e6, 1), (-1e6, HEIGHT - 1)])
def test_a_far_bar_lies_at_the_edge_and_leaves_the_scale_alone(bar, edge):
    drawing = paths(drawn([1.0, 2.0], bar=bar))
    assert drawing["far"] == f"M0 {edge}H{WIDTH}"
    low, high = heights(drawing["line"])
    assert low - high > HEIGHT / 2


def test_a_value_that_is_no_number_leaves_a_gap():
    line = paths(drawn([1.0, float("nan"), 2.0, 3.0]))["line"]
    assert line.count("M") == 2
    assert line.count("L") == 1


@pytest.mark.parametrize(
    "values", [[1.0], [0.0, 0.0], [float("nan")], [1.7e308, -1.7e308], [5e-324, 0.0], [float("inf")]]
)
def test_extreme_values_stay_in_the_drawing(values):
    for bar in (None, 1.0, 0.0, float("inf")):
        for d in paths(drawn(values, bar)).values():
            assert "nan" not in d
            assert all(0 <= y <= HEIGHT for y in heights(d))
