"""The checks themselves, as code: what each must have so that a report of it can be read."""

import importlib
import inspect
from pathlib import Path

import pytest

from trncheck.conformance import bars, plugin
from trncheck.conformance.cases import CASES, Case
from trncheck.conformance.policy import LEVELS
from trncheck.fixtures.geometry import TINY

MODULES = [path.stem for path in sorted(plugin.HERE.glob("test_*.py"))]


def checks() -> list:
    modules = {name: importlib.import_module(f"trncheck.conformance.{name}") for name in MODULES}
    return [
        pytest.param(function, id=f"{module}.{name}")
        for module, content in modules.items()
        for name, function in vars(content).items()
        if name.startswith("test_")
    ]


@pytest.mark.parametrize("check", checks())
def test_check_has_a_title_that_is_one_sentence(check):
    title = (inspect.getdoc(check) or "").split("\n\n")[0]
    assert title.endswith(".")
    assert len(" ".join(title.split())) <= 160


@pytest.mark.parametrize("check", checks())
def test_check_asks_for_the_judge_and_a_known_level(check):
    assert "judge" in inspect.signature(check).parameters
    levels = [mark.args[0] for mark in getattr(check, "pytestmark", []) if mark.name == "level"]
    assert set(levels) <= set(LEVELS)


@pytest.mark.parametrize("name", MODULES)
def test_module_says_what_its_subject_asks(name):
    assert importlib.import_module(f"trncheck.conformance.{name}").__doc__.strip()


def test_subjects_are_names_that_an_id_can_start_with():
    assert all(name.removeprefix("test_").isidentifier() for name in MODULES)


def test_cases_are_every_path_and_model_on_one_rank_and_on_two():
    assert {(case.path, case.model, case.ranks) for case in CASES} == {
        *((path, model, ranks) for path in ("native", "hf") for model in TINY for ranks in (1, 2)),
        *(("nki", "moe", ranks) for ranks in (1, 2)),
    }
    assert len({str(case) for case in CASES}) == len({case.config for case in CASES}) * 2 == len(CASES)


def test_smoke_level_has_both_paths_and_both_kinds_of_model_and_two_ranks():
    smoke = [case for case in CASES if case.level == "smoke"]
    assert {case.path for case in smoke} == {"native", "hf"}
    assert {TINY[case.model].is_moe for case in smoke} == {True, False}
    assert {case.ranks for case in smoke} == {1, 2}


def test_case_is_named_for_what_is_trained():
    assert str(Case("hf", "dense-tied", 2)) == "hf-dense-tied-2r"


@pytest.mark.parametrize("name", [name for name, value in vars(bars).items() if isinstance(value, bars.Bar)])
def test_bar_is_positive_and_has_a_reason(name):
    bar = getattr(bars, name)
    assert 0 < bar.value < float("inf")
    assert len(bar.source) > 20


def test_bars_that_depend_on_a_run_grow_with_its_rounding_or_its_sampling():
    assert bars.logits(20.0).value == pytest.approx(10 * bars.logits(2.0).value)
    assert bars.random_start(0.02, 2560, 100).value == pytest.approx(2 * bars.random_start(0.02, 2560, 400).value)
    assert bars.far_from_random(512).value < bars.far_from_random(151936).value


def test_modules_of_the_suite_hold_no_path_of_this_machine():
    assert not [path.name for path in plugin.HERE.glob("*.py") if str(Path.home()) in path.read_text()]
