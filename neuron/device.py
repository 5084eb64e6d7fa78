"""The seam to the Neuron device: its names, its memory, what ran on the CPU instead, what was compiled, its kernels.

Written against what is documented for Neuron 2.33 and never run on hardware. Everything else is looked for, and where
it is not there the answer says so: nothing that could not be measured is given as a number. Nothing here initialises
the device, which Neuron allows only after the process group is there. Imports torch inside of functions alone.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from trncheck.neuron import compile_errors

DEVICE = "neuron"
"""Type of the device; ``torch.neuron`` is its module."""
BACKEND = "neuron"
"""Backend of its process groups."""

_PACKAGE = "torch_neuronx"
_DYNAMO = (
    "torch.neuron",
    _PACKAGE,
    "neuron_dynamo_backend",
    "torch_neuronx.neuron_dynamo_backend",
    "torch_neuronx.neuron_dynamo_backend.metrics",
)
"""Where ``get_dynamo_metrics`` has been seen or is documented to be; releases differ."""
_CACHES = ("TORCH_NEURONX_NEFF_CACHE_DIR", "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR")


# --- which torch-neuronx


def installed() -> bool:
    """Whether there is a ``torch_neuronx`` to import; imports nothing."""
    return importlib.util.find_spec(_PACKAGE) is not None


def line() -> Literal["native", "xla"] | None:
    """Which product is in this process under the name torch-neuronx; None where none is.

    The native one gives torch a device ``neuron``. Version numbers do not decide: the two share a name and overlap.
    """
    if module() is not None:
        return "native"
    return "xla" if installed() else None


def module() -> ModuleType | None:
    """``torch.neuron`` where torch-neuronx has registered its device, which importing torch does; else None."""
    import torch

    return getattr(torch, DEVICE, None)


def available() -> bool:
    """Whether a NeuronCore can be used by this process."""
    neuron = module()
    return neuron is not None and bool(neuron.is_available())


def why_not_available() -> str:
    """One line with the remedy; empty where the device is available."""
    if available():
        return ""
    if (which := line()) == "native":
        return "torch-neuronx is loaded and finds no NeuronCore; see what neuron-ls says"
    if which is None:
        return "torch-neuronx is not installed; trncheck doctor says which one this release has"
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return "torch does not load torch-neuronx: TORCH_DEVICE_BACKEND_AUTOLOAD=0; unset it"
    return (
        "the torch_neuronx that is installed gives torch no device 'neuron', so it is the PyTorch/XLA line or a "
        "placeholder; install the native one, from 2.13 on, from pip.repos.neuron.amazonaws.com"
    )


# --- memory


@dataclass(frozen=True)
class Memory:
    """Bytes of device memory of this process; None where torch-neuronx has no counter for them."""

    peak: int | None
    """The most that tensors had since the last reset."""
    reserved_peak: int | None
    """The most that the allocator held."""
    why_not: str = ""
    """Why ``peak`` is None."""


def synchronize() -> None:
    """Wait until the device has done everything; without it memory counters are those of some earlier moment."""
    if (neuron := module()) is not None:
        neuron.synchronize()


def memory() -> Memory:
    """Peaks since the process started or ``reset_peak_memory``, after a synchronisation."""
    neuron = module()
    if neuron is None:
        return Memory(None, None, why_not_available())
    neuron.synchronize()
    stats = _counter("memory_stats") or {}
    peak = _first(stats.get("allocated_bytes.all.peak"), _counter("max_memory_allocated"))
    peak = _first(peak, stats.get("active_bytes.all.peak"))
    reserved = _first(stats.get("reserved_bytes.all.peak"), _counter("max_memory_reserved"))
    why_not = "" if peak is not None else "torch-neuronx has neither max_memory_allocated nor a peak in memory_stats"
    return Memory(peak, reserved, why_not)


def reset_peak_memory() -> bool:
    """Forget the peaks; whether that could be done."""
    if module() is None or (reset := _function("reset_peak_memory_stats")) is None:
        return False
    synchronize()
    reset()
    return True


def _first(*values):
    return next((value for value in values if value is not None), None)


def _counter(name: str):
    """What the function says; None where there is no such function."""
    function = _function(name)
    return None if function is None else function()


def _function(name: str) -> Callable | None:
    """Functions of memory are members of torch.neuron, of torch_neuronx, or of both: published pages differ."""
    return getattr(module(), name, None) or getattr(_package(), name, None)


# --- operators that ran on the CPU instead


@dataclass(frozen=True)
class Fallbacks:
    """Names of operators (``aten::mm``) of this process, each once, in no order of execution."""

    measurable: bool
    executed: tuple[str, ...] = ()
    """On the device."""
    fallen_back: tuple[str, ...] = ()
    """Computed on the CPU because the device could not."""
    why_not: str = ""
    """Why it is not measurable."""


_TRACKING = ("get_fallback_ops", "get_executed_ops", "clear_op_tracking")


def clear_fallbacks() -> None:
    """Forget which operators have run, where torch-neuronx keeps track."""
    if callable(clear := getattr(_package(), "clear_op_tracking", None)):
        synchronize()
        clear()


def fallbacks() -> Fallbacks:
    """What has run where since the process started or ``clear_fallbacks``; graphs that were compiled are not included.

    Tracking has been seen in a pre-release and in use by its testers, and is in no published reference. There is no
    second source: how a fallback is logged is not published, and the pre-release wrote no line about one.
    """
    package = _package()
    if missing := [name for name in _TRACKING if not callable(getattr(package, name, None))]:
        why = (
            why_not_available()
            if package is None
            else f"torch_neuronx has no {missing[0]}, and how it logs a fallback is not published"
        )
        return Fallbacks(False, why_not=why)
    synchronize()
    executed, fallen_back = package.get_executed_ops(), package.get_fallback_ops()
    return Fallbacks(True, tuple(sorted(set(executed))), tuple(sorted(set(fallen_back))))


def _package() -> ModuleType | None:
    """torch_neuronx; None where it is not installed, or where this process is one that must not have the device."""
    if not installed() or os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return None
    return importlib.import_module(_PACKAGE)


# --- compilations


class Compilations:
    """Counts what is compiled from step to step: graphs by torch.compile, executables in this run's caches.

    The caches are those that variables name; ranks of one host share them, so each rank sees the executables of all.
    """

    def __init__(self):
        self._before = _compiled()
        self._steps: list[int] = []

    def end_step(self) -> None:
        """To be called after every step."""
        now = _compiled()
        new = [count - self._before.get(source, 0) for source, count in now.items()]
        self._steps.append(max(0, *new) if new else 0)
        self._before = now

    def by_step(self) -> tuple[list[int] | None, str]:
        """What each step has compiled, and an empty text; or None, and why that is not known."""
        if any(self._before.values()):
            return list(self._steps), ""
        where = " or ".join(_CACHES)
        return None, f"neither torch.compile nor torch-neuronx has counted a graph, and {where} holds no executable"


def _compiled() -> dict[str, int]:
    """By source, how much it has counted since the process started; sources overlap."""
    counts = {}
    for name in _DYNAMO:
        owner = module() if name == "torch.neuron" else sys.modules.get(name)
        if callable(metrics := getattr(owner, "get_dynamo_metrics", None)):
            counts["graphs by torch-neuronx"] = len(metrics())
            break
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        counts["graphs by torch.compile"] = dynamo.counters["stats"]["unique_graphs"]
    folders = {Path(os.environ[name]) for name in _CACHES if os.environ.get(name)}
    counts["executables"] = sum(1 for folder in folders for _ in folder.rglob("*.neff"))
    return counts


# --- kernels


def nki_op() -> Callable | None:
    """torch-neuronx's registration of operators that call kernels; None where it has none, as the XLA line."""
    return _found("nki_op")


def launch(kernel, cores: int, args: tuple, kwargs: dict):
    """Execute an ``@nki.jit`` kernel on tensors of the device, on ``cores`` physical cores; returns what it does.

    Raises KernelDidNotCompile or KernelFailed: one line, which names the file that holds the whole text.
    """
    try:
        return _launch(kernel, cores, args, kwargs)
    except Exception as error:
        if compile_errors.is_ours(error) or compile_errors.is_of_capture(error):
            raise
        raise compile_errors.failure(error, getattr(kernel, "__name__", str(kernel))) from error


def _launch(kernel, cores: int, args: tuple, kwargs: dict):
    wrap_nki = _found("wrap_nki")
    if wrap_nki is None:  # documented: a kernel takes tensors of the device itself
        return kernel[cores](*args, **kwargs)
    wrapped = wrap_nki(kernel)
    try:
        wrapped = wrapped[cores]
    except TypeError:  # the pre-release iterates over the grid
        wrapped = wrapped[(cores,)]
    return wrapped(*args, **kwargs)


def _found(name: str) -> Callable | None:
    """A function of torch_neuronx; in the pre-release its own module had it as well."""
    package = _package()
    if package is None:
        return None
    if hasattr(package, name):
        return getattr(package, name)
    try:
        return getattr(importlib.import_module(f"{_PACKAGE}.nki_hop"), name, None)
    except ModuleNotFoundError:
        return None
