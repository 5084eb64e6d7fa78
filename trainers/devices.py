"""Which device the trainer runs on. Import this before torchtitan: what its modules read of the device is set here.

Nothing here computes on a device, which Neuron's runtime allows only after the process group is there.
"""

from torch._utils import _get_available_device_type

from trncheck.neuron import device

DEVICE_TYPE: str = _get_available_device_type() or "cpu"
"""``neuron``, ``cuda`` or ``cpu``; the same answer that torchtitan gets."""

if DEVICE_TYPE == "cpu" and device.module():
    raise ValueError(f"{device.why_not_available()}; or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to train on the CPU")

from trncheck.trainers import torch213  # noqa: E402

if DEVICE_TYPE == "cpu":
    from trncheck.trainers import cpu

    cpu.install()
torch213.install()
