"""``trncheck trend``: exit statuses and one-line errors, in a process of its own where that matters."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.cli import main
from trncheck.reports.schema import CheckResult, Environment, Measurement, Outcome, Report, Verdict, VerdictStatus
from trncheck.reports.store import RunFolder


def put(root: Path, run_id: str, outcome: Outcome = Outcome.PASS, **changes) -> Path:
    """A run with one check in the store ``root``; gives its folder."""
    check = CheckResult(
        id="losses.start",
        subject="losses",
        title="Training starts where it must.",
        outcome=outcome,
        level="smoke",
        target="cpu",
        version="a" * 12,
        measurements=[Measurement(name="gap", value=0.1, bar=1.0, unit="nat")],
    )
    fields = {
        "run_id": run_id,
        "kit_version": "0.1.0",
        "kit_commit": "c3931d2",
        "release": "2.33.0",
        "release_date": "2026-02-20",
        "target": "cpu",
        "level": "smoke",
        "command": "pytest --pyargs trncheck.conformance --level smoke",
        "seed": 42,
        "started": f"2026-03-01T10:15:0{run_id}+00:00",
        "complete": True,
        "verdict": Verdict(status=VerdictStatus.INCOMPLETE, headline="Nothing failed."),
        "environment": Environment(
            python="3.11.7", os="Linux", machine="x86_64", cpu="Xeon", cores=2, memory_gib=15.6, accelerator="none"
        ),
        "results": [check],
    }
    return RunFolder.create(root, Report(**fields | changes)).path


def last_line(capsys) -> str:
    return capsys.readouterr().out.strip().split("\n")[-1]


def test_results_are_the_default_and_red_is_no_error(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(Path("results"), "1")
    assert main(["trend"]) == 0
    assert last_line(capsys) == "GREEN: 0 checks red now, 0 change points, 0 flaky; 1 of 1 check green, over 1 run."
    put(Path("results"), "2", Outcome.FAIL)
    assert main(["trend"]) == 0
    assert last_line(capsys).startswith("RED: 1 check red now")


def test_several_folders_and_options(tmp_path, capsys):
    put(tmp_path / "a", "1")
    put(tmp_path / "b", "2", release="2.34.0")
    folders = [str(tmp_path / name) for name in "ab"]
    assert main(["trend", *folders, "--format", "json", "--last", "1", "--group", "release"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [group["name"] for group in data["groups"]] == ["cpu, Neuron 2.34.0", "cpu, Neuron 2.33.0"]
    assert data["last"] == 1


def test_a_damaged_file_is_listed_and_no_error(tmp_path, capsys):
    put(tmp_path, "1")
    (put(tmp_path, "2") / "report.json").write_text("{")
    assert main(["trend", str(tmp_path)]) == 0
    assert "2/report.json: line 1: not JSON" in capsys.readouterr().out


@pytest.mark.parametrize("format", ["html", "json", "text"])
def test_into_a_file(tmp_path, capsys, format):
    put(tmp_path, "1", Outcome.FAIL)
    out = tmp_path / "trend"
    assert main(["trend", str(tmp_path), "--format", format, "--out", str(out)]) == 0
    assert "losses.start" in out.read_text()
    assert last_line(capsys) == str(out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent"], "absent: no such folder"),
        (["empty"], "none"),
        (["damaged"], "none of 1 can be read"),
        (["good", "--last", "0"], "at least 1 run"),
        (["good", "--out", "absent/trend.txt"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    put(Path("good"), "1")
    Path("empty").mkdir()
    Path("damaged").mkdir()
    Path("damaged", "report.json").write_text("{")
    assert main(["trend", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("trncheck trend: ")
    assert words in error
    assert error.count("\n") == 1


def test_text_loads_no_framework_and_no_jinja(tmp_path):
    put(tmp_path, "1")
    code = (
        "import sys; from trncheck.cli import main; main(['trend', *sys.argv[1:]])\n"
        "print('loaded', {'torch', 'jinja2', 'matplotlib', 'numpy', 'pytest'} & set(sys.modules))\n"
        "main(['trend', *sys.argv[1:], '--format', 'html', '--out', sys.argv[1] + '/trend.html'])\n"
        "print('loaded', {'torch', 'matplotlib', 'numpy', 'pytest'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code, tmp_path], capture_output=True, text=True)
    assert ended.stdout.count("loaded set()\n") == 2, ended
