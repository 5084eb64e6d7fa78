"""The trainer on device "neuron", in a rehearsal: the same numbers as on the CPU, and a substitute for what fails.

Nothing here ran on Trainium. All runs are made at once by the first test that needs one: most forked from one process
(see ``on_stand_in``), one through ``trncheck train`` and a real torchrun.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trncheck.fixtures.tiny import tiny_folder
from trncheck.neuron import rehearsal
from trncheck.trainers.record import RunRecord
from trncheck.trainers.substitutes import DENSE, FLEX

LOAD = "--checkpoint.enable --checkpoint.initial_load_in_hf"
RECORD = "--record.gradient_steps 1 --record.weight_steps 0 3"
RUNS = {
    "dense": ("qwen3_native_tiny", 1, None),
    "dense, 2 ranks": ("qwen3_native_tiny", 2, None),
    "experts and rope, 2 ranks": ("qwen3_moe_nki_tiny_nki_rope", 2, None),
    "Transformers, 2 ranks": ("qwen3_hf_moe_tiny", 2, None),
    "flex attention": ("qwen3_native_tiny", 1, "flex_attention_that_works"),
    "no scaled sum": ("qwen3_native_tiny", 2, "no_scaled_sum"),
    "wrong scaled sum": ("qwen3_native_tiny", 2, "scaled_sum_that_forgets_to_scale"),
    "experts on the host": ("qwen3_hf_moe_tiny", 1, "experts_on_the_host"),
    "flex attention not tried": ("qwen3_native_tiny", 1, "flex_attention_not_tried"),
    "scaled sum not tried": ("qwen3_native_tiny", 2, "scaled_sum_not_tried"),
}
"""Name of a run -> configuration, ranks, and what ``on_stand_in`` has different in them."""
FAILING = {
    "experts on the host": "incompatible tensor type",
    "flex attention not tried": "FlexAttention is only supported on",
    "scaled sum not tried": "Cannot use ReduceOp.PREMUL_SUM with neuron",
}
"""Those of them that fail, and how."""
MODELS = {"qwen3_native_tiny": "dense-tied", "qwen3_hf_moe_tiny": "moe", "qwen3_moe_nki_tiny_nki_rope": "moe"}
SAME = {"dense-tied": 1e-5, "moe": 5e-5}
"""Largest difference of losses between a device and the CPU: other routes through torch, other orders of sums."""


@pytest.fixture(scope="session")
def rehearsing() -> dict[str, str]:
    """The environment of a rehearsal."""
    try:
        return os.environ | rehearsal.environment() | {"PYTHONSAFEPATH": "1"}
    except ValueError as reason:
        pytest.skip(f"no rehearsal here: {reason}")


@pytest.fixture(scope="session")
def folders(rehearsing, tmp_path_factory) -> dict[str, Path]:
    """Dump folder of each of ``RUNS``."""
    folders, runs = {}, []
    for name, (config, ranks, different) in RUNS.items():
        folders[name] = tmp_path_factory.mktemp("neuron")
        flags = f"{LOAD} --training.steps 3 {RECORD}".split()
        run = {"folder": str(folders[name]), "config": config, "flags": flags, "ranks": ranks, "different": different}
        runs.append(run)
    command = [sys.executable, str(Path(__file__).with_name("on_stand_in.py")), json.dumps(runs)]
    done = subprocess.run(command, env=rehearsing, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folders


@pytest.fixture
def on_neuron(folders):
    """``on_neuron(name)`` reads the record of one of ``RUNS``."""

    def read(name: str) -> RunRecord:
        failure = folders[name] / "failure.txt"
        assert not failure.exists(), failure.read_text()
        return RunRecord(folders[name], RUNS[name][1])

    return read


@pytest.fixture(scope="session")
def on_cpu(train):
    """``on_cpu(name)`` is the same run on the CPU, as it was forked by this process."""
    made = {}

    def run(name: str) -> RunRecord:
        config, ranks, _ = RUNS[name]
        if (config, ranks) not in made:
            made[config, ranks] = train(config, RECORD, ranks=ranks)
        return made[config, ranks]

    return run


@pytest.mark.parametrize("name", [name for name in RUNS if name not in FAILING])
def test_losses_are_those_of_the_cpu(name, on_neuron, on_cpu):
    run, reference = on_neuron(name), on_cpu(name)
    same = SAME[MODELS[RUNS[name][0]]]
    assert run.circumstances.device == "neuron"
    assert [step.tokens for step in run.steps] == [step.tokens for step in reference.steps]
    assert run.losses == pytest.approx(reference.losses, abs=same, rel=0)


@pytest.mark.parametrize("name", [name for name, (_, _, different) in RUNS.items() if not different])
def test_weights_are_loaded_and_exported_as_they_are(name, on_neuron, on_cpu):
    run, reference = on_neuron(name), on_cpu(name)
    in_file = load_file(tiny_folder(MODELS[RUNS[name][0]]) / "model.safetensors")
    loaded, trained = run.weights(0), run.weights(3)
    exported = {key: tensor for file in run.export.glob("*.safetensors") for key, tensor in load_file(file).items()}
    assert loaded.keys() == exported.keys() == trained.keys() == in_file.keys()
    for key, tensor in in_file.items():
        assert torch.equal(loaded[key], tensor), key
        assert torch.equal(exported[key], trained[key]), key
        assert torch.allclose(run.gradients(1)[key], reference.gradients(1)[key], rtol=1e-3, atol=1e-5), key
    assert (run.export / "tokenizer.json").is_file()


def test_kernels_are_launched_on_the_device_on_every_layer(on_neuron, on_cpu):
    run, reference = on_neuron("experts and rope, 2 ranks"), on_cpu("experts and rope, 2 ranks")
    simulated = {name.replace("simulator", "neuron"): count for name, count in reference.kernel_counts[0].items()}
    assert run.kernel_counts == [simulated] * 3
    assert {name.split()[-1] for name in simulated} == {"neuron"}


# --- what is recorded


def test_a_run_records_its_device_what_stood_in_and_why(on_neuron):
    found = on_neuron("dense, 2 ranks").circumstances
    assert (found.device, found.attention, found.mesh) == ("neuron", DENSE, {"fsdp": 2})
    assert "stand-in" in found.device_name
    assert list(found.substitutes) == ["attention"]
    assert found.substitutes["attention"].startswith(
        f"{DENSE}: FlexAttention fails with ValueError: FlexAttention is only"
    )


def test_the_transformers_path_records_its_attention(on_neuron, on_cpu):
    name = "Transformers, 2 ranks"
    assert on_neuron(name).circumstances.attention == on_cpu(name).circumstances.attention == DENSE


def test_a_run_records_the_memory_that_it_took(on_neuron, on_cpu):
    weights = sum(tensor.nbytes for tensor in on_neuron("dense").weights(3).values())
    assert 4 * weights < on_neuron("dense").memory.peak < 1 << 30  # masters, two moments, gradients
    assert on_cpu("dense").memory.peak is None
    assert "not installed" in on_cpu("dense").memory.why_not


def test_a_run_records_where_its_operators_ran_and_what_was_compiled(on_neuron, on_cpu):
    run = on_neuron("experts and rope, 2 ranks")
    assert run.operators.measurable
    assert "aten::mm" in run.operators.executed
    assert run.operators.fallen_back == ()
    compiled, why_not = run.compiled
    assert compiled[0] > 0
    assert not any(compiled[2:])
    assert why_not == ""
    assert not on_cpu("dense").operators.measurable


# --- what is tried on the device


def test_flex_attention_is_used_where_it_works(on_neuron):
    found = on_neuron("flex attention").circumstances
    assert found.attention == FLEX
    assert found.substitutes == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no scaled sum", "SUM: PREMUL_SUM fails with RuntimeError: Cannot use ReduceOp.PREMUL_SUM with neuron"),
        ("wrong scaled sum", "SUM: PREMUL_SUM fails with ArithmeticError: half of 2 ones is 2.0"),
    ],
)
def test_sums_stand_in_for_scaled_sums_that_fail_or_do_not_scale(name, why, on_neuron):
    assert on_neuron(name).circumstances.substitutes["reductions"] == why


@pytest.mark.parametrize(("name", "symptom"), FAILING.items())
def test_training_fails_without_a_repair_or_where_nothing_stands_in(name, symptom, folders):
    assert symptom in (folders[name] / "failure.txt").read_text()


# --- the launch


def test_a_launch_sets_what_a_run_does_not_leave_to_defaults(rehearsing, tmp_path):
    flags = f"--dump_folder {tmp_path} --training.steps 1 --checkpoint.no-enable".split()
    command = [Path(sys.executable).with_name("trncheck"), "train", "qwen3_native_tiny", "--ranks", "2", *flags]
    done = subprocess.run(command, env=rehearsing, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert RunRecord(tmp_path, 2).circumstances.device == "neuron"
    assert (tmp_path / "neff-cache").is_dir()


def test_a_device_that_is_installed_and_not_there_is_no_reason_to_train_on_the_cpu():
    broken = "import torch, types; torch.neuron = types.SimpleNamespace(is_available=lambda: False)"
    command = [sys.executable, "-P", "-c", f"{broken}; import trncheck.trainers.devices"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ValueError: torch-neuronx is loaded and finds no NeuronCore")
    assert last.endswith("; or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to train on the CPU")
