"""Kernels in a report: what executed them, how close each is to its bars, and that many numbers stay readable."""

import math
import re

import pytest
from markdown_it import MarkdownIt

from trncheck.reports.html import render_html
from trncheck.reports.kernels import kernels
from trncheck.reports.markdown import render_markdown
from trncheck.reports.schema import CheckResult, Execution, Measurement, Outcome, Report
from trncheck.reports.summary import most_used
from trncheck.reports.text import clean, head_and_rest

SIMULATOR = "Backend simulator means NumPy on a CPU: passes there are not passes on Trainium."
TRAINED = "qwen3_moe_nki_tiny_nki_rope, 20 steps, 1 rank"
HOSTILE = {
    "script": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attribute": "\" onmouseover=alert(1) x='",
    "ansi": "\x1b[31mred\x1b[0m \x9b2J \x07\x00",
    "cell": "| a | b |\n| --- | --- |\n``` </details> # x `y`",
    "template": "{{ 7 * 7 }} {% include 'x' %}",
}


def execution(where: str, count: int, **fields: str) -> Execution:
    of = {"operator": "trncheck::rope", "direction": "forward", "dtype": "float32", "backend": "simulator"} | fields
    return Execution(where=where, count=count, **of)


def measured(name: str, used: float, bar: float = 1e-3) -> Measurement:
    return Measurement(name=name, value=used * bar, bar=bar, source="2 x plain torch's", ok=used <= 1)


def parity(direction: str, kernel: str, *measurements: Measurement, outcome=Outcome.PASS, **fields) -> CheckResult:
    return CheckResult(
        id=f"kernels.{direction}[{kernel}]",
        subject="kernels",
        title="Outputs agree.",
        outcome=outcome,
        level="smoke",
        target="cpu",
        measurements=list(measurements),
        **fields,
    )


def page_of(report: Report) -> str:
    return render_html(report.model_copy(update={"curves": []}))


def section(page: str) -> str:
    """What a reader sees of the section."""
    found = re.search(r'<section id="kernels".*?</section>', page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", found.group()).split()) if found else ""


def test_counts_by_training_run_and_by_catalogue(make_report):
    executions = [
        execution("catalogue: tiny float32", 2),
        execution("catalogue: odd float32", 3),
        execution(TRAINED, 40),
        execution("other, 5 steps, 2 ranks", 10),
        execution(TRAINED, 80, direction="backward"),
        execution("catalogue: tiny float32", 1, operator="trncheck::experts", backend="neuron"),
    ]
    rows = kernels(make_report(executions=executions)).executed
    assert [(r.operator, r.direction, r.backend, r.catalogue, r.training) for r in rows] == [
        ("trncheck::experts", "forward", "neuron", 1, {}),
        ("trncheck::rope", "forward", "simulator", 5, {"other, 5 steps, 2 ranks": 10, TRAINED: 40}),
        ("trncheck::rope", "backward", "simulator", None, {TRAINED: 80}),
    ]


def test_a_training_run_that_two_checks_counted_counts_once(make_report):
    twice = [execution(TRAINED, 40, check=check) for check in ("paths.kernels", "losses.kernels")]
    (row,) = kernels(make_report(executions=twice)).executed
    assert row.total == 40


def test_page_and_markdown_name_training_runs_and_what_a_simulator_is(make_report):
    report = make_report(executions=[execution("catalogue: tiny float32", 12), execution(TRAINED, 1240)])
    shown = section(page_of(report))
    assert SIMULATOR in shown
    assert f"trncheck::rope forward float32 simulator 1,240 12 {TRAINED}: 1,240" in shown
    text = render_markdown(report)
    assert SIMULATOR in text
    assert f"| `trncheck::rope` | forward | float32 | simulator | 12 | `{TRAINED}`: 1,240 |" in text


def test_a_device_needs_no_excuse_and_every_simulator_one(make_report):
    def notes(*backends: str) -> list[str]:
        return kernels(make_report(executions=[execution(TRAINED, 1, backend=b) for b in backends])).notes

    assert notes("neuron") == []
    assert notes("neuron", "simulator") == [SIMULATOR]
    (note,) = notes("nki.simulate")
    assert "not passes on Trainium" in note


def test_a_run_without_an_execution_says_that_it_does_not_know(make_report):
    report = make_report(executions=[])
    assert "No execution was recorded" in section(page_of(report))
    assert "No execution was recorded" in render_markdown(report)


def test_no_section_without_kernels(make_report):
    report = make_report(executions=[])
    report.results = [result for result in report.results if result.subject != "kernels"]
    assert 'id="kernels"' not in page_of(report)
    assert "### Kernels" not in render_markdown(report)


def test_a_kernel_that_never_ran_is_red(make_report):
    page = page_of(make_report(executions=[execution(TRAINED, 0)]))
    assert re.search(r'<tr class="missed">\s*<th scope="row">trncheck::rope</th>', page)


def test_parity_shows_the_measurement_that_used_most_of_its_bar(make_report):
    names = ("tiny float32, LNC 1, output 0", "tiny bfloat16, LNC 2, output 1", "odd float32, LNC 2, output 0")
    result = parity(
        "forward",
        "rope",
        *(measured(f"{name}, relative error", used) for name, used in zip(names, (0.2, 0.6, 0.4), strict=True)),
        *(measured(f"{name}, worst element", used) for name, used in zip(names, (0.3, 0.1, 0.2), strict=True)),
    )
    report = make_report(results=[result])
    (row,) = kernels(report).parity
    assert [(w.quantity, w.place) for w in row.worst] == [("relative error", names[1]), ("worst element", names[0])]
    shown = section(page_of(report))
    assert "rope forward pass relative error 60 % of the bar 0.0006 ≤ 0.001 tiny bfloat16, LNC 2, output 1" in shown
    assert "| `rope` | forward | pass | 60 % | tiny bfloat16, LNC 2, output 1, relative error |" in render_markdown(
        report
    )


def test_what_missed_its_bar_comes_before_what_only_came_close(make_report):
    lost = Measurement(name="b, relative error", value=math.nan, bar=1e-3, ok=False)
    result = parity("gradient", "rope", measured("a, relative error", 0.99), lost, measured("c, relative error", 0.5))
    ((worst,),) = (row.worst for row in kernels(make_report(results=[result])).parity)
    assert worst.measurement == lost


def test_a_kernel_without_a_number_is_listed(make_report):
    failed = parity("forward", "rope", outcome=Outcome.FAIL, message="float32 [2, 4] for float32 [2, 3]")
    report = make_report(results=[failed])
    assert "rope forward fail nothing was measured" in section(page_of(report))
    assert "| `rope` | forward | fail | – | nothing |" in render_markdown(report)


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (12, 12), (13, 8), (64, 8)])
def test_of_many_measurements_the_most_used_are_shown(count, shown):
    measurements = [measured(f"m{n}", (n * 37 % 64) / 100) for n in range(count)]
    top, folded = most_used(measurements)
    assert (len(top), len(folded)) == (shown, count - shown)
    assert sorted(m.name for m in [*top, *folded]) == sorted(m.name for m in measurements)
    if folded:
        assert min(m.value for m in top) >= max(m.value for m in folded)


def test_reported_and_missed_numbers_among_many():
    plain = [measured(f"m{n}", 0.5) for n in range(20)]
    reported = Measurement(name="loss", value=1e9)
    missed = [Measurement(name=f"x{n}", value=math.nan, bar=1.0, ok=False) for n in range(9)]
    top, folded = most_used([reported, *plain, *missed])
    assert {m.name[0] for m in top} == {"x"}
    assert reported in folded


def test_page_and_markdown_fold_many_measurements_and_say_so(make_report):
    many = [measured(f"sample {n}, relative error", 0.01 * n) for n in range(32)]
    report = make_report(results=[parity("forward", "rope", *many)])
    page = page_of(report)
    assert "<summary>24 more measurements, which used less of their bars</summary>" in page
    head, _, rest = page[page.index('id="checks"') :].partition("24 more measurements")
    assert all(f"sample {n}, relative error" in head for n in range(24, 32))
    assert all(f"sample {n}, relative error" in rest for n in range(24))
    text = render_markdown(report)
    assert "<summary>32 measurements</summary>" in text
    assert "sample 31, relative error" in text
    assert "sample 3, relative error" not in text
    assert "24 more measurements, which used less of their bars" in text


def test_folded_misses_are_counted(make_report):
    missed = [measured(f"sample {n}, worst element", 2.0 + n) for n in range(14)]
    report = make_report(results=[parity("forward", "rope", *missed, outcome=Outcome.FAIL, message="14 missed")])
    assert "6 more measurements, 6 of them missed" in page_of(report)
    assert "6 more measurements, 6 of them missed" in render_markdown(report)


@pytest.mark.parametrize(("lines", "shown"), [(1, 1), (12, 12), (13, 8), (64, 8)])
def test_page_shows_the_first_lines_of_a_long_failure_and_how_many_more(make_report, lines, shown):
    message = "\n".join(f"failure {n}: {'x' * 300}" for n in range(lines))
    report = make_report(results=[parity("forward", "rope", outcome=Outcome.FAIL, message=message)])
    failures = page_of(report).partition('id="failures"')[2].partition('id="kernels"')[0]
    head, _, rest = failures.partition(f"<summary>and {lines - shown} more lines</summary>")
    assert all(f"failure {n}: {'x' * 300}" in head for n in range(shown))
    assert all(f"failure {n}: " in rest for n in range(shown, lines))
    assert bool(rest) is (lines > shown)


def test_a_long_text_is_split_and_not_changed():
    text = "\n".join(map(str, range(20)))
    head, rest, more = head_and_rest(f"\n{text}\n")
    assert (f"{head}\n{rest}", more) == (text, 12)
    assert head_and_rest("a\n\nb") == ("a\n\nb", "", 0)


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request) -> str:
    return request.param


def of_text(make_report, text: str) -> Report:
    """A report with ``text`` wherever the section takes words from."""
    many = [measured(f"{text} {n}, relative error", 0.01 * n) for n in range(20)]
    fields = {"operator": f"a::{text}", "dtype": f"d{text}", "backend": f"b{text}", "check": f"c{text}"}
    executions = [execution(f"w {text}", 3, **fields), execution(f"catalogue: {text}", 0, **fields)]
    return make_report(results=[parity("gradient", f"rope {text}", *many)], executions=executions)


def test_hostile_names_stay_text(make_report, hostile):
    page, harmless = (page_of(of_text(make_report, text)) for text in (hostile, "harmless"))
    assert page == clean(page)
    assert re.findall(r"<[a-z][^\s>]*", page) == re.findall(r"<[a-z][^\s>]*", harmless)
    assert "onerror=alert(1)>" not in page
    assert '" onmouseover' not in page
    assert "{{ 7 * 7 }}" in page or "{{" not in hostile


def test_hostile_names_have_no_structure_in_markdown(make_report, hostile):
    def blocks(text: str) -> list[str]:
        return [
            t.type for t in MarkdownIt("commonmark").enable("table").parse(render_markdown(of_text(make_report, text)))
        ]

    assert blocks(hostile) == blocks("harmless")
