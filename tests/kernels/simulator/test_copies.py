"""Copies, fills and moves between partitions: every bit, every cast, and what is refused."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3
ZEROS, ALL = [0] * 32, list(range(32))


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
def test_a_copy_of_equal_dtypes_keeps_every_bit(execute, dtype):
    bits = np.random.default_rng(0).integers(0, 256, (64, 12 * np.dtype(dtype).itemsize), np.uint8)
    result = execute(nisa.tensor_copy, bits.view(dtype), out=(64, 3, 4), dtype=np.dtype(dtype).name)
    assert result.values.tobytes() == bits.tobytes()


def test_a_copy_to_another_dtype_goes_through_fp32(execute):
    large = np.array([[2**24 + 1, -(2**24) - 3, 7]], np.int32)
    result = execute(nisa.tensor_copy, large, out=(1, 3))
    np.testing.assert_array_equal(result.values, large.astype(np.float32))
    same = execute(nisa.tensor_copy, large, out=(1, 3), dtype=nl.int32)
    np.testing.assert_array_equal(same.values, large)


def test_the_scalar_engine_copies_from_trn2_on(execute, refused, monkeypatch):
    def body(dst, src):
        nisa.tensor_copy(dst, src, engine=nisa.engine.scalar)

    large = np.array([[2**24 + 1]], np.int32)
    np.testing.assert_array_equal(execute(body, large, out=(1, 1), dtype=nl.int32).values, large)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    refused("engine.scalar has no tensor_copy before trn2", body, large, out=(1, 1), dtype=nl.int32)


@given(values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=16))
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_a_cast_to_integers_rounds_to_even_and_saturates(execute, dtype, values):
    limits = np.iinfo(dtype)
    expected = [min(max(limits.min, round(v) if np.isfinite(v) else v), limits.max) for v in values]
    result = execute(nisa.tensor_copy, np.array([values], np.float32), out=(1, len(values)), dtype=dtype)
    assert result.values.tolist() == [expected]
    assert not result.warnings


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=16))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_cast_to_16_bits_rounds_to_the_nearest(execute, dtype, values):
    source = np.array([values], np.float32)
    with np.errstate(over="ignore"):
        expected = source.astype(dtype)
    result = execute(nisa.tensor_copy, source, out=source.shape, dtype=dtype)
    np.testing.assert_array_equal(result.values.astype(np.float32), expected.astype(np.float32))


def test_a_nan_that_becomes_an_integer_is_a_warning(execute):
    result = execute(nisa.tensor_copy, np.array([[np.nan, 1]], np.float32), out=(1, 2), dtype=nl.int32)
    assert result.values.tolist() == [[0, 1]]
    assert "tensor_copy: NaN becomes 0 in int32" in result.warnings[0]


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2"])
def test_a_finite_value_that_fp8_cannot_hold_is_a_warning(execute, dtype):
    result = execute(nisa.tensor_copy, np.array([[1, np.inf, 1e6]], np.float32), out=(1, 3), dtype=dtype)
    assert result.values.astype(np.float32).tolist() == [[1, np.inf, np.inf]]
    assert f"1 finite values up to 1e+06 overflow {dtype}; clamp" in result.warnings[0]


def test_overlapping_copies_read_before_they_write(execute):
    def shift(dst, src):
        nisa.tensor_copy(dst, src)
        nisa.tensor_copy(dst[:, 1:], dst[:, :-1])

    x = normal(8, 6)
    expected = np.concatenate([x[:, :1], x[:, :-1]], axis=1)
    np.testing.assert_array_equal(execute(shift, x, out=(8, 6)).values, expected)


@pytest.mark.parametrize(
    ("dtype", "value"), [("float32", 0.1), ("bfloat16", 0.1), ("float32", 3), ("int32", 2**31 - 1), ("uint8", 255)]
)
def test_memset_fills(execute, dtype, value):
    result = execute(lambda dst: nisa.memset(dst, value), out=(128, 2, 3), dtype=dtype)
    np.testing.assert_array_equal(result.values, np.full((128, 2, 3), value, np.float64).astype(dtype))
    assert result.written.all()


def test_a_predicated_copy_takes_what_is_chosen(execute):
    def body(dst, src, before, predicate, reverse):
        nisa.tensor_copy(dst, before)
        nisa.tensor_copy_predicated(dst, src, predicate, reverse_pred=reverse)

    src, before = normal(32, 3, 4, dtype=BF16), normal(32, 12, seed=1, dtype=BF16)
    predicate = np.random.default_rng(2).integers(0, 3, (32, 12)).astype(np.uint16)
    for reverse in (False, True):
        chosen = (predicate != 0) != reverse
        result = execute(
            lambda dst, *tiles, reverse=reverse: body(dst, *tiles, reverse),
            *(src, before, predicate),
            out=(32, 12),
            dtype=nl.bfloat16,
        )
        np.testing.assert_array_equal(result.values, np.where(chosen, src.reshape(32, 12), before))


def test_a_predicated_copy_of_a_number_leaves_the_rest_unwritten(execute):
    predicate = np.array([[1, 0, 1]], np.uint8)
    result = execute(lambda dst, predicate: nisa.tensor_copy_predicated(dst, 2, predicate), predicate, out=(1, 3))
    assert result.values[0, ::2].tolist() == [2, 2]
    assert result.written.tolist() == [[True, False, True]]
    assert not result.warnings


def test_a_predicated_copy_takes_the_taint_of_what_it_chose_and_of_the_predicate(execute):
    def body(dst, src, predicate):
        nisa.memset(dst, 0)
        nisa.tensor_copy_predicated(dst, src, predicate)

    src = np.ma.array(normal(1, 4), mask=[[True, False, True, False]])
    predicate = np.ma.array(np.array([[1, 1, 0, 0]], np.uint8), mask=[[False, False, False, True]])
    result = execute(body, src, predicate, out=(1, 4))
    assert result.tainted.tolist() == [[True, False, False, True]]


def test_a_shuffle_moves_partitions_within_every_32(execute):
    mask = [31 - lane for lane in range(32)]
    x = np.ma.array(normal(64, 2, 3, dtype=BF16), mask=np.arange(384).reshape(64, 2, 3) < 6)
    result = execute(lambda dst, src: nisa.nc_stream_shuffle(dst, src, mask), x, out=(64, 6), dtype=nl.bfloat16)
    expected = np.ma.getdata(x).reshape(2, 32, 6)[:, ::-1].reshape(64, 6)
    written = np.arange(64) != 31
    np.testing.assert_array_equal(result.values[written], expected[written])
    assert np.flatnonzero(result.tainted.any(axis=1)).tolist() == [31]


def test_a_shuffle_gives_one_partition_to_all_and_255_keeps(execute):
    def body(dst, src):
        nisa.memset(dst, 7)
        nisa.nc_stream_shuffle(dst, src, [0] * 16 + [255] * 16)

    x = normal(1, 5)
    result = execute(body, x, out=(32, 5)).values
    np.testing.assert_array_equal(result[:16], np.broadcast_to(x, (16, 5)))
    np.testing.assert_array_equal(result[16:], 7)


def test_partitions_that_a_shuffle_does_not_use_need_no_values(execute):
    x = np.ma.array(normal(32, 2), mask=np.repeat(np.arange(32)[:, None] != 3, 2, axis=1))
    result = execute(lambda dst, src: nisa.nc_stream_shuffle(dst, src, [3] * 32), x, out=(32, 2))
    assert not result.warnings
    assert not result.tainted.any()


def test_a_shuffle_in_place(execute):
    def body(dst, src):
        nisa.tensor_copy(dst, src)
        nisa.nc_stream_shuffle(dst, dst, [*range(1, 32), 0])

    x = normal(32, 4)
    np.testing.assert_array_equal(execute(body, x, out=(32, 4)).values, np.roll(x, -1, axis=0))


X, B = normal(32, 8), np.ones((32, 8), np.uint8)


@pytest.mark.parametrize(
    ("problem", "body", "arrays"),
    [
        ("src [32, 4] and dst [32, 8] must agree", lambda dst, x: nisa.tensor_copy(dst, x[:, :4]), (X,)),
        ("src must be a tensor, not 3", lambda dst: nisa.tensor_copy(dst, 3), ()),
        ("engine <", lambda dst, x: nisa.tensor_copy(dst, x, engine=nisa.engine.tensor), (X,)),
        ("value 1.0 is a float and dst is uint8", lambda dst, b: nisa.memset(b, 1.0), (B,)),
        ("value 256 does not fit dst's uint8, 0 to 255", lambda dst, b: nisa.memset(b, 256), (B,)),
        ("value None is not a number", lambda dst: nisa.memset(dst, None), ()),
        ("use engine.vector, engine.gpsimd", lambda dst: nisa.memset(dst, 0, engine=nisa.engine.scalar), ()),
        ("predicate is float32; it must be uint8", lambda dst, x: nisa.tensor_copy_predicated(dst, x, x), (X,)),
        ("src is uint8 and dst is float32", lambda dst, b: nisa.tensor_copy_predicated(dst, b, b), (B,)),
        ("must hold 32 ints", lambda dst, x: nisa.nc_stream_shuffle(dst, x, [0] * 31), (X,)),
        ("shuffle_mask holds 32; entries", lambda dst, x: nisa.nc_stream_shuffle(dst, x, [32] * 32), (X,)),
        ("src is uint8 and dst is float32", lambda dst, b: nisa.nc_stream_shuffle(dst, b, ZEROS), (B,)),
        (
            "dst partition 1 comes from src partition 1",
            lambda dst, x: nisa.nc_stream_shuffle(dst, x[:1], range(32)),
            (X,),
        ),
        ("agree in elements", lambda dst, x: nisa.nc_stream_shuffle(dst, x[:, :4], ZEROS), (X,)),
    ],
)
def test_refusals(refused, problem, body, arrays):
    refused(problem, body, *arrays, out=(32, 8))


def test_psum_and_partitions_that_an_engine_cannot_reach(refused):
    def on_gpsimd(dst, x):
        nisa.tensor_copy(dst, x, engine=nisa.engine.gpsimd)

    def both_in_psum(dst, b):
        other = nl.ndarray((32, 8), nl.uint8, buffer=nl.psum)
        nisa.tensor_copy(other, b)
        nisa.tensor_copy_predicated(dst, dst, other)

    def to_partition_32(dst, x):
        nisa.nc_stream_shuffle(dst[32:97], x, ZEROS)

    refused("dst [32, 8] is in PSUM, which engine.gpsimd cannot reach", on_gpsimd, X, out=(32, 8), buffer=nl.psum)
    refused("src and predicate are both in PSUM", both_in_psum, B, out=(32, 8), buffer=nl.psum)
    refused("dst [65, 8] starts at partition 32; 65 partitions may start at 0", to_partition_32, X, out=(128, 8))
