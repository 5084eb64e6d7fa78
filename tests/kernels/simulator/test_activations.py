"""Activation functions against independent formulas, sums in the engine's registers, and what is refused."""

import ml_dtypes
import numpy as np
import pytest
import torch

from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

BF16 = ml_dtypes.bfloat16
RESET, ADD = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce
X = np.linspace(-3, 3, 32 * 8, dtype=np.float32).reshape(32, 8)
POSITIVE = np.abs(X) + np.float32(0.1)


def gradient(function):
    def of(x):
        x = x.requires_grad_()
        function(x).sum().backward()
        return x.grad

    return of


F = torch.nn.functional
EXPECTED = {
    "copy": lambda x: x,
    "square": torch.square,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_dx": gradient(F.gelu),
    "gelu_apprx_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_apprx_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": gradient(lambda x: x * torch.sigmoid(1.702 * x)),
    "silu": F.silu,
    "silu_dx": gradient(F.silu),
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "mish": F.mish,
    "erf": torch.erf,
    "erf_dx": gradient(torch.erf),
    "exp": torch.exp,
    "sin": torch.sin,
    "arctan": torch.arctan,
    "sign": torch.sign,
    "abs": torch.abs,
}
OF_POSITIVE = {"log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal}


@pytest.mark.parametrize("op", [*EXPECTED, *OF_POSITIVE])
def test_functions(execute, op):
    x = X if op in EXPECTED else POSITIVE
    result = execute(lambda dst, x: nisa.activation(dst, getattr(nl, op), x), x, out=(32, 2, 4)).values
    expected = (EXPECTED | OF_POSITIVE)[op](torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(result.reshape(32, 8), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_scale_and_bias_come_first_and_the_result_is_rounded_once(execute, dtype):
    x, scale = X.astype(dtype), POSITIVE[:, :1]
    bias = X[:, 1:2].astype(BF16)

    def body(dst, x, scale, bias):
        nisa.activation(dst, nl.exp, x, bias=bias, scale=scale)

    result = execute(body, x, scale, bias, out=(32, 8), dtype=np.dtype(dtype).name).values
    expected = np.exp(x.astype(np.float32) * scale + bias.astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(result, expected)


def test_numbers_scale_and_shift(execute):
    result = execute(lambda dst, x: nisa.activation(dst, nl.square, x, bias=1.0, scale=-2.0), X, out=(32, 8))
    np.testing.assert_array_equal(result.values, np.square(X * np.float32(-2) + np.float32(1)))


def test_an_activation_may_write_what_it_reads(execute):
    def body(dst, x):
        nisa.tensor_copy(dst, x)
        nisa.activation(dst, nl.copy, dst, scale=dst[:, 0:1])

    np.testing.assert_array_equal(execute(body, X, out=(32, 8)).values, X * X[:, :1])


def test_sums_are_taken_in_fp32_before_the_result_is_rounded(execute):
    def body(dst, x):
        scratch = nl.ndarray((32, 8), nl.bfloat16)
        nisa.activation(scratch, nl.exp, x, reduce_op=nl.add, reduce_res=dst, reduce_cmd=RESET)

    result = execute(body, X, out=(32, 1)).values
    np.testing.assert_allclose(result, np.exp(X).sum(axis=1, keepdims=True), rtol=1e-6)


def test_registers_sum_over_instructions(execute):
    def body(dst, x):
        scratch = nl.ndarray((32, 8), nl.float32)
        sums = {"reduce_op": nl.add, "reduce_cmd": ADD}
        nisa.activation(scratch, nl.copy, x, reduce_cmd=nisa.reduce_cmd.reset)
        nisa.activation(scratch, nl.copy, x, **sums)
        nisa.activation(scratch, nl.square, x)  # idle leaves the registers
        nisa.activation(scratch, nl.copy, x, **sums)
        nisa.activation(scratch, nl.exp, x, reduce_res=dst[:, 0:1])
        nisa.activation(scratch, nl.copy, x, reduce_op=nl.add, reduce_res=dst[:, 1:2], reduce_cmd=RESET)
        nisa.activation_reduce(scratch, nl.square, x, nl.add, dst[:, 2:3])

    result = execute(body, X, out=(32, 3)).values
    expected = np.stack([2 * X.sum(axis=1), X.sum(axis=1), np.square(X).sum(axis=1)], axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_the_sum_may_land_in_the_destination(execute):
    def body(dst, x):
        nisa.activation(dst, nl.copy, x, reduce_op=nl.add, reduce_res=dst[:, 0:1], reduce_cmd=RESET)

    result = execute(body, X, out=(32, 8)).values
    np.testing.assert_allclose(result[:, 0], X.sum(axis=1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(result[:, 1:], X[:, 1:])


def test_registers_belong_to_partitions(execute):
    def body(dst, x):
        scratch = nl.ndarray((64, 8), nl.float32)
        for start in (0, 32):
            nisa.activation(
                scratch[start : start + 32], nl.copy, x, scale=1.0 + start, reduce_cmd=RESET, reduce_op=nl.add
            )
        nisa.activation(scratch, nl.copy, scratch, reduce_res=dst)

    result = execute(body, X, out=(64, 1)).values[:, 0]
    np.testing.assert_allclose(result, np.concatenate([X.sum(axis=1), 33 * X.sum(axis=1)]), rtol=1e-5, atol=1e-4)


def test_adding_to_registers_that_were_never_reset_is_a_warning(execute):
    def body(dst, x):
        scratch = nl.ndarray((32, 8), nl.float32)
        nisa.activation(scratch, nl.copy, x, reduce_op=nl.add, reduce_res=dst, reduce_cmd=ADD)

    assert "reduce_cmd reduce with registers that were never reset" in execute(body, X, out=(32, 1)).warnings[0]


def test_taint_reaches_the_result_and_the_sum(execute):
    x = np.ma.array(X, mask=np.zeros_like(X, bool))
    x[3, 5] = np.ma.masked

    def sums(dst, x):
        nisa.activation_reduce(nl.ndarray((32, 8), nl.float32), nl.copy, x, nl.add, dst)

    assert np.argwhere(execute(sums, x, out=(32, 1)).tainted).tolist() == [[3, 0]]
    plain = execute(lambda dst, x: nisa.activation(dst, nl.exp, x), x, out=(32, 8))
    assert np.argwhere(plain.tainted).tolist() == [[3, 5]]
    by_bias = execute(lambda dst, x: nisa.activation(dst, nl.exp, x[:, :4], bias=x[:, 5:6]), x, out=(32, 4))
    assert np.argwhere(by_bias.tainted)[:, 0].tolist() == [3] * 4


@pytest.mark.parametrize(
    ("op", "value"), [("log", 0.0), ("sqrt", -1.0), ("rsqrt", 0.0), ("reciprocal", 0.0), ("sin", 4.0)]
)
def test_inputs_outside_the_documented_range_are_warnings(execute, op, value):
    x = np.array([[value, 1]], np.float32)
    result = execute(lambda dst, x: nisa.activation(dst, getattr(nl, op), x), x, out=(1, 2))
    assert f"1 inputs of nl.{op} such as {value:g} are outside" in result.warnings[0]
    inside = execute(lambda dst, x: nisa.activation(dst, getattr(nl, op), x), x[:, 1:], out=(1, 1))
    assert not inside.warnings


def test_minus_infinity_through_exp_is_zero_without_a_warning(execute):
    result = execute(lambda dst, x: nisa.activation(dst, nl.exp, x), np.array([[-np.inf]], np.float32), out=(1, 1))
    assert result.values.tolist() == [[0]]
    assert not result.warnings


@pytest.mark.parametrize(
    ("problem", "body"),
    [
        ("op nl.add is no activation function", lambda d, x: nisa.activation(d, nl.add, x)),
        ("data [32, 4] and dst [32, 8] must agree", lambda d, x: nisa.activation(d, nl.exp, x[:, :4])),
        ("scale [32, 8] must hold one element", lambda d, x: nisa.activation(d, nl.exp, x, scale=x)),
        ("bias must be a number or a tensor", lambda d, x: nisa.activation(d, nl.exp, x, bias="0")),
        ("reduce_op nl.maximum must be nl.add", lambda d, x: nisa.activation(d, nl.exp, x, reduce_op=nl.maximum)),
        ("reduce_cmd reduce needs reduce_op", lambda d, x: nisa.activation(d, nl.exp, x, reduce_cmd=ADD)),
        ("reduce_cmd 3 must be a member", lambda d, x: nisa.activation(d, nl.exp, x, reduce_op=nl.add, reduce_cmd=3)),
        ("reduce_res [32, 8] must be [32, 1]", lambda d, x: nisa.activation(d, nl.exp, x, reduce_res=x)),
        ("use engine.scalar", lambda d, x: nisa.activation(d, nl.exp, x, engine=nisa.engine.vector)),
        ("got an unexpected keyword argument 'mask'", lambda d, x: nisa.activation(d, nl.exp, x, mask=x)),
    ],
)
def test_refusals(refused, problem, body):
    refused(problem, body, X, out=(32, 8))


def test_a_scale_that_is_not_fp32_is_refused(refused):
    refused(
        "scale is bfloat16; a tensor here must be float32",
        lambda dst, x: nisa.activation(dst, nl.exp, x, scale=x[:, :1]),
        X.astype(BF16),
        out=(32, 8),
    )


def test_gpsimd_activates_from_trn3_on(execute, refused, monkeypatch):
    def body(dst, x):
        nisa.activation(dst, nl.exp, x, engine=nisa.engine.gpsimd)

    refused("use engine.scalar", body, X, out=(32, 8))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    np.testing.assert_array_equal(execute(body, X, out=(32, 8)).values, np.exp(X))
