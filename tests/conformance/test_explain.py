"""What is said of every check: complete, from the source, and the same in a checkout and in a wheel."""

import ast
from pathlib import Path

import pytest

from trncheck.conformance import explain, ids, planted
from trncheck.conformance.explain_text import as_markdown, as_text
from trncheck.conformance.planted import Fault

ROOT = Path(__file__).resolve().parents[2]
CHECKS = [pytest.param(check, id=check.name) for check in explain.checks()]
HARDWARE_ONLY = {"environment.machine"}


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_says_why_it_is_there_and_how_to_read_its_failure(check):
    assert check.text.claim.endswith(".")
    for text in (check.text.why, check.text.reading):
        assert 60 <= len(text) <= 700
        assert text.endswith(".")


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_says_what_turns_it_red(check):
    assert check.text.red_when or check.faults
    assert bool(check.faults) is (check.name not in HARDWARE_ONLY)


def test_subjects_come_in_the_order_of_a_report_and_checks_in_that_of_their_modules():
    names = [check.name for check in explain.checks()]
    assert [name for name in names if name.startswith("pins.")] == ["pins.pin", "pins.stack", "pins.impostors"]
    assert tuple(dict.fromkeys(name.split(".")[0] for name in names)) == ids.SUBJECTS


def test_docstring_is_taken_apart_at_its_headings():
    text = explain.parse(
        "The claim, in\ntwo lines.\n\nA note.\n\nWhy: it matters,\nsays https://example.org/1.\n\n"
        "Red when: never.\nReading a failure: Look at\n``this``.\n\nAnother note: it is: short."
    )
    assert text == (
        "The claim, in two lines.",
        ["A note.", "Another note: it is: short."],
        "it matters, says https://example.org/1.",
        "never.",
        "Look at `this`.",
    )
    assert explain.parse("Only a claim.") == ("Only a claim.", [], "", "", "")


@pytest.mark.parametrize(
    ("name", "bars"),
    [
        ("pins.pin", []),
        ("losses.published_start", ["STEP1_LOSS", "far_from_random(vocab_size)"]),
        ("paths.logits", ["logits(largest)"]),
        ("paths.gradients", ["GRADIENT"]),
        ("paths.clipping", ["GRADIENT", ""]),
        ("kernels.forward", ["KERNEL_FACTOR", "KERNEL_CAP", "KERNEL_FLOOR_ULPS", "CONDITION_ULPS", "CONDITION_SHARE"]),
        ("checkpoint.structure", ["HEADER_SIZE"]),
        ("resume.restarted", []),
    ],
)
def test_bars_are_those_that_the_code_of_the_check_uses(name, bars):
    (check,) = explain.find([name])
    assert [bar.name for bar in check.bars] == bars
    assert all(bar.source for bar in check.bars)


def test_bar_has_its_value_and_its_source():
    (bar,) = explain.find(["paths.gradients"])[0].bars
    assert (bar.value, bar.source.split(" seen ")[0]) == ("1e-05", "8 times the 1.3e-6")
    made = explain.find(["paths.clipping"])[0].bars[1]
    assert (made.value, made.source) == ("2 * MAX_NORM", "or nothing would be clipped")


def test_fault_is_named_by_its_docstring_or_its_function(tmp_path):
    (tmp_path / "test_a.py").write_text(
        'fault = 0\n\n@fault("a.b[c]", "reason")\ndef test_norms_swapped():\n    pass\n\n\n'
        '@pytest.mark.fault("a.b", "reason")\ndef test_two():\n    """The second\n    thing.\n\n    More."""\n\n\n'
        "def test_none():\n    pass\n"
    )
    every = [Fault("a.b[c]", "norms swapped"), Fault("a.b", "The second thing")]
    assert planted.faults(tmp_path) == every
    assert planted.render(every) == '{\n "a.b": [\n  "The second thing"\n ],\n "a.b[c]": [\n  "norms swapped"\n ]\n}\n'


def test_every_marked_fault_is_found():
    marks = sum(path.read_text().count("\n@fault(") for path in planted.CHECKOUT.glob("test_*.py"))
    assert len(planted.faults()) == marks > 50


def test_shipped_faults_are_those_of_the_checkout():
    remedy = "run: python -m trncheck.conformance.planted"
    assert planted.SHIPPED.read_text() == planted.render(planted.faults()), remedy


def test_wheel_knows_the_same_faults(tmp_path):
    assert sorted(planted.faults(tmp_path / "none")) == sorted(planted.faults())


def test_page_of_the_documentation_is_up_to_date():
    remedy = "run: trncheck explain --all --format markdown --out docs/checks.md"
    assert (ROOT / "docs" / "checks.md").read_text() == as_markdown(explain.checks()), remedy


def test_text_has_all_parts_in_their_order():
    text = as_text(explain.find(["losses.published_start"]))
    headings = ["Why", "Bars", "Red when", "Planted faults", "Reading a failure"]
    assert [line.strip() for line in text.splitlines() if line.strip() in headings] == headings
    assert "    rotary frequencies wiped after load (hf-dense-tied-1r)\n" in text
    assert text.endswith("  Run it alone: trncheck run --check 'losses.published_start'\n")
    assert max(map(len, text.splitlines())) <= 110


def test_page_lists_every_check_once_below_its_subject():
    page = as_markdown(explain.checks())
    assert [line[4:] for line in page.splitlines() if line.startswith("### ")] == [c.name for c in explain.checks()]
    assert page.count("\n## ") == len(ids.SUBJECTS)


def test_explanations_need_no_check_to_be_imported():
    imports = {
        alias.name
        for module in (explain, planted)
        for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not {"importlib", "import_module", "runs", "versions", "pytest"} & imports
