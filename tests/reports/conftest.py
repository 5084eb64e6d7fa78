"""A rich report, as a CPU run of release 2.33.0 with three defects would leave it."""

import math
from collections.abc import Callable

import pytest

from trncheck.reports.schema import (
    CheckResult,
    Compared,
    Curve,
    Environment,
    Execution,
    Expectation,
    Measurement,
    Outcome,
    PinRow,
    PinStatus,
    Report,
    Verdict,
    VerdictStatus,
)

STEPS = list(range(1, 21))
NO_DEVICE = "needs a Neuron device, this machine has none"
FP64 = "error of plain bfloat16 against float64, times 2"


def sample_report(**changes: object) -> Report:
    """About 25 checks in seven subjects, curves, pins, failures, executions; ``changes`` replace fields."""
    fields = {
        "run_id": "20260301T101500-3fa9c1",
        "kit_version": "0.1.0",
        "kit_commit": "c3931d2+dirty",
        "release": "2.33.0",
        "release_date": "2026-02-20",
        "target": "cpu",
        "level": "standard",
        "command": "pytest --pyargs trncheck.conformance --target cpu --release 2.33.0",
        "seed": 1234,
        "started": "2026-03-01T10:15:00+00:00",
        "finished": "2026-03-01T10:18:42+00:00",
        "duration_s": 222.4,
        "complete": True,
        "verdict": Verdict(
            status=VerdictStatus.NOT_CONFORMANT,
            headline="Neuron 2.33.0 must not be trusted: 3 required checks fail on cpu.",
            reasons=[
                "kernels.rope_backward[bf16, transposed cotangent] is 3.4 times its bar; it starts at position 1.",
                "losses.learning[native-moe] compared nothing.",
                "environment.pins: transformers is 5.15.2, the release pins 5.16.0.",
                "5 required checks need a Trainium2 and did not run.",
            ],
        ),
        "environment": Environment(
            python="3.11.7",
            os="Ubuntu 24.04.2 LTS",
            machine="x86_64",
            cpu="Intel Xeon Platinum 8488C",
            cores=2,
            memory_gib=15.6,
            accelerator="none",
            packages={"torch": "2.13.0+cpu", "torchtitan": "0.3.0", "transformers": "5.15.2", "safetensors": "0.6.2"},
            variables={"NEURON_RT_VISIBLE_CORES": "0-3", "OMP_NUM_THREADS": "2"},
        ),
        "stack": "None of the release's stacks is met: transformers differs; torch-neuronx is the PyPI placeholder.",
        "pins": _pins(),
        "results": _results(),
        "curves": [*_curves("dense tied", 11.93, 3e-7), *_curves("MoE, 12 experts, top-4", 12.02, 2e-4)],
        "expectations": [
            Expectation(
                name="Qwen3-4B step-1 loss, published weights",
                published=6.54,
                source="public walkthrough for one trn2.48xlarge",
                note="High for healthy 4B weights; the bar is plain Transformers on the same weights and batch.",
            ),
            Expectation(
                name="Qwen3-4B step-1 loss, random initialisation",
                published=12.43,
                measured=12.4412,
                source="public walkthrough for one trn2.48xlarge",
                note="ln V + D·sigma²/2 = 12.44",
            ),
        ],
        "executions": _executions(),
    }
    return Report(**(fields | changes))


@pytest.fixture(scope="session")
def make_report() -> Callable[..., Report]:
    """``sample_report``."""
    return sample_report


@pytest.fixture
def report() -> Report:
    """One fresh sample."""
    return sample_report()


def _executions() -> list[Execution]:
    """Of a rope kernel, which a training run and a check of the kernel executed."""
    return [
        Execution(
            operator="trncheck::rope",
            direction=direction,
            dtype="float32",
            backend="simulator",
            where=where,
            count=count,
            check=check,
        )
        for direction in ("forward", "backward")
        for where, count, check in (
            ("qwen3_native_tiny_nki_rope, 20 steps, 1 rank", 40, "kernels.moe_execution"),
            ("catalogue: tiny float32", 2, "kernels.rope_forward[fp32]"),
        )
    ]


def _pins() -> list[PinRow]:
    row = PinRow
    return [
        row(name="torch", kind="distribution", expected="2.14.0 or 2.13.0", found="2.13.0+cpu", status=PinStatus.EQUAL),
        row(
            name="torch-neuronx",
            kind="distribution",
            expected="2.14.3",
            found="1.0",
            status=PinStatus.DIFFERENT,
            note="The empty placeholder from PyPI is installed; use https://pip.repos.neuron.amazonaws.com.",
        ),
        row(
            name="transformers",
            kind="distribution",
            expected="5.16.0",
            found="5.15.2",
            status=PinStatus.DIFFERENT,
        ),
        row(name="torchtitan-neuron", kind="git", expected="release-2.33", found=None, status=PinStatus.ABSENT),
        row(
            name="aws-neuronx-dkms",
            kind="system",
            expected="2.27",
            found=None,
            status=PinStatus.NOT_APPLICABLE,
            note="The target is cpu.",
        ),
    ]


def _curves(group: str, start: float, gap: float) -> list[Curve]:
    reference = [start * math.exp(-step / 22) + 0.15 * math.sin(step) for step in STEPS]
    curves = [Curve(name="Transformers", group=group, model=group, steps=STEPS, losses=reference, reference=True)]
    for k, name in enumerate(("torchtitan, Transformers backend", "torchtitan, native", "native with NKI kernels")):
        losses = [loss + k * gap * (1 + math.sin(k * step)) for step, loss in zip(STEPS, reference, strict=True)]
        curves.append(Curve(name=name, group=group, model=group, steps=STEPS, losses=losses))
    return curves


def _check(id: str, title: str, outcome: Outcome = Outcome.PASS, **fields: object) -> CheckResult:
    ran = outcome not in (Outcome.NOT_RUN, Outcome.NOTHING_COMPARED)
    defaults = {
        "level": "standard",
        "target": "cpu" if outcome is not Outcome.NOT_RUN else "trn2",
        "compared": Compared(tensors=12, elements=1_234_567) if ran else Compared(),
        "duration_s": 1.27 if ran else 0.0,
    }
    return CheckResult(id=id, subject=id.split(".")[0], title=title, outcome=outcome, **(defaults | fields))


def _error(name: str, value: float, bar: float, source: str = FP64, **fields: object) -> Measurement:
    return Measurement(name=name, value=value, bar=bar, source=source, ok=value <= bar, **fields)


def _results() -> list[CheckResult]:
    calls = {"forward calls": "48", "backward calls": "24", "backend": "simulator", "module swaps": "12 of 12"}
    results = [
        _check("environment.python", "Python is a version that the release supports.", compared=Compared(tensors=1)),
        _check(
            "environment.pins",
            "Installed packages are those that the release pins.",
            Outcome.FAIL,
            message="transformers: found 5.15.2, the release pins 5.16.0\n  pip install transformers==5.16.0",
            evidence={"manifest": "fixtures/releases/2.33.0.yaml", "distributions": "41"},
        ),
        _check(
            "environment.driver",
            "The Neuron driver is loaded.",
            Outcome.NOT_RUN,
            message=NO_DEVICE,
            level="smoke",
        ),
    ]
    for dtype, error in (("fp32", 3.1e-7), ("bf16", 2.4e-3)):
        results.append(
            _check(
                f"kernels.rope_forward[{dtype}]",
                f"The RoPE kernel agrees with float64 within the {dtype} budget.",
                measurements=[
                    _error("max relative error", error, 4 * error),
                    _error("largest single outlier", error * 9, 10 * error, "cap on single outliers", unit="ulp"),
                ],
                evidence=calls,
            )
        )
    results += [
        _check(
            "kernels.rope_backward[bf16, transposed cotangent]",
            "The gradient of the RoPE kernel agrees with float64 for a transposed cotangent.",
            Outcome.FAIL,
            message=(
                "gradient of x: relative error 0.0272 > 0.008 (3.4 times the bar)\n"
                "  bar       0.008 = 2 x 0.004, the error of plain bfloat16 against float64\n"
                "  compared  12 tensors, 1,234,567 elements\n"
                "  first     [0, 0, 1, 64]: got -0.4127, expected 0.4127\n"
                "  pattern   every position from 1 on; position 0 agrees: the sign of sin in the backward pass"
            ),
            measurements=[_error("gradient of x, relative error", 0.0272, 0.008)],
            evidence=calls | {"repro": "results/2.33.0/cpu/20260301T101500-3fa9c1/repro/rope_backward.pt"},
        ),
        _check(
            "kernels.moe_forward[12 experts, empty expert]",
            "The expert kernel agrees with float64 where an expert has no token.",
            measurements=[_error("max relative error", 4.0e-3, 4.1e-3)],
            evidence=calls,
        ),
        _check(
            "kernels.moe_execution",
            "Forward and backward of the expert kernel really ran.",
            measurements=[
                Measurement(name="forward calls", value=48, bar=1, relation=">=", source="one per layer and step"),
                Measurement(name="backward calls", value=24, bar=24, relation="==", source="layers x steps"),
            ],
        ),
        _check(
            "kernels.rope_bit_exact",
            "The bfloat16 kernel is not bit-exact with its reference.",
            Outcome.INCONCLUSIVE,
            message="Bit-exact on 3 of 40 inputs; too few to tell a shared code path from luck.",
        ),
        _check("kernels.moe_negative", "A corrupted block map is refused.", compared=Compared(tensors=4, elements=4)),
        _check(
            "kernels.nki_simulate",
            "The kit's simulator agrees with nki.simulate.",
            Outcome.NOT_RUN,
            message="needs the package nki, which is not installed",
            required=False,
            target="cpu",
        ),
    ]
    for path, error in (("hf", 0.0), ("native", 2.1e-6), ("kernels", 8.9e-6)):
        results.append(
            _check(
                f"paths.loss[{path}]",
                f"Path {path} has the loss of plain Transformers on the same weights and batch.",
                measurements=[_error("step-1 loss, |path - transformers|", error, 1e-5, unit="nats")],
                evidence={"weights sha256": "9f2c1e0b7a" * 6, "batch": "seed 1234, 2 x 128 tokens"},
            )
        )
    results += [
        _check(
            "paths.stock_rotary",
            "The stock Transformers backend initialises its rotary frequencies.",
            Outcome.EXPECTED_FAIL,
            message="upstream issue 4783: inv_freq is uninitialised memory; expires 2026-06-01",
            required=False,
        ),
        _check(
            "losses.random[dense]",
            "The first loss from random weights is what the init scheme predicts.",
            measurements=[
                _error("|loss - prediction|", 0.0012, 0.05, "ln V + D·sigma²/2", unit="nats"),
                Measurement(name="loss", value=12.4412, unit="nats"),
            ],
        ),
        _check(
            "losses.learning[native-dense]",
            "Training lowers the loss on a corpus with structure.",
            measurements=[
                Measurement(name="fall of the loss", value=7.1, bar=2.0, relation=">=", unit="nats", source="measured")
            ],
        ),
        _check(
            "losses.learning[native-moe]",
            "Training lowers the loss of the MoE model.",
            Outcome.NOTHING_COMPARED,
            message="The run returned no loss: 0 of 20 steps.",
        ),
        _check(
            "checkpoints.keys",
            "The export has no missing or unexpected keys.",
            compared=Compared(tensors=1, elements=398),
        ),
        _check(
            "checkpoints.reload",
            "The export reloads in plain Transformers with the same logits.",
            measurements=[_error("max |logit difference|", 5.1e-7, 1e-5)],
        ),
        _check(
            "sharding.two_ranks",
            "Two ranks train as one for 30 steps.",
            attempt=2,
            measurements=[_error("max |loss difference|", 6.4e-6, 1e-4, unit="nats")],
        ),
    ]
    for cores in (4, 16, 64):
        results.append(
            _check(
                f"sharding.cores[{cores}]",
                f"{cores} cores train as one for 30 steps.",
                Outcome.NOT_RUN,
                message=NO_DEVICE,
                level="full",
            )
        )
    results.append(
        _check("paths.device_loss", "The device has the loss of the CPU.", Outcome.NOT_RUN, message=NO_DEVICE)
    )
    return results
