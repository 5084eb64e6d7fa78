"""Reductions and scans against plain NumPy, their axis rules, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

BF16 = ml_dtypes.bfloat16
DTYPES = pytest.mark.parametrize("dtype", [np.float32, BF16])
RESET, ADD, LOAD = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce, nisa.reduce_cmd.load_reduce


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def f32(array):
    return np.asarray(array).astype(np.float32)


@DTYPES
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "max", "minimum", "min"])
@pytest.mark.parametrize(("axis", "out"), [(3, (16, 2, 3)), ((2, 3), (16, 2)), ([1, 2, 3], (16, 1)), (-1, (16, 6, 1))])
def test_tensor_reduce_reduces_the_last_dimensions_in_fp32(execute, dtype, op, axis, out):
    x = normal(16, 2, 3, 4, dtype=dtype)
    result = execute(
        lambda dst, x: nisa.tensor_reduce(dst, getattr(nl, op), x, axis), x, out=out, dtype=np.dtype(dtype).name
    ).values
    function = {"add": np.sum, "multiply": np.prod, "max": np.max, "maximum": np.max, "min": np.min, "minimum": np.min}
    axes = axis if isinstance(axis, int) else tuple(axis)
    expected = function[op](f32(x), axis=axes).astype(dtype).reshape(out)
    np.testing.assert_allclose(f32(result), f32(expected), rtol=1e-6 if dtype is np.float32 else 1e-2, atol=1e-6)


def test_tensor_reduce_subtracts_the_rest_from_the_first_and_negates(execute):
    x = normal(4, 5)
    result = execute(lambda dst, x: nisa.tensor_reduce(dst, nl.subtract, x, 1, negate=True), x, out=(4, 1)).values
    np.testing.assert_allclose(result[:, 0], x[:, 1:].sum(axis=1) - x[:, 0], rtol=1e-5, atol=1e-6)


def test_tensor_reduce_of_bits_and_truths(execute):
    x = np.array([[1, 2, 4], [0, 0, 0]], np.int32)
    bits = execute(lambda dst, x: nisa.tensor_reduce(dst, nl.bitwise_or, x, 1), x, out=(2, 1), dtype=nl.int32)
    truth = execute(lambda dst, x: nisa.tensor_reduce(dst, nl.logical_or, x, 1), x, out=(2, 1))
    assert bits.values.tolist() == [[7], [0]]
    assert truth.values.tolist() == [[1], [0]]


def test_a_reduction_may_land_in_its_input_and_carries_taint(execute):
    x = np.ma.array(normal(4, 3, 2), mask=np.zeros((4, 3, 2), bool))
    x[1, 2, 0] = np.ma.masked

    def body(dst, x):
        nisa.tensor_reduce(x[:, :, 0], nl.add, x, 2)
        nisa.tensor_copy(dst, x[:, :, 0])

    result = execute(body, x, out=(4, 3))
    assert np.argwhere(result.tainted).tolist() == [[1, 2]]
    np.testing.assert_allclose(result.values[2:], np.ma.getdata(x).sum(axis=2)[2:], rtol=1e-6)


@DTYPES
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_a_scan_keeps_its_state_in_fp32(execute, dtype, reverse0, reverse1):
    a, b, first = normal(8, 6, dtype=dtype), normal(8, 6, seed=1, dtype=dtype), normal(8, 1, seed=2)

    def body(dst, a, b, first):
        nisa.tensor_tensor_scan(dst, a, b, first, nl.multiply, nl.subtract, reverse0, reverse1)

    result = execute(body, a, b, first, out=(8, 6), dtype=np.dtype(dtype).name).values
    state, expected = first[:, 0], []
    for i in range(6):
        product, addend = f32(a[:, i]) * state, f32(b[:, i])
        state = addend - product if reverse1 else product - addend
        expected.append(state)
    np.testing.assert_array_equal(result, np.stack(expected, axis=1).astype(dtype))


def test_a_scan_with_ones_is_a_cumulative_sum_in_place(execute):
    def body(dst, x):
        ones = nl.ndarray((8, 40), nl.float32)
        nisa.memset(ones, 1.0)
        nisa.tensor_copy(dst, x)
        nisa.tensor_tensor_scan(dst, ones, dst, 0.0, nl.multiply, nl.add)

    x = normal(8, 40)
    np.testing.assert_array_equal(execute(body, x, out=(8, 40)).values, np.add.accumulate(x, axis=1))


def test_a_scan_carries_taint_to_all_that_follows(execute):
    x = np.ma.array(normal(2, 4), mask=[[False, False, True, False], [False] * 4])
    result = execute(lambda dst, x: nisa.tensor_tensor_scan(dst, x, x, 0.0, nl.add, nl.maximum), x, out=(2, 4)).tainted
    assert result.tolist() == [[False, False, True, True], [False] * 4]


@pytest.mark.parametrize(("op", "function"), [("add", np.sum), ("maximum", np.max), ("min", np.min)])
def test_tensor_scalar_reduce_reduces_what_it_computes(execute, op, function):
    x = normal(16, 3, 4)

    def body(dst, x):
        scratch = nl.ndarray((16, 12), nl.bfloat16)
        nisa.tensor_scalar_reduce(scratch, x, nl.multiply, 2.0, getattr(nl, op), dst[:, 0:1])
        nisa.tensor_scalar_reduce(
            scratch, x, nl.multiply, 4.0, getattr(nl, op), dst[:, 1:2], reduce_cmd=ADD, reduce_res_negate=True
        )
        nisa.tensor_scalar_reduce(
            scratch, x, nl.multiply, 0.0, getattr(nl, op), dst[:, 2:3], reduce_cmd=LOAD, reduce_init=5.0
        )

    result = execute(body, x, out=(16, 3)).values
    rows = x.reshape(16, 12)
    expected = [
        function(2 * rows, axis=1),
        -function(np.concatenate([2 * rows, 4 * rows], axis=1), axis=1),
        function(np.concatenate([0 * rows, np.full((16, 1), 5)], axis=1), axis=1),
    ]
    np.testing.assert_allclose(result, np.stack(expected, axis=1), rtol=1e-5, atol=1e-5)


def test_tensor_scalar_reduce_of_absolute_values(execute):
    x = normal(16, 12)

    def body(dst, x):
        nisa.tensor_scalar_reduce(x, x, nl.abs, 0.0, nl.maximum, dst)

    np.testing.assert_array_equal(execute(body, x, out=(16, 1)).values, np.abs(x).max(axis=1, keepdims=True))


@pytest.mark.parametrize(("op", "function"), [("add", np.sum), ("max", np.max)])
def test_tensor_partition_reduce(execute, op, function):
    x = normal(128, 2, 3)
    result = execute(lambda dst, x: nisa.tensor_partition_reduce(dst, getattr(nl, op), x), x, out=(1, 6)).values
    np.testing.assert_allclose(result[0], function(x.reshape(128, 6), axis=0), rtol=1e-5, atol=1e-5)


def test_bn_stats_of_parts_aggregate_to_mean_and_variance(execute):
    x = normal(32, 700)

    def body(dst, x):
        stats = nl.ndarray((32, 12), nl.float32)
        nisa.bn_stats(stats[:, :6], x[:, :512])
        nisa.bn_stats(stats[:, 6:], x[:, 512:])
        nisa.bn_aggr(dst, stats)

    result = execute(body, x, out=(32, 2)).values
    np.testing.assert_allclose(result, np.stack([x.mean(axis=1), x.var(axis=1)], axis=1), rtol=1e-5, atol=1e-6)


def test_bn_stats_counts_even_and_odd_elements_apart(execute):
    result = execute(nisa.bn_stats, np.array([[1, 10, 3, 30, 5]], np.float32), out=(1, 6)).values
    assert result.tolist() == [[3, 3, 8, 2, 20, 200]]


X = normal(32, 2, 4)


@pytest.mark.parametrize(
    ("problem", "body"),
    [
        ("axis 0 has 0, the partition dimension", lambda d, x: nisa.tensor_reduce(d, nl.add, x, 0)),
        ("axis 1 must be the last dimensions", lambda d, x: nisa.tensor_reduce(d, nl.add, x, 1)),
        ("axis 3 must be the last dimensions", lambda d, x: nisa.tensor_reduce(d, nl.add, x, 3)),
        ("axis () must be an int or a sequence", lambda d, x: nisa.tensor_reduce(d, nl.add, x, ())),
        ("must have 32 partitions with 2 elements", lambda d, x: nisa.tensor_reduce(d, nl.add, x, 2)),
        ("op nl.equal does not reduce", lambda d, x: nisa.tensor_reduce(d, nl.equal, x, 2)),
        ("data is float32; bitwise", lambda d, x: nisa.tensor_reduce(d[:, :2], nl.bitwise_or, x, 2)),
        (
            "data0 [32, 2, 4] must have 2 dimensions",
            lambda d, x: nisa.tensor_tensor_scan(d, x, x, 0.0, nl.add, nl.add),
        ),
        (
            "reduce_op nl.subtract must be nl.add, nl.multiply",
            lambda d, x: nisa.tensor_scalar_reduce(x, x, nl.add, 1.0, nl.subtract, d[:, :1]),
        ),
        (
            "load_reduce needs reduce_init",
            lambda d, x: nisa.tensor_scalar_reduce(x, x, nl.add, 1.0, nl.add, d[:, :1], reduce_cmd=LOAD),
        ),
        ("must have 1 partition with 8 elements", lambda d, x: nisa.tensor_partition_reduce(d, nl.add, x)),
        ("op nl.minimum must be nl.add", lambda d, x: nisa.tensor_partition_reduce(d, nl.minimum, x)),
        ("dst [32, 8] must be [32, 6]", lambda d, x: nisa.bn_stats(d, x)),
        ("has 8 elements per partition; not a multiple of 3", lambda d, x: nisa.bn_aggr(d, x)),
    ],
)
def test_refusals(refused, problem, body):
    refused(problem, body, X, out=(32, 8))


def test_bn_stats_takes_512_elements(refused):
    problem = "data [4, 513] has 513 elements per partition; at most 512"
    refused(problem, lambda dst, x: nisa.bn_stats(dst, x), normal(4, 513), out=(4, 6))
