"""Which Neuron release this machine has, told from what is installed, component by component. Imports no torch."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from trncheck.conformance.pins import (
    PLACEHOLDERS,
    Target,
    accepts_version,
    inspect_pins,
    is_accepted,
    is_placeholder,
    is_xla_line,
)
from trncheck.fixtures.installed import DRIVER, Found, package_version, probe
from trncheck.fixtures.manifest import Pin, Release, available_releases, load_release
from trncheck.reports.schema import PinRow, PinStatus

Line = Literal["native", "xla", "placeholder", "none"]
"""Which product bears the name torch-neuronx here: TorchNeuron, PyTorch/XLA, PyPI's empty package, or none."""

_LINES = {
    "native": "native line",
    "xla": "PyTorch/XLA line",
    "placeholder": "torch-neuronx being PyPI's placeholder",
    "none": "without torch-neuronx",
}
_WRONG = (PinStatus.DIFFERENT, PinStatus.ABSENT)


@dataclass(frozen=True)
class Component:
    """One thing that a release pins, beside what is installed."""

    row: PinRow
    is_own: bool = False
    """Whether it is Neuron's own, not one of the Python packages around it."""
    releases: tuple[str, ...] = ()
    """Releases that pin what is installed; empty for what is not Neuron's own, and for what none of them pins."""

    @property
    def problem(self) -> str | None:
        """One line with the remedy where it is not what the release pins."""
        if self.row.status not in _WRONG:
            return None
        found = f"{self.row.found} is installed" if self.row.found else "not installed"
        origin = f" (of Neuron {' or '.join(self.releases)})" if self.releases else ""
        return f"{self.row.name}: {found}{origin}, {self.row.expected} expected; {self.row.note}"


@dataclass(frozen=True)
class Identification:
    """What is installed, held against one release: the one asked for, else the one that it is or is nearest to."""

    release: Release
    nearest: str
    """Release that most of Neuron's components belong to; that of ``release`` unless another was asked for."""
    line: Line
    components: tuple[Component, ...]
    installed: frozenset[str]
    """Names of Neuron's own components that are installed, placeholders left out."""
    remarks: tuple[str, ...] = ()
    """What a reader should know and what is no fault."""

    @property
    def problems(self) -> list[str]:
        """One line per component that is not what the release pins, each with the remedy; empty where all are."""
        return [line for component in self.components if (line := component.problem)]

    @property
    def is_whole(self) -> bool:
        """Whether every component of Neuron's own is that of the release, as far as its versions are known."""
        return bool(self.installed) and not any(part.problem for part in self.components if part.is_own)

    @property
    def mixture(self) -> dict[str, list[str]]:
        """Components by the release that they are of, where they are of more than one; oldest release first."""
        of: dict[str, list[str]] = {}
        for component in self.components:
            if component.releases:
                home = self.nearest if self.nearest in component.releases else component.releases[-1]
                of.setdefault(home, []).append(component.row.name)
        return dict(sorted(of.items(), key=lambda item: Version(item[0]))) if len(of) > 1 else {}

    def __str__(self) -> str:
        """What is installed, in one line."""
        if not self.installed:
            held = [f"{part.row.name} {part.row.found}" for part in self.components if "placeholder" in part.row.note]
            return "no Neuron software is installed" + (
                f", only PyPI's placeholders ({', '.join(held)})" if held else ""
            )
        if self.is_whole:
            unknown = any(pin.is_unknown for pin in self.release.all_pins)
            known = ", as far as its versions are known" if unknown else ""
            return f"Neuron {self.release.version}{known}, {_LINES[self.line]}"
        other = f", not {self.release.version}" if self.nearest != self.release.version else ""
        strange = [f"{', '.join(names)} of {it}" for it, names in self.mixture.items() if it != self.nearest]
        if strange:
            return f"a mixture of Neuron releases, {self.nearest} with {' and '.join(strange)}{other}"
        return f"nearest to Neuron {self.nearest}{other}, {_LINES[self.line]}"


def identify(
    release: str | None = None, target: Target = "trn2", installed: Mapping[str, Found] | None = None
) -> Identification:
    """Hold what is installed against ``release`` (a version or a manifest file), by default what it is nearest to.

    ``target`` cpu holds it against what a CPU needs of the release, by default of the one that a run judges.
    ``installed`` is what the machine has, by package name; None asks this machine. Raises ValueError for an unknown
    release.
    """
    asked = load_release(release) if release else None
    releases = [load_release(version) for version in available_releases()]
    pins = {pin.name: pin for known in releases for pin in known.all_pins}
    if installed is None:
        every = pins | ({pin.name: pin for pin in asked.all_pins} if asked else {})
        installed = probe(every.values(), PLACEHOLDERS)
    found = {canonicalize_name(name): item for name, item in installed.items()}
    own = {name: pin for name, pin in pins.items() if pin.needs == "neuron" and name != "python"}
    present = frozenset(name for name, pin in own.items() if name in found and _is_neuron(pin, found[name]))
    whole = [known for known in releases if not any(pin.is_unknown for pin in known.all_pins)]
    nearest = max(releases, key=lambda known: _nearness(known, found, own)) if present else whole[-1]
    compared = asked or (nearest if target == "trn2" else whole[-1])
    rows, _ = inspect_pins(compared, target, found)
    rows += [_stranger(own[name], found[name], compared) for name in sorted(present - {row.name for row in rows})]
    homes = {name: _homes(name, found[name], releases) for name in present}
    line = _line(found.get("torch-neuronx"))
    components = tuple(Component(_with_driver(row, compared), row.name in own, homes.get(row.name, ())) for row in rows)
    return Identification(
        release=compared,
        nearest=nearest.version,
        line=line,
        components=components,
        installed=present,
        remarks=tuple(_remarks(components, present, compared, releases, line)),
    )


def _is_neuron(pin: Pin, item: Found) -> bool:
    """Whether it is a Neuron package: neither a placeholder nor what the fork was forked from."""
    if pin.kind == "git":
        return item.commit is not None or canonicalize_name(item.distribution or pin.name) == pin.name
    return not is_placeholder(pin.name, item)


def _nearness(release: Release, found: Mapping[str, Found], own: Collection[str]) -> tuple[int, int, bool]:
    """Components of Neuron's own that are the release's, those that are not, and whether it is known whole."""
    rows = [row for row in inspect_pins(release, "trn2", found)[0] if row.name in own]
    equal, wrong = (sum(row.status in statuses for row in rows) for statuses in ((PinStatus.EQUAL,), _WRONG))
    return equal, -wrong, not any(pin.is_unknown for pin in release.all_pins)


def _homes(name: str, item: Found, releases: list[Release]) -> tuple[str, ...]:
    """Versions of the releases that pin the component as it is installed."""
    return tuple(
        release.version
        for release in releases
        if any(pin.name == name and is_accepted(pin, item) for pin in release.all_pins)
    )


def _stranger(pin: Pin, item: Found, release: Release) -> PinRow:
    """The row of a Neuron component that is installed and that the release does not have."""
    return PinRow(
        name=pin.name,
        kind=pin.kind,
        expected="none",
        found=item.version,
        status=PinStatus.DIFFERENT,
        note=f"Neuron {release.version} has no {pin.name}: judge another release (--release), or uninstall it",
    )


def _with_driver(row: PinRow, release: Release) -> PinRow:
    """Tells a driver that is not installed from one that is installed and not loaded yet."""
    if row.name != DRIVER or row.status is not PinStatus.DIFFERENT:
        return row
    accepts = [prefix for pin in release.all_pins if pin.name == DRIVER for prefix in pin.accepts]
    packaged = package_version(DRIVER)
    if not packaged or not accepts_version(accepts, packaged):
        return row
    note = f"package {packaged} is installed, and another driver still runs: reboot (or rmmod neuron, modprobe neuron)"
    return row.model_copy(update={"note": note})


def _line(item: Found | None) -> Line:
    if item is None:
        return "none"
    if is_placeholder("torch-neuronx", item):
        return "placeholder"
    return "xla" if is_xla_line(item.version) else "native"


def _remarks(
    components: tuple[Component, ...], present: Collection[str], release: Release, releases: list[Release], line: Line
) -> Iterator[str]:
    if release.note:
        yield release.note
    if line == "native" and not _is_autoloaded():
        yield (
            "torch-neuronx declares no entry point torch.backends, by which import torch finds the device neuron; if "
            "that device is missing, install torch-neuronx again"
        )
    wrong = {part.row.name: part for part in components if part.row.name in present and part.problem}
    if not wrong or any(part.releases for part in wrong.values()):
        return
    for other in releases:
        unknown = {pin.name for pin in other.all_pins if pin.is_unknown}
        if other.version != release.version and wrong.keys() <= unknown:
            yield (
                f"this may be Neuron {other.version}, whose {', '.join(sorted(wrong))} was not published: look with "
                f"--release {other.version}"
            )


def _is_autoloaded() -> bool:
    names = (point.dist.name for point in entry_points(group="torch.backends") if point.dist)
    return "torch-neuronx" in map(canonicalize_name, names)
