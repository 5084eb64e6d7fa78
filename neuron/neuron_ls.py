"""What ``neuron-ls`` says, read tolerantly: what it does not say is None."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from trncheck.neuron import host

_COMMANDS = (["neuron-ls", "--json-output"], ["neuron-ls", "--output-format", "json"])
"""Up to Neuron 2.33, and from 2.34 on, which replaces the first (announced on 2026-10-16)."""


class Device(NamedTuple):
    """A Neuron device."""

    number: int
    cores: int | None
    """Logical cores: the documentation shows ``nc_count`` 4 for a chip of 8 at LNC 2."""
    core_ids: tuple[int, ...]
    lnc: int | None


class Holder(NamedTuple):
    """A process that holds devices. Which of a device's cores it holds neuron-ls does not say, so these are all."""

    pid: int
    command: str
    """Empty for a process of another container."""
    devices: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Listing:
    """One answer of neuron-ls."""

    status: Literal["read", "absent", "unreadable"]
    """``absent`` where it is missing, failed or took too long; ``unreadable`` where it lists no devices in JSON."""
    devices: tuple[Device, ...] = ()
    holders: tuple[Holder, ...] = ()
    lncs: frozenset[int] = frozenset()
    """Every value of ``logical_neuroncore_config``."""
    instance_type: str | None = None


def listing() -> Listing:
    """Ask neuron-ls, in the format of this release or of the next; takes about a second.

    Fields of an entry: https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-ls.html.
    In the format of Neuron 2.34 some stand above the entries; it is not documented yet, so entries are known by their
    field ``neuron_device``.
    """
    status: Literal["absent", "unreadable"] = "absent"
    for command in _COMMANDS:
        text = host.output(command)
        if text is None:
            continue
        status = "unreadable"
        try:
            answer = json.loads(text)
        except ValueError:
            continue
        lists = answer.values() if isinstance(answer, dict) else [answer]
        for entries in lists:
            if isinstance(entries, list) and (found := list(filter(_is_entry, entries))):
                return _read(found, answer if isinstance(answer, dict) else {})
    return Listing(status)


def _read(entries: list[dict], top: dict) -> Listing:
    entries = sorted(entries, key=lambda entry: entry["neuron_device"])
    everything = [*entries, top]
    types = (entry.get("instance_type") for entry in everything)
    lncs = (_whole(entry.get("logical_neuroncore_config")) for entry in everything)
    return Listing(
        "read",
        devices=tuple(map(_device, entries)),
        holders=tuple(_holders(entries)),
        lncs=frozenset(lncs) - {None},
        instance_type=next((text for text in types if text and isinstance(text, str)), None),
    )


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and _whole(entry.get("neuron_device")) is not None


def _device(entry: dict) -> Device:
    count, lnc = _whole(entry.get("nc_count")), _whole(entry.get("logical_neuroncore_config"))
    core_ids = tuple(core for core in _list(entry.get("neuroncore_ids")) if _whole(core) is not None)
    return Device(entry["neuron_device"], len(core_ids) or None if count is None else count, core_ids, lnc)


def _holders(entries: list[dict]) -> Iterator[Holder]:
    """One per process, in the order of their devices."""
    held: dict[int, list[Device]] = {}
    commands: dict[int, str] = {}
    for entry in entries:
        for process in _list(entry.get("neuron_processes")):
            if isinstance(process, dict) and (pid := _whole(process.get("pid"))) is not None:
                held.setdefault(pid, []).append(_device(entry))
                commands[pid] = " ".join(str(process.get("command") or "").split())
    for pid, devices in held.items():
        cores = tuple(core for device in devices for core in device.core_ids)
        yield Holder(pid, commands[pid], tuple(device.number for device in devices), cores)


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
