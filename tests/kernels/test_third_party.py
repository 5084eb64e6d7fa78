"""A kernel in a package of somebody else's, as the README shows it, is judged like ours."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_kernel_of_the_readme(tmp_path):
    section = README.read_text().partition("### Add a kernel")[2]
    source, entry_point = re.findall(r"```(?:python|toml)\n(.*?)```", section, re.DOTALL)[:2]
    site = tmp_path / "site"
    (site / "acme").mkdir(parents=True)
    (site / "acme" / "__init__.py").touch()
    (site / "acme" / "double.py").write_text(source)
    info = site / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        entry_point.replace('[project.entry-points."trncheck.kernels"]', "[trncheck.kernels]").replace('"', "")
    )
    command = [sys.executable, "-m", "pytest", "--pyargs", "trncheck.conformance", "--target", "cpu", "-q"]
    isolated = [
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
        f"--results={tmp_path / 'results'}",
    ]
    run = subprocess.run(
        [*command, *isolated, "--check", "kernels.*[double]"],
        env=os.environ | {"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(next(tmp_path.rglob("report.json")).read_text())
    outcomes = {result["id"]: result["outcome"] for result in report["results"]}
    assert len(outcomes) >= 10
    assert set(outcomes.values()) == {"pass"}
