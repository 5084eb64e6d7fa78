"""Executes single instructions: operands arrive as tiles, and what they leave in dst comes back."""

from dataclasses import dataclass

import numpy as np
import pytest

from trncheck.kernels.simulator import access, dtypes
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki
from trncheck.kernels.simulator.storage import TAINT, UNWRITTEN

with as_nki():
    import nki.language as nl


@dataclass
class Outcome:
    """What ``dst`` holds after a kernel's body."""

    values: np.ndarray
    tainted: np.ndarray
    """Whether an element comes from memory that was never written."""
    written: np.ndarray
    warnings: list[str]


@pytest.fixture(scope="session")
def execute():
    """``execute(body, *arrays, out=shape)``: the Outcome of ``body(dst, *tiles)``; masked elements stay unwritten."""
    return _execute


def _execute(body, *arrays, out, dtype=nl.float32, buffer=nl.sbuf) -> Outcome:
    seen = {}

    def kernel():
        tiles = [_tile(array) for array in arrays]
        dst = nl.ndarray(out, dtype, buffer=buffer)
        body(dst, *tiles)
        values, state = access.peek(dst)
        state = np.ones(out, int) if state is None else state
        seen.update(values=values.copy(), tainted=state >= TAINT, written=state != UNWRITTEN)

    _, report = run(kernel, ())
    return Outcome(**seen, warnings=report.warnings)


def _tile(array):
    tile = nl.ndarray(array.shape, dtypes.dtype_name(array.dtype), buffer=nl.sbuf)
    access.write_where(tile, ~np.ma.getmaskarray(array), np.ma.getdata(array))
    return tile


@pytest.fixture
def refused(request):
    """``refused(problem, body, *arrays, out=shape)``: the body's error tells the problem and its own line."""

    def check(problem, body, *arrays, **options):
        with pytest.raises(NkiError) as error:
            _execute(body, *arrays, **options)
        assert problem in str(error.value)
        assert str(error.value).startswith(f"{request.path.name}:")

    return check
