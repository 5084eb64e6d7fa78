"""Generated indices, selections, the eight largest, and gathers, against plain NumPy."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

BF16 = ml_dtypes.bfloat16
FP32_MIN = np.finfo(np.float32).min


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16", "uint8"])
def test_iota_counts_along_the_pattern_and_down_the_partitions(execute, dtype):
    def body(dst):
        nisa.iota(dst, [[8, 2], [-1, 3]], offset=10, channel_multiplier=4)

    p, i, j = np.ogrid[0:16, 0:2, 0:3]
    expected = (10 + 4 * p + 8 * i - j).astype(dtype)
    np.testing.assert_array_equal(execute(body, out=(16, 6), dtype=dtype).values, expected.reshape(16, 6))


@given(
    pairs=st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=1, max_size=4),
    offset=st.integers(-99, 99),
    multiplier=st.integers(-9, 9),
)
def test_iota_of_any_pattern(execute, pairs, offset, multiplier):
    counts = [count for _, count in pairs]
    steps = np.array([multiplier, *(step for step, _ in pairs)])
    expected = offset + np.tensordot(np.indices((8, *counts)), steps, ([0], [0]))
    result = execute(lambda dst: nisa.iota(dst, pairs, offset, multiplier), out=(8, *counts), dtype=nl.int32)
    np.testing.assert_array_equal(result.values, expected)


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_affine_select_makes_a_causal_mask(execute, dtype):
    scores = normal(32, 4, 8, dtype=dtype)

    def body(dst, scores):
        nisa.tensor_copy(dst, scores)
        nisa.affine_select(dst, [[-1, 32]], 1, dst, -1e4, cmp_op=nl.greater_equal)

    result = execute(body, scores, out=(32, 32), dtype=np.dtype(dtype).name).values
    expected = np.where(np.tri(32, dtype=bool), scores.reshape(32, 32), dtype(-1e4))
    np.testing.assert_array_equal(result, expected)


def test_affine_select_casts_and_moves_taint_with_the_selected(execute):
    x = np.ma.array(normal(2, 4, dtype=BF16), mask=[[True, False, False, True]] * 2)
    result = execute(
        lambda dst, x: nisa.affine_select(dst, [[1, 4]], 0, x, 7.0, cmp_op=nl.less, offset=-2), x, out=(2, 4)
    )
    assert result.values[:, 2:].tolist() == [[7, 7]] * 2
    np.testing.assert_array_equal(result.values[:, 1], np.ma.getdata(x)[:, 1].astype(np.float32))
    assert result.tainted.tolist() == [[True, False, False, False]] * 2


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_range_select_keeps_what_is_between_the_bounds(execute, dtype):
    x = normal(8, 2, 6, dtype=dtype)
    low, high = np.arange(8, dtype=np.float32)[:, None] + 3, np.full((8, 1), 12, np.float32)

    def body(dst, x, low, high):
        top = dst[:, 12:13]
        options = {"range_start": 3, "reduce_res": top}
        nisa.range_select(dst[:, :12], x, nl.greater_equal, nl.less, low, high, **options)

    result = execute(body, x, low, high, out=(8, 13)).values
    index = 3 + np.arange(12)
    expected = np.where((index >= low) & (index < high), x.reshape(8, 12).astype(np.float32), FP32_MIN)
    np.testing.assert_array_equal(result[:, :12], expected)
    np.testing.assert_array_equal(result[:, 12], expected.max(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_max8_and_its_indices(execute, dtype):
    x = normal(32, 4, 5, dtype=dtype)
    top = execute(lambda dst, x: nisa.max8(dst, x), x, out=(32, 8), dtype=np.dtype(dtype).name).values
    rows = x.reshape(32, 20).astype(np.float32)
    np.testing.assert_array_equal(top.astype(np.float32), -np.sort(-rows, axis=1)[:, :8])

    def find(dst, x, top):
        nisa.nc_find_index8(dst, x, top)

    index = execute(find, x, top, out=(32, 8), dtype=nl.uint32).values
    np.testing.assert_array_equal(np.take_along_axis(rows, index.astype(int), axis=1), top.astype(np.float32))
    assert all(len(set(row)) == 8 for row in index.tolist())


def test_equal_values_have_successive_indices_and_absent_ones_all_ones(execute):
    data = np.array([[5, 1, 5, 2, 5, 3, 4, 0]], np.float32)
    vals = np.array([[5, 5, 4, 5, 5, 9, 0, 1]], np.float32)
    result = execute(lambda dst, d, v: nisa.nc_find_index8(dst, d, v), data, vals, out=(1, 8), dtype=nl.uint16)
    assert result.values.tolist() == [[0, 2, 6, 4, 65535, 65535, 7, 1]]
    assert "2 of vals are not in data" in result.warnings[0]


def test_match_replace_replaces_one_occurrence_of_each(execute):
    data = np.array([[5, 1, 5, 2, 5, 3, 4, 0, 9]], np.float32)
    vals = np.array([[5, 5, 4, 3, 2, 1, 0, 9]], np.float32)

    def body(dst, data, vals):
        index = nl.ndarray((1, 8), nl.uint32)
        nisa.nc_match_replace8(dst[:, :9], data, vals, -1.0, dst_idx=index)
        nisa.tensor_copy(dst[:, 9:], index)

    result = execute(body, data, vals, out=(1, 17)).values
    assert result[:, :9].tolist() == [[-1, -1, -1, -1, 5, -1, -1, -1, -1]]
    assert result[:, 9:].tolist() == [[0, 2, 6, 5, 3, 1, 7, 8]]


def test_the_eight_largest_are_tainted_by_their_partition(execute):
    x = np.ma.array(normal(2, 16), mask=np.arange(32).reshape(2, 16) == 3)
    result = execute(lambda dst, x: nisa.max8(dst, x), x, out=(2, 8))
    assert result.tainted.tolist() == [[True] * 8, [False] * 8]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_nonzero_with_count_works_on_every_sixteenth_partition(execute, dtype):
    x = (np.random.default_rng(0).integers(0, 3, (48, 8)) - 1).astype(dtype)
    x[16] = 0

    def body(dst, x):
        nisa.memset(dst, 77)
        nisa.nonzero_with_count(dst, x, index_offset=16, padding_val=-5)

    result = execute(body, x, out=(48, 9), dtype=nl.int32).values
    for p in range(48):
        found = np.flatnonzero(x[p])
        expected = [*(found + 16), *[-5] * (8 - found.size), found.size] if p % 16 == 0 else [77] * 9
        assert result[p].tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
def test_nc_n_gather(execute, dtype):
    data = (normal(16, 3, 4) * 100).astype(dtype)
    index = np.random.default_rng(1).integers(0, 12, (16, 6), np.uint32)
    result = execute(
        lambda dst, d, i: nisa.nc_n_gather(dst, d, i), data, index, out=(16, 2, 3), dtype=np.dtype(dtype).name
    ).values
    expected = np.take_along_axis(data.reshape(16, 12), index.astype(int), axis=1)
    np.testing.assert_array_equal(result.reshape(16, 6), expected)


def test_local_gather_shares_indices_among_sixteen_partitions(execute):
    data = normal(32, 20)
    index = np.random.default_rng(1).integers(0, 20, (32, 2), np.uint16)
    result = execute(
        lambda dst, d, i: nisa.local_gather(dst, d, i, num_valid_indices=18), data, index, out=(32, 18)
    ).values
    for p in range(32):
        first = p // 16 * 16
        shared = [*index[first : first + 16, 0], *index[first : first + 2, 1]]
        np.testing.assert_array_equal(result[p], data[p, shared])


def test_gathers_take_the_taint_of_what_they_chose(execute):
    data = np.ma.array(normal(1, 8), mask=np.arange(8)[None] == 3)
    index = np.array([[0, 3, 1]], np.uint32)
    result = execute(lambda dst, d, i: nisa.nc_n_gather(dst, d, i), data, index, out=(1, 3))
    assert result.tainted.tolist() == [[False, True, False]]


X, C, U = normal(32, 16), normal(32, 1), np.full((32, 16), 16, np.uint32)
GE, LT = nl.greater_equal, nl.less


@pytest.mark.parametrize(
    ("problem", "body"),
    [
        ("pattern [[1, 15]] counts 15 elements; dst [32, 16] has 16", lambda d, x, c, u: nisa.iota(d, [[1, 15]])),
        ("must be 1 to 4 pairs [step, count]", lambda d, x, c, u: nisa.iota(d, [1, 16])),
        ("take ints", lambda d, x, c, u: nisa.iota(d, [[1.5, 16]])),
        (
            "cmp_op nl.add must be one of nl.equal",
            lambda d, x, c, u: nisa.affine_select(d, [[1, 16]], 0, x, 0.0, nl.add),
        ),
        ("on_false_value None must be", lambda d, x, c, u: nisa.affine_select(d, [[1, 16]], 0, x, None)),
        ("bound0 0.0 must be a tensor [32, 1]", lambda d, x, c, u: nisa.range_select(d, x, GE, LT, 0.0, c)),
        ("comp_op1 nl.not_equal must be", lambda d, x, c, u: nisa.range_select(d, x, GE, nl.not_equal, c, c)),
        ("on_true_tile is uint32", lambda d, x, c, u: nisa.range_select(d, u, GE, LT, c, c)),
        ("on_false_value 0.0 is ignored", lambda d, x, c, u: nisa.range_select(d, x, GE, LT, c, c, on_false_value=0.0)),
        ("reduce_op nl.add must be", lambda d, x, c, u: nisa.range_select(d, x, GE, LT, c, c, reduce_op=nl.add)),
        ("within 0 and 2**24", lambda d, x, c, u: nisa.range_select(d, x, GE, LT, c, c, range_start=2**24)),
        ("src [32, 7] has 7 elements per partition, not 8 to 16384", lambda d, x, c, u: nisa.max8(d[:, :8], x[:, :7])),
        ("dst [32, 16] must be [32, 8]", lambda d, x, c, u: nisa.max8(d, x)),
        ("dst is float32; it must be uint16 or", lambda d, x, c, u: nisa.nc_find_index8(d[:, :8], x, x[:, :8])),
        ("vals [32, 16] must be [32, 8]", lambda d, x, c, u: nisa.nc_match_replace8(d, x, x, 0.0)),
        ("src is uint32; it must be float32 or int32", lambda d, x, c, u: nisa.nonzero_with_count(d, u)),
        ("dst is float32; it must be int32", lambda d, x, c, u: nisa.nonzero_with_count(d, x)),
        ("index 16 is outside the 16 elements", lambda d, x, c, u: nisa.nc_n_gather(d, x, u)),
        ("data is float32 and dst is uint32", lambda d, x, c, u: nisa.nc_n_gather(u, x, u)),
        ("the indices are float32; they must be uint32", lambda d, x, c, u: nisa.nc_n_gather(d, x, x)),
        ("the indices are uint32; they must be uint16", lambda d, x, c, u: nisa.local_gather(d, x, u)),
        ("num_elem_per_idx 2: only 1", lambda d, x, c, u: nisa.local_gather(d, x, u, num_elem_per_idx=2)),
    ],
)
def test_refusals(refused, problem, body):
    refused(problem, body, X, C, U, out=(32, 16))


def test_gpsimd_does_not_reach_psum(refused):
    refused(
        "dst [32, 16] is in psum; it must be in sbuf", lambda d: nisa.iota(d, [[1, 16]]), out=(32, 16), buffer=nl.psum
    )
