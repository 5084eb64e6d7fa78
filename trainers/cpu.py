"""What a CPU lacks for torchtitan's Trainer. Training on Neuron or CUDA loads none of it.

Two entry points: ``install`` sets process-wide seams before torchtitan's modules read them, ``adapt`` changes one
training configuration. Each repair is small, names its need, and ``tests/trainers/test_cpu_repairs.py`` shows that
the trainer fails without it.
"""

import sys
import types

import psutil
import torch

from trncheck.trainers import substitutes

_TOO_LATE = ("torchtitan.distributed.utils", "torchtitan.components.metrics", "torchtitan.trainer")


def install() -> None:
    """Set the process-wide seams; once, and before torchtitan's trainer is imported."""
    if late := [name for name in _TOO_LATE if name in sys.modules]:
        raise RuntimeError(f"import trncheck.trainers.devices before {late[0]}, which has already read the device")
    _set_device()
    substitutes.leave_without_sleeping()


def adapt(config) -> dict[str, str]:
    """Change a ``Trainer.Config`` so that it runs on a CPU; returns what it gets instead, and why."""
    config.model_spec.parallelize_fn = substitutes.sum_only(config.model_spec.parallelize_fn)
    substitutes.attend_with_dense_masks(config)
    return {
        "attention": f"{substitutes.DENSE}: FlexAttention has no backward pass on a CPU",
        "reductions": "SUM: gloo has no PREMUL_SUM",
    }


class _CpuModule(types.ModuleType):
    """``torch.cpu`` with the members that torchtitan expects of a device module."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)

    @staticmethod
    def current_device() -> int:
        return 0  # torch.cpu answers "cpu", which dist.barrier(device_ids=[...]) refuses

    @staticmethod
    def get_device_name(_device=None) -> str:
        return "cpu"

    @staticmethod
    def get_device_properties(_device=None) -> types.SimpleNamespace:
        return types.SimpleNamespace(name="cpu", total_memory=psutil.virtual_memory().total)

    @staticmethod
    def memory_stats(_device=None) -> dict:
        return {}

    @staticmethod
    def reset_peak_memory_stats(_device=None) -> None:
        pass

    @staticmethod
    def empty_cache() -> None:
        pass


def _set_device() -> None:
    import torchtitan.tools.utils

    torchtitan.tools.utils.device_type = "cpu"
    torchtitan.tools.utils.device_module = _CpuModule("trncheck_cpu")
