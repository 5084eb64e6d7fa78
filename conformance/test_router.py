"""Does a mixture of experts route alike on every path where scores decide nothing?"""

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Layout
from trncheck.conformance.compare import relative_errors, ulp

NATIVE = Layout("moe-kept", "qwen3_moe_tiny", "moe")
PATHS = {"hf": "qwen3_hf_moe_tiny", "nki": "qwen3_moe_nki_tiny_nki_rope"}


@pytest.mark.level("standard")
@pytest.mark.parametrize("path", PATHS)
def test_ties(judge, runs, path):
    """A router that gives every expert the same score chooses the same experts on every path.

    The paths are compared on one target, where the same instruction decides among equals; another target may decide
    otherwise.

    Why: Near ties are common in bfloat16, and a path that orders equals otherwise takes other experts, with another
    loss, while it is right wherever scores differ. A router that decided anew took other experts on data with many ties
    (https://github.com/NVIDIA-NeMo/Automodel/pull/2635).

    Red when: a path takes other experts among equals, or weighs them otherwise, than torchtitan's own model.

    Reading a failure: Read `paths.logits` of the path's mixture of experts first; while it is green, only the order
    among equals differs. `layouts.tied_router` says whether it also differs when layers are recomputed.
    """
    got, want = (runs.laid_out(layout, True) for layout in (Layout(f"{path}-tied", PATHS[path], "moe"), NATIVE))
    gap = abs(got.losses[0] - want.losses[0])
    judge.at_most("|difference of loss|", gap, bars.STEP1_LOSS, unit="nat", ulp=ulp(want.losses[0]))
    judge.same_names("parameters with a gradient", got.gradients(1), want.gradients(1))
    for group, (error, name, elements) in sorted(relative_errors(got.gradients(1), want.gradients(1)).items()):
        what = f"gradient of {group}, relative error, worst in {name}"
        judge.at_most(what, error, bars.GRADIENT, elements=elements)
