"""Makes torch know the device and the process group "neuron"; done once per process."""

import functools
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

NAME = "neuron"
_MOST = 127  # torch counts devices in 8 bits; at LNC 1 a trn2.48xlarge has 128
_HERE = Path(__file__).resolve().parent


@functools.cache
def register() -> None:
    """Register device, device module and process group; ImportError where another backend has the place."""
    if other := _another():
        raise ImportError(f"trncheck's stand-in never takes the place of {other}")
    torch.utils.rename_privateuse1_backend(NAME)
    from torch_neuronx import _standin, neuron

    _standin.set_device_count(_logical_cores())
    torch._register_device_module(NAME, neuron)
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
    if dist.is_available():
        dist.Backend.register_backend(NAME, _process_group, extended_api=True, devices=[NAME])


def _another() -> str | None:
    """What else is torch-neuronx here, or has the device."""
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        return f"backend {taken!r}, which another package has registered"
    for folder in filter(None, sys.path):
        found = Path(folder, "torch_neuronx")
        if found.is_dir() and found.resolve() != _HERE:
            return f"the torch-neuronx in {found}"
    return None


def _logical_cores() -> int:
    """Cores that the process may use, as the runtime reads its environment; all of the machine by default."""
    from trncheck.neuron import cores

    listed = json.loads((_HERE.parents[1] / "neuron-ls.json").read_text())
    physical = sum(device["nc_count"] * device["logical_neuroncore_config"] for device in listed)
    return min(len(cores.allowed(os.environ, physical // cores.lnc(os.environ))), _MOST)


def _process_group(options, _backend_options=None):
    from torch_neuronx import _standin

    gloo = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()
    return _standin.wrap_backend(gloo, NAME)
