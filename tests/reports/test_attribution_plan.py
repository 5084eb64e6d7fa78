"""The script that makes the four runs: what it holds, what is refused, and that a shell runs it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.reports.attribution_plan import CELLS, find_kit, find_python, plan, script

PYPROJECT = '[project]\nname = "trncheck"\n'


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A repository with two commits that look like a checkout of trncheck, as the current folder."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "check out"
    (folder / "conformance").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    monkeypatch.chdir(folder)
    _git("init", "-q", "-b", "main")
    for tag in ("v1", "v2"):
        (folder / "conformance" / "bars.py").write_text(tag)
        _git("add", ".")
        _git("commit", "-q", "-m", tag)
        _git("tag", tag)
    return folder


@pytest.fixture
def stacks(tmp_path) -> list[str]:
    """Two Pythons that note how they were called; ``run`` leaves a line, and ends with 1 as for a red check."""
    made = []
    for name in ("old", "new"):
        python = tmp_path / f"{name} stack"
        python.write_text(
            f"""#!/bin/sh
case "$*" in
  -c*) exec {sys.executable} "$@" ;;
  "-m pip "*) mkdir -p "$6/trncheck" ;;
  *) echo "{name}|$PYTHONPATH|$*" >> {shlex.quote(str(tmp_path / "log"))}; exit 1 ;;
esac
"""
        )
        python.chmod(0o755)
        made.append(str(python))
    return made


def _git(*arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_shell_runs_the_script(checkout, stacks, tmp_path):
    work = tmp_path / "it's here"
    text = plan(("v1", "v2"), stacks, ["--level", "smoke", "--check", "losses.*"], work)
    text = "".join(line for line in text.splitlines(keepends=True) if " attribute " not in line)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for _ in range(2):
        ended = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env=environment)
        assert ended.returncode == 0, ended.stderr
    kits = {side: work / "kits" / side for side in ("old", "new")}
    assert (kits["old"] / "conformance" / "bars.py").read_text() == "v1"
    assert (kits["new"] / "conformance" / "bars.py").read_text() == "v2"
    assert (kits["old"] / ".kit" / "trncheck" / "pyproject.toml").read_text() == PYPROJECT
    expected = [
        f"{stack}|{kits[kit]}/.kit|-P {kits[kit]}/.kit/bin/trncheck run --level smoke --check losses.* "
        f"--results={work}/{kit}-kit-{stack}-stack"
        for stack in ("old", "new")
        for kit in ("old", "new")
    ]
    assert (tmp_path / "log").read_text().splitlines() == 2 * expected


def test_it_ends_with_the_attribution_of_the_runs(checkout, stacks, tmp_path):
    lines = plan(("v1", "v2"), stacks, [], tmp_path / "w").splitlines()
    words = next(shlex.split(line) for line in lines if " attribute " in line)
    assert words[1:] == ["attribute", *(str(tmp_path / "w" / cell) for cell in CELLS)]


def test_a_folder_is_judged_as_it_is(checkout, stacks, tmp_path):
    (checkout / "conformance" / "bars.py").write_text("not committed")
    (checkout / "results").mkdir()
    kits = [find_kit("v1"), find_kit(str(checkout))]
    assert kits[1].commit is None
    assert kits[1].in_git
    text = script(kits, stacks, [], checkout / "inside")
    text = "".join(line for line in text.splitlines(keepends=True) if " attribute " not in line)
    subprocess.run(["sh", "-c", text], check=True, capture_output=True)
    home = checkout / "inside" / "kits" / "new"
    assert (home / "conformance" / "bars.py").read_text() == "not committed"
    assert not (home / "results").exists()
    assert not (home / "inside").exists()
    assert _git("-C", str(home), "rev-parse", "HEAD") == _git("rev-parse", "v2")


def test_a_folder_outside_of_git_claims_no_commit(tmp_path, stacks):
    folder = tmp_path / "sdist"
    (folder / "conformance").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    kit = find_kit(str(folder))
    assert not kit.in_git
    other = tmp_path / "sdist2"
    folder.rename(other)
    assert "cp " not in script([kit, find_kit(str(other))], stacks, [], tmp_path / "w")


@pytest.mark.parametrize(
    "name", ["v3", "--help", "", "$(touch x)", "a\nb", "\x1b[31mred", "v1:conformance", "conformance"]
)
def test_no_such_kit(checkout, name):
    with pytest.raises(ValueError, match="neither a folder with a checkout of trncheck nor a git ref") as caught:
        find_kit(name)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_commit_of_something_else(checkout):
    (checkout / "conformance" / "bars.py").unlink()
    _git("commit", "-qam", "nothing left")
    with pytest.raises(ValueError, match="without conformance/"):
        find_kit("HEAD")


def test_no_repository_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ValueError, match="this folder is in no repository"):
        find_kit("HEAD")


def test_pythons(tmp_path, stacks):
    assert find_python(stacks[0]) == stacks[0]
    with pytest.raises(ValueError, match="no Python that runs here"):
        find_python(str(tmp_path / "absent"))
    answers = {"pip yaml\nTrue": "lacks pip yaml: install there pip PyYAML", "\nFalse": "too old", "x": "no Python"}
    for answer, words in answers.items():
        fake = tmp_path / "fake"
        fake.write_text(f"#!/bin/sh\nprintf '{answer}'\n".replace("\nT", "\\nT").replace("\nF", "\\nF"))
        fake.chmod(0o755)
        with pytest.raises(ValueError, match=words):
            find_python(str(fake))


def test_twice_the_same(checkout, stacks, tmp_path):
    with pytest.raises(ValueError, match="old and new kit are the same"):
        plan(("v2", "main"), stacks, [], tmp_path)
    with pytest.raises(ValueError, match="have the same Python"):
        plan(("v1", "v2"), stacks[:1] * 2, [], tmp_path)
    with pytest.raises(ValueError, match="give four runs, or --old-kit"):
        plan(("v1", None), stacks, [], tmp_path)
