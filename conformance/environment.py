"""The machine, the software and the kit itself, as a report names them. Imports no framework."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from trncheck.neuron.machine import device_files, inspect
from trncheck.neuron.settings import XLA_ERA
from trncheck.reports.schema import Environment

_PACKAGES = (
    "torch",
    "torch-neuronx",
    "torchtitan",
    "torchtitan-neuron",
    "transformers",
    "safetensors",
    "tokenizers",
    "datasets",
    "triton",
    "nki",
    "neuronx-cc",
    "numpy",
    "pytest",
    "trncheck",
)
_VARIABLES = ("NEURON_", "NKI_", "TORCH_NEURONX_", "OMP_", "MKL_", "ATEN_", "CUBLAS_", "PYTORCH_", "TORCH_LOGS")
_ROOT = Path(__file__).resolve().parent.parent


def has_neuron_device() -> bool:
    """Whether the Neuron driver offers a device on this machine."""
    return bool(device_files())


def describe_environment() -> Environment:
    """Facts of this machine that can move a number."""
    return Environment(
        python=platform.python_version(),
        os=f"{_os_name()}, {platform.system()} {platform.release()}",
        machine=platform.machine(),
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        accelerator=str(inspect()),
        packages={name: found for name in _PACKAGES if (found := installed_version(name))},
        variables={
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES) or name in XLA_ERA
        },
    )


def installed_version(name: str) -> str | None:
    """Version of a Python distribution, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def kit_commit() -> str | None:
    """Commit of the checkout that this code lies in, ``+dirty`` where tracked files differ; None outside of one."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit or not (_ROOT / "pyproject.toml").is_file():
        return None
    return commit + ("+dirty" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(_ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
