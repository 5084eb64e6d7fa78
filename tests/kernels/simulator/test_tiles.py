"""Functions over tiles: results in new tiles, by the instructions' arithmetic."""

import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.language as nl

X = np.random.default_rng(0).normal(size=(32, 2, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: nl.add(x, x), X + X),
        (lambda x: nl.subtract(x, 1.0), X - 1),
        (lambda x: nl.subtract(1.0, x), 1 - X),
        (lambda x: nl.maximum(x, 0.5), np.maximum(X, np.float32(0.5))),
        (lambda x: nl.max(x, nl.multiply(x, -1.0)), np.abs(X)),
        (lambda x: nl.greater(x, 0.0), X > 0),
        (lambda x: nl.exp(x), np.exp(X)),
        (lambda x: nl.square(x), X * X),
        (lambda x: nl.copy(x), X),
        (lambda x: nl.divide(x, nl.add(nl.abs(x), 1.0)), X / (np.abs(X) + 1)),
        (lambda x: nl.divide(1.0, nl.add(nl.abs(x), 1.0)), 1 / (np.abs(X) + 1)),
        (lambda x: nl.divide(x, 3.0), X / 3),
        (lambda x: nl.max(x, axis=2), X.max(axis=2)),
        (lambda x: nl.min(x, [1, 2], keepdims=True), X.min(axis=(1, 2), keepdims=True)),
        (lambda x: nl.sum(x, axis=(1, 2)), X.sum(axis=(1, 2))[:, None]),
        (lambda x: nl.mean(x, axis=-1), X.mean(axis=-1)),
        (lambda x: nl.broadcast_to(nl.max(x, 2, keepdims=True), (32, 2, 6)), X.max(axis=2, keepdims=True) + 0 * X),
        (lambda x: nl.broadcast_to(x[:1, 0], (32, 6)), np.broadcast_to(X[0, 0], (32, 6))),
        (lambda x: nl.add(nl.copy(nl.matmul(x, x, transpose_x=True)), 0.0), X.reshape(32, 12).T @ X.reshape(32, 12)),
    ],
)
def test_functions(function, expected):
    def kernel(x):
        result = function(nl.load(x))
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    result = run(kernel, (X,))[0]
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.astype(np.float32), expected.astype(np.float32), rtol=1e-5, atol=1e-6)


def test_dtypes_follow_the_operands_unless_given():
    seen = {}

    def kernel(x):
        half, integer = nl.load(x, dtype=nl.bfloat16), nl.load(x, dtype=nl.int32)
        seen["given"] = nl.add(half, half, dtype=nl.float32).dtype
        seen["same"] = nl.exp(half).dtype
        seen["widest"] = nl.multiply(half, integer).dtype
        seen["truth"] = nl.less(half, half).dtype

    run(kernel, (X,))
    assert seen == {"given": "float32", "same": "bfloat16", "widest": "bfloat16", "truth": "uint8"}


@pytest.mark.parametrize(
    ("problem", "function"),
    [
        (
            "nl.add of [32, 2, 6] and [32, 2, 1] does not broadcast; use nl.broadcast_to",
            lambda x: nl.add(x, x[:, :, :1]),
        ),
        ("nl.add takes 2 operands, at least one of them a tile", lambda x: nl.add(x)),
        ("nl.exp takes 1 operand, at", lambda x: nl.exp(1.0)),
        ("nl.exp has no argument mask", lambda x: nl.exp(x, mask=x)),
        ("nl.broadcast_to: [32, 2, 6] does not broadcast to [32, 6]", lambda x: nl.broadcast_to(x, (32, 6))),
        ("nl.matmul needs transpose_x=True", lambda x: nl.matmul(x, x)),
        ("axis (0, 1, 2) has 0, the partition dimension", lambda x: nl.sum(x, axis=(0, 1, 2))),
    ],
)
def test_refusals(problem, function):
    def kernel(x):
        function(nl.load(x))

    with pytest.raises(NkiError) as error:
        run(kernel, (X,))
    assert problem in str(error.value)
    assert str(error.value).startswith("test_tiles.py:")
