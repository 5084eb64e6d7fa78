"""Which device the trainer runs on. Import this before torchtitan: on a CPU its device seam is set here."""

from torch._utils import _get_available_device_type

DEVICE_TYPE: str = _get_available_device_type() or "cpu"
"""``neuron``, ``cuda`` or ``cpu``."""

if DEVICE_TYPE == "cpu":
    from trncheck.trainers import cpu

    cpu.install()
