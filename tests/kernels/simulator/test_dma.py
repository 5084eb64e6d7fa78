"""DMA copies: conversions, gather and scatter, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

SKIP = {"oob_mode": nisa.oob_mode.skip}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def column(indices, dtype=np.int32):
    return np.asarray(indices).astype(dtype).reshape(-1, 1)


def tile_of(array, dtype=None):
    """A tile in SBUF with the values of an argument."""
    tile = nl.ndarray(array.shape, dtype or array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, array)
    return tile


def gather(x, indices, **options):
    """Rows of ``x`` that ``indices`` choose, over a tile of -7."""
    index = tile_of(indices)
    rows, width = index.shape[0], x.shape[1]
    tile = nl.ndarray((rows, width), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, nl.shared_constant(np.full((rows, width), -7, np.float32)))
    nisa.dma_copy(tile, x.ap([[width, rows], [1, width]], vector_offset=index), **options)
    out = nl.ndarray((rows, width), x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def scatter(data, indices, into, **options):
    """``into`` with rows of ``data`` written where ``indices`` say."""
    index, width = tile_of(indices), data.shape[1]
    out = nl.ndarray(into.shape, into.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, into)
    nisa.dma_copy(out.ap([[width, index.shape[0]], [1, width]], vector_offset=index), tile_of(data), **options)
    return out


def refused(problem, kernel, *arguments, **options):
    with pytest.raises(NkiError) as error:
        run(kernel, arguments, options)
    assert problem in str(error.value)
    assert str(error.value).startswith("test_dma.py:")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "int32", "uint8", "int64"])
def test_equal_dtypes_copy_bit_by_bit(dtype):
    """Also a NaN with a payload, -0 and integers that fp32 cannot hold."""
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.random.default_rng(0).integers(0, 256, (16, 8 * dtype.itemsize)).astype(np.uint8).view(dtype)

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile_of(x))
        return out

    assert run(kernel, (x,))[0].tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38], "bfloat16", [1, 1 + 2**-6, np.inf]),
        ([0.5, 1.5, -2.5], "int32", [0, 2, -2]),
        ([3e9, -3e9, np.nan], "int32", [2**31 - 1, -(2**31), 0]),
        ([300, -5, 254.5], "uint8", [255, 0, 254]),
        ([2.0, 0.0, -1.0], "bool", [True, False, True]),
    ],
    ids=["bfloat16", "ties-to-even", "saturate", "unsigned", "bool"],
)
def test_other_dtypes_go_through_fp32(values, dtype, expected):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    out, _ = run(kernel, (np.array([values], np.float32),))
    np.testing.assert_array_equal(out.astype(np.float64), [expected])


def test_integers_lose_what_fp32_cannot_hold_when_the_dtype_changes():
    def kernel(x):
        out = nl.ndarray(x.shape, nl.int64, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    assert run(kernel, (np.array([2**24 + 1, 7], np.int32),))[0].tolist() == [2**24, 7]


def test_shapes_may_differ_in_row_major_order():
    def kernel(x):
        tile = nl.ndarray((6, 4, 2), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        out = nl.ndarray((4, 6, 2), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out.permute((1, 0, 2)), tile)
        return out

    x = normal(3, 16)
    np.testing.assert_array_equal(run(kernel, (x,))[0], x.reshape(6, 4, 2).transpose(1, 0, 2))


def test_copies_may_start_at_any_partition():
    def kernel(x):
        tile = nl.ndarray((128, 4), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile[5:105], x)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile[5:105])
        return out

    x = normal(100, 4)
    np.testing.assert_array_equal(run(kernel, (x,))[0], x)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_gather_reads_rows_by_index(dtype):
    x, indices = normal(50, 6), np.random.default_rng(1).integers(0, 50, 128)
    np.testing.assert_array_equal(run(gather, (x, column(indices, dtype)))[0], x[indices])


def test_gather_ignores_the_leading_step_and_adds_offset_and_free_steps():
    def kernel(x, indices):
        part = x.ap([[1, 16], [2, 3]], offset=1, vector_offset=tile_of(indices))
        out = nl.ndarray((16, 3), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, part)
        return out

    x, indices = normal(20, 8), np.arange(16)[::-1]
    np.testing.assert_array_equal(run(kernel, (x, column(indices)))[0], x[indices, 1:7:2])


def test_a_column_of_a_tile_may_be_the_offset():
    def kernel(x, indices):
        index = tile_of(indices)
        out = nl.ndarray((2, 16, 8), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out[0], x.ap([[8, 16], [1, 8]], vector_offset=index[:, 1:2]))
        nisa.dma_copy(out[1], x.ap([[8, 16], [1, 8]], vector_offset=index.ap([[3, 16], [1, 1]], offset=2)))
        return out

    x, indices = normal(20, 8), np.random.default_rng(1).integers(0, 20, (16, 3)).astype(np.int32)
    np.testing.assert_array_equal(run(kernel, (x, indices))[0], x[indices.T[1:]])


def test_vector_select_chooses_rows_of_the_view():
    def kernel(x, indices):
        out = nl.ndarray((16, 3, 4), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x[2:].vector_select(0, tile_of(indices))[:, 1:])
        return out

    x, indices = normal(20, 4, 4), np.arange(16)
    np.testing.assert_array_equal(run(kernel, (x, column(indices)))[0], x[2:][indices][:, 1:])


def test_rows_of_a_view_end_with_the_view():
    def kernel(x, indices):
        out = nl.ndarray((16, 4), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x[2:10].vector_select(0, tile_of(indices)))
        return out

    x = normal(20, 4)
    np.testing.assert_array_equal(run(kernel, (x, column(np.full(16, 7))))[0], np.tile(x[9], (16, 1)))
    refused("vector_offset[0] is 8, outside rows 0 to 7", kernel, x, column(np.full(16, 8)))


def test_rows_that_would_begin_before_the_tensor_are_out_of_bounds():
    def kernel(x, indices):
        out = nl.ndarray((16, 3), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x.ap([[4, 16], [-1, 3]], vector_offset=tile_of(indices)))
        return out

    x, indices = normal(20, 4), np.arange(16) + 1
    flat = x.reshape(-1)
    expected = flat[4 * indices[:, None] - np.arange(3)]
    np.testing.assert_array_equal(run(kernel, (x, column(indices)))[0], expected)
    refused("vector_offset[0] is 0, outside rows 1 to 19", kernel, x, column(indices - 1))


def test_a_scatter_into_an_argument_updates_it_in_place():
    def kernel(data, indices, into):
        nisa.dma_copy(into.ap([[6, 16], [1, 6]], vector_offset=tile_of(indices)), data)

    data, indices, into = normal(16, 6), np.arange(16)[::-1], np.zeros((20, 6), np.float32)
    _, report = run(kernel, (data, column(indices), into))
    assert report.mutated == ["into"]
    np.testing.assert_array_equal(into[:16], data[::-1])
    assert not into[16:].any()


def test_offsets_are_read_when_the_copy_runs():
    def kernel(x, first, second):
        index = tile_of(first)
        rows = x.ap([[8, 16], [1, 8]], vector_offset=index)
        nisa.dma_copy(index, second)
        out = nl.ndarray((16, 8), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, rows)
        return out

    x = normal(20, 8)
    out, _ = run(kernel, (x, column(np.zeros(16)), column(np.arange(16))))
    np.testing.assert_array_equal(out, x[:16])


@pytest.mark.parametrize(
    ("dtype", "bad"), [(np.int32, -1), (np.int32, 50), (np.uint32, 2**32 - 1)], ids=["negative", "end", "unsigned"]
)
def test_rows_out_of_bounds_are_an_error_or_are_left_out(dtype, bad):
    x, indices, data = normal(50, 6), np.arange(16).astype(np.int64), normal(16, 6, seed=1)
    indices[[3, 9]] = bad
    inside = indices == np.arange(16)
    problem = f"vector_offset[3] is {bad}, outside rows 0 to 49 of "

    refused(f"src's {problem}", gather, x, column(indices, dtype))
    gathered, _ = run(gather, (x, column(indices, dtype)), SKIP)
    np.testing.assert_array_equal(gathered, np.where(inside[:, None], x[:16], -7))

    refused(f"dst's {problem}", scatter, data, column(indices, dtype), x)
    scattered, _ = run(scatter, (data, column(indices, dtype), x), SKIP)
    np.testing.assert_array_equal(scattered, np.concatenate([np.where(inside[:, None], data, x[:16]), x[16:]]))


def test_all_rows_may_be_left_out():
    x, indices = normal(50, 6), column(np.full(16, -1))
    np.testing.assert_array_equal(run(gather, (x, indices), SKIP)[0], np.full((16, 6), -7, np.float32))
    np.testing.assert_array_equal(run(scatter, (normal(16, 6), indices, x), SKIP)[0], x)


def test_gather_straight_into_scatter_leaves_out_both_kinds_of_rows():
    def kernel(x, read, written):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        pattern = [[6, 16], [1, 6]]
        source = x.ap(pattern, vector_offset=tile_of(read))
        nisa.dma_copy(out.ap(pattern, vector_offset=tile_of(written)), source, oob_mode=nisa.oob_mode.skip)
        return out

    x, read, written = normal(32, 6), np.arange(16), np.arange(16) + 16
    read[[1, 4]], written[[4, 7]] = 99, -1
    expected = x.copy()
    kept = (read < 32) & (written >= 0)
    expected[written[kept]] = x[read[kept]]
    np.testing.assert_array_equal(run(kernel, (x, column(read), column(written)))[0], expected)


def test_skipped_rows_of_a_gather_reach_a_destination_of_another_shape():
    def kernel(x, indices, before):
        out = nl.ndarray((32, 3), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, before)
        rows = x.ap([[6, 16], [1, 6]], vector_offset=tile_of(indices))
        nisa.dma_copy(out, rows, oob_mode=nisa.oob_mode.skip)
        return out

    x, indices, before = normal(50, 6), np.arange(16), normal(32, 3, seed=1)
    indices[5] = -1
    expected = np.where((indices >= 0)[:, None], x[:16], before.reshape(16, 6)).reshape(32, 3)
    np.testing.assert_array_equal(run(kernel, (x, column(indices), before))[0], expected)


def test_a_skipped_scalar_offset_copies_nothing():
    def kernel(x, at):
        out = nl.ndarray((2, 6), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x[:2])
        for row in (3, at):
            part = x.ap([[6, 1], [1, 6]], scalar_offset=nisa.register_alloc(row))
            nisa.dma_copy(out[1:], part, oob_mode=nisa.oob_mode.skip)
        return out

    x = normal(5, 6)
    np.testing.assert_array_equal(run(kernel, (x, 5))[0], x[[0, 3]])


def test_scatter_converts():
    data, into, indices = normal(16, 6), np.zeros((20, 6), ml_dtypes.bfloat16), np.arange(16) + 2
    out, _ = run(scatter, (data, column(indices), into))
    np.testing.assert_array_equal(out[2:18], data.astype(ml_dtypes.bfloat16))


def test_a_row_scattered_twice_with_different_values_is_a_warning():
    indices = np.arange(16)
    indices[7] = 3
    _, report = run(scatter, (normal(16, 6), column(indices), normal(20, 6)))
    assert len(report.warnings) == 1
    assert "1 indices occur more than once, such as 3; which of them stays is undefined" in report.warnings[0]
    _, report = run(scatter, (np.ones((16, 6), np.float32), column(indices), normal(20, 6)))
    assert report.warnings == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"oob_mode": 1}, "oob_mode 1 must be one of nisa.oob_mode"),
        ({"dge_mode": 2}, "dge_mode 2 must be one of nisa.dge_mode"),
        (SKIP, "oob_mode.skip needs an operand with a scalar_offset or vector_offset"),
        ({"priority": 1}, "priority exists from trn3 on"),
        ({"engine": nisa.engine.vector}, "cannot start a DMA"),
        ({"engine": nisa.engine.sync}, "needs dge_mode.hwdge"),
        (
            {"unique_indices": True},
            "unexpected keyword argument 'unique_indices'; the signature is (dst, src, priority",
        ),
    ],
    ids=["oob", "dge", "skip", "priority", "engine", "queue", "removed"],
)
def test_options_of_a_copy_are_checked(options, problem):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x, **options)
        return out

    refused(problem, kernel, normal(4, 4))


def test_operands_of_a_copy_are_checked():
    def into(dst, **options):
        def kernel(x, indices):
            target = dst(x, tile_of(indices))
            nisa.dma_copy(target, x, **options)

        return kernel

    x, indices = normal(16, 4), column(np.arange(16))
    refused("dst must be a tensor, not None", into(lambda x, i: None), x, indices)
    psum = into(lambda x, i: nl.ndarray((16, 4), nl.float32, buffer=nl.psum))
    refused("dst [16, 4] is in PSUM, which DMA cannot reach", psum, x, indices)
    refused("dst [15, 4] has 60 elements and src [16, 4] has 64", into(lambda x, i: x[:15]), x, indices)
    hwdge = {"dge_mode": nisa.dge_mode.hwdge}
    half = into(lambda x, i: nl.ndarray((16, 4), nl.bfloat16, buffer=nl.sbuf), **hwdge)
    refused("hwdge moves bytes and cannot convert", half, x, indices)
    rows = into(lambda x, i: x.ap([[4, 16], [1, 4]], vector_offset=i), **hwdge)
    refused("does not take a vector_offset", rows, x, indices)
    few = into(lambda x, i: x.ap([[4, 8], [1, 8]], vector_offset=i[:8]))
    refused("8 rows by vector_offset; the number must be 1 or a multiple of 16", few, x, indices)
