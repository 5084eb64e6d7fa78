"""What a NeuronCore can hold and address, by generation; Trainium2 unless the environment says else.

Figures: NKI architecture guides for NeuronCore-v2 to v4, Neuron 2.32.
"""

import enum
import functools
import os
from dataclasses import dataclass


@functools.total_ordering
class nc_version(enum.Enum):
    """Generation of a NeuronCore; comparable."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other):
        return self.value < other.value


@dataclass(frozen=True)
class Platform:
    """Limits of one NeuronCore."""

    name: str
    version: nc_version
    sbuf_bytes: int
    """SBUF bytes per partition."""
    psum_bytes: int = 16 * 1024
    """PSUM bytes per partition."""
    bank_bytes: int = 2048
    """PSUM bank: bytes per partition."""
    partitions: int = 128
    stationary_free: int = 128
    """Columns of a matmul's stationary operand."""
    moving_free: int = 512
    """Columns of a matmul's moving operand."""


_PLATFORMS = {
    "trn1": Platform("trn1", nc_version.gen2, 192 * 1024),
    "trn2": Platform("trn2", nc_version.gen3, 224 * 1024),
    "trn3": Platform("trn3", nc_version.gen4, 256 * 1024),
}
_ALIASES = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}


def platform() -> Platform:
    """The platform that is simulated; ValueError for an override that names none."""
    name = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    try:
        return _PLATFORMS[_ALIASES.get(name, name)]
    except KeyError:
        known = ", ".join([*_PLATFORMS, *_ALIASES])
        raise ValueError(f"NEURON_PLATFORM_TARGET_OVERRIDE={name!r} names no platform; one of {known}") from None
