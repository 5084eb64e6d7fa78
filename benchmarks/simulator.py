"""The simulator, with all of its checks on, against eager torch on one thread; and how its time grows.

The rival computes the same in the same dtype, with the catalogue's plain reference.
"""

import os
import warnings
from collections.abc import Callable, Iterator

from measure import Benchmark, Figure, alternate, ratio

ROPE = {"batch": 1, "q_heads": 32, "k_heads": 8, "length": 256, "dim": 128, "tables": 1}
EXPERTS = {"experts": 16, "rows": 500, "dim": 64, "hidden": 47}
BARS = {"rope": 20, "experts": 50}
GROWTH = (
    ("rope", "tokens", [ROPE | {"length": 256 * n} for n in (1, 2, 4, 8)]),
    ("rope", "heads", [ROPE | {"q_heads": 8 * n, "k_heads": 2 * n} for n in (1, 2, 4, 8)]),
    ("experts", "tokens", [EXPERTS | {"experts": 8, "rows": 1024 * n} for n in (1, 2, 4, 8)]),
)


def run(options) -> Iterator[Benchmark]:
    """``simulator.KERNEL`` for each kernel, and ``simulator.growth``."""
    import torch

    warnings.simplefilter("ignore")  # of the simulator: inputs where an approximation is not documented
    torch.set_num_threads(1)
    for kernel, shape in (("rope", ROPE), ("experts", EXPERTS)):
        benchmark = Benchmark(
            f"simulator.{kernel}", "A kernel in the simulator takes at most so many times eager torch."
        )
        for dtype in ("float32", "bfloat16"):
            for cores in (1, 2):
                for direction in ("forward", "forward and backward"):
                    ours, rival = (
                        _call(kernel, shape, dtype, direction, which, cores) for which in ("call", "reference")
                    )
                    name = f"{kernel} {dtype}, {direction}, LNC {cores}, against eager torch"
                    benchmark.add(ratio(name, *alternate(ours, rival, options.repeats), bar=BARS[kernel]))
        yield benchmark
    yield _growth(options)


def _growth(options) -> Benchmark:
    """Time per token or head at each size, over that at the smallest."""
    benchmark = Benchmark("simulator.growth", "Time grows as the number of tokens and heads does.")
    for kernel, what, shapes in GROWTH:
        first, *rest = (_call(kernel, shape, "float32", "forward and backward", "call", 2) for shape in shapes)
        for doublings, larger in enumerate(rest, start=1):
            factor = 2**doublings
            times = ratio("", *alternate(larger, first, options.repeats)).values
            name = f"{kernel}, {factor} times the {what}: time per unit of it"
            benchmark.add(Figure(name, tuple(value / factor for value in times), bar=1.25))
    return benchmark


def _call(kernel: str, shape: dict, dtype: str, direction: str, which: str, cores: int) -> Callable:
    """The operator (``call``) or the ``reference`` on inputs of ``shape``, all of whose gradients are asked for."""
    import torch

    from trncheck.kernels import catalogue

    entry = catalogue.load(kernel)
    function = getattr(entry, which)
    inputs = entry.inputs(shape, getattr(torch, dtype), torch.Generator().manual_seed(0))
    trained = [inputs[name].requires_grad_(True) for name in entry.differentiable]
    upstream: list = []

    def forward():
        os.environ["NEURON_LOGICAL_NC_CONFIG"] = str(cores)
        with torch.no_grad():
            function(**inputs)

    def both():
        os.environ["NEURON_LOGICAL_NC_CONFIG"] = str(cores)
        outputs = function(**inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if not upstream:
            upstream.extend(torch.randn_like(output) for output in outputs)
        torch.autograd.grad(outputs, trained, upstream)

    return forward if direction == "forward" else both
