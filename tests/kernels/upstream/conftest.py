"""nkilib's own kernels, unmodified, on the simulator: where they come from, how they run, what the run came to.

The kernels stay where the user has them: ``TRNCHECK_NKILIB`` names the folder, and nothing of it is kept after a test.
"""

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trncheck.kernels.simulator import launch
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.modules import as_nki

FOLDER = "TRNCHECK_NKILIB"
HOW = (
    f"{FOLDER} is not set: git clone https://github.com/aws-neuron/nki-library, and point it at the clone's "
    "src/nkilib_src, the folder that holds the package nkilib"
)


@dataclass
class Row:
    """What the table at the end says about one comparison."""

    kernel: str
    lnc: int
    what: str
    error: float
    """max |error| / max |reference|"""
    seconds: float
    warnings: list[str] = field(default_factory=list)


_ROWS: list[Row] = []
_REFUSED: list[str] = []
_NOT_RUN: list[str] = []
_modules: dict[str, ModuleType] = {}
"""nkilib as imported by the first test that asked; in sys.modules during tests only."""


@pytest.fixture(scope="session")
def nkilib_folder() -> Path:
    """The folder that holds the package nkilib; skips without one, FileNotFoundError for a wrong one."""
    if not (named := os.environ.get(FOLDER)):
        pytest.skip(HOW)
    folder = Path(named).expanduser().resolve()
    for part in ("nkilib", "nkilib/__init__.py", "nkilib/core", "nkilib/experimental"):
        if not (folder / part).exists():
            raise FileNotFoundError(
                f"{FOLDER}={named}: there is no {part} in it; it must hold the package nkilib, src/nkilib_src of "
                "https://github.com/aws-neuron/nki-library"
            )
    return folder


class Upstream:
    """Imports kernels of nkilib and runs them; one for each test."""

    def __init__(self, record: Callable):
        self._record = record
        self._last = None

    def module(self, name: str) -> ModuleType:
        """The module ``nkilib.<name>``."""
        return importlib.import_module(f"nkilib.{name}")

    def run(self, kernel, *args, lnc: int | None = None, strict: bool = True, orders: int = 2, **kwargs):
        """What ``kernel`` returns, run on ``lnc`` cores, in both core orders where there are two."""
        kernel = kernel if isinstance(kernel, launch.Kernel) else launch.Kernel(kernel)
        started = time.perf_counter()
        result, report = launch.run(kernel[lnc] if lnc else kernel, args, kwargs, strict=strict, orders=orders)
        self._last = (kernel.__name__, lnc or 1, time.perf_counter() - started, report.warnings)
        return result

    def refused(self, problem: str, kernel, *args, **kwargs) -> None:
        """Assert that :meth:`run` is an NkiError in which the pattern ``problem`` is found; puts it on record."""
        with pytest.raises(NkiError, match=problem) as error:
            self.run(kernel, *args, **kwargs)
        self._record("upstream refused", f"{kernel.__name__}: {error.value}")

    @staticmethod
    def error(got, want) -> float:
        """The largest difference, over the largest value of ``want``."""
        got, want = _float64(got), _float64(want)
        assert got.shape == want.shape, f"shape {got.shape}, the reference has {want.shape}"
        return float(np.abs(got - want).max() / (np.abs(want).max() or 1.0))

    def agree(self, what: str, got, want, within: float) -> None:
        """Assert that the :meth:`error` of ``got`` is at most ``within``; the last :meth:`run` gets a row for it."""
        error = self.error(got, want)
        name, lnc, seconds, warnings = self._last
        self._record("upstream", asdict(Row(name, lnc, what, error, seconds, list(warnings))))
        assert error <= within, f"{name}: {what} is off by {error:.3g} of its largest value, more than {within:.3g}"


def _float64(values) -> np.ndarray:
    if not isinstance(values, np.ndarray):
        values = values.detach().double().numpy()
    return values.astype(np.float64)


@pytest.fixture
def upstream(nkilib_folder, record_property):
    """nkilib importable, and the simulator in the place of ``nki``, for the length of a test."""
    with as_nki(), _importable(nkilib_folder):
        yield Upstream(record_property)


@contextlib.contextmanager
def _importable(folder: Path):
    before = dict(_nkilib_modules())
    for name in before:
        del sys.modules[name]
    sys.modules.update(_modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    # Else the package looks for an installed copy of itself, and takes that.
    bundled = "NKILIB_FORCE_BUNDLED_LIBRARY"
    environment = os.environ.get(bundled)
    os.environ[bundled] = "1"
    try:
        yield
    finally:
        _modules.update(_nkilib_modules())
        for name in _nkilib_modules():
            del sys.modules[name]
        sys.modules.update(before)
        sys.path.remove(str(folder))
        os.environ.pop(bundled)
        if environment is not None:
            os.environ[bundled] = environment


def _nkilib_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "nkilib"}


@pytest.fixture
def legacy_typing(monkeypatch):
    """A stand-in for ``neuronxcc.nki.typing``, which router_topk imports for one annotation."""
    for name in ("neuronxcc", "neuronxcc.nki", "neuronxcc.nki.typing"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    typing = sys.modules["neuronxcc.nki.typing"]
    sys.modules["neuronxcc.nki"].typing = typing
    typing.mutable_tensor = object


@pytest.fixture
def mended_dge_mode(upstream, monkeypatch):
    """Members of ``nisa.dge_mode`` for the numbers that nkilib's token generation kernels pass, which NKI refuses."""
    upstream.module("core.moe.moe_tkg.moe_tkg")  # and with it all modules that have such constants
    enum = importlib.import_module("nki.isa").dge_mode
    for module in _nkilib_modules().values():
        for name, value in list(vars(module).items()):
            if name.startswith("_DGE_MODE_") and isinstance(value, int):
                monkeypatch.setattr(module, name, enum(value))


@pytest.fixture
def circulant(monkeypatch):
    """A stand-in for ``scipy.linalg.circulant``, the one function of SciPy that topk uses."""
    for name in ("scipy", "scipy.linalg"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["scipy"].linalg = sys.modules["scipy.linalg"]
    sys.modules["scipy.linalg"].circulant = lambda column: np.stack([np.roll(column, i) for i in range(len(column))], 1)


def pytest_runtest_logreport(report) -> None:
    if Path(__file__).parent.name not in Path(report.fspath).parts:
        return
    if report.when == "call":
        _ROWS.extend(Row(**value) for name, value in report.user_properties if name == "upstream")
        _REFUSED.extend(value for name, value in report.user_properties if name == "upstream refused")
        if report.skipped:
            _NOT_RUN.append(getattr(report, "wasxfail", "") or report.longrepr[2].removeprefix("Skipped: "))


def pytest_terminal_summary(terminalreporter) -> None:
    if not _ROWS:
        return
    write = terminalreporter.write_line
    terminalreporter.section("nkilib's kernels on the simulator")
    write(f"{'kernel':<40} LNC {'compared':<46} {'cases':>5} {'error':>8} {'seconds':>8} warnings")
    for (kernel, lnc, what), rows in _grouped().items():
        error, seconds = max(row.error for row in rows), max(row.seconds for row in rows)
        warnings = len({text for row in rows for text in row.warnings}) or ""
        write(f"{kernel:<40} {lnc:>3} {what:<46} {len(rows):>5} {error:>8.1e} {seconds:>8.2f} {warnings:>8}")
    write("error: the largest max |error| / max |reference|; seconds: of the slowest launch, all its core orders")
    for text in dict.fromkeys(f"{row.kernel}: {text}" for row in _ROWS for text in row.warnings):
        write(f"warning: {text}")
    for text in dict.fromkeys(_REFUSED):
        write(f"refused: {text}")
    for reason in dict.fromkeys(_NOT_RUN):
        write(f"not run: {reason}")


def _grouped() -> dict[tuple, list[Row]]:
    groups: dict[tuple, list[Row]] = {}
    for row in _ROWS:
        groups.setdefault((row.kernel, row.lnc, row.what), []).append(row)
    return groups
