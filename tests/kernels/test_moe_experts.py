"""The experts operator at its edges: no rows, rows of no expert, int32 counts, counts that cannot be."""

import pytest
import torch

from trncheck.kernels import counters
from trncheck.kernels.moe.operator import experts
from trncheck.kernels.moe.reference import experts_reference

E, D, F = 3, 8, 6
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def leaves(rows: int, dtype=torch.float32) -> list[torch.Tensor]:
    """x, w1, w2, w3."""
    generator = torch.Generator().manual_seed(0)
    shapes = (rows, D), (E, F, D), (E, D, F), (E, F, D)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


@DTYPES
def test_no_rows_give_no_rows_and_zero_gradients(dtype):
    x_RD, *weights = leaves(0, dtype)
    with counters.counting() as launches:
        out_RD = experts(x_RD, torch.zeros(E, dtype=torch.int64), *weights)
        gradients = torch.autograd.grad(out_RD, (x_RD, *weights), torch.ones_like(out_RD))
    assert (out_RD.shape, out_RD.dtype) == ((0, D), dtype)
    for gradient, leaf in zip(gradients, (x_RD, *weights), strict=True):
        assert (gradient.shape, gradient.dtype) == (leaf.shape, dtype)
        assert gradient.count_nonzero() == 0
    assert not launches


@DTYPES
def test_rows_of_no_expert_give_zeros_and_get_them(dtype):
    x_RD, *weights = leaves(140, dtype)
    out_RD = experts(x_RD, torch.tensor([2, 0, 1]), *weights)
    dx_RD, *_ = torch.autograd.grad(out_RD, (x_RD, *weights), torch.ones_like(out_RD))
    assert out_RD[:3].count_nonzero() > 0
    assert dx_RD[:3].count_nonzero() > 0
    assert out_RD[3:].count_nonzero() == dx_RD[3:].count_nonzero() == 0


def test_counts_of_either_width_give_the_same_bits():
    x_RD, *weights = leaves(140)
    counts_E = torch.tensor([0, 130, 7])
    assert experts(x_RD, counts_E.int(), *weights).equal(experts(x_RD, counts_E, *weights))


def test_negative_counts_are_refused():
    x_RD, *weights = leaves(5)
    with pytest.raises(ValueError, match=r"counts must not be negative .* got \[6, -1, 0\]"):
        experts(x_RD, torch.tensor([6, -1, 0]), *weights)


@pytest.mark.parametrize("trained", range(4), ids=["x", "w1", "w2", "w3"])
def test_gradient_of_one_input_where_all_others_are_frozen(trained):
    parts = [part.detach().requires_grad_(i == trained) for i, part in enumerate(leaves(20))]
    counts_E = torch.tensor([9, 0, 8])
    got, want = (
        torch.autograd.grad(call(parts[0], counts_E, *parts[1:]).sum(), parts[trained])[0]
        for call in (experts, experts_reference)
    )
    torch.testing.assert_close(got, want)
