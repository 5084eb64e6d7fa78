"""DMA that computes: sums, and transposes."""

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


def refused(problem, kernel, *arguments, **options):
    with pytest.raises(NkiError) as error:
        run(kernel, arguments, options)
    assert problem in str(error.value)
    assert str(error.value).startswith("test_dma_compute.py:")


def add_rows(data, indices, into, **options):
    """``into`` with rows of ``data`` added where ``indices`` say."""
    index, width = tile_of(indices), data.shape[1]
    out = nl.ndarray(into.shape, into.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, into)
    rows = out.ap([[width, index.shape[0]], [1, width]], vector_offset=index)
    nisa.dma_compute(rows, [rows, tile_of(data)], nl.add, **options)
    return out


def test_compute_sums_in_fp32_and_rounds_once():
    def kernel(x, y, z):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(out, [x, tile_of(y), z], reduce_op=nl.add, scales=[1.0, 1.0, 1.0])
        return out

    x, y, z = (normal(16, 4, seed=seed).astype(ml_dtypes.bfloat16) for seed in range(3))
    expected = (x.astype(np.float32) + y.astype(np.float32) + z.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run(kernel, (x, y, z))[0], expected)


def test_compute_adds_to_the_rows_of_an_index():
    data, into, indices = normal(16, 6), normal(20, 6, seed=1), np.random.default_rng(2).permutation(20)[:16]
    expected = into.copy()
    expected[indices] += data
    np.testing.assert_array_equal(run(add_rows, (data, column(indices), into))[0], expected)

    indices[[2, 11]] = 20, -1
    kept = (indices >= 0) & (indices < 20)
    expected = into.copy()
    expected[indices[kept]] += data[kept]
    np.testing.assert_array_equal(run(add_rows, (data, column(indices), into), SKIP)[0], expected)
    refused("vector_offset[2] is 20, outside rows 0 to 19", add_rows, data, column(indices), into)


def test_compute_adds_gathered_rows_to_a_tile():
    def kernel(x, indices, y):
        tile = tile_of(y)
        nisa.dma_compute(tile, [x.ap([[6, 16], [1, 6]], vector_offset=tile_of(indices)), tile], nl.add)
        out = nl.ndarray(y.shape, y.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    x, y, indices = normal(20, 6), normal(16, 6, seed=1), np.full(16, 4)
    np.testing.assert_array_equal(run(kernel, (x, column(indices), y))[0], x[indices] + y)


def test_a_sum_is_left_out_where_either_row_is_out_of_bounds():
    def kernel(x, one, other, y):
        tile, rows = tile_of(y), [[6, 16], [1, 6]]
        sources = [x.ap(rows, vector_offset=tile_of(one)), x.ap(rows, vector_offset=tile_of(other))]
        nisa.dma_compute(tile, sources, nl.add, oob_mode=nisa.oob_mode.skip)
        out = nl.ndarray(y.shape, y.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    x, y, one, other = normal(20, 6), normal(16, 6, seed=1), np.arange(16), np.arange(16) + 4
    one[2], other[5] = -1, 20
    kept = (one >= 0) & (other < 20)
    expected = y.copy()
    expected[kept] = x[one[kept]] + x[other[kept]]
    np.testing.assert_array_equal(run(kernel, (x, column(one), column(other), y))[0], expected)


def test_compute_refuses_rows_that_occur_twice():
    indices = np.arange(16)
    indices[7] = 3
    problem = "nisa.dma_compute: dst: 1 indices occur more than once, such as 3"
    refused(problem, add_rows, normal(16, 6), column(indices), normal(20, 6))
    unique = column(np.arange(16))
    refused("needs unique_indices=True", add_rows, normal(16, 6), unique, normal(20, 6), unique_indices=False)


@pytest.mark.parametrize(
    ("sources", "options", "problem"),
    [
        (lambda x: [x], {"reduce_op": nl.maximum}, "reduce_op nl.max"),
        (lambda x: [x], {"reduce_op": "add"}, "reduce_op must be a function of nki.language"),
        (lambda x: [x, x], {"scales": [1.0, 0.5]}, "must be 1.0 for each of 2 sources"),
        (lambda x: [x, x[:3]], {}, "srcs[1] [3, 4] has 12 elements and dst [4, 4] has 16"),
        (lambda x: [x] * 17, {}, "srcs must be a list of 1 to 16 tensors"),
        (lambda x: x, {}, "srcs must be a list of 1 to 16 tensors"),
        (lambda x: [x], SKIP, "oob_mode.skip needs an operand"),
    ],
    ids=["op", "name", "scales", "elements", "many", "one", "skip"],
)
def test_operands_of_a_sum_are_checked(sources, options, problem):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(out, sources(x), **({"reduce_op": nl.add} | options))
        return out

    refused(problem, kernel, normal(4, 4))


def counting(*shape, dtype=np.int16):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def transposed(x, shape=None, on_chip=False, **options):
    """``dma_transpose`` of ``x`` into a tile, as an output."""
    source = tile_of(x) if on_chip else x
    axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[x.ndim]
    tile = nl.ndarray(shape or [x.shape[axis] for axis in axes], x.dtype, buffer=nl.sbuf)
    nisa.dma_transpose(tile, source, **options)
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("on_chip", [False, True], ids=["hbm", "sbuf"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5, 7), (1, 0)), ((5, 3, 7), (2, 1, 0)), ((5, 2, 3, 7), (3, 1, 2, 0))],
    ids=["2-D", "3-D", "4-D"],
)
def test_transpose_swaps_the_outer_axes(shape, axes, on_chip):
    x = counting(*shape, dtype=np.int32)
    for options in ({}, {"axes": axes}):
        out, _ = run(transposed, (x,), {"on_chip": on_chip} | options)
        np.testing.assert_array_equal(out, x.transpose(axes))


def test_transpose_takes_the_engine_s_own_shapes():
    for shape, axes in (((16, 128), (1, 0)), ((8, 4, 64), (2, 1, 0)), ((1, 2, 16, 8), (3, 1, 2, 0))):
        out, _ = run(transposed, (counting(*shape),), {"dge_mode": nisa.dge_mode.hwdge})
        np.testing.assert_array_equal(out, counting(*shape).transpose(axes))


def gathered(x, indices, rows, **options):
    """``rows`` rows of ``x``, chosen by the columns of ``indices`` one after the other, transposed over a tile of 7."""
    width = x.shape[1]
    tile = nl.ndarray((width, rows), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, nl.shared_constant(np.full((width, rows), 7, np.int16)))
    source = x.ap([[width, rows], [1, width]], vector_offset=tile_of(indices))
    nisa.dma_transpose(tile, source, **options)
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize(("partitions", "columns", "rows"), [(16, 1, 16), (128, 1, 128), (128, 3, 288)])
def test_transpose_gathers_rows_first(partitions, columns, rows):
    x = counting(50, 12)
    indices = np.random.default_rng(0).integers(0, 50, (partitions, columns)).astype(np.uint32)
    out, _ = run(gathered, (x, indices, rows))
    np.testing.assert_array_equal(out, x[indices.T.reshape(-1)[:rows]].T)


def test_transpose_leaves_out_rows_out_of_bounds():
    x, indices = counting(50, 12), np.arange(16, dtype=np.uint32).reshape(-1, 1)
    indices[5] = 2**32 - 1
    refused("vector_offset[5] is 4294967295, outside rows 0 to 49", gathered, x, indices, 16)
    out, _ = run(gathered, (x, indices, 16), SKIP)
    np.testing.assert_array_equal(out, np.where(np.arange(16) == 5, 7, x[:16].T))


@pytest.mark.parametrize(
    ("shape", "options", "problem"),
    [
        ((4, 8), {"shape": (8, 2, 2)}, "dst [8, 2, 2] must be [8, 4], src [4, 8] with axes (1, 0)"),
        ((2, 3, 4), {"axes": (0, 2, 1), "shape": (2, 4, 3)}, "axes (0, 2, 1) of 3 dimensions; only (2, 1, 0) exist"),
        ((4, 8), {"dge_mode": nisa.dge_mode.hwdge}, "has 4 rows; dge_mode.hwdge transposes 16"),
        ((16, 129), {"dge_mode": nisa.dge_mode.hwdge, "shape": (128, 16)}, "dst [128, 16] must be [129, 16]"),
        ((3, 16, 8), {"dge_mode": nisa.dge_mode.hwdge}, "needs 1, 2, 4, 8 or 16 as first dimension"),
        ((4, 8), {"priority": 0}, "priority exists from trn3 on"),
        ((4, 8), SKIP, "oob_mode.skip needs an operand"),
    ],
    ids=["rank", "axes", "rows", "shape", "first", "priority", "skip"],
)
def test_operands_of_a_transpose_are_checked(shape, options, problem):
    refused(
        f"nisa.dma_transpose: {problem}" if problem.startswith("d") else problem,
        transposed,
        counting(*shape),
        **options,
    )


def test_a_transpose_keeps_the_dtype_and_ends_in_sbuf():
    def kernel(x, dtype, buffer):
        nisa.dma_transpose(nl.ndarray((8, 4), dtype, buffer=buffer), x)

    refused("dst is float32 and src is int16; a transpose keeps the dtype", kernel, counting(4, 8), nl.float32, nl.sbuf)
    refused("dst [8, 4] is in shared_hbm; it must be in sbuf", kernel, counting(4, 8), nl.int16, nl.shared_hbm)


def test_gathers_of_a_transpose_are_checked():
    indices = np.zeros((16, 1), np.uint32)
    refused("vector_offset is int32; dma_transpose takes uint32", gathered, counting(50, 12), column(indices), 16)
    refused("needs elements of 2 bytes", gathered, counting(50, 12, dtype=np.int32), indices, 16)
    two = np.zeros((16, 2), np.uint32)
    refused("must have a multiple of 16 partitions, and 128 for several columns", gathered, counting(50, 12), two, 32)
