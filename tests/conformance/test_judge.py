"""What the judge counts, and what it calls different."""

import math

import pytest
import torch

from trncheck.conformance import compare
from trncheck.conformance.bars import Bar
from trncheck.conformance.judge import Judge

BAR = Bar(1e-5, "a reason")


@pytest.fixture
def judge() -> Judge:
    return Judge()


def bits(*values: float, dtype=torch.float32) -> dict[str, torch.Tensor]:
    return {"a": torch.tensor(values, dtype=dtype), "b": torch.zeros(2, 3)}


def flipped(tensor: torch.Tensor) -> torch.Tensor:
    """The same with the lowest bit of the first element flipped."""
    changed = tensor.clone()
    changed.view(torch.uint8)[0] ^= 1
    return changed


@pytest.mark.parametrize(("value", "ok"), [(1e-5, True), (0.0, True), (-1.0, True), (1.1e-5, False)])
def test_at_most_holds_on_the_bar_itself(judge, value, ok):
    judge.at_most("gap", value, BAR)
    assert [measurement.ok for measurement in judge.measurements] == [ok]
    assert bool(judge.failures) is not ok


@pytest.mark.parametrize(("value", "ok"), [(1e-5, True), (1.0, True), (math.inf, True), (0.9e-5, False)])
def test_at_least_holds_on_the_bar_itself(judge, value, ok):
    judge.at_least("fall", value, BAR)
    assert [measurement.ok for measurement in judge.measurements] == [ok]
    assert bool(judge.failures) is not ok


@pytest.mark.parametrize("value", [math.nan, torch.tensor(math.nan)])
def test_nan_misses_every_bar(judge, value):
    judge.at_most("gap", value, BAR)
    judge.at_least("fall", value, BAR)
    assert [measurement.ok for measurement in judge.measurements] == [False, False]
    assert judge.failures == [
        "gap: nan, allowed at most 1e-05; bar: a reason",
        "fall: nan, allowed at least 1e-05; bar: a reason",
    ]


def test_executions_are_recorded_and_compare_nothing(judge):
    judge.executed("tiny, 20 steps, 1 rank", {"trncheck::rope forward float32 simulator": 40})
    judge.executed("catalogue: tiny bfloat16", {"trncheck::rope backward bfloat16 neuron": 0})
    told = [(e.operator, e.direction, e.dtype, e.backend, e.where, e.count) for e in judge.executions]
    assert told == [
        ("trncheck::rope", "forward", "float32", "simulator", "tiny, 20 steps, 1 rank", 40),
        ("trncheck::rope", "backward", "bfloat16", "neuron", "catalogue: tiny bfloat16", 0),
    ]
    assert judge.compared.tensors == judge.compared.elements == 0
    assert not judge.failures


def test_executions_of_nothing_are_none(judge):
    judge.executed("tiny, 20 steps, 1 rank", {})
    assert judge.executions == []


@pytest.mark.parametrize(
    ("key", "count"),
    [
        ("", 1),
        ("rope forward float32", 1),
        ("rope forward float32 simulator 2", 1),
        ("rope sideways float32 simulator", 1),
        ("rope forward float32 simulator", -1),
        ("rope forward float32 simulator", 1.5),
        ("rope forward float32 simulator", None),
    ],
)
def test_execution_that_says_too_little_is_refused(judge, key, count):
    with pytest.raises(ValueError, match="operator, forward or backward, dtype and backend") as refused:
        judge.executed("tiny, 20 steps, 1 rank", {key: count})
    assert f"{count!r} executions of {key!r}" in str(refused.value)


def test_number_that_is_only_reported_is_not_a_comparison(judge):
    judge.report("loss", 6.54, unit="nat", source="walkthrough")
    judge.note("kernel", "ran")
    assert judge.compared.tensors == judge.compared.elements == 0
    assert judge.measurements[0].bar is None
    assert not judge.failures


def test_same_names_says_what_is_missing_and_what_is_too_much(judge):
    judge.same_names("tensors", ["a", "b", "c"], ["c", "d"])
    assert judge.failures == ["tensors: 1 missing: d", "tensors: 2 unexpected: a, b"]
    assert (judge.compared.tensors, judge.compared.elements) == (1, 4)


def test_same_names_shortens_a_long_list_and_keeps_its_length(judge):
    judge.same_names("tensors", [], [f"layer{n}" for n in range(9)])
    assert judge.failures == ["tensors: 9 missing: layer0, layer1, layer2, layer3 and 5 more"]


def test_same_names_agree_in_any_order(judge):
    judge.same_names("tensors", ["b", "a"], {"a": 1, "b": 2})
    assert not judge.failures


def test_equal_bits_are_equal_and_counted(judge):
    judge.bit_equal("weights", bits(1.0, 2.0), bits(1.0, 2.0))
    assert not judge.failures
    # The names once, and then both tensors.
    assert (judge.compared.tensors, judge.compared.elements) == (3, 2 + 2 + 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_one_bit_is_a_difference_in_every_dtype(judge, dtype):
    want = bits(1.0, 2.0, dtype=dtype)
    judge.bit_equal("weights", want | {"a": flipped(want["a"])}, want)
    (failure,) = judge.failures
    assert failure.startswith("weights: 1 of 2 tensors differ: a (1 of 2 elements, by up to ")


def test_sign_of_zero_is_a_bit(judge):
    judge.bit_equal("weights", bits(-0.0), bits(0.0))
    assert judge.failures == ["weights: 1 of 2 tensors differ: a (1 of 1 elements, by up to 0)"]


def test_same_nan_is_the_same_bits_and_another_is_not(judge):
    judge.bit_equal("weights", bits(math.nan), bits(math.nan))
    assert not judge.failures
    judge.bit_equal("weights", bits(math.nan), bits(1.0))
    assert judge.failures == ["weights: 1 of 2 tensors differ: a (1 of 1 elements, by up to nan)"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), "torch.bfloat16 (2,) for torch.float32 (2,)"),
        (torch.tensor([[1.0, 2.0]]), "torch.float32 (1, 2) for torch.float32 (2,)"),
    ],
)
def test_dtype_and_shape_are_compared(judge, other, words):
    judge.bit_equal("weights", bits(1.0, 2.0) | {"a": other}, bits(1.0, 2.0))
    assert judge.failures == [f"weights: 1 of 2 tensors differ: a ({words})"]


def test_missing_and_unexpected_tensors_are_named(judge):
    judge.bit_equal("weights", {"a": torch.ones(1), "c": torch.ones(1)}, bits(1.0))
    assert judge.failures == ["weights: 1 missing: b", "weights: 1 unexpected: c"]


@pytest.mark.parametrize(
    "tensor", [torch.tensor(1.5), torch.zeros(0, 4), torch.arange(6.0).view(2, 3).T, torch.tensor([True, False])]
)
def test_scalars_empty_and_transposed_tensors_can_be_compared(judge, tensor):
    judge.bit_equal("weights", {"a": tensor}, {"a": tensor.clone()})
    assert not judge.failures


@pytest.mark.parametrize(
    ("value", "eps", "ulp"), [(1.0, 2**-7, 2**-7), (-18.0, 2**-7, 0.125), (0.75, 2**-23, 2**-24), (0.0, 1, 0.0)]
)
def test_ulp_is_the_distance_of_neighbours(value, eps, ulp):
    assert compare.ulp(value, eps) == ulp


def test_bar_below_one_ulp_is_refused(judge):
    with pytest.raises(ValueError, match=r"logits: the bar 0.001 is below one ulp, 0.125, .* or demand equal bits"):
        judge.at_most("logits", 0.0, Bar(0.001, "a reason"), ulp=compare.ulp(18.0, 2**-7))
    judge.at_most("logits", 0.0, Bar(0.125, "a reason"), ulp=compare.ulp(18.0, 2**-7))
    assert judge.compared.tensors == 1
