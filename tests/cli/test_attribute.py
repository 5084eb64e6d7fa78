"""``trncheck attribute``: exit statuses, one-line errors, and the script without runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.cli import main
from trncheck.reports.schema import CheckResult, Environment, Measurement, Outcome, Report, Verdict, VerdictStatus
from trncheck.reports.store import RunFolder


def put(root: Path, run_id: str, place: int, value: float = 0.1) -> str:
    """A run of cell ``place`` in the store ``root``; gives its folder."""
    check = CheckResult(
        id="losses.start",
        subject="losses",
        title="Training starts where it must.",
        outcome=Outcome.PASS,
        level="smoke",
        target="cpu",
        version="a" * 12,
        measurements=[Measurement(name="gap", value=value, bar=1.0, unit="nat")],
    )
    machine = {"python": "3.11.7", "os": "Linux", "machine": "x86_64", "cpu": "Xeon", "cores": 2, "memory_gib": 15.6}
    report = Report(
        run_id=run_id,
        kit_version="0.1.0",
        kit_commit="new" if place in (1, 3) else "old",
        release="2.33.0",
        release_date="2026-02-20",
        target="cpu",
        level="smoke",
        command="pytest --pyargs trncheck.conformance --level smoke",
        seed=42,
        started="2026-03-01T10:15:00+00:00",
        complete=True,
        verdict=Verdict(status=VerdictStatus.INCOMPLETE, headline="Nothing failed."),
        environment=Environment(**machine, accelerator="none", packages={"torch": "2.14" if place > 1 else "2.13"}),
        results=[check],
    )
    return str(RunFolder.create(root, report).path)


def four(root: Path, *values: float, run: str = "run") -> list[str]:
    return [put(root, f"{run}-{place}", place, value) for place, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "status", "word"),
    [
        ((0.1, 0.1, 0.1, 0.1), 0, "NOTHING MOVED: "),
        ((0.1, 0.2, 0.1, 0.2), 1, "MOVED: of outcomes and numbers 1 by the kit"),
        ((0.1, 0.1, 0.2, 0.2), 1, "MOVED: of outcomes and numbers 1 by the stack"),
    ],
)
def test_exit_status(tmp_path, capsys, values, status, word):
    assert main(["attribute", *four(tmp_path, *values)]) == status
    assert capsys.readouterr().out.strip().split("\n")[-1].startswith(word)


def test_folders_of_runs_with_their_repeats(tmp_path, capsys):
    for n, noise in enumerate((0.2, -0.2, 0.0)):
        for place, value in enumerate((0.3, 0.5, 0.3, 0.5)):
            put(tmp_path / str(place), f"run-{n}-{place}", place, value + noise)
    folders = [str(tmp_path / str(place)) for place in range(4)]
    assert main(["attribute", *folders, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [cell["run_id"] for cell in data["cells"]] == [f"run-2-{place}" for place in range(4)]
    assert data["findings"][0]["limit"]["source"] == "3 std of 12 runs"


@pytest.mark.parametrize("format", ["markdown", "json"])
def test_into_a_file(tmp_path, capsys, format):
    out = tmp_path / "attribution"
    assert main(["attribute", *four(tmp_path, 0.1, 0.2, 0.1, 0.2), "--format", format, "--out", str(out)]) == 1
    assert "losses.start" in out.read_text()
    assert capsys.readouterr().out.split("\n")[1] == str(out)


@pytest.mark.parametrize(
    ("order", "more", "words"),
    [
        ("0213", [], "swapped are NEWKIT_OLDSTACK and OLDKIT_NEWSTACK"),
        ("0103", [], "are the same run"),
        ("01", [], "2 runs given: give four, OLD_OLD NEWKIT_OLDSTACK OLDKIT_NEWSTACK NEW_NEW"),
        ("0123", ["--noise", "absent"], "no such folder"),
        ("0123", ["--old-kit", "v1"], "--old-kit is for the script"),
        ("0123", ["--check", "x"], "--check is for the script"),
        ("", [], "give four runs, or --old-kit, --new-kit, --old-stack and --new-stack"),
        ("", ["--old-kit", "v1"], "give four runs, or --old-kit, --new-kit, --old-stack and --new-stack"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch, order, more, words):
    monkeypatch.chdir(tmp_path)
    runs = four(tmp_path, 0.1, 0.2, 0.1, 0.2)
    assert main(["attribute", *(runs[int(place)] for place in order), *more]) == 2
    error = capsys.readouterr().err
    assert error.startswith("trncheck attribute: ")
    assert words in error
    assert error.count("\n") == 1


def test_the_script_for_two_folders(tmp_path, capsys):
    for name in ("old", "new"):
        (tmp_path / name / "conformance").mkdir(parents=True)
        (tmp_path / name / "pyproject.toml").touch()
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    kits = ["--old-kit", str(tmp_path / "old"), "--new-kit", str(tmp_path / "new")]
    stacks = ["--old-stack", sys.executable, "--new-stack", str(other), "--work", str(tmp_path / "w")]
    assert main(["attribute", *kits, *stacks, "--check", "a.*", "--check", "b", "--level", "smoke"]) == 0
    text = capsys.readouterr().out
    assert text.count(" run --level smoke --check 'a.*' --check b --results=") == 4
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0


def test_an_attribution_loads_no_framework(tmp_path):
    code = (
        "import sys; from trncheck.cli import main; main(['attribute', *sys.argv[1:]])\n"
        "print('loaded', {'torch', 'jinja2', 'matplotlib', 'numpy', 'pytest'} & set(sys.modules))"
    )
    runs = four(tmp_path, 0.1, 0.2, 0.1, 0.2)
    ended = subprocess.run([sys.executable, "-P", "-c", code, *runs], capture_output=True, text=True)
    assert ended.stdout.endswith("loaded set()\n")
