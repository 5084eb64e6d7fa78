"""``trncheck explain`` from the command line."""

import subprocess
import sys

import pytest

from trncheck.cli import main


@pytest.mark.parametrize("id", ["losses.finite", "losses.finite[hf-moe-2r]", "losses.fi*", "losses.fin?te[*]"])
def test_check_is_named_by_id_by_name_or_by_wildcard(capsys, id):
    assert main(["explain", id]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line[:1].strip()] == ["losses.finite"]
    assert "  Losses, gradient norms, gradients and weights are finite throughout.\n" in out


def test_several_checks_come_in_the_order_asked_for_and_once(capsys):
    assert main(["explain", "resume.schedule", "pins.s*", "resume.*"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line[:1].strip()]
    assert heads == [
        "resume.schedule",
        "pins.stack",
        "resume.restarted",
        "resume.epochs",
        "resume.other_ranks",
        "resume.used_folder",
        "resume.nothing_left",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["losses.publised_start[x]"], "no check is 'losses.publised_start[x]'; did you mean losses.published_start"),
        (["losses.finite", "zzz*"], "no check is 'zzz*'; trncheck explain --all tells all of them"),
        ([], "name checks, such as losses.published_start, or give --all"),
        (["losses.finite", "--all"], "name checks, such as losses.published_start, or give --all"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, line):
    assert main(["explain", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"trncheck explain: {line}")
    assert err.count("\n") == 1


def test_page_can_be_written_to_a_file(capsys, tmp_path):
    page = tmp_path / "checks.md"
    assert main(["explain", "--all", "--format", "markdown", "--out", str(page)]) == 0
    assert page.read_text().startswith("# What the checks assert\n")
    assert capsys.readouterr().out.splitlines()[1] == str(page)


def test_nothing_heavy_is_loaded():
    heavy = {"torch", "numpy", "pytest", "pydantic", "transformers"}
    code = (
        "import sys; from trncheck.cli import main; main(['explain', '--all', '--out', '/dev/null']); "
        f"print({heavy} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "set()"
