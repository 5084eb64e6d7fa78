"""What this machine has of Neuron: instance type, devices, cores, driver, and who holds the cores. Imports no torch."""

import os
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import psutil

from trncheck.neuron import host
from trncheck.neuron.cores import show
from trncheck.neuron.neuron_ls import Device, Holder, Listing, listing

_DOCS = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest"
_CORES_PER_CHIP = 8


class Instance(NamedTuple):
    """What an instance type consists of."""

    devices: int
    source: str

    def logical_cores(self, lnc: int) -> int:
        """Of the whole instance, at ``lnc`` physical cores per logical one."""
        return self.devices * _CORES_PER_CHIP // lnc


_ARCHITECTURE = f"{_DOCS}/about-neuron/arch/neuron-hardware/trn2-arch.html"
_LISTED = f"{_DOCS}/tools/neuron-sys-tools/neuron-ls.html"
INSTANCES = {
    "trn2.3xlarge": Instance(1, f"{_DOCS}/torch/get-started/quickstart-build-first-model.html"),
    "trn2.48xlarge": Instance(16, _ARCHITECTURE),
    "trn2n.48xlarge": Instance(16, _LISTED),
    "trn2u.48xlarge": Instance(16, _ARCHITECTURE),
}
"""Instance types with Trainium2, whose chips have 8 physical cores each."""


@dataclass(frozen=True)
class Machine:
    """Facts of the machine; None is unknown, never a guess."""

    instance_type: str | None
    files: tuple[int, ...]
    """Numbers of the device files, ``/dev/neuron0`` and so on."""
    driver: str | None
    """Version of the driver that is loaded, which need not be the one that is installed."""
    listing: Literal["read", "absent", "unreadable"]
    """Whether neuron-ls gave an answer."""
    listed: tuple[Device, ...]
    lnc: int | None
    """Physical cores per logical core, as neuron-ls or the instance's own setting has it."""
    lnc_source: str | None
    busy: tuple[Holder, ...]
    """Processes that hold devices and are not of this run."""

    @property
    def is_neuron(self) -> bool:
        """Whether anything says that this machine has, or should have, Neuron devices."""
        return bool(self.files or self.driver or (self.instance_type or "").startswith(("trn", "inf")))

    @property
    def devices(self) -> int:
        """Devices that processes here can open."""
        return len(self.files)

    @property
    def logical_cores(self) -> int | None:
        """Cores that neuron-ls counts, at ``lnc``; None unless it counts those of every device."""
        counts = [device.cores for device in self.listed]
        return sum(counts) if counts and None not in counts else None

    @property
    def physical_cores(self) -> int | None:
        return self.logical_cores * self.lnc if self.logical_cores and self.lnc else None

    @property
    def expected_logical_cores(self) -> int | None:
        """Of an instance of this type at ``lnc``; None for a type that is not in the table, or an unknown ``lnc``."""
        instance = INSTANCES.get(self.instance_type or "")
        return instance.logical_cores(self.lnc) if instance and self.lnc in (1, 2) else None

    def logical_cores_at(self, lnc: int) -> int | None:
        """Cores of a process that runs at ``lnc``, which its environment may choose; None where that is unknown."""
        return self.physical_cores // lnc if self.physical_cores else None

    def __str__(self) -> str:
        """One line, as a report shows it."""
        if not self.is_neuron:
            return "none"
        cores = "unknown" if self.logical_cores is None else self.logical_cores
        return (
            f"{'stand-in for ' if host.rehearsal() else ''}{self.instance_type or 'unknown instance type'}, "
            f"{self.devices} Neuron device{'' if self.devices == 1 else 's'}, {cores} logical cores "
            f"(LNC {self.lnc or 'unknown'}), driver {self.driver or 'not loaded'}"
        )


def device_files() -> tuple[int, ...]:
    """Numbers of the Neuron devices that the driver offers to this machine or container, ascending."""
    names = (re.fullmatch(r"neuron(\d+)", path.name) for path in (host.root() / "dev").glob("neuron[0-9]*"))
    return tuple(sorted(int(name[1]) for name in names if name))


def loaded_driver() -> str | None:
    """Version of the driver that runs; in a container that of the host, which no package manager there knows."""
    return _read("sys/module/neuron/version")


def inspect() -> Machine:
    """Facts of this machine, or in a rehearsal of its stand-in. Runs neuron-ls, which takes about a second."""
    answer = listing()
    named = _read("sys/devices/virtual/dmi/id/product_name") or ""
    # Other machines than EC2's have other names in the same place.
    is_type = re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", named)
    lnc, lnc_source = _lnc(answer)
    own = _own() if answer.holders else set()
    return Machine(
        instance_type=named if is_type else answer.instance_type,
        files=device_files(),
        driver=loaded_driver(),
        listing=answer.status,
        listed=answer.devices,
        lnc=lnc,
        lnc_source=lnc_source,
        busy=tuple(holder for holder in answer.holders if holder.pid not in own),
    )


def problems(machine: Machine) -> list[str]:
    """What keeps the machine from being whole, one line each with the remedy; empty where nothing does.

    A machine without Neuron devices has a problem too: ask ``is_neuron`` first where that is no fault.
    """
    name = machine.instance_type or "this machine"
    if machine.driver is None and not machine.files:
        return [
            f"{name}: the Neuron driver is not loaded, and there is no /dev/neuron0; install aws-neuronx-dkms, then "
            "sudo modprobe neuron (in a container: load it on the host and hand in the devices)"
        ]
    if not machine.files:
        return [
            f"{name}: driver {machine.driver} is loaded, but there is no /dev/neuron0; look at sudo dmesg | grep "
            "-i neuron (in a container: hand in the devices)"
        ]
    found = []
    if machine.driver is None:
        found.append(
            f"{name}: there are device files, but the Neuron driver is not loaded (no /sys/module/neuron/version); "
            "sudo modprobe neuron"
        )
    if machine.listing == "absent":
        found.append(
            "neuron-ls is missing, failed, or took more than 30 s; install aws-neuronx-tools, and see what "
            "/opt/aws/neuron/bin/neuron-ls prints"
        )
    if machine.listing == "unreadable":
        found.append(
            "neuron-ls printed no list of devices in JSON, so cores, LNC and their holders are unknown; see what "
            "neuron-ls --json-output prints, and install the aws-neuronx-tools of the release"
        )
    return [*found, *filter(None, (_too_few(machine), _bad_lnc(machine), _in_use(machine)))]


def _too_few(machine: Machine) -> str | None:
    instance = INSTANCES.get(machine.instance_type or "")
    if instance and machine.devices < instance.devices:
        absent = show(set(range(instance.devices)) - set(machine.files))
        return (
            f"{machine.devices} of {instance.devices} devices of a {machine.instance_type}: no /dev/neuron{absent}; "
            "reboot the instance, and replace it if they stay away (in a container: hand in all devices)"
        )
    if missing := set(machine.files) - {device.number for device in machine.listed} if machine.listed else None:
        return (
            f"neuron-ls lists {len(machine.listed)} of {machine.devices} devices, not {show(missing)}; look at "
            "sudo dmesg | grep -i neuron, and reboot the instance"
        )
    expected, have = machine.expected_logical_cores, machine.logical_cores
    if expected is None or have is None or have == expected:
        return None
    each = _CORES_PER_CHIP // machine.lnc
    odd = [f"device {device.number} has {device.cores} of {each}" for device in machine.listed if device.cores != each]
    return (
        f"{have} of {expected} logical cores of a {machine.instance_type} at LNC {machine.lnc}: {_first(odd)}; "
        "reboot the instance, and replace it if they stay away"
    )


def _bad_lnc(machine: Machine) -> str | None:
    if len(kinds := {device.lnc for device in machine.listed} - {None}) > 1:
        return (
            f"the devices differ in LNC ({' and '.join(map(str, sorted(kinds)))}); end what holds them, and set "
            "NEURON_LOGICAL_NC_CONFIG to 1 or 2 for all"
        )
    if machine.lnc not in (None, 1, 2):
        return (
            f"LNC is {machine.lnc} ({machine.lnc_source}), and a Trainium2 knows 1 and 2 only; set "
            "NEURON_LOGICAL_NC_CONFIG=2"
        )
    return None


def _in_use(machine: Machine) -> str | None:
    if not machine.busy:
        return None
    return (
        f"cores are in use: {_first(list(map(_held, machine.busy)))}; wait for their end or end them, or leave these "
        "cores out with NEURON_RT_VISIBLE_CORES"
    )


def _held(holder: Holder) -> str:
    command = holder.command or "no command shown, so perhaps of another container"
    where = f"cores {show(holder.cores)}" if holder.cores else f"device {show(holder.devices)}"
    return f"pid {holder.pid} ({command}) holds {where}"


def _first(items: list[str], limit: int = 3) -> str:
    more = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {more} more" if more > 0 else "")


def _read(path: str) -> str | None:
    """The words of a file of the machine; None where there is none, or it is empty."""
    try:
        return (host.root() / path).read_text("utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _lnc(answer: Listing) -> tuple[int | None, str | None]:
    if answer.lncs:
        return (*answer.lncs, "neuron-ls") if len(answer.lncs) == 1 else (None, None)
    # Where launch templates set it for every process of an instance: deploy/eks/prerequisites.html.
    file = "opt/aws/neuron/logical_nc_config"
    set_to = re.findall(r"^NEURON_LOGICAL_NC_CONFIG=(\d+)\s*$", _read(file) or "", re.MULTILINE)
    return (int(set_to[-1]), f"/{file}") if set_to else (None, None)


def _own() -> set[int]:
    """This run's processes: this one and its children; in a worker of pytest-xdist those of its parent."""
    head = psutil.Process(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else None)
    return {head.pid, *(child.pid for child in head.children(recursive=True))}
