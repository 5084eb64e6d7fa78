"""The simulator against the NKI interpreter of triton-viz, on the example kernels of that project.

Both execute the same files, which are read from a checkout of it (``--rival FOLDER``; nothing of it is in here):

    git clone https://github.com/Deep-Learning-Profiling-Tools/triton-viz FOLDER

The interpreter imports the vendor's ``nki``, of which it needs names only; a stand-in below has them. It checks
sizes and buffers, keeps one flag per tensor for "has been written", and starts memory at zero; ours is measured with
everything on: states of every element, capacity, lifetimes, hardware limits.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType

import numpy as np
from measure import Benchmark, alternate, ratio

EXAMPLES = ("softmax", "rmsnorm", "matmul", "mlp", "rope", "tiled_attention")


def run(options) -> Iterator[Benchmark]:
    """``simulator.interpreter``, with one ratio per example and size; not run without ``--rival``."""
    benchmark = Benchmark("simulator.interpreter", "The simulator is as fast as an interpreter that checks less.")
    examples = Path(options.rival or "", "examples", "nki_beta2")
    if not options.rival or not examples.is_dir():
        why = "needs --rival FOLDER with a checkout of triton-viz that has examples/nki_beta2"
        benchmark.notes["not run"] = why
        print(f"  not run: {why}")
        yield benchmark
        return
    sys.path.insert(0, str(options.rival))
    with _Modules(_stand_in()):
        rival = importlib.import_module("triton_viz.core.simulation.nki_beta2")
        theirs = {name: _load(examples, name) for name in EXAMPLES}
    from trncheck.kernels.simulator.blas import one_thread
    from trncheck.kernels.simulator.modules import as_nki

    with as_nki():
        ours = {name: _load(examples, name) for name in EXAMPLES}
    rival.nki_patch_lang()
    for name in EXAMPLES:
        for size, (inputs, outputs, numbers) in _arguments(name).items():
            mine = _ours(ours[name], inputs, outputs, numbers)
            other = _theirs(rival, theirs[name], inputs, outputs, numbers)
            for a, b in zip(mine(), other(), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
            with one_thread():  # as ours has it anyway: a second one makes both slower on tiles
                benchmark.add(ratio(f"{name}, {size}", *alternate(mine, other, options.repeats), bar=1.0))
    yield benchmark


def _ours(kernel: Callable, inputs, outputs, numbers) -> Callable:
    from trncheck.kernels.simulator import launch

    kernel = launch.jit(kernel)

    def call():
        launch.run(kernel, (*inputs, *outputs, *numbers))
        return outputs

    return call


def _theirs(rival, kernel: Callable, inputs, outputs, numbers) -> Callable:
    interpreted, outputs = rival.NKIBeta2InterpretedFunction(kernel), [np.zeros_like(part) for part in outputs]

    def call():
        interpreted.run(*inputs, *outputs, *numbers, grid=(1,))
        return outputs

    return call


def _arguments(name: str) -> dict[str, tuple[list, list, list]]:
    """By size: random inputs, outputs and plain numbers in the order of the example's parameters.

    The first size is about that of the example's own demonstration, the second several tiles.
    """
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    def empty(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    def attention(batch: int, heads: int, length: int):
        q, k, v = (normal(batch, heads, length, width) for width in (128, 128, 64))
        return [q, k, v], [empty(batch, heads, length, 64)], [batch, heads, heads, heads, length, length, 128, 64]

    def rope(batch: int, heads: int, length: int, dim: int):
        tensors = [normal(batch, heads, length, dim) for _ in range(2)]
        tables = [normal(length, dim) for _ in range(2)]
        return [*tensors, *tables], [empty(batch, heads, length, dim) for _ in range(2)], [batch, heads, length, dim]

    return {
        "softmax": {
            "256 x 64": ([normal(256, 64)], [empty(256, 64)], []),
            "1024 x 1024": ([normal(1024, 1024)], [empty(1024, 1024)], []),
        },
        "rmsnorm": {
            "256 x 128": ([normal(256, 128), normal(256, 128)], [empty(256, 128)], []),
            "1024 x 1024": ([normal(1024, 1024), normal(1024, 1024)], [empty(1024, 1024)], []),
        },
        "matmul": {
            "128 x 128 x 512": ([normal(128, 128), normal(128, 512)], [empty(128, 512)], []),
            "512 x 512 x 1024": ([normal(512, 512), normal(512, 1024)], [empty(512, 1024)], []),
        },
        "mlp": {
            "256 x 256 x 256 x 512": ([normal(256, 256), normal(256, 256), normal(256, 512)], [empty(256, 512)], []),
            "512 x 256 x 512 x 1024": ([normal(256, 512), normal(256, 512), normal(512, 1024)], [empty(512, 1024)], []),
        },
        "rope": {"1 x 2 x 128 x 64": rope(1, 2, 128, 64), "2 x 8 x 512 x 128": rope(2, 8, 512, 128)},
        "tiled_attention": {"2 x 2 x 128": attention(2, 2, 128), "1 x 4 x 512": attention(1, 4, 512)},
    }[name]


def _load(folder: Path, name: str) -> Callable:
    """The kernel of one example, imported anew."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, f"{name}_kernel")


def _stand_in() -> dict[str, ModuleType]:
    """``nki`` with the names that the interpreter looks at when it is imported, dtypes, and what a checkout lacks."""
    nki, isa, language = (ModuleType(name) for name in ("nki", "nki.isa", "nki.language"))
    nki.isa, nki.language = isa, language
    isa.engine = Enum("engine", "unknown tensor vector scalar gpsimd")
    for name in ("tensor", "vector", "scalar", "gpsimd"):
        setattr(isa, f"{name}_engine", isa.engine[name])
    isa.matmul_perf_mode = Enum("matmul_perf_mode", "none")
    isa.reduce_cmd = Enum("reduce_cmd", "idle")
    isa.oob_mode = Enum("oob_mode", "error skip")
    isa.dge_mode = Enum("dge_mode", "unknown")
    isa.nc_version = Enum("nc_version", "gen1 gen2 gen3 gen4")
    for name in ("float32", "bfloat16", "float16", "int32", "uint8"):
        setattr(language, name, name)
    version = ModuleType("triton_viz.version")  # which the project's build writes
    version.__version__ = version.git_version = "checkout"
    return {"nki": nki, "nki.isa": isa, "nki.language": language, "triton_viz.version": version}


class _Modules:
    """Puts modules into ``sys.modules`` inside the context."""

    def __init__(self, modules: dict[str, ModuleType]):
        self._modules = modules

    def __enter__(self) -> None:
        sys.modules.update(self._modules)

    def __exit__(self, *_) -> None:
        for name in self._modules:
            sys.modules.pop(name, None)
