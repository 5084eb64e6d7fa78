"""``nki.jit``, ``kernel[lnc]`` and ``nki.simulate``: from a Python function to its outputs."""

import functools
import inspect
import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from trncheck.kernels.simulator import arrays, dtypes
from trncheck.kernels.simulator.blas import one_thread
from trncheck.kernels.simulator.core import Core, SharedMemory, activate, active, peak
from trncheck.kernels.simulator.errors import NkiError, NkiWarning, kernel_line, location_of
from trncheck.kernels.simulator.platform import platform
from trncheck.kernels.simulator.results import NO_BARRIER, Values, collect, differences
from trncheck.kernels.simulator.scheduler import Scheduler

_ORDERS = ((0, 1), (1, 0))


@dataclass
class Report:
    """What a launch did."""

    by_core: list[Counter] = field(default_factory=list)
    """Instructions of each core, by name."""
    sbuf_peak: int = 0
    """Most bytes per partition alive at once on one core."""
    psum_peak: int = 0
    warnings: list[str] = field(default_factory=list)
    mutated: list[str] = field(default_factory=list)
    """Names of array arguments that the kernel wrote."""
    returned: list[str] = field(default_factory=list)
    """Names of array arguments that it returned, whole or a view."""

    @property
    def executed(self) -> Counter:
        """Instructions of all cores, by name."""
        return sum(self.by_core, Counter())


class Kernel:
    """A function that ``nki.jit`` has marked; ``kernel[2]`` launches it on two cores."""

    def __init__(self, function: Callable, degree: int | None = None):
        functools.update_wrapper(self, function)
        self.function, self.degree = function, degree
        self._launched: dict[int, Kernel] = {}

    def __getitem__(self, degree) -> "Kernel":
        if degree not in (1, 2) or isinstance(degree, bool):
            raise ValueError(f"{self.__name__}[{degree}]: the launch takes one number, 1 or 2, the cores of the LNC")
        if degree not in self._launched:
            self._launched[degree] = Kernel(self.function, degree)
        return self._launched[degree]

    def __call__(self, *args, **kwargs):
        if active() is not None:
            return self.function(*args, **kwargs)
        if os.environ.get("NKI_SIMULATOR") != "1":
            raise RuntimeError(
                f"{self.__name__}: no Neuron device here; call it through nki.simulate, or set NKI_SIMULATOR=1"
            )
        return simulate(self)(*args, **kwargs)


def jit(function: Callable | None = None, **options):
    """Mark a function as a kernel. ``mode=`` is ignored, as documented."""
    if "platform_target" in options:
        raise ValueError("nki.jit(platform_target=) was removed; set NEURON_PLATFORM_TARGET_OVERRIDE")
    if unknown := options.keys() - {"mode"}:
        raise TypeError(f"nki.jit has no argument {', '.join(sorted(unknown))}")
    return Kernel(function) if function is not None else Kernel


def simulate(kernel: Callable) -> Callable:
    """A callable that executes ``kernel`` over NumPy arrays or torch tensors and returns what it returns, as arrays.

    Arguments whose HBM the kernel writes are updated in place. NkiError for whatever the hardware would refuse; on one
    core they may hold part of the results then.
    """

    @functools.wraps(kernel)
    def call(*args, **kwargs):
        result, report = run(kernel, args, kwargs)
        show(report)
        return result

    return call


_shown: set[str] = set()


def show(report: Report) -> None:
    """Give the warnings of a launch to Python as ``NkiWarning``, each once per process."""
    for text in report.warnings:
        if text not in _shown:
            _shown.add(text)
            warnings.warn(text, NkiWarning, stacklevel=2)


def run(kernel: Callable, args=(), kwargs=None, *, orders: int = 2, strict: bool = True) -> tuple[object, Report]:
    """Execute ``kernel``; returns its outputs and a report.

    On two cores the kernel runs once for each of ``orders`` core orders, from the same inputs; outputs that differ
    mean a missing barrier. ``strict`` makes output elements that nobody wrote, or that come from memory that nobody
    wrote, an error, else a warning.
    """
    if not isinstance(kernel, Kernel):
        kernel = Kernel(kernel)
    degree = kernel.degree or 1
    try:
        bound = _signature(kernel.function).bind(*args, **(kwargs or {}))
    except TypeError as error:
        raise NkiError(f"{kernel.__name__}: {error}") from None
    bound.apply_defaults()
    inputs = {name: arrays.to_numpy(value) for name, value in bound.arguments.items() if arrays.is_array(value)}
    chosen = _ORDERS[: orders if degree == 2 else 1]
    with one_thread():
        outcomes = _in_orders(
            chosen, degree, lambda order: _execute(kernel, bound.arguments, inputs, degree, order, strict)
        )
    if len(outcomes) == 2 and (problem := differences(outcomes[0][0], outcomes[1][0])):
        raise NkiError.at(
            _place(kernel),
            f"{kernel.__name__}: {problem} depends on which core runs first: {NO_BARRIER}",
        )
    values, report = outcomes[0]
    return values.deliver(bound.arguments), report


@functools.lru_cache(maxsize=256)
def _signature(function: Callable) -> inspect.Signature:
    return inspect.signature(function)


def _in_orders(orders, degree: int, execute: Callable) -> list[tuple[Values, Report]]:
    """One outcome for each order; an error says where it would not happen in the other one."""
    outcomes = []
    for order in orders:
        try:
            outcomes.append(execute(order))
        except NkiError as error:
            if degree == 2 and (outcomes or _works(execute, order[::-1])):
                text = str(error).removesuffix(f": {NO_BARRIER}")
                error.args = (f"{text}; with core {order[1]} first it does not happen: {NO_BARRIER}",)
            raise
    return outcomes


def _works(execute: Callable, order: tuple[int, int]) -> bool:
    try:
        execute(order)
    except NkiError:
        return False
    return True


def _place(kernel: Kernel) -> str:
    """``file:line`` where the kernel is defined."""
    code = getattr(inspect.unwrap(kernel.function), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else kernel_line()


def _execute(kernel: Kernel, arguments: dict, inputs: dict, degree: int, order: tuple[int, int], strict: bool):
    shared = SharedMemory()
    has_grid, precise = kernel.degree is not None, dtypes.asked_precise()
    cores = [Core(index, degree, has_grid, platform(), shared, precise) for index in range(degree)]
    keep = degree == 2 or arrays.overlap(inputs.values())  # one core executes once
    tensors = {name: arrays.to_tensor(values, name, degree, keep) for name, values in inputs.items()}
    parameters = _signature(kernel.function).parameters
    call = _call(kernel.function, parameters, arguments | tensors)
    outer = active()
    try:
        if degree == 2:
            returned = Scheduler(cores, order).run(lambda core: call())
        else:
            activate(cores[0])
            returned = [call()]
        activate(cores[0])
        cores[0].instruction = ""
        values = collect(kernel.__name__, returned, tensors, strict)
        report = _report(cores)
    except NkiError:
        raise
    except Exception as error:
        raise NkiError.at(location_of(error), f"{type(error).__name__}: {error}") from error
    finally:
        activate(outer)
    report.mutated, report.returned = values.mutated, values.returned
    return values, report


def _call(function: Callable, parameters, arguments: dict) -> Callable:
    positional, keyword = [], {}
    for name, value in arguments.items():
        kind = parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            keyword |= value
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            keyword[name] = value
        else:
            positional.append(value)

    def call():
        with np.errstate(all="ignore"):  # what overflows shows in the outputs; here, because each thread has its own
            return function(*positional, **keyword)

    return call


def _report(cores: list[Core]) -> Report:
    report = Report(by_core=[core.executed for core in cores])
    for core in cores:
        for buffer, capacity in (("sbuf", core.platform.sbuf_bytes), ("psum", core.platform.psum_bytes)):
            most, alive = peak(core.lifetimes, buffer)
            if most > capacity:
                largest = "; ".join(f"{item.what} ({item.partition_bytes} B) from {item.line}" for item in alive[:4])
                raise NkiError.at(
                    alive[0].line.partition(",")[0],
                    f"{buffer.upper()} capacity exceeded on core {core.index}: at least {most} bytes per partition are "
                    f"alive at once, {core.platform.name} has {capacity}; largest: {largest}",
                )
            setattr(report, f"{buffer}_peak", max(getattr(report, f"{buffer}_peak"), most))
        report.warnings.extend(text for text in core.warnings if text not in report.warnings)
    return report
