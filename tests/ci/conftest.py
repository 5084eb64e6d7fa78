"""A ``trncheck`` that runs nothing: it writes a run's folder, notes how it was called, and ends as it is told."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "ci" / "nightly.sh"
FAKE = """
import json, os, sys, time
from pathlib import Path

verb, *rest = sys.argv[1:]
here = Path(__file__).parent
with open(here / "calls.jsonl", "a") as calls:
    calls.write(json.dumps([verb, *rest]) + "\\n")
plan = json.loads((here / "plan.json").read_text())


def value(flag):
    joined = [word.removeprefix(flag + "=") for word in rest if word.startswith(flag + "=")]
    return joined[0] if joined else rest[rest.index(flag) + 1]


if verb == "run":
    print("the output of the run")
    if plan["writes"]:
        folder = Path(value("--results"), "2.33.0", value("--target"), plan["run_id"])
        folder.mkdir(parents=True)
        report = {"complete": plan["complete"], "verdict": {"status": "incomplete", "headline": plan["headline"]}}
        (folder / "report.json").write_text(json.dumps(report))
        (folder / "report.md").write_text("the report of the run\\n")
        if plan["complete"]:
            (folder / "report.html").write_text("page")
    if plan["hang"]:
        try:
            print("hanging", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            (here / "interrupted").touch()
            sys.exit(2)
elif "--out" in rest and plan[verb] in (0, 1):
    Path(value("--out")).write_text(f"{verb} as {value('--format')}\\n")
elif plan[verb]:
    print(f"trncheck {verb}: it went wrong", file=sys.stderr)
sys.exit(plan[verb])
"""
GREEN = {"run": 0, "diff": 0, "trend": 0, "report": 0, "writes": True, "complete": True, "hang": False}
"""Statuses by verb, and what ``run`` does."""


@dataclass
class Host:
    """A machine with ``trncheck`` on PATH and a results folder."""

    root: Path
    night: int = 0

    @property
    def results(self) -> Path:
        return self.root / "the results"

    @property
    def calls(self) -> list[list[str]]:
        path = self.root / "bin" / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def called(self, verb: str) -> list[list[str]]:
        return [rest for called, *rest in self.calls if called == verb]

    def summary(self, target: str = "cpu", level: str = "smoke") -> str:
        return (self.results / f"summary-{target}-{level}.md").read_text()

    def last_good(self, target: str = "cpu", level: str = "smoke") -> str | None:
        path = self.results / f"last-good-{target}-{level}"
        return path.read_text().strip() if path.exists() else None

    def start(self, *options: str, environment: dict[str, str] | None = None, **plan) -> subprocess.Popen:
        """Begin a night whose verbs end with the statuses of ``plan``."""
        self.night += 1
        plan = GREEN | {"run_id": f"202603{self.night:02}T101500-3fa9c1", "headline": "All is well."} | plan
        (self.root / "bin" / "plan.json").write_text(json.dumps(plan))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTLY_")}
        defaults = {
            "NIGHTLY_TARGET": "cpu",
            "NIGHTLY_LEVEL": "smoke",
            "NIGHTLY_RESULTS": str(self.results),
            "NIGHTLY_LOCK": str(self.root / "a lock"),
            "NIGHTLY_WAIT": "0",
        }
        path = {"PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.Popen(
            ["bash", str(SCRIPT), *options],
            env=kept | path | defaults | (environment or {}),
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, environment: dict[str, str] | None = None, **plan) -> "Night":
        """One whole night."""
        process = self.start(*options, environment=environment, **plan)
        out, err = process.communicate(timeout=60)
        return Night(process.returncode, out, err, self.results / f"2.33.0/cpu/202603{self.night:02}T101500-3fa9c1")


@dataclass(frozen=True)
class Night:
    """How a night ended, and where its run lies (if it wrote one, on target cpu)."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def name(self) -> str:
        return "/".join(self.folder.parts[-3:])


@pytest.fixture
def host(tmp_path) -> Host:
    root = tmp_path / "a host"
    (root / "bin").mkdir(parents=True)
    fake = root / "bin" / "trncheck"
    fake.write_text(f"#!{sys.executable}\n{FAKE}")
    fake.chmod(0o755)
    return Host(root)
