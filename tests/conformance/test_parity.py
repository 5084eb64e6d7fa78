"""Kernel against fp64 truth and plain torch: what passes, what fails, and what cannot be decided."""

import pytest
import torch

from trncheck.conformance import bars
from trncheck.conformance.judge import Judge
from trncheck.conformance.parity import hold

SIZES = {"as it is": 1.0, "around 30": 30.0, "around 1e-4": 1e-4}


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def truth(request) -> torch.Tensor:
    return request.param * torch.randn(100, 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def rounded(truth: torch.Tensor, dtype=torch.bfloat16, error: float = 0.0) -> torch.Tensor:
    """``truth`` in ``dtype``, off by the share ``error`` in every element, up or down."""
    signs = torch.randn(truth.shape, generator=torch.Generator().manual_seed(2)).sign()
    return (truth * (1 + error * signs)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rounding_of_the_result_passes_at_every_magnitude(judge, truth, dtype):
    hold(judge, "output", rounded(truth, dtype), rounded(truth, dtype), truth)
    assert (judge.failures, judge.open) == ([], [])
    assert [measurement.ok for measurement in judge.measurements] == [True, True]


def test_one_wrong_element_of_many_fails_and_the_worst_three_are_named(judge, truth):
    got = rounded(truth)
    got[3, 4], got[50, 6], got[7, 7] = 6 * got.max(), 5 * got.max(), 4 * got.max()
    hold(judge, "output", got, rounded(truth), truth)
    (message,) = [failure for failure in judge.failures if "worst element" in failure]
    assert message.index("[3, 4] is") < message.index("[50, 6] is") < message.index("[7, 7] is")
    assert f"not {truth[3, 4].item():.6g}" in message


def test_nan_is_the_worst_element(judge, truth):
    got = rounded(truth)
    got[9, 9] = float("nan")
    hold(judge, "output", got, rounded(truth), truth)
    assert len(judge.failures) == 2
    assert "bar: [9, 9] is nan" in judge.failures[1]


def test_another_dtype_within_fails_where_plain_torch_is_right(judge, truth):
    hold(judge, "output", rounded(truth).float(), rounded(truth, torch.float32), truth)
    assert "output, relative error" in judge.failures[0]


@pytest.mark.parametrize(
    ("dtype", "error"),
    [(torch.float32, 2 * bars.CONDITION_ULPS * 2**-23), (torch.bfloat16, 2 * bars.CONDITION_SHARE)],
    ids=str,
)
def test_ill_conditioned_inputs_decide_nothing(judge, truth, dtype, error):
    reference = rounded(truth, dtype, error)
    for got in (reference, rounded(truth, dtype), torch.zeros_like(reference)):
        hold(judge, "output", got, reference, truth)
    assert judge.failures == []
    assert len(judge.open) == 3
    assert judge.open[0].startswith("output: ill-conditioned: plain torch itself is off by ")
    assert judge.compared.tensors == 0


@pytest.mark.parametrize(
    ("dtype", "error"),
    [(torch.float32, bars.CONDITION_ULPS / 4 * 2**-23), (torch.bfloat16, bars.CONDITION_SHARE / 5)],
    ids=str,
)
def test_inputs_that_are_worse_than_usual_are_still_judged(judge, truth, dtype, error):
    reference = rounded(truth, dtype, error)
    hold(judge, "output", 2 * reference, reference, truth)
    assert judge.open == []
    assert len(judge.failures) == 2


def test_nan_fails_on_ill_conditioned_inputs_too(judge, truth):
    reference = rounded(truth, error=0.2)
    got = reference.clone()
    got[5] = float("nan")
    hold(judge, "output", got, reference, truth)
    assert judge.failures == ["output: 100 elements are not finite, and plain torch's are"]


def test_what_is_zero_has_to_be_zero(judge, truth):
    truth[4] = 0
    got = rounded(truth)
    got[4, 1] = 1e-30
    hold(judge, "output", got, rounded(truth), truth)
    assert judge.failures == ["output, elements that must be zero and are not: expected 0, found 1"]


def test_truth_of_zeros_that_plain_torch_misses_decides_nothing(judge):
    zeros = torch.zeros(4, 4, dtype=torch.float64)
    hold(judge, "output", zeros.float() + 1, zeros.float() + 1e-6, zeros)
    assert judge.failures == []
    assert "ill-conditioned" in judge.open[0]
