"""The four runs of an attribution as a shell script: two kits, neither of them installed, each on two stacks."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .text import one_line

CELLS = ("old-kit-old-stack", "new-kit-old-stack", "old-kit-new-stack", "new-kit-new-stack")
"""Folders of results, in the order in which ``trncheck attribute`` takes the runs."""
_NEEDED = "filelock packaging pip psutil pydantic pytest rich yaml"
_PROBE = (
    "import importlib.util as u, sys; "
    "print(*[n for n in sys.argv[1:] if u.find_spec(n) is None]); print(sys.version_info >= (3, 11))"
)
_LEFT_OUT = (".venv", "build", "outputs", "results")


@dataclass(frozen=True)
class Kit:
    """One side's kit: a commit of the repository ``source``, or the folder ``source`` as it is."""

    name: str
    """As the user gave it."""
    source: Path
    commit: str | None
    in_git: bool
    """Whether git knows the commit of what is judged, so that the reports can name it."""


def find_kit(name: str) -> Kit:
    """The kit in the folder ``name``, else at the git ref ``name`` of the repository around the current folder.

    Raises ValueError, in one line, where there is neither.
    """
    folder = Path(name)
    if name and (folder / "conformance").is_dir() and (folder / "pyproject.toml").is_file():
        top = _git("rev-parse", "--show-toplevel", folder=folder)
        return Kit(name, folder.resolve(), None, in_git=bool(top) and Path(top).resolve() == folder.resolve())
    top = _git("rev-parse", "--show-toplevel")
    commit = top and _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if not commit:
        where = f"a git ref of {top}" if top else "a git ref (this folder is in no repository)"
        raise ValueError(f"kit {one_line(name, 80)!r} is neither a folder with a checkout of trncheck nor {where}")
    if not _git("cat-file", "-t", f"{commit}:conformance"):
        raise ValueError(
            f"kit {one_line(name, 80)!r} is a commit without conformance/: is {top} a checkout of trncheck?"
        )
    return Kit(name, Path(top), commit, in_git=True)


def find_python(name: str) -> str:
    """The Python of a stack as an absolute command, with its links as they are: a venv is one.

    Raises ValueError, in one line, where it does not run, or lacks what the kit needs beside the stack.
    """
    found = shutil.which(name)
    if found is None:
        raise ValueError(f"stack {one_line(name, 80)!r} is no Python that runs here: give the path of its python")
    found = str(Path(found).absolute())
    command = [found, "-c", _PROBE, *_NEEDED.split()]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        missing, recent = ended.stdout.splitlines()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ValueError(
            f"stack {one_line(name, 80)!r} is no Python that runs here ({type(error).__name__})"
        ) from error
    if recent != "True":
        raise ValueError(f"the Python of stack {one_line(name, 80)!r} is too old: trncheck needs 3.11 or newer")
    if missing:
        packages = missing.replace("yaml", "PyYAML")
        raise ValueError(f"stack {one_line(name, 80)!r} lacks {missing}: install there {packages}")
    return found


def plan(kits: Sequence[str | None], stacks: Sequence[str | None], options: Sequence[str], folder: Path) -> str:
    """``script`` for kits and stacks as a user names them, (old, new) each; ValueError where one is not there."""
    if None in (*kits, *stacks):
        raise ValueError("give four runs, or --old-kit, --new-kit, --old-stack and --new-stack for how to make them")
    return script([find_kit(name) for name in kits], [find_python(name) for name in stacks], options, folder)


def script(kits: Sequence[Kit], pythons: Sequence[str], options: Sequence[str], folder: Path) -> str:
    """The commands that make the four runs below ``folder`` and attribute what differs; (old, new) twice.

    ``options`` go to each ``trncheck run``. Raises ValueError where old and new are the same.
    """
    old, new = kits
    if (old.source, old.commit) == (new.source, new.commit):
        raise ValueError(f"old and new kit are the same ({one_line(old.commit or str(old.source), 80)}): give two")
    if pythons[0] == pythons[1]:
        raise ValueError(f"old and new stack have the same Python ({one_line(pythons[0], 200)}): give two")
    folder = folder.resolve()
    homes = [folder / "kits" / side for side in ("old", "new")]
    lines = ["set -eu", ""]
    for side, kit, home in zip(("old", "new"), kits, homes, strict=True):
        lines += [f"# {side} kit: {one_line(kit.name, 200)}", *_make(kit, home, pythons[0]), ""]
    runs = [folder / cell for cell in CELLS]
    for place, run in enumerate(runs):
        lines += [f"# {run.name.replace('-', ' ')}", *_run(homes[place % 2], pythons[place // 2], options, run), ""]
    lines.append(
        "# The newest run of each folder counts. Run this again, twice or more, and the others tell the noise."
    )
    beside = Path(sys.executable).with_name("trncheck")
    lines.append(_join(beside if beside.exists() else beside.name, "attribute", *runs))
    lines += ["", "# Afterwards:"]
    lines += [
        f"# {_join('git', '-C', kit.source, 'worktree', 'remove', '--force', home)}"
        for kit, home in zip(kits, homes, strict=True)
        if kit.commit
    ]
    return "\n".join(lines) + "\n"


def _make(kit: Kit, home: Path, python: str) -> list[str]:
    """The kit as files that a Python finds through PYTHONPATH, with its metadata and its plugin's entry point.

    The folders of a checkout are not packages of their names, so that it has to be installed; into a folder of its
    own, which shadows a kit that the stack may have. The kit tells its commit only beside a pyproject.toml in git.
    """
    if kit.commit:
        fetch = _join("git", "-C", kit.source, "worktree", "add", "--detach", home, kit.commit)
    else:
        work = home.parent.parent
        inside = [str(work.relative_to(kit.source))] if work.is_relative_to(kit.source) else []
        left_out = [f"--exclude=./{name}" for name in (*_LEFT_OUT, *inside)]
        copy = f"{_join('tar', '-C', kit.source, *left_out, '-cf', '-', '.')} | {_join('tar', '-C', home, '-xf', '-')}"
        fetch = f"{{ {_join('mkdir', '-p', home)} && {copy}; }}"
    lines = [
        f"test -d {_join(home)} || {fetch}",
        f"test -d {_join(home / '.kit')} || "
        + _join(python, "-m", "pip", "install", "--no-deps", "--target", home / ".kit", home),
    ]
    if kit.in_git:
        lines.append(_join("cp", home / "pyproject.toml", home / ".kit" / "trncheck"))
    return lines


def _run(home: Path, python: str, options: Sequence[str], results: Path) -> list[str]:
    kit = home / ".kit"
    command = _join(python, "-P", kit / "bin" / "trncheck", "run", *options, f"--results={results}")
    # A red check ends a run with 1, which is what is looked for here.
    return [f'PYTHONPATH={_join(kit)}"${{PYTHONPATH:+:$PYTHONPATH}}" {command} || test $? -eq 1']


def _join(*words: object) -> str:
    return shlex.join(str(word) for word in words)


def _git(*arguments: str, folder: Path = Path()) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
