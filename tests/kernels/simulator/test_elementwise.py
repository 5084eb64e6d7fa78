"""Elementwise arithmetic against plain NumPy: fp32 and bf16, other ranks, in place, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

BF16 = ml_dtypes.bfloat16
DTYPES = pytest.mark.parametrize("dtype", [np.float32, BF16])
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def f32(array):
    return np.asarray(array).astype(np.float32)


def name_of(dtype) -> str:
    return np.dtype(dtype).name


@DTYPES
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum", *COMPARISONS])
def test_tensor_tensor_computes_in_fp32_and_rounds_once(execute, dtype, op):
    a, b = normal(64, 12, dtype=dtype), normal(64, 3, 4, seed=1, dtype=dtype)
    a[:, ::3] = b.reshape(64, 12)[:, ::3]
    result = execute(
        lambda dst, a, b: nisa.tensor_tensor(dst, a, b, getattr(nl, op)), a, b, out=(64, 4, 3), dtype=name_of(dtype)
    )
    expected = getattr(np, op)(f32(a), f32(b).reshape(64, 12)).astype(np.float32).astype(dtype)
    np.testing.assert_array_equal(result.values, expected.reshape(64, 4, 3))


def test_logical_functions_give_one_and_zero(execute):
    a, b = np.array([[0, 0, 2, -1]], np.float32), np.array([[0, 3, 0, 5]], np.float32)
    for op in ("logical_and", "logical_or", "logical_xor"):
        result = execute(
            lambda dst, a, b, op=op: nisa.tensor_tensor(dst, a, b, getattr(nl, op)), a, b, out=(1, 4), dtype=nl.uint8
        )
        np.testing.assert_array_equal(result.values, getattr(np, op)(a, b))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integers_are_exact_but_not_on_the_vector_engine(execute, dtype):
    a, b = np.array([[2**24 + 1, 2**30]], dtype), np.array([[2, 2**30 - 1]], dtype)
    add = {"out": (1, 2), "dtype": name_of(dtype)}
    exact = execute(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.add), a, b, **add).values
    vector = execute(
        lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.add, engine=nisa.engine.vector), a, b, **add
    ).values
    psum = execute(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.add), a, b, **add, buffer=nl.psum).values
    assert exact.tolist() == [[2**24 + 3, 2**31 - 1]]
    rounded = [[2**24 + 2, min(2**31, np.iinfo(dtype).max)]]
    assert vector.tolist() == psum.tolist() == rounded


def test_integers_that_overflow_wrap_with_a_warning(execute):
    big = np.array([[2**31 - 1]], np.int32)
    result = execute(lambda dst, a: nisa.tensor_tensor(dst, a, a, nl.add), big, out=(1, 1), dtype=nl.int32)
    assert result.values.tolist() == [[-2]]
    assert "nl.add exceeds int32" in result.warnings[0]


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.uint8])
@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise_functions_see_raw_integers(execute, dtype, op):
    bits = np.random.default_rng(0).integers(0, 2**8, (2, 8, 4 * np.dtype(dtype).itemsize), np.uint8)
    a, b = (part.view(dtype) for part in bits)
    result = execute(
        lambda dst, a, b: nisa.tensor_tensor(dst, a, b, getattr(nl, op)), a, b, out=(8, 4), dtype=name_of(dtype)
    )
    np.testing.assert_array_equal(result.values, getattr(np, op)(a, b))


def test_shifts_are_logical(execute):
    x = np.array([[-1, 8, 2**31 - 1]], np.int32)
    right = execute(lambda dst, x: nisa.tensor_scalar(dst, x, nl.right_shift, 4), x, out=(1, 3), dtype=nl.int32)
    assert right.values.tolist() == [[2**28 - 1, 0, 2**27 - 1]]
    both = execute(
        lambda dst, x: nisa.tensor_scalar(dst, x, nl.left_shift, 4, op1=nl.bitwise_and, operand1=0xFF),
        *(x,),
        out=(1, 3),
        dtype=nl.int32,
    )
    assert both.values.tolist() == [[0xF0, 0x80, 0xF0]]
    inverted = execute(lambda dst, x: nisa.tensor_scalar(dst, x, nl.invert, None), x, out=(1, 3), dtype=nl.int32)
    assert inverted.values.tolist() == [[0, -9, -(2**31)]]


@DTYPES
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_tensor_scalar_applies_two_functions(execute, dtype, reverse0, reverse1):
    x, column = normal(32, 2, 5, dtype=dtype), normal(32, 1, seed=1)

    def body(dst, x, column):
        nisa.tensor_scalar(dst, x, nl.subtract, column, reverse0, nl.multiply, 0.3, reverse1)

    result = execute(body, x, column, out=(32, 10), dtype=name_of(dtype)).values
    wide = f32(x).reshape(32, 10)
    expected = ((column - wide) if reverse0 else (wide - column)) * np.float32(0.3)
    np.testing.assert_array_equal(result, expected.astype(dtype))


def test_tensor_scalar_has_some_functions_of_one_operand(execute):
    x = np.abs(normal(8, 6)) + 1
    for op, expected in ((nl.rsqrt, 1 / np.sqrt(x + 2)), (nl.reciprocal, 1 / (x + 2))):
        result = execute(lambda dst, x, op=op: nisa.tensor_scalar(dst, x, nl.add, 2, op1=op), x, out=(8, 6))
        np.testing.assert_allclose(result.values, expected, rtol=1e-6)


def test_a_16_bit_operand_of_tensor_scalar_is_a_warning(execute):
    x, column = normal(8, 6), normal(8, 1, seed=1, dtype=BF16)
    result = execute(lambda dst, x, c: nisa.tensor_scalar(dst, x, nl.multiply, c), x, column, out=(8, 6))
    np.testing.assert_array_equal(result.values, x * f32(column))
    assert "operand0 is bfloat16; documented for a tensor here is float32" in result.warnings[0]


@DTYPES
def test_scalar_tensor_tensor(execute, dtype):
    a, b, column = normal(16, 6, dtype=dtype), normal(16, 2, 3, seed=1, dtype=dtype), normal(16, 1, seed=2, dtype=BF16)

    def body(dst, a, b, column):
        nisa.scalar_tensor_tensor(dst, a, nl.multiply, column, nl.subtract, b, reverse1=True)

    result = execute(body, a, b, column, out=(16, 6), dtype=name_of(dtype)).values
    expected = f32(b).reshape(16, 6) - f32(a) * f32(column)
    np.testing.assert_array_equal(result, expected.astype(dtype))


def test_scalar_tensor_tensor_reduces_in_the_vector_engines_registers(execute):
    a, b = normal(16, 6), normal(16, 6, seed=1)

    def body(dst, a, b):
        scratch = nl.ndarray((16, 6), nl.bfloat16)
        options = {"reduce_op": nl.add, "reduce_res": dst}
        nisa.scalar_tensor_tensor(scratch, a, nl.multiply, 2.0, nl.add, b, **options)
        nisa.scalar_tensor_tensor(scratch, a, nl.multiply, 2.0, nl.add, b, reduce_cmd=nisa.reduce_cmd.reduce, **options)

    result = execute(body, a, b, out=(16, 1)).values
    np.testing.assert_allclose(result[:, 0], 2 * (2 * a + b).sum(axis=1), rtol=1e-5, atol=1e-5)


@DTYPES
def test_reciprocal(execute, dtype):
    x = normal(16, 6, dtype=dtype) + dtype(3)
    result = execute(nisa.reciprocal, x, out=(16, 3, 2), dtype=name_of(dtype)).values
    np.testing.assert_array_equal(result, (1 / f32(x)).astype(dtype).reshape(16, 3, 2))


@DTYPES
def test_every_instruction_may_write_what_it_reads(execute, dtype):
    def body(dst, x, column):
        nisa.tensor_copy(dst, x)
        nisa.tensor_tensor(dst[:, 1:], dst[:, :-1], dst[:, 1:], nl.add)
        nisa.tensor_scalar(dst, dst, nl.multiply, column, op1=nl.add, operand1=1.0)
        nisa.scalar_tensor_tensor(dst[:, :4], dst[:, 4:], nl.multiply, 2.0, nl.add, dst[:, :4])
        nisa.reciprocal(dst, dst)

    x, column = np.abs(normal(16, 8, dtype=dtype)), np.abs(normal(16, 1, seed=1))
    expected = x.copy()
    expected[:, 1:] = (f32(x[:, :-1]) + f32(x[:, 1:])).astype(dtype)
    expected = (f32(expected) * column + 1).astype(dtype)
    expected[:, :4] = (f32(expected[:, 4:]) * 2 + f32(expected[:, :4])).astype(dtype)
    expected = (1 / f32(expected)).astype(dtype)
    result = execute(body, x, column, out=(16, 8), dtype=name_of(dtype)).values
    np.testing.assert_array_equal(result, expected)


def test_a_column_of_the_destination_can_be_the_operand(execute):
    def body(dst, x):
        nisa.tensor_copy(dst, x)
        nisa.tensor_scalar(dst, dst, nl.subtract, dst[:, 0:1])

    x = normal(16, 600)
    np.testing.assert_array_equal(execute(body, x, out=(16, 600)).values, x - x[:, :1])


def test_taint_goes_elementwise_and_along_a_column(execute):
    a = np.ma.array(normal(4, 3), mask=np.eye(4, 3, dtype=bool))
    column = np.ma.array(normal(4, 1), mask=[[False], [False], [False], [True]])
    scaled = execute(lambda dst, a, c: nisa.tensor_scalar(dst, a, nl.multiply, c), a, column, out=(4, 3))
    expected = np.eye(4, 3, dtype=bool)
    expected[3] = True
    np.testing.assert_array_equal(scaled.tainted, expected)
    summed = execute(lambda dst, a: nisa.tensor_tensor(dst, a, a, nl.add), a, out=(4, 3, 1))
    np.testing.assert_array_equal(summed.tainted[..., 0], np.eye(4, 3, dtype=bool))


X, C, INTS = normal(32, 8), normal(32, 1), np.ones((32, 8), np.int32)
SCALAR, GPSIMD = nisa.engine.scalar, nisa.engine.gpsimd


@pytest.mark.parametrize(
    ("problem", "body"),
    [
        ("data1 [32, 4] and dst [32, 8] must agree", lambda d, x, c, i: nisa.tensor_tensor(d, x[:, :4], x, nl.add)),
        ("data2 [32, 1] and dst [32, 8] must agree", lambda d, x, c, i: nisa.tensor_tensor(d, x, c, nl.add)),
        ("op nl.exp is activation, not arithmetic", lambda d, x, c, i: nisa.tensor_tensor(d, x, x, nl.exp)),
        ("must be a function of nki.language", lambda d, x, c, i: nisa.tensor_tensor(d, x, x, "add")),
        ("data1 is float32; bitwise", lambda d, x, c, i: nisa.tensor_tensor(d, x, x, nl.bitwise_or)),
        ("dst is float32; bitwise", lambda d, x, c, i: nisa.tensor_tensor(d, i, i, nl.bitwise_or)),
        ("missing a required argument: 'op'", lambda d, x, c, i: nisa.tensor_tensor(d, x, x)),
        ("use engine.vector, engine.gpsimd", lambda d, x, c, i: nisa.tensor_tensor(d, x, x, nl.add, engine=SCALAR)),
        ("operand0 [32, 8] must hold one element", lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.add, x)),
        ("operand0 is int32; a tensor here must be", lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.add, i[:, :1])),
        (
            "operand0 must be a number or a tensor (P, 1), not 'x'",
            lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.add, "x"),
        ),
        ("op0 nl.add needs operand0", lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.add, None)),
        ("op0 nl.rsqrt takes no operand", lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.rsqrt, 2.0)),
        ("use nisa.activation", lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.exp, None)),
        ("operand1 2.0 without op1", lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.add, 1.0, operand1=2.0)),
        (
            "must both be arithmetic or both be bitvec",
            lambda d, x, c, i: nisa.tensor_scalar(i, i, nl.add, 1, op1=nl.bitwise_or, operand1=1),
        ),
        ("operand0 1.5 must be an int", lambda d, x, c, i: nisa.tensor_scalar(i, i, nl.bitwise_or, 1.5)),
        (
            "engine.scalar executes multiply then add",
            lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.subtract, 1.0, engine=SCALAR),
        ),
        (
            "engine.gpsimd executes nl.rsqrt only",
            lambda d, x, c, i: nisa.tensor_scalar(d, x, nl.add, 1.0, engine=GPSIMD),
        ),
        (
            "op1 nl.bitwise_or is bitvec, not arithmetic",
            lambda d, x, c, i: nisa.scalar_tensor_tensor(d, x, nl.add, 1.0, nl.bitwise_or, x),
        ),
        (
            "reduce_res without reduce_op",
            lambda d, x, c, i: nisa.scalar_tensor_tensor(d, x, nl.add, 1.0, nl.add, x, reduce_res=c),
        ),
        ("data [32, 4] and dst [32, 8] must agree", lambda d, x, c, i: nisa.reciprocal(d, x[:, :4])),
    ],
)
def test_refusals(refused, problem, body):
    refused(problem, body, X, C, INTS, out=(32, 8))


def test_two_inputs_in_psum_are_refused(refused):
    refused(
        "data1 and data2 are both in PSUM",
        lambda dst: nisa.tensor_tensor(dst, dst, dst, nl.add),
        out=(32, 8),
        buffer=nl.psum,
    )
    refused(
        "data and operand1 are both in PSUM",
        lambda dst: nisa.scalar_tensor_tensor(dst, dst, nl.add, 1.0, nl.add, dst),
        out=(32, 8),
        buffer=nl.psum,
    )
    refused(
        "dst [32, 8] is in PSUM, which nl.power on GpSimd cannot reach",
        lambda dst, x: nisa.tensor_tensor(dst, x, x, nl.power),
        X,
        out=(32, 8),
        buffer=nl.psum,
    )


def test_more_than_three_free_dimensions_are_refused(refused):
    def body(dst, x):
        view = x.reshape((2, 3, 4, 4, 5))[:, 0:2, 0:3, 0:3, 0:4]
        nisa.tensor_copy(dst, view)

    refused("src [2, 2, 3, 3, 4] has 4 free dimensions after merging; at most 3", body, normal(2, 240), out=(2, 72))


@pytest.mark.parametrize(
    ("function", "instead"),
    [("divide", "nisa.reciprocal, then nl.multiply"), ("matmul", "nisa.nc_matmul"), ("sum", "nisa.tensor_reduce with")],
)
def test_functions_that_no_engine_has_are_refused_with_what_to_use(refused, function, instead):
    a = normal(4, 4)
    problem = f"nisa.tensor_tensor: op nl.{function}: no engine has that function; use {instead}"
    refused(problem, lambda dst, a: nisa.tensor_tensor(dst, a, a, getattr(nl, function)), a, out=(4, 4))
