"""Does training with the kernels execute them in every layer, and equal training without?"""

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case, each_case
from trncheck.conformance.compare import relative_errors
from trncheck.conformance.localise import say_where
from trncheck.conformance.runs import GRADIENT_STEPS, STEPS
from trncheck.fixtures.geometry import TINY

SWITCHED = {
    "qwen3_moe_nki_tiny": (Case("native", "moe", 1), ("experts",)),
    "qwen3_native_tiny_nki_rope": (Case("native", "dense-tied", 1), ("rope",)),
    "qwen3_hf_tiny_nki_rope": (Case("hf", "dense-tied", 1), ("rope",)),
}
"""Configuration -> the same without kernels, and the kernels that it switches on."""

ROUTES = {
    "overrides": (
        Case("native", "moe", 1),
        "--override.imports trncheck.kernels.overrides.nki_rope trncheck.kernels.overrides.nki_experts",
    ),
    "flags": (Case("hf", "moe", 1), "--kernels.rope --kernels.experts"),
}
"""By name, another way to switch both kernels on: a case, whose configuration has none, and the flags."""

each_switched = pytest.mark.parametrize("config", SWITCHED)


@each_switched
@pytest.mark.level("standard")
def test_switched_on(judge, runs, config):
    """Training with kernels switched on gives the losses and gradients of training without, from the same weights.

    Why: A fusion was tested on a model without QK-norm, and Qwen3 came out uncorrelated
    (https://github.com/tenstorrent/tt-mlir/pull/9042). So kernels are judged in the model too.
    Reading a failure: If the kernel's own checks are green, the fault is in how it is wired: `starts at` names the
    module. A first step that agrees, with later ones that do not, is a gradient.
    """
    case, _ = SWITCHED[config]
    on, off = runs.switched(config, case.model), runs.published(case)
    judge.equal("steps", (len(on.losses), len(off.losses)), (STEPS, STEPS))
    gaps = [abs(a - b) for a, b in zip(on.losses, off.losses, strict=False)]
    judge.at_most("|difference of step-1 loss|", gaps[0], bars.STEP1_LOSS)
    judge.at_most(f"largest |difference of loss| in {STEPS} steps", max(gaps), bars.TRAJECTORY, elements=STEPS)
    for step in GRADIENT_STEPS:
        got, want = on.gradients(step), off.gradients(step)
        judge.same_names(f"step {step}, parameters with a gradient", got, want)
        for group, (error, name, elements) in relative_errors(got, want).items():
            bar = bars.GRADIENT if step == 1 else bars.SWITCHED_GRADIENT
            judge.at_most(f"step {step}, gradient of {group} ({name})", error, bar, elements=elements)
    say_where(judge, lambda: runs.activations(case, config), lambda: runs.activations(case), "the run without kernels")


@each_case(where=lambda case: case.path == "nki")
def test_training_executes(judge, runs, case):
    """Every training step executes both kernels, forward and backward, once per layer and micro-batch on each rank.

    Why: A kernel without a backward pass falls back in training, silently
    (https://github.com/huggingface/transformers/pull/46755).
    Reading a failure: Counts are per step, over all ranks. Zero is a fallback; half is one layer, one micro-batch or
    one rank without the kernel.
    """
    _hold_counts(judge, runs.published(case), case, ("experts", "rope"))


@each_switched
@pytest.mark.level("standard")
def test_switched_executes(judge, runs, config):
    """Every training step executes the kernel switched on, forward and backward, once per layer and micro-batch.

    Why: A patch that came after the model was built changed nothing, or some layers alone
    (https://github.com/linkedin/Liger-Kernel/pull/170).
    Reading a failure: Zero means that the override did not reach the model; a part of the count, that it reached some
    layers.
    """
    case, kernels_on = SWITCHED[config]
    _hold_counts(judge, runs.switched(config, case.model), case, kernels_on, config)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.level("standard")
def test_routes(judge, runs, route):
    """Flags put both kernels into a configuration that has none: they run in every layer, and the losses stay.

    Why: Overrides by import reach any torchtitan trainer, and flags the Transformers path, whose experts are built
    elsewhere; neither passes through the configurations that other checks train. An option that was accepted and
    replaced nothing is what users met (https://github.com/huggingface/transformers/pull/46755).
    Reading a failure: Counts name the kernel that did not run, or not in every layer. Right counts with other losses
    are a kernel that is wired to other inputs or weights than the module that it replaces.
    """
    case, flags = ROUTES[route]
    on, off = runs.flagged(case, flags), runs.published(case)
    _hold_counts(judge, on, case, ("experts", "rope"), f"{case.config} {flags.split()[0]}", steps=2)
    judge.equal("steps with a loss", len(on.losses), 2)
    gaps = [abs(a - b) for a, b in zip(on.losses, off.losses, strict=False)]
    judge.at_most("|difference of step-1 loss|", gaps[0], bars.STEP1_LOSS)
    judge.at_most("|difference of step-2 loss|", gaps[-1], bars.TRAJECTORY)


def _hold_counts(judge, run, case: Case, kernels_on: tuple[str, ...], config: str = "", steps: int = 0) -> None:
    """Both micro-batches of the global batch pass every layer, on one rank or one on each of two."""
    from trncheck.kernels import runtime

    steps = steps or STEPS
    device = run.circumstances.device
    backend = runtime.cpu_backend() if device == "cpu" else device
    wanted = {
        f"{kernel} {direction} float32 {backend}": TINY[case.model].num_hidden_layers * 2
        for kernel in kernels_on
        for direction in ("forward", "backward")
    }
    for step, counts in enumerate(run.kernel_counts, start=1):
        judge.equal(f"step {step}, executions on all ranks", counts, wanted)
    judge.equal("steps", len(run.kernel_counts), steps)
    total = {name: sum(counts.get(name, 0) for counts in run.kernel_counts) for name in wanted}
    judge.executed(f"{config or case.config}, {steps} steps, {case.ranks} rank{'s' * (case.ranks > 1)}", total)
