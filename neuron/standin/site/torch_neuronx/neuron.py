"""``torch.neuron`` of the stand-in: one stream, on which all work is done when a call returns."""

import contextlib
import types
from collections.abc import Iterator

import torch

from torch_neuronx import _standin

DEVICE_NAME = "trncheck stand-in"
"""Never like a chip's name: torchtitan takes peak FLOPS from it."""

# A logical core at LNC 2 has a bank of 24 GB to itself.
_MEMORY_BYTES = 24 << 30


def is_available() -> bool:
    return _standin.device_count() > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    pass


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return _standin.in_bad_fork()


# --- devices

device_count = _standin.device_count
current_device = _standin.current_device


def set_device(device) -> None:
    index = _index(device)
    if index >= 0:
        _standin.set_device(index)


@contextlib.contextmanager
def device(device) -> Iterator[None]:
    """``device`` is the current one inside the context."""
    before = current_device()
    set_device(device)
    try:
        yield
    finally:
        set_device(before)


def get_device_name(_device=None) -> str:
    return DEVICE_NAME


def get_device_properties(_device=None) -> types.SimpleNamespace:
    return types.SimpleNamespace(name=DEVICE_NAME, total_memory=_MEMORY_BYTES)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16, torch.float32]


# --- streams


class Stream(torch.Stream):
    def __new__(cls, device=None, priority: int = 0):
        return super().__new__(cls, torch.device("neuron", current_device() if device is None else _index(device)))


class Event(torch.Event):
    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        return super().__new__(cls, "neuron", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def synchronize(_device=None) -> None:
    pass


def current_stream(device=None) -> torch.Stream:
    return Stream(device)


default_stream = current_stream


def set_stream(_stream) -> None:
    pass


def stream(stream) -> contextlib.AbstractContextManager:
    return contextlib.nullcontext(stream)


# --- random numbers


def manual_seed(seed: int) -> None:
    _standin.default_generator(-1).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        _standin.default_generator(index).manual_seed(seed)


def initial_seed() -> int:
    return _standin.default_generator(-1).initial_seed()


def get_rng_state(device=None) -> torch.Tensor:
    return _standin.default_generator(_index(device)).get_state()


def set_rng_state(state: torch.Tensor, device=None) -> None:
    _standin.default_generator(_index(device)).set_state(state)


# --- memory, of the process and not of one device: a process uses one


def empty_cache() -> None:
    pass


def memory_allocated(_device=None) -> int:
    return _standin.memory()[0]


def max_memory_allocated(_device=None) -> int:
    return _standin.memory()[1]


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def memory_stats(_device=None) -> dict[str, int]:
    now, peak = _standin.memory()
    kinds = ("allocated_bytes", "active_bytes", "reserved_bytes")
    bytes_ = {f"{kind}.all.{when}": value for kind in kinds for when, value in (("current", now), ("peak", peak))}
    return bytes_ | {"num_alloc_retries": 0, "num_ooms": 0}


def memory_summary(_device=None) -> str:
    return f"{DEVICE_NAME}: " + ", ".join(f"{name} {value}" for name, value in memory_stats().items())


def reset_peak_memory_stats(_device=None) -> None:
    _standin.reset_peak_memory()


def _index(device) -> int:
    """The index of what torch takes for a device; -1 for none."""
    if device is None or isinstance(device, int):
        return -1 if device is None else device
    index = torch.device(device).index
    return -1 if index is None else index
