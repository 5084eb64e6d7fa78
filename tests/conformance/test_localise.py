"""Where a difference starts: in made-up activations, and in real runs that are right."""

import pytest
import torch

from trncheck.conformance import bars
from trncheck.conformance.cases import Case
from trncheck.conformance.judge import Judge
from trncheck.conformance.localise import departure, say_where
from trncheck.trainers.activations import Activation

NAMES = ["embed_tokens", "layers.0.self_attn", "layers.0.mlp", "layers.0", "norm", "lm_head"]


def activations(names=NAMES, outputs: dict | None = None, gradients: dict | None = None) -> dict[str, Activation]:
    """Ones, times ``1 + error`` in the modules that are named."""
    outputs, gradients = outputs or {}, gradients or {}
    ones = torch.ones(4, 3, 2)
    return {name: Activation(ones * (1 + outputs.get(name, 0)), ones * (1 + gradients.get(name, 0))) for name in names}


def test_forward_starts_at_the_first_module_in_order_of_execution():
    got = activations(outputs={"layers.0.self_attn": 1e-7, "layers.0.mlp": 0.03, "layers.0": 0.5, "norm": 0.5})
    assert departure(got, activations()).startswith(
        "starts at layers.0.mlp (relative error 3.0e-02; layers.0.self_attn before it 1.2e-07); backward nothing"
    )


def test_backward_starts_at_the_last_module_in_order_of_execution():
    got = activations(gradients={"embed_tokens": 0.5, "layers.0.mlp": 0.1, "layers.0": 1e-6})
    assert departure(got, activations()) == (
        "backward starts at layers.0.mlp (relative error 1.0e-01; layers.0 before it 9.5e-07); "
        "forward nothing departs (of 6 modules the same)"
    )


def test_first_module_has_none_before_it():
    got = activations(outputs={"embed_tokens": 1.0}, gradients={"lm_head": 1.0})
    assert departure(got, activations()) == (
        "starts at embed_tokens (relative error 1.0e+00; no module before it); "
        "backward starts at lm_head (relative error 1.0e+00; no module before it)"
    )


def test_what_is_not_finite_or_of_another_shape_departs():
    got = activations()
    got["layers.0"].output[0, 0, 0] = float("nan")
    assert "starts at layers.0 (relative error inf;" in departure(got, activations())
    got = activations()
    got["norm"] = Activation(torch.ones(4, 2, 3), got["norm"].gradient)
    assert "starts at norm (relative error inf;" in departure(got, activations())


def test_rounding_does_not_depart():
    half = {"norm": bars.OUTPUT_DEPARTS.value / 2}, {"norm": bars.GRADIENT_DEPARTS.value / 2}
    assert departure(activations(NAMES, *half), activations(), "the run without kernels").startswith(
        "nothing departs from the run without kernels in step 1: outputs of 6 modules within 9.5e-07, norm, "
        "gradients of 6 modules within 5.0e-06, norm; what is behind them is left"
    )


def test_names_and_gradients_that_one_side_alone_has_are_said():
    got = activations([*NAMES[:3], "layers.0.mlp.gate", *NAMES[3:]])
    want = activations(NAMES[:-1])
    want["norm"] = Activation(want["norm"].output, None)
    assert departure(got, want).endswith(
        "; only here: layers.0.mlp.gate, lm_head; without a gradient in plain Transformers: norm"
    )
    assert departure(want, got).endswith(
        "; only in plain Transformers: layers.0.mlp.gate, lm_head; without a gradient here: norm"
    )
    assert "of no module were compared" in departure(got, {})


def test_only_a_failure_is_localised():
    say_where(judge := Judge(), pytest.fail, pytest.fail)
    assert (judge.failures, judge.evidence) == ([], {})


def test_place_comes_behind_the_first_failure_and_into_the_evidence():
    judge = Judge()
    judge.failures += ["first", "second"]
    say_where(judge, lambda: activations(outputs={"norm": 1.0}), activations)
    first, place, second = judge.failures
    assert (first, second) == ("first", "second")
    assert place.startswith("starts at norm")
    assert judge.evidence == {"starts at": place}


def test_crash_on_the_way_hides_nothing():
    def crash():
        raise OSError("disk\nfull")

    judge = Judge()
    judge.failures.append("first")
    say_where(judge, crash, activations)
    assert judge.failures == ["first", "not localised: OSError: disk full"]


@pytest.mark.parametrize("case", [Case("native", "moe", 2), Case("hf", "moe", 1)], ids=str)
def test_nothing_departs_on_paths_that_are_right(tmp_path, case):
    from trncheck.conformance.runs import RunBook

    runs = RunBook(tmp_path, "fork")
    got, want = runs.activations(case), runs.reference_activations(case.model)
    assert list(got) == list(want)
    assert {"embed_tokens", "layers.1.self_attn.k_norm", "layers.1.mlp.gate", "layers.1.mlp", "norm", "lm_head"} < {
        *got
    }
    assert departure(got, want).startswith("nothing departs from plain Transformers in step 1")
