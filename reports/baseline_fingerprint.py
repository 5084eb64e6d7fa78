"""What has to be equal before two runs can be expected to agree bit for bit."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from .schema import Report
from .text import without_surrogates

_DIGITS = 16
_ORDER = ("target", "seed", "machine", "CPU", "cores", "accelerator", "OS", "Python", "package", "pin", "variable")
"""Kinds of items, what explains most in front."""
_ITSELF = "trncheck"
"""Not part of it: what the kit's own changes do to a number is what a golden value is there to show. Those of a check
itself are in its version."""
_NO_MATTER = re.compile(r"_(LOGS?|CACHE|DUMP|INSPECT|PROFILE)(_|$)|_ROOT_COMM_ID$|_VISIBLE_CORES$")
"""Variables that say where output goes, where ranks meet, or which of equal cores are leased."""


class Difference(NamedTuple):
    """An item that two environments do not share; None where one does not have it."""

    item: str
    old: str | None
    new: str | None


def environment_of(report: Report) -> dict[str, str]:
    """Target, seed, hardware, system, Python, all packages and pins, and the variables that can move a number.

    The C library is in it as far as the name of the system tells it. Check versions are beside the numbers, because
    they differ from check to check; the sizes of memory and disks move no number.
    """
    of = report.environment
    pins = {pin.name: pin.found for pin in report.pins if pin.found not in (None, of.packages.get(pin.name))}
    return {
        "target": report.target,
        "seed": str(report.seed),
        "machine": of.machine,
        "CPU": of.cpu,
        "cores": str(of.cores),
        "accelerator": of.accelerator,
        "OS": of.os,
        "Python": of.python,
        **{f"package {name}": version for name, version in of.packages.items() if name != _ITSELF},
        **{f"pin {name}": version for name, version in pins.items()},
        **{f"variable {name}": value for name, value in of.variables.items() if not _NO_MATTER.search(name)},
    }


def digest(environment: Mapping[str, str]) -> str:
    """The fingerprint of ``environment``, 16 hexadecimal digits."""
    text = without_surrogates(json.dumps(environment, sort_keys=True, ensure_ascii=False))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def first_difference(old: Mapping[str, str], new: Mapping[str, str]) -> Difference | None:
    """The item to name where two environments differ; None where they are equal."""
    different = [item for item in old.keys() | new.keys() if old.get(item) != new.get(item)]
    if not different:
        return None
    item = min(different, key=_rank)
    return Difference(item, old.get(item), new.get(item))


def _rank(item: str) -> tuple[int, str]:
    kind = item.partition(" ")[0]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER), item
