"""``trncheck baseline``: exit statuses, files and one-line errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.cli import main
from trncheck.reports.schema import CheckResult, Environment, Measurement, Outcome, Report, Verdict, VerdictStatus
from trncheck.reports.store import RunFolder


def put(run_id: str, value: float = 0.1, outcome: Outcome = Outcome.PASS, root: str = "results", **changes) -> str:
    """A run with one check in the store ``root``; gives its folder."""
    check = CheckResult(
        id="losses.start",
        subject="losses",
        title="Training starts where it must.",
        outcome=outcome,
        level="smoke",
        target="cpu",
        version="a" * 12,
        measurements=[Measurement(name="gap", value=value, bar=1.0, unit="nat")],
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
        "started": "2026-03-01T10:15:00+00:00",
        "complete": True,
        "verdict": Verdict(status=VerdictStatus.INCOMPLETE, headline="Nothing failed."),
        "environment": Environment(
            python="3.11.7", os="Linux", machine="x86_64", cpu="Xeon", cores=2, memory_gib=15.6, accelerator="none"
        ),
        "results": [check],
    }
    return str(RunFolder.create(Path(root), Report(**fields | changes)).path)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Every test starts in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def propose(*runs: str, more: tuple[str, ...] = ()) -> int:
    return main(["baseline", "propose", *runs, "--reason", "measured anew", *more])


def test_from_runs_to_a_baseline_and_back(capsys):
    runs = [put("1"), put("2") + "/report.json", put("3")]
    assert propose("2.33.0", *runs[:2]) == 0
    *_, written, path = capsys.readouterr().out.strip().split("\n")
    assert written.startswith("WRITTEN: 1 number of 1 check")
    assert path == "baselines/2.33.0-cpu.json"
    data = json.loads(Path(path).read_text())
    assert data["provenance"]["reason"] == "measured anew"
    assert data["checks"]["losses.start"]["numbers"]["gap"]["golden"] == 0.1

    assert main(["baseline", "check", put("4")]) == 0
    assert capsys.readouterr().out.strip().split("\n")[-1].startswith("INSIDE: 1 number inside")
    assert main(["baseline", "check", put("5", 0.4)]) == 1
    assert capsys.readouterr().out.strip().split("\n")[-1].startswith("OUTSIDE: 1 of 1 number")
    assert main(["baseline", "check", "2.33.0"]) == 1, "the newest run"
    assert main(["baseline", "check", put("6", results=[])]) == 1
    assert "\nNOTHING COMPARED: " in capsys.readouterr().out


def test_a_second_proposal_shows_what_moves(capsys):
    assert propose(put("1"), put("2"), put("3")) == 0
    assert propose(put("4", 0.2), put("5", 0.3), put("6", 0.4)) == 0
    out = capsys.readouterr().out
    assert "0.1 nat (all equal, 3 runs) -> 0.3 nat (std 0.1, 3 runs), +2.8 pooled standard deviations" in out
    assert json.loads(Path("baselines/2.33.0-cpu.json").read_text())["provenance"]["previous"]


def test_a_file_of_ones_own():
    assert propose(put("1"), put("2"), put("3"), more=("--baseline", "mine/b.json")) == 0
    assert not Path("baselines").exists()
    assert main(["baseline", "check", put("4"), "--baseline", "mine/b.json"]) == 0


@pytest.mark.parametrize("format", ["text", "markdown", "json"])
def test_formats(format, capsys):
    assert propose(put("1"), put("2"), put("3")) == 0
    capsys.readouterr()
    assert main(["baseline", "check", put("4", 0.5), "--format", format]) == 1
    out = capsys.readouterr().out
    assert "losses.start" in out
    assert (json.loads(out)["inside"] is False) if format == "json" else "OUTSIDE" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["propose", "A", "B", "C"], "no reason given"),
        (["propose", "A", "B", "C", "--reason", " "], "no reason given"),
        (["propose", "A", "B", "--reason", "x"], "2 runs given"),
        (["propose", "A", "B", "B", "--reason", "x"], "given 2 times"),
        (["propose", "A", "B", "C", "killed", "--reason", "x"], "did not finish"),
        (["propose", "A", "B", "C", "dirty", "--reason", "x"], "changes that no commit holds"),
        (["propose", "A", "B", "C", "red", "--reason", "x"], "losses.start failed"),
        (["propose", "A", "B", "C", "absent/x", "--reason", "x"], "cannot be read"),
        (["propose", "A", "B", "C", "--reason", "x", "--baseline", "damaged.json"], "not JSON"),
        (["propose", "A", "B", "C", "--reason", "x", "--baseline", "damaged.json/b"], "cannot be written"),
        (["check", "A"], "baselines/2.33.0-cpu.json: cannot be read"),
        (["check", "A", "--baseline", "damaged.json"], "not JSON"),
        (["check", "9.99"], "neither a report nor a release"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, words):
    Path("damaged.json").write_text("{")
    runs = {name: put(name) for name in "ABC"}
    runs["killed"] = put("killed", complete=False)
    runs["dirty"] = put("dirty", kit_commit="c3931d2+dirty")
    runs["red"] = put("red", outcome=Outcome.FAIL)
    assert main(["baseline", *(runs.get(word, word) for word in arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("trncheck baseline: ")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not Path("baselines").exists()


def test_it_loads_no_framework():
    runs = [put(name) for name in "ABC"]
    code = (
        "import sys; from trncheck.cli import main; main(['baseline', 'propose', *sys.argv[1:], '--reason', 'x'])\n"
        "main(['baseline', 'check', sys.argv[1]])\n"
        "print('loaded', {'torch', 'jinja2', 'matplotlib', 'numpy', 'pytest'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code, *runs], capture_output=True, text=True)
    assert ended.stdout.endswith("loaded set()\n"), ended.stderr
