"""Makes the simulator importable as ``nki``, for as long as somebody asks for it."""

import contextlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType


def official_nki() -> bool:
    """Whether the official NKI is installed; the empty placeholder of that name on PyPI is not it."""
    if "nki" in sys.modules and getattr(sys.modules["nki"], "__spec__", None) is None:
        return False  # the simulator itself, or a stand-in of somebody's
    spec = importlib.util.find_spec("nki")
    if spec is None or not spec.submodule_search_locations:
        return False
    # Not importlib.util.find_spec, which would import and so leave behind a placeholder.
    return importlib.machinery.PathFinder.find_spec("nki.isa", list(spec.submodule_search_locations)) is not None


@contextlib.contextmanager
def as_nki() -> Iterator[None]:
    """Let ``import nki`` and its parts give the simulator inside the context; RuntimeError where the real one is."""
    if official_nki():
        raise RuntimeError("the official nki is installed; the simulator never takes its place")
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "nki"}
    for name in before:
        del sys.modules[name]
    sys.modules.update(_modules())
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "nki"]:
            del sys.modules[name]
        sys.modules.update(before)


def _modules() -> dict[str, ModuleType]:
    from trncheck.kernels.simulator import dtypes, isa, language, launch

    nki = ModuleType("nki", "The NKI simulator of trncheck.")
    nki.__path__ = []
    nki.jit, nki.simulate = launch.jit, launch.simulate
    nki.isa, nki.language = isa, language
    nki.dtype = ModuleType("nki.dtype")
    vars(nki.dtype).update({name: name for name in dtypes.NAMES})
    return {
        "nki": nki,
        "nki.isa": isa,
        "nki.isa.constants": isa.constants,
        "nki.language": language,
        "nki.dtype": nki.dtype,
    }
