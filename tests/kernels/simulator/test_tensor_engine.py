"""The tensor engine: products, accumulation in PSUM, transposes, and its limits."""

import ml_dtypes
import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def tile_of(array):
    tile = nl.ndarray(array.shape, array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, array)
    return tile


def delivered(psum):
    """A PSUM tile as an output."""
    tile = nl.ndarray(psum.shape, psum.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(tile, psum)
    out = nl.ndarray(psum.shape, psum.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def psum(m, n, dtype=nl.float32):
    return nl.ndarray((m, n), dtype, buffer=nl.psum)


def refused(problem, kernel, *arguments):
    with pytest.raises(NkiError) as error:
        run(kernel, arguments)
    assert problem in str(error.value)
    assert str(error.value).startswith("test_tensor_engine.py:")


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3])
@pytest.mark.parametrize(("k", "m", "n"), [(128, 128, 512), (96, 5, 7), (1, 1, 1)])
def test_matmul_contracts_over_partitions_in_fp32(dtype, k, m, n):
    def kernel(a, b):
        dst = psum(m, n)
        nisa.nc_matmul(dst, tile_of(a), tile_of(b))
        return delivered(dst)

    a, b = normal(k, m, dtype=dtype), normal(k, n, seed=1, dtype=dtype)
    expected = a.astype(np.float32).T @ b.astype(np.float32)
    np.testing.assert_allclose(run(kernel, (a, b))[0], expected, rtol=1e-6, atol=1e-5)


def test_free_dimensions_of_a_matmul_count_flattened():
    def kernel(a, b):
        dst = nl.ndarray((12, 2, 5), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst, tile_of(a).reshape((64, 3, 4)), tile_of(b)[:, 2:4])
        return delivered(dst)

    a, b = normal(64, 12), normal(64, 6, 5, seed=1)
    expected = (a.T @ b[:, 2:4].reshape(64, 10)).reshape(12, 2, 5)
    np.testing.assert_allclose(run(kernel, (a, b))[0], expected, rtol=1e-6, atol=1e-5)


def products(*accumulate):
    """A kernel that multiplies a and b once for each of ``accumulate`` into one tile of PSUM."""

    def kernel(a, b):
        a, b, dst = tile_of(a), tile_of(b), psum(16, 16)
        for value in accumulate:
            nisa.nc_matmul(dst, a, b, accumulate=value)
        return delivered(dst)

    return kernel


@pytest.mark.parametrize(
    ("accumulate", "times"),
    [((None,), 1), ((None, None, None), 3), ((False, True, True), 3), ((None, None, False), 1), ((False, None), 2)],
    ids=["once", "default-adds", "explicit", "overwrite", "mixed"],
)
def test_the_first_matmul_overwrites_and_later_ones_add(accumulate, times):
    a, b = normal(32, 16), normal(32, 16, seed=1)
    np.testing.assert_allclose(run(products(*accumulate), (a, b))[0], times * (a.T @ b), rtol=1e-5, atol=1e-5)


def test_accumulating_onto_fresh_psum_is_refused():
    a = normal(32, 16)
    refused("nisa.nc_matmul: accumulate=True onto PSUM that no matmul has written: psum", products(True), a, a)


def test_a_write_by_another_engine_ends_the_accumulation():
    def kernel(a, b, accumulate):
        a, b, dst = tile_of(a), tile_of(b), psum(16, 16)
        nisa.nc_matmul(dst, a, b)
        nisa.memset(dst, 100.0)
        nisa.nc_matmul(dst, a, b, accumulate=accumulate)
        return delivered(dst)

    a, b = normal(32, 16), normal(32, 16, seed=1)
    np.testing.assert_allclose(run(kernel, (a, b, None))[0], a.T @ b, rtol=1e-5, atol=1e-5)
    refused("onto PSUM that no matmul has written", kernel, a, b, True)


def test_accumulation_is_decided_for_every_element():
    def kernel(a, b):
        a, b, dst = tile_of(a), tile_of(b), psum(16, 32)
        nisa.nc_matmul(dst[:, 8:16], a, b[:, 8:16])
        nisa.nc_matmul(dst, a, b)
        return delivered(dst)

    a, b = normal(32, 16), normal(32, 32, seed=1)
    expected = a.T @ b
    expected[:, 8:16] *= 2
    np.testing.assert_allclose(run(kernel, (a, b))[0], expected, rtol=1e-5, atol=1e-5)


def test_a_new_tile_starts_anew():
    def kernel(a, b):
        a, b = tile_of(a), tile_of(b)
        for _ in range(3):
            dst = psum(16, 16)
            nisa.nc_matmul(dst, a, b)
        return delivered(dst)

    a, b = normal(32, 16), normal(32, 16, seed=1)
    np.testing.assert_allclose(run(kernel, (a, b))[0], a.T @ b, rtol=1e-5, atol=1e-5)


def test_what_was_never_written_stays_known_through_a_matmul():
    def kernel(a, rows):
        stationary, moving = nl.ndarray((32, 16), nl.float32), tile_of(a)
        nisa.dma_copy(stationary[:rows], a[:rows])
        dst = psum(16, 16)
        nisa.nc_matmul(dst, stationary, moving)
        return delivered(dst)

    a = normal(32, 16)
    np.testing.assert_allclose(run(kernel, (a, 32))[0], a.T @ a, rtol=1e-5, atol=1e-5)
    refused("comes from memory that was never written; nisa.nc_matmul: stationary[31, 0]", kernel, a, 31)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_transposes_keep_every_bit(dtype):
    def kernel(x, by_matmul):
        x, dst = tile_of(x), psum(20, 50, x.dtype)
        if by_matmul:
            identity = nl.shared_identity_matrix(50, x.dtype)
            nisa.nc_matmul(dst, x, identity, is_transpose=True)
        else:
            nisa.nc_transpose(dst, x)
        return delivered(dst)

    x = normal(50, 20, dtype=dtype)
    for by_matmul in (False, True):
        np.testing.assert_array_equal(run(kernel, (x, by_matmul))[0], x.T)


def test_the_vector_engine_transposes_small_tiles():
    def kernel(x):
        dst = nl.ndarray((8, 32), x.dtype, buffer=nl.sbuf)
        nisa.nc_transpose(dst, tile_of(x))
        out = nl.ndarray((8, 32), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, dst)
        return out

    x = np.arange(256, dtype=np.int32).reshape(32, 8)
    np.testing.assert_array_equal(run(kernel, (x,))[0], x.T)


def sbuf(*shape, dtype=nl.bfloat16):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


REFUSED = {
    "contraction": (lambda: (psum(8, 8), sbuf(64, 8), sbuf(32, 8)), "the contraction dimension K"),
    "stationary": (lambda: (psum(128, 8), sbuf(64, 129), sbuf(64, 8)), "has 129 columns; at most 128"),
    "moving": (lambda: (psum(8, 513), sbuf(64, 8), sbuf(64, 513)), "has 513 columns; at most 512"),
    "dst": (lambda: (psum(8, 9), sbuf(64, 8), sbuf(64, 8)), "dst [8, 9] must be [8, 8]"),
    "bank": (
        lambda: (psum(8, 1024)[:, 256:768], sbuf(64, 8), sbuf(64, 512)),
        "dst [8, 512] crosses a PSUM bank of 2048 bytes per partition",
    ),
    "dst-in-sbuf": (lambda: (sbuf(8, 8), sbuf(64, 8), sbuf(64, 8)), "dst [8, 8] is in sbuf; it must be in psum"),
    "psum": (lambda: (psum(8, 8), psum(64, 8), sbuf(64, 8)), "stationary [64, 8] is in psum; it must be in sbuf"),
    "wide": (lambda: (psum(8, 8), sbuf(64, 8, dtype=nl.float32), sbuf(64, 8)), "fp32 goes with fp32 only"),
    "integer": (lambda: (psum(8, 8), sbuf(64, 8, dtype=nl.int32), sbuf(64, 8)), "stationary is int32"),
    "dst-dtype": (lambda: (psum(8, 8, nl.bfloat16), sbuf(64, 8), sbuf(64, 8)), "dst is bfloat16; it must be float32"),
    "start": (lambda: (psum(8, 8), sbuf(64, 8)[10:20], sbuf(64, 8)[:10]), "starts at partition 10"),
    "hbm": (
        lambda: (psum(8, 8), nl.ndarray((64, 8), nl.bfloat16, buffer=nl.private_hbm), sbuf(64, 8)),
        "is in private_hbm; it must be in sbuf",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_matmuls_that_do_not_exist_are_refused(case):
    operands, problem = REFUSED[case]

    def kernel(x):
        nisa.nc_matmul(*operands())

    refused(problem, kernel, normal(1, 1))


def test_a_tile_of_psum_may_span_banks_if_no_matmul_does():
    def kernel(a, b):
        a, b, dst = tile_of(a), tile_of(b), psum(8, 1024)
        for bank in range(2):
            nisa.nc_matmul(dst[:, nl.ds(bank * 512, 512)], a, b)
        return delivered(dst)

    a, b = normal(64, 8), normal(64, 512, seed=1)
    expected = np.tile(a.T @ b, 2)
    np.testing.assert_allclose(run(kernel, (a, b))[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dst", "data", "options", "problem"),
    [
        (lambda: psum(8, 64), lambda: sbuf(64, 9), {}, "must be the transpose of data [64, 9]"),
        (lambda: psum(8, 64), lambda: sbuf(64, 8), {}, "dst is float32 and data is bfloat16"),
        (lambda: sbuf(8, 64), lambda: sbuf(64, 8), {}, "is larger than 32 x 32 and does not go from SBUF to PSUM"),
        (
            lambda: psum(8, 64, nl.bfloat16),
            lambda: sbuf(64, 8),
            {"engine": nisa.engine.vector},
            "is larger than 32 x 32",
        ),
        (lambda: sbuf(8, 8), lambda: sbuf(8, 8), {"engine": nisa.engine.tensor}, "transposes from SBUF to PSUM"),
    ],
    ids=["shape", "dtype", "size", "vector", "tensor"],
)
def test_transposes_that_do_not_exist_are_refused(dst, data, options, problem):
    def kernel(x):
        nisa.nc_transpose(dst(), data(), **options)

    refused(problem, kernel, normal(1, 1))


@pytest.mark.parametrize(("value", "between", "lost"), [(1.0, False, True), (0.0, False, False), (1.0, True, False)])
def test_a_memset_that_the_first_matmul_overwrites_is_a_warning(value, between, lost):
    def kernel(a, b):
        a, b, dst = tile_of(a), tile_of(b), psum(8, 8)
        nisa.memset(dst, value)
        if between:  # then it was for that
            nisa.tensor_copy(nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf), dst)
        nisa.nc_matmul(dst, a, b)
        nisa.nc_matmul(dst, a, b)
        return delivered(dst)

    a, b = normal(4, 8), normal(4, 8, seed=1)
    out, report = run(kernel, (a, b))
    np.testing.assert_allclose(out, 2 * (a.T @ b), rtol=1e-5, atol=1e-5)
    assert len(report.warnings) == lost
    for text in report.warnings:
        assert ": nisa.nc_matmul: what memset wrote at test_tensor_engine.py:" in text
        assert text.endswith(" is lost: the first matmul into PSUM overwrites it")
