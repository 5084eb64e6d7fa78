"""The four runs of an attribution: found by what a user types, and refused where they are no square."""

from collections.abc import Sequence

import pytest

from trncheck.reports.attribution_cells import check_square, find_cell, find_cell_repeats, kit, stack_changes, warnings
from trncheck.reports.schema import Report
from trncheck.reports.store import RunFolder


@pytest.fixture
def square(make_report):
    """Four reports with kits and stacks as letters, by default those of the square."""

    def make(kits: Sequence[str] = "ABAB", stacks: str = "XXYY", **fields) -> list[Report]:
        reports = []
        for place in range(4):
            report = make_report(run_id=f"run-{place}", kit_commit=kits[place], pins=[], **fields)
            report.environment.packages["torch"] = stacks[place]
            reports.append(report)
        return reports

    return make


def test_a_square_is_taken(square):
    cells = square()
    check_square(cells)
    assert stack_changes(cells) == {"torch": ("X", "Y")}
    assert kit(cells[0]) == "0.1.0 (A)"


@pytest.mark.parametrize(
    ("kits", "stacks", "words"),
    [
        ("AABB", "XYXY", "swapped are NEWKIT_OLDSTACK and OLDKIT_NEWSTACK"),
        ("BAAB", "XXYY", "swapped are OLD_OLD and NEWKIT_OLDSTACK, or OLDKIT_NEWSTACK and NEW_NEW"),
        ("ABAB", "YXXY", "swapped are OLD_OLD and OLDKIT_NEWSTACK, or NEWKIT_OLDSTACK and NEW_NEW"),
        ("ACAB", "XXYY", "NEWKIT_OLDSTACK must have the kit of NEW_NEW: kit 0.1.0 (C), in NEW_NEW 0.1.0 (B)"),
        ("ABBB", "XXYY", "OLDKIT_NEWSTACK must have the kit of OLD_OLD"),
        ("BBAB", "XXYY", "OLD_OLD is not of the old kit"),
        ("ABAA", "XXYY", "NEW_NEW is not of the new kit"),
        ("AAAA", "XXYY", "OLD_OLD and NEW_NEW have the same kit (0.1.0 (A))"),
        ("ABAB", "XZYY", "NEWKIT_OLDSTACK must have the stack of OLD_OLD: torch Z, in OLD_OLD X"),
        ("ABAB", "XXZY", "OLDKIT_NEWSTACK must have the stack of NEW_NEW: torch Z, in NEW_NEW Y"),
        ("ABAB", "YXYY", "OLD_OLD is not of the old stack"),
        ("ABAB", "XXYX", "NEW_NEW is not of the new stack"),
        ("ABAB", "XXXX", "OLD_OLD and NEW_NEW have the same stack"),
    ],
)
def test_what_is_off_is_named_in_one_line(square, kits, stacks, words):
    with pytest.raises(ValueError, match=r"OLD|NEW") as caught:
        check_square(square(kits, stacks))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_run_twice_and_two_targets(square):
    cells = square()
    with pytest.raises(ValueError, match="OLD_OLD and OLDKIT_NEWSTACK are the same run"):
        check_square([cells[0], cells[1], cells[0], cells[3]])
    cells[3].target = "trn2"
    with pytest.raises(ValueError, match="NEW_NEW ran on trn2, OLD_OLD on cpu"):
        check_square(cells)


def test_a_kit_that_looks_at_more_packages_is_no_other_stack(square):
    cells = square()
    for place in (1, 3):
        cells[place].environment.packages["ml-dtypes"] = "0.5"
    check_square(cells)
    cells[3].environment.packages["ml-dtypes"] = "0.6"
    check_square(cells)
    del cells[1].environment.packages["torch"]
    with pytest.raises(ValueError, match="NEWKIT_OLDSTACK must have the stack of OLD_OLD: torch absent, in OLD_OLD X"):
        check_square(cells)


def test_the_version_of_the_kit_itself_is_not_of_the_stack(square):
    cells = square()
    for place, cell in enumerate(cells):
        cell.environment.packages["trncheck"] = f"0.{place}"
    check_square(cells)


def test_stacks_that_differ_in_a_variable_alone(square):
    cells = square(stacks="XXXX")
    for place in (2, 3):
        cells[place].environment.variables["NEURON_CC_FLAGS"] = "-O3"
    check_square(cells)
    assert stack_changes(cells) == {"NEURON_CC_FLAGS": ("absent", "-O3")}
    cells[1].environment.variables["NEURON_CC_FLAGS"] = "-O3"
    with pytest.raises(ValueError, match="NEWKIT_OLDSTACK must have the stack of OLD_OLD: NEURON_CC_FLAGS -O3"):
        check_square(cells)


def test_warnings(square):
    cells = square(["A+dirty", "B", "A+dirty", "B"])
    cells[1].seed = 7
    cells[2].complete = False
    cells[3].environment.cpu = "another"
    cells[3].command += " --check 'losses.*'"
    found = " ".join(warnings(cells))
    for words in (
        "OLDKIT_NEWSTACK did not finish",
        "seeds differ: 1234, 7",
        "NEW_NEW ran selected checks only",
        "kit of OLD_OLD and OLDKIT_NEWSTACK had changes that no commit holds",
        "OLDKIT_NEWSTACK and NEW_NEW ran in different surroundings: CPU ",
        "version of 25 checks is not known",
    ):
        assert words in found


def test_the_newest_finished_run_of_a_folder(tmp_path, make_report):
    for id, complete in (("20260301T1", True), ("20260301T2", True), ("20260301T3", False)):
        RunFolder.create(tmp_path, make_report(run_id=id, complete=complete))
    assert find_cell(str(tmp_path), tmp_path / "absent").run_id == "20260301T2"
    with pytest.raises(ValueError, match="1 run, none of which came to its end"):
        find_cell(str(RunFolder.create(tmp_path / "x", make_report(complete=False)).path.parent), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="cannot be read"):
        find_cell(str(tmp_path / "empty"), tmp_path)


def test_repeats_are_of_the_same_kit_and_stack(tmp_path, square):
    cells = square()
    for cell in cells:
        for n in range(2):
            RunFolder.create(tmp_path, cell.model_copy(update={"run_id": f"{cell.run_id}-{n}"}))
    found = find_cell_repeats(cells[2], [tmp_path, tmp_path])
    assert [repeat.run_id for repeat in found] == ["run-2-0", "run-2-1"]
