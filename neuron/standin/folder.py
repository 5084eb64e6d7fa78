"""Writes the folder of a stand-in environment: what would be installed on a trn2.48xlarge, as far as the kit looks.

``site`` goes on PYTHONPATH, ``bin`` first on PATH, ``root`` holds what the kernel would show of the machine.
"""

import compileall
import importlib.metadata
import json
import py_compile
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trncheck.fixtures.manifest import Pin, Release

LOCAL = "standin"
"""Local version of every distribution, and package revision of every system package."""
DEVICES = 16
INSTANCE_TYPE = "trn2.48xlarge"

_SITE = Path(__file__).parent / "site"
_PACKAGES = {
    "torch-neuronx": ("torch_neuronx",),
    "nki": ("nki",),
    "neuronx-cc": ("neuronxcc", "nkilib"),  # the release bundles nkilib with its compiler
}
# The fork's checkout: the installed torchtitan takes the place of its code.
_FORK_VERSION = "0.2.2+neuron.1"
_FORK = "https://github.com/aws-neuron/torchtitan-neuron.git"

_AUTOLOAD = "[torch.backends]\ntorch_neuronx = torch_neuronx:_autoload\n"
_NEURON_LS = """\
#!/bin/sh
# Stand-in of trncheck: answers for a machine that is not there.
folder=$(dirname "$0")/..
case "$*" in
"") grep -v '^#' "$folder/neuron-ls.txt" ;;
-j | --json-output) cat "$folder/neuron-ls.json" ;;
*) echo "neuron-ls: unknown option $*" >&2; exit 2 ;;
esac
"""
_DPKG_QUERY = """\
#!/bin/sh
# Stand-in of trncheck: knows the Neuron packages of the release that is rehearsed, and no others.
for name; do :; done
folder=$(dirname "$0")/../packages
if [ -f "$folder/$name" ]; then
    echo "installed $(cat "$folder/$name")"
else
    echo "dpkg-query: no packages found matching $name" >&2
    exit 1
fi
"""


def write(folder: Path, release: "Release", extension: Path) -> None:
    """Fill ``folder`` with the environment of ``release``, and the built ``extension``.

    Raises:
        ValueError: A release without the native torch-neuronx has no device to rehearse with.
    """
    site = folder / "site"
    shutil.copytree(_SITE, site, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(extension, site / "torch_neuronx" / extension.name)
    for name, version in _distributions(release).items():
        write_distribution(site, name, version, entry_points=_AUTOLOAD if name == "torch-neuronx" else "")
    if fork := next((pin for pin in release.pins if pin.name == "torchtitan-neuron"), None):
        write_distribution(site, fork.name, _FORK_VERSION, revision=fork.accepts[0])
    for name, version in _system_packages(release).items():
        write_package(folder, name, version)
    for name, text in (("neuron-ls", _NEURON_LS), ("dpkg-query", _DPKG_QUERY)):
        _write(folder / "bin" / name, text).chmod(0o755)
    write_listing(folder, listing())
    for number in range(DEVICES):
        _write(folder / "root" / "dev" / f"neuron{number}", "")
    _write(folder / "root" / "sys" / "devices" / "virtual" / "dmi" / "id" / "product_name", f"{INSTANCE_TYPE}\n")
    write_driver(folder, _system_packages(release).get("aws-neuronx-dkms", "unknown"))


def seal(site: Path) -> None:
    """Compile the site's sources, so that no process changes the folder by writing what it has compiled."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(site, quiet=2, invalidation_mode=mode, stripdir=str(site), prependdir="standin")


def write_distribution(site: Path, name: str, version: str, *, revision: str = "", entry_points: str = "") -> None:
    """Metadata of an installed distribution, in place of any other version of it; ``revision`` is a git branch."""
    stem = name.replace("-", "_")
    for other in site.glob(f"{stem}-*.dist-info"):
        shutil.rmtree(other)
    info = site / f"{stem}-{version}.dist-info"
    _write(
        info / "METADATA",
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        "Summary: stand-in of trncheck, for rehearsals; not the Neuron software of this name\n",
    )
    _write(info / "INSTALLER", "trncheck\n")
    if entry_points:
        _write(info / "entry_points.txt", entry_points)
    if revision:
        vcs = {"vcs": "git", "commit_id": LOCAL, "requested_revision": revision}
        _write(info / "direct_url.json", json.dumps({"url": _FORK, "vcs_info": vcs}))
    folders = [info, *(site / package for package in _PACKAGES.get(name, ()))]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    lines = [f"{path.relative_to(site)},,{path.stat().st_size}" for path in files]
    _write(info / "RECORD", "\n".join([*lines, f"{info.name}/RECORD,,"]) + "\n")


def write_package(folder: Path, name: str, version: str) -> None:
    """A package of the system, as ``dpkg-query`` shows it."""
    _write(folder / "packages" / name, f"{version}-{LOCAL}\n")


def write_driver(folder: Path, version: str) -> None:
    """The version of the driver that is loaded."""
    _write(folder / "root" / "sys" / "module" / "neuron" / "version", f"{version}\n")


def write_listing(folder: Path, devices: list[dict]) -> None:
    """What ``neuron-ls`` answers."""
    _write(folder / "neuron-ls.json", json.dumps(devices, indent=4))
    lnc = devices[0]["logical_neuroncore_config"]
    cores = sum(device["nc_count"] for device in devices)
    _write(
        folder / "neuron-ls.txt",
        f"instance-type: {INSTANCE_TYPE}\ninstance-id: i-{LOCAL}\nlogical-neuroncore-config: {lnc}\n"
        f"stand-in of trncheck: {len(devices)} devices, {cores} logical cores\n",
    )


def listing() -> list[dict]:
    """The devices of a trn2.48xlarge at LNC 2, in the fields that ``neuron-ls --json-output`` documents and prints."""
    return [
        {
            "instance_type": INSTANCE_TYPE,
            "instance_id": f"i-{LOCAL}",
            "neuron_device": number,
            "bdf": f"0000:{0x10 + number:02x}:00.0",
            "cpu_affinity": "0-95" if number < DEVICES // 2 else "96-191",
            "numa_node": str(number // (DEVICES // 2)),
            "connected_to": _neighbours(number),
            "nc_count": 4,
            "logical_neuroncore_config": 2,
            "memory_size": 96 << 30,
            "neuroncore_ids": [4 * number + core for core in range(4)],
            "neuron_processes": [],
        }
        for number in range(DEVICES)
    ]


def _neighbours(number: int) -> list[int]:
    """Of a device in a torus of 4 x 4: up, left, down, right."""
    row, column = divmod(number, 4)
    steps = ((-1, 0), (0, -1), (1, 0), (0, 1))
    return [(row + down) % 4 * 4 + (column + right) % 4 for down, right in steps]


def _distributions(release: "Release") -> dict[str, str]:
    """Version of each Neuron distribution; ValueError where none fits the installed torch."""
    torch = importlib.metadata.version("torch").split("+")[0]
    stacks = [{pin.name: pin.accepts for pin in stack.pins} for stack in release.stacks]
    native = [pins for pins in stacks if "torch-neuronx" in pins and "torch" in pins]
    fitting = [pins for pins in native if any(f"{torch}.".startswith(f"{prefix}.") for prefix in pins["torch"])]
    if not fitting:
        known = " or ".join(prefix for pins in native for prefix in pins["torch"]) or "no torch"
        raise ValueError(
            f"Neuron {release.version} has no torch-neuronx for torch {torch} ({known}), so there is no device to "
            "rehearse with; choose another --release, or install a torch that it supports"
        )
    versions = {pin.name: _version(pin) for pin in release.pins if pin.name in ("nki", "neuronx-cc")}
    # A whole version has a build behind the prefix that the release notes name.
    versions["torch-neuronx"] = f"{fitting[0]['torch-neuronx'][0]}.0.0"
    return {name: f"{version}+{LOCAL}" for name, version in versions.items()}


def _system_packages(release: "Release") -> dict[str, str]:
    return {pin.name: _version(pin) for pin in release.pins if pin.kind == "system" and pin.name != "python"}


def _version(pin: "Pin") -> str:
    """A version that the pin accepts; 0 where the release's is not known."""
    return "0" if pin.is_unknown else pin.accepts[0]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
