"""``trncheck diff``: exit statuses and one-line errors, in a process of its own where that matters."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trncheck.cli import main
from trncheck.reports.schema import CheckResult, Environment, Measurement, Outcome, Report, Verdict, VerdictStatus
from trncheck.reports.store import RunFolder

START = [sys.executable, "-P", "-c", "import sys; from trncheck.cli import main; sys.exit(main())"]


def put(root: Path, run_id: str, outcome: Outcome = Outcome.PASS, value: float = 0.1, **changes) -> str:
    """A run with two checks in the store ``root``; gives its folder."""
    checks = [
        CheckResult(
            id=id,
            subject="losses",
            title="Training starts where it must.",
            outcome=of,
            level="smoke",
            target="cpu",
            version="a" * 12,
            measurements=[Measurement(name="gap", value=value, bar=1.0, unit="nat")],
        )
        for id, of in (("losses.anchor", Outcome.PASS), ("losses.start", outcome))
    ]
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
        "results": checks,
    }
    return str(RunFolder.create(root, Report(**fields | changes)).path)


@pytest.mark.parametrize(
    ("old", "new", "status", "word"),
    [
        (Outcome.PASS, Outcome.PASS, 0, "NOTHING GOT WORSE"),
        (Outcome.FAIL, Outcome.PASS, 0, "NOTHING GOT WORSE"),
        (Outcome.FAIL, Outcome.FAIL, 0, "NOTHING GOT WORSE"),
        (Outcome.PASS, Outcome.FAIL, 1, "WORSE"),
        (Outcome.PASS, Outcome.NOT_RUN, 1, "WORSE"),
    ],
)
def test_exit_status(tmp_path, capsys, old, new, status, word):
    assert main(["diff", put(tmp_path, "1", old), put(tmp_path, "2", new)]) == status
    last = capsys.readouterr().out.strip().split("\n")[-1]
    assert last.startswith(f"{word}: ")


def test_releases_from_the_results_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(Path("results"), "1", release="2.32.0")
    put(Path("results"), "2", Outcome.FAIL)
    assert main(["diff", "2.32.0", "2.33.0"]) == 1
    assert "OLD Neuron 2.32.0 on cpu" in capsys.readouterr().out
    assert main(["diff", "2.33.0", "2.32.0", "--results", str(tmp_path / "results")]) == 0


def test_noise_from_repeats(tmp_path, capsys):
    runs = [put(tmp_path / "store", str(n), value=value) for n, value in enumerate((0.10, 0.12, 0.14, 0.30))]
    arguments = ["diff", runs[0], runs[3], "--format", "json"]

    def effect(*more: str):
        assert main([*arguments, *more]) == 0
        return json.loads(capsys.readouterr().out)["checks"][0]["drifts"][0]["effect"]

    assert effect("--results", str(tmp_path / "absent")) is None
    assert effect("--results", str(tmp_path / "store")) == pytest.approx(9.0)
    assert effect("--noise", str(tmp_path / "store")) == pytest.approx(9.0)


@pytest.mark.parametrize("format", ["markdown", "html", "json"])
def test_into_a_file(tmp_path, capsys, format):
    out = tmp_path / "diff"
    runs = [put(tmp_path, "1"), put(tmp_path, "2", Outcome.FAIL)]
    assert main(["diff", *runs, "--format", format, "--out", str(out)]) == 1
    assert "losses.start" in out.read_text()
    assert capsys.readouterr().out.split("\n")[1] == str(out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["2.31.0", "RUN"], "releases in results: none"),
        (["RUN", "absent/report.json"], "cannot be read"),
        (["RUN", "damaged.json"], "not JSON"),
        (["RUN", "RUN", "--noise", "absent"], "no such folder"),
        (["RUN", "RUN", "--out", "absent/diff.txt"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    Path("damaged.json").write_text("{")
    run = put(tmp_path, "1")
    assert main(["diff", *(run if word == "RUN" else word for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("trncheck diff: ")
    assert words in error
    assert error.count("\n") == 1


def test_real_runs_of_the_suite_compare(tmp_path):
    for _ in range(2):
        subprocess.run([*START, "run", "--check", "pins.*", "--level", "smoke"], cwd=tmp_path, capture_output=True)
    folders = sorted(tmp_path.glob("results/*/*/*"))
    ended = subprocess.run([*START, "diff", *folders, "--format", "json"], cwd=tmp_path, capture_output=True, text=True)
    diff = json.loads(ended.stdout)
    assert ended.returncode == 0
    assert diff["compared"] >= 3
    assert not [check for check in diff["checks"] if check["category"] not in ("same", "still-broken")]
    assert not [warning for warning in diff["warnings"] if "version" in warning]


def test_help_is_quick():
    best = min(_seconds([*START, "--help"]) for _ in range(3))
    assert best < 0.3


def test_a_comparison_loads_no_framework(tmp_path):
    runs = [put(tmp_path, "1"), put(tmp_path, "2")]
    code = (
        "import sys; from trncheck.cli import main; main(['diff', *sys.argv[1:]])\n"
        "print('loaded', {'torch', 'jinja2', 'matplotlib', 'numpy', 'pytest'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code, *runs], capture_output=True, text=True)
    assert ended.stdout.endswith("loaded set()\n")


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ)
    return time.perf_counter() - start
