"""Errors between two sets of tensors, by parameter group."""

import math
from itertools import permutations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from trncheck.conformance.compare import parameter_group, relative_errors
from trncheck.fixtures.geometry import TINY

NORM = "model.layers.0.input_layernorm.weight"
OTHER_NORM = "model.layers.1.input_layernorm.weight"
HEAD = "lm_head.weight"


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values)


@pytest.fixture(scope="module", params=TINY)
def names(request, tmp_path_factory) -> set[str]:
    """Parameter names of a tiny model, as Transformers has them."""
    folder = tmp_path_factory.mktemp(request.param)
    TINY[request.param].write_config(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return set(dict(model.named_parameters()))


def test_every_parameter_of_the_tiny_models_has_a_group(names):
    assert "other" not in {parameter_group(name) for name in names}


def test_groups_hold_what_they_are_named_for(names):
    groups = {name: parameter_group(name) for name in names}
    for name, group in groups.items():
        last, module = name.rsplit(".", 2)[-1], name.rsplit(".", 2)[-2]
        expected = {
            "embed_tokens": "embedding",
            "lm_head": "head",
            "q_norm": "q and k norms",
            "k_norm": "q and k norms",
            "gate": "router",
            "experts": "experts",
        }.get(module)
        if module in ("norm", "input_layernorm", "post_attention_layernorm"):
            expected = "norms"
        elif ".self_attn." in name and module.endswith("_proj"):
            expected = "attention"
        elif ".mlp.experts." in name or last in ("gate_up_proj", "down_proj"):
            expected = "experts"
        elif ".mlp." in name and module.endswith("_proj"):
            expected = "feed-forward"
        assert group == expected, name


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.layers.0.mlp.experts.11.gate_proj.weight", "experts"),
        ("model.layers.0.mlp.gate.weight", "router"),
        ("model.layers.0.mlp.gate_proj.weight", "feed-forward"),
        ("visual.patch", "other"),
    ],
)
def test_group_of_a_name_in_a_published_file(name, group):
    assert parameter_group(name) == group


def test_error_is_relative_in_fp64_and_elements_are_counted():
    got, want = {HEAD: tensor(3.0, 4.5)}, {HEAD: tensor(3.0, 4.0)}
    assert relative_errors(got, want) == {"head": (pytest.approx(0.1), HEAD, 2)}
    # In fp32 both squares would overflow.
    huge = {HEAD: tensor(1e30, 1e30)}
    assert relative_errors(huge, huge) == {"head": (0.0, HEAD, 2)}


def test_worst_tensor_of_a_group_is_named_and_groups_are_apart():
    want = {NORM: tensor(1.0), OTHER_NORM: tensor(1.0, 0.0), HEAD: tensor(1.0)}
    got = {NORM: tensor(1.5), OTHER_NORM: tensor(1.25, 0.0), HEAD: tensor(1.0)}
    assert relative_errors(got, want) == {"norms": (0.5, NORM, 3), "head": (0.0, HEAD, 1)}


@pytest.mark.parametrize("values", list(permutations([float("nan"), 1.5, 1e9])))
def test_nan_wins_against_any_number_in_any_order(values):
    names = [f"model.layers.{layer}.input_layernorm.weight" for layer in range(3)]
    got = dict(zip(names, map(tensor, values), strict=True))
    error, name, elements = relative_errors(got, dict.fromkeys(names, tensor(1.0)))["norms"]
    assert math.isnan(error)
    assert math.isnan(got[name].item())
    assert elements == 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_reference_that_is_not_finite_is_no_excuse(bad):
    error, _, _ = relative_errors({HEAD: tensor(1.0)}, {HEAD: tensor(bad)})["head"]
    assert not error <= 1e30


def test_zero_reference_allows_no_difference():
    zero = {HEAD: tensor(0.0, 0.0)}
    assert relative_errors(zero, zero)["head"][0] == 0
    assert relative_errors({HEAD: tensor(0.0, 1e-30)}, zero)["head"][0] == math.inf
    assert relative_errors({HEAD: tensor(0.0, math.nan)}, zero)["head"][0] == math.inf


def test_scale_replaces_the_size_of_the_reference():
    got, want, moved = {HEAD: tensor(10.1)}, {HEAD: tensor(10.0)}, {HEAD: tensor(0.2)}
    assert relative_errors(got, want, moved)["head"][0] == pytest.approx(0.5, rel=1e-5)


def test_names_of_one_side_only_are_left_out():
    errors = relative_errors({HEAD: tensor(1.0), NORM: tensor(1.0)}, {HEAD: tensor(1.0), OTHER_NORM: tensor(1.0)})
    assert errors.keys() == {"head"}
