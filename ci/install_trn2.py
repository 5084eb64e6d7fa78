"""Adds the kit to the Python that runs this, on a Neuron image or in an empty environment, and changes nothing in it.

What is there is kept in its version, whatever that is: the kit is here to judge it. What is missing of the Neuron
stack comes from Neuron's package index, the fork of torchtitan from its repository. Needs pip, git and a network.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

KIT = Path(__file__).resolve().parent.parent
INDEXES = ("https://pip.repos.neuron.amazonaws.com", "https://download.pytorch.org/whl/cpu")
FORK = "https://github.com/aws-neuron/torchtitan-neuron.git"
BRANCH = "release-2.33"
OLDEST = (3, 12)
"""Of the Pythons that the native torch-neuronx is built for."""


def missing(installed: Mapping[str, str]) -> list[str]:
    """Requirements of the extras ``neuron`` and ``report`` whose packages are not installed in any version."""
    extras = tomllib.loads((KIT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = [*extras["neuron"], *extras["report"]]
    return [requirement for requirement in wanted if _name(requirement) not in installed]


def commands(installed: Mapping[str, str], constraints: Path, checkouts: Path) -> list[list[str]]:
    """What to run, for ``installed`` versions by normalised name; the fork is cloned below ``checkouts``."""
    indexes = [word for index in INDEXES for word in ("--extra-index-url", index)]
    pip = [sys.executable, "-m", "pip", "install", "--constraint", str(constraints), *indexes]
    found = [[*pip, "--editable", str(KIT), *missing(installed)]]
    if not {"torchtitan-neuron", "torchtitan"} & installed.keys():
        fork = checkouts / "torchtitan-neuron"
        if not fork.exists():
            found.append(["git", "clone", "--branch", BRANCH, FORK, str(fork)])
        found.append([*pip, "--requirement", str(fork / "requirements.txt"), "--editable", str(fork)])
    return found


def main() -> int:
    """Install, then say what ``trncheck doctor`` thinks of the machine. Exit status: 0 when installed."""
    if sys.version_info < OLDEST:
        print(f"install_trn2: {sys.executable} is Python {sys.version.split()[0]}; activate one of 3.12 or newer")
        return 2
    installed = {_name(found.name): found.version for found in distributions() if found.name}
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "installed.txt")
        kept = [f"{name}=={version}\n" for name, version in installed.items() if name not in ("pip", "trncheck")]
        constraints.write_text("".join(sorted(kept)))
        for command in commands(installed, constraints, Path(sys.prefix, "src")):
            print("+", *command, flush=True)
            if subprocess.run(command).returncode:
                print(f"install_trn2: {command[0]} failed, see above; what was installed before is as it was")
                return 1
    subprocess.run([Path(sys.executable).with_name("trncheck"), "doctor", "--target", "trn2"])
    return 0


def _name(requirement: str) -> str:
    """The normalised name of a package, as it is or at the head of a requirement."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


if __name__ == "__main__":
    sys.exit(main())
