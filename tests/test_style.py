"""Rules that hold for every tracked file."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 350
"""Lines of a module."""
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.~])/(?:work|root)/"),
    "a folder outside of the repository": re.compile(r"\bshared/"),
    "pickle": re.compile(r"^\s*(?:import|from) pickle\b", re.MULTILINE),
    "torch.load without weights_only=True": re.compile(r"torch\.load\((?![^)]*weights_only=True)"),
}


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("rule", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_is_content(rule):
    ended = subprocess.run([sys.executable, "-m", "ruff", *rule, "."], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_modules_are_short():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in tracked() if path.suffix == ".py"
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_holds(what):
    broken = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked()
        if path != Path(__file__).resolve()  # which has to name what it forbids
        for match in FORBIDDEN[what].finditer(path.read_text(errors="replace"))
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a path of one machine", "cd /work/main"),
        ("a path of one machine", 'open("/root/.cache")'),
        ("a folder outside of the repository", "see shared/DESIGN.md"),
        ("pickle", "import pickle\n"),
        ("pickle", "    from pickle import loads\n"),
        ("torch.load without weights_only=True", "torch.load(path)"),
        ("torch.load without weights_only=True", "torch.load(\n    path, map_location='cpu'\n)"),
    ],
)
def test_rules_see_what_they_forbid(what, text):
    assert FORBIDDEN[what].search(text)


@pytest.mark.parametrize(
    "text",
    ["safetensors.torch.load_file(path)", "torch.load(path, weights_only=True)", "/workspace/x", "network/root/"],
)
def test_rules_leave_the_rest_alone(text):
    assert not any(rule.search(text) for rule in FORBIDDEN.values())
