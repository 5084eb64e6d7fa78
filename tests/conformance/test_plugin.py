"""The plugin as its users meet it: from any folder, in one process or several, and beside other tests."""

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from trncheck.conformance import plugin

ROOT = Path(plugin.__file__).resolve().parent.parent
# A Neuron machine in place of the CPU.
TRN2 = """\
from trncheck.conformance import environment, pins
from trncheck.fixtures.installed import Found

environment.has_neuron_device = lambda: True
pins.probe = lambda *_: {
    "torch": Found("2.14.0"),
    "torch-neuronx": Found("2.14.3.0.123"),
    "transformers": Found("5.16.0"),
    "torchtitan-neuron": Found("0.2.2", commit="1a2b3c4", refs=frozenset({"release-2.33"})),
    "nki": Found("0.7.0"),
    "neuronx-cc": Found("2.28.7631.0"),
    "python": Found("3.12.9"),
    "aws-neuronx-runtime-lib": Found("2.35.30.0"),
    "aws-neuronx-collectives": Found("2.35.43.0"),
    "aws-neuronx-dkms": Found("2.31.7.0"),
    "aws-neuronx-tools": Found("2.33.38.0"),
}
"""
HEAVY = {"torch", "transformers", "torchtitan", "datasets", "safetensors"}


@pytest.fixture(scope="module")
def collections(inner_of_module) -> dict:
    """What each level collects."""
    how = ("--collect-only", "-q", "-p", "witness", "--level")
    seed = {"PYTHONHASHSEED": "1"}
    return {level: inner_of_module.run(*how, level, environment=seed) for level in ("smoke", "full", "standard")}


def names(ended) -> list[str]:
    """Functions and cases that ``--collect-only`` lists."""
    assert ended.status == 0, ended.out + ended.err
    return [line.partition("::")[2] for line in ended.out.splitlines() if "::" in line]


def checks_run(ended) -> set[str]:
    return {name for name, result in ended.results.items() if result.outcome != "not-run"}


def test_report_is_in_the_folder_where_pytest_ran(healthy):
    (folder,) = healthy.run_folders
    assert {file.name for file in folder.iterdir()} == {"report.json", "report.html", "report.md", "junit.xml"}
    assert folder.relative_to(healthy.folder).parts[:3] == ("results", "2.33.0", "cpu")
    assert healthy.report.complete


def test_run_without_a_failure_ends_with_status_0_and_an_incomplete_verdict(healthy):
    assert healthy.status == 0, healthy.out + healthy.err
    assert healthy.report.verdict.status == "incomplete"
    assert checks_run(healthy) == {
        "pins.pin[torch]",
        "pins.pin[torchtitan]",
        "pins.pin[transformers]",
        "pins.stack",
        "pins.impostors",
    }


def test_last_lines_are_the_verdict_and_the_page(healthy):
    *_, verdict, page = healthy.out.splitlines()
    assert verdict == f"INCOMPLETE: {healthy.report.verdict.headline}"
    assert healthy.folder / page == healthy.run_folders[0] / "report.html"
    assert (healthy.folder / page).is_file()


def test_command_of_the_report_can_be_typed_again(healthy):
    assert healthy.report.command.startswith("pytest ")
    assert "--pyargs trncheck.conformance" in healthy.report.command.replace(" --release 2.33.0", "")


def test_junit_xml_of_pytest_and_of_the_kit_name_the_same_checks(healthy):
    own = [case.get("name") for case in ET.parse(healthy.folder / "own.xml").iter("testcase")]
    kit = [case.get("name") for case in ET.parse(healthy.run_folders[0] / "junit.xml").iter("testcase")]
    assert [name.removeprefix("test_") for name in own] == [name.partition(".")[2] for name in kit]
    assert len(kit) == len(healthy.results)


def test_neither_checkout_nor_package_folder_is_on_the_path(healthy):
    on_path = {Path(entry).resolve() for entry in healthy.witness["path"]}
    assert plugin.HERE not in on_path
    assert not [entry for entry in on_path if (entry / plugin.HERE.name).exists()]
    assert "trncheck.conformance.test_pins" in healthy.witness["modules"]
    assert "test_pins" not in healthy.witness["modules"]


def test_nothing_asks_the_network(healthy):
    assert healthy.witness["offline"] == "1"


def test_collection_imports_no_framework_and_leaves_nothing(collections, inner_of_module):
    assert not HEAVY & set(collections["standard"].witness["modules"])
    assert not list(inner_of_module.folder.iterdir())


def test_ids_are_unique_and_subjects_come_in_one_piece_with_the_environment_first(collections):
    nodes = [line for line in collections["full"].out.splitlines() if "::" in line]
    assert len(nodes) == len(set(nodes)) > 200
    modules = [module for module, _ in itertools.groupby(node.partition("::")[0] for node in nodes)]
    assert len(modules) == len(set(modules))
    assert modules[0].endswith("test_environment.py")


def test_collection_has_the_same_order_every_time(collections, inner):
    # Another hash seed would move what comes out of a set; an explicit target must not differ from the found one.
    again = inner.run("--collect-only", "-q", "--target", "cpu", environment={"PYTHONHASHSEED": "2"})
    assert names(again) == names(collections["standard"])


def test_level_picks_checks(collections):
    smoke, standard, full = (set(names(collections[level])) for level in ("smoke", "standard", "full"))
    assert smoke < standard < full
    assert "test_trajectory[native-dense-tied-1r]" in smoke
    assert "test_trajectory[native-dense-tied-2r]" in standard - smoke
    assert "test_full_size_random_start" in full - standard


def test_checkout_is_judged_by_plain_pytest(inner, collections):
    ended = inner.pytest("-p", "machine", "--assert=plain", "--collect-only", "-q", "-p", "witness", cwd=ROOT)
    assert names(ended) == names(collections["standard"])
    assert str(ROOT) not in ended.witness["path"]


def test_check_picks_ids_exactly_and_by_wildcard(inner):
    wanted = ("pins.pin[torch]", "*.stack", "checkpoint.head", "resume.restarted[l*-hf-moe-1r]")
    ended = inner.run("--collect-only", "-q", *(word for check in wanted for word in ("--check", check)))
    assert set(names(ended)) == {
        *(
            f"test_head[{path}-dense-{tie}-{n}r]"
            for path in ("native", "hf")
            for tie in ("tied", "untied")
            for n in "12"
        ),
        "test_pin[torch]",
        "test_stack",
        "test_restarted[loss-hf-moe-1r]",
        "test_restarted[lr-hf-moe-1r]",
    }


def test_require_complete_fails_a_run_that_cannot_vouch(inner):
    ended = inner.run("--check", "pins.stack", "--require-complete")
    assert ended.report.verdict.status == "incomplete"
    assert ended.status == 1


@pytest.mark.parametrize("suite", ["trncheck.conformance.test_pins", "trncheck.conformance.test_pins::test_pin[torch]"])
def test_part_of_the_suite_is_never_taken_for_the_whole(inner, suite):
    ended = inner.run(suite=suite)
    assert ended.status == 0
    assert any("were not selected" in reason for reason in ended.report.verdict.reasons)


def test_machine_with_a_device_is_judged_as_one(inner):
    inner.plant(trn2=TRN2)
    ended = inner.run("-p", "trn2", "--check", "pins.*")
    assert ended.report.target == "trn2"
    assert ended.report.pins
    assert ended.status == 0, ended.out
    assert "pins.pin[torchtitan]" not in ended.results
    assert ended.report.verdict.status == "incomplete"
    assert not any("CPU" in reason for reason in ended.report.verdict.reasons)


def test_failure_beside_the_checks_is_not_overruled_by_the_verdict(inner):
    (inner.folder / "test_other.py").write_text("def test_other():\n    assert 0\n")
    ended = inner.run("--check", "pins.stack", "test_other.py")
    assert ended.report.verdict.status == "incomplete"
    assert ended.status == 1


def test_kit_that_is_reached_through_a_link_is_judged_all_the_same(inner):
    # An environment below a linked folder, as on many clusters.
    package = inner.folder.parent / "plugins" / "trncheck"
    package.mkdir()
    (package / "conformance").symlink_to(plugin.HERE)
    ended = inner.run("--check", "pins.stack", "-p", "witness")
    assert str(package.parent) in ended.witness["path"]
    assert ended.results.keys() == {"pins.stack"}


# --- sessions that are not ours


def test_foreign_session_is_left_alone(inner):
    (inner.folder / "test_foreign.py").write_text("def test_foreign():\n    pass\n")
    ended = inner.pytest("-p", "witness")
    assert ended.status == 0
    assert ended.out.splitlines()[-1].strip("= ").startswith("1 passed")
    assert [file.name for file in inner.folder.iterdir() if file.name != "__pycache__"] == ["test_foreign.py"]
    assert not {*HEAVY, "pydantic", "yaml", "trncheck.conformance.session"} & set(ended.witness["modules"])
    assert ended.witness["offline"] is None


@pytest.mark.parametrize(
    ("where", "argument", "pyargs", "ours"),
    [
        ("project", ".venv/lib/site-packages/trncheck/conformance", False, True),
        ("project", ".venv/lib/site-packages/trncheck/conformance/test_pins.py::test_pin", False, True),
        ("project", "trncheck.conformance", True, True),
        ("project", "trncheck.conformance.test_pins::test_pin", True, True),
        ("project", "trncheck.conformance", False, False),
        ("project", "trncheck.conformance_of_others", True, False),
        ("project", ".", False, False),
        ("project", "tests", False, False),
        ("project/.venv/lib/site-packages/trncheck", ".", False, True),
    ],
)
def test_suite_is_recognised_in_the_arguments(tmp_path, monkeypatch, where, argument, pyargs, ours):
    here = tmp_path / "project/.venv/lib/site-packages/trncheck/conformance"
    here.mkdir(parents=True)
    monkeypatch.setattr(plugin, "HERE", here)
    config = SimpleNamespace(
        args=[argument],
        option=SimpleNamespace(pyargs=pyargs),
        invocation_params=SimpleNamespace(dir=tmp_path / where),
    )
    assert plugin._runs_conformance(config) is ours
