"""What released kernels rely on beyond the plain forms of the API, found by running nkilib's."""

from dataclasses import dataclass
from enum import Enum

import ml_dtypes
import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

X = np.arange(32, dtype=np.float32).reshape(8, 4) - 10


def test_engines_have_their_old_names():
    for name in ("tensor", "vector", "scalar", "gpsimd", "unknown"):
        assert getattr(nisa, f"{name}_engine") is nisa.engine[name]


def test_packed_dtypes_have_names_and_no_tensors():
    assert len({nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4, nl.float8_e4m3fn}) == 4
    with pytest.raises(NkiError, match="float8_e4m3fn_x4 is Trainium3's"):
        run(lambda: nl.ndarray((8, 8), nl.float8_e4m3fn_x4, buffer=nl.shared_hbm))


def test_a_16_bit_operand_of_tensor_scalar_is_a_warning(execute):
    column = np.linspace(0.1, 3, 8, dtype=np.float32).astype(ml_dtypes.bfloat16)[:, None]
    result = execute(lambda dst, x, c: nisa.tensor_scalar(dst, x, nl.multiply, c), X, column, out=(8, 4))
    np.testing.assert_array_equal(result.values, X * column.astype(np.float32))
    (warning,) = result.warnings
    assert warning.endswith("nisa.tensor_scalar: operand0 is bfloat16; documented for a tensor here is float32")


def test_abs_before_a_reduction_takes_a_zero(execute):
    def largest(dst, x):
        nisa.tensor_scalar_reduce(nl.ndarray((8, 4), nl.float32), x, nl.abs, 0.0, nl.maximum, reduce_res=dst)

    np.testing.assert_array_equal(execute(largest, X, out=(8, 1)).values, np.abs(X).max(1, keepdims=True))


def from_unwritten_memory(x):
    scratch = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(scratch[:7], x[:7])
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, scratch)
    return out


def test_outputs_from_unwritten_memory_are_an_error_or_a_warning():
    with pytest.raises(
        NkiError, match=r"output 0\[7, 0\] \(4 of 32 elements\) comes from memory that was never written"
    ):
        run(from_unwritten_memory, (X,))
    out, report = run(from_unwritten_memory, (X,), strict=False)
    np.testing.assert_array_equal(out[:7], X[:7])
    assert any("output 0[7, 0] (4 of 32 elements) comes from memory" in warning for warning in report.warnings)


@pytest.mark.parametrize("flat", [False, True], ids=["rows", "reshaped to elements"])
def test_offsets_count_rows_of_the_shape_that_ap_is_called_on(flat):
    """And they may be a column of a wider tile, of any rank."""
    chosen = np.stack([np.full(16, 99), np.arange(16) * 3 % 8], axis=1).astype(np.int32)

    def kernel(x, indices):
        tile = nl.ndarray((16, 2), nl.int32)
        nisa.dma_copy(tile, indices)
        column = tile.ap(pattern=[[2, 16], [1, 1], [1, 1]], offset=1)
        source, width = (x.reshape((32,)), 1) if flat else (x, 4)
        out = nl.ndarray((16, width), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, source.ap(pattern=[[width, 16], [1, width]], vector_offset=column))
        return out

    rows = X.reshape(32, 1) if flat else X
    np.testing.assert_array_equal(run(kernel, (X, chosen))[0], rows[chosen[:, 1]])


class Mode(Enum):
    FAST = 0


@dataclass
class Plan(nl.NKIObject):
    rows: int
    mode = Mode.FAST
    offset = None
    scale: float = 2.0

    @property
    def twice(self):
        return 2 * self.rows

    @staticmethod
    def helper():
        return 1


def test_a_dataclass_of_nki_has_fields_without_annotation_or_default():
    plan = Plan(offset=3)
    assert (plan.rows, plan.mode, plan.offset, plan.scale) == (None, Mode.FAST, 3, 2.0)
    assert Plan(rows=4).twice == 8
    assert Plan(4) == Plan(rows=4) != Plan(rows=5)


def test_a_shared_constant_comes_from_a_file_or_an_array(tmp_path):
    file = tmp_path / "constant.npy"
    np.save(file, X)

    def kernel(x, constant):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.shared_constant(constant if constant is not None else X))
        return out

    for constant in (str(file), None):
        np.testing.assert_array_equal(run(kernel, (np.zeros_like(X), constant))[0], X)
