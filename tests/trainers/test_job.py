"""Bad input to ``python -m trncheck.trainers``: one line that says what, where and what to do, and status 2."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trncheck.trainers import job, launch

Told = tuple[int, str]
NATIVE = ["--config", "qwen3_native_tiny"]


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Told]:
    """``told(*flags)``: status and last line of ``python -m trncheck.trainers`` as a forked rank; no traceback."""

    def call(*flags: str) -> Told:
        status = tmp_path / "status"
        launch.fork_ranks(lambda: status.write_text(str(job.main(list(flags)))), (), 1, tmp_path)
        output = (tmp_path / "rank0.log").read_text()
        assert "Traceback" not in output
        assert output.count(job.FAILURE_MARK) == 1
        return int(status.read_text()), output.splitlines()[-1]

    return call


@pytest.fixture
def assets(tmp_path: Path, dense_weights: Path) -> Path:
    """A copy of a model folder, to be damaged."""
    return Path(shutil.copytree(dense_weights, tmp_path / "assets"))


@pytest.mark.parametrize("flags", [[], ["--config"], ["--training.steps", "3"]], ids=" ".join)
def test_a_missing_config_lists_the_choices(flags, told):
    status, line = told(*flags)
    assert status == 2
    assert "ValueError: --config must name one of qwen3_hf_0_6b, " in line
    assert line.endswith("got None")


@pytest.mark.parametrize("name", ["qwen3_tiny", "Path", "_tiny"])
def test_an_unknown_config_lists_the_choices(name, told):
    """Also where the registry's module knows the name, as something else."""
    for flags in ([f"--config={name}"], ["--config", name]):
        status, line = told(*flags)
        assert status == 2
        assert "--config must name one of" in line
        assert line.endswith(f"got {name}")


def test_every_listed_config_builds_its_configuration():
    from trncheck.trainers import config_registry

    for name in job.config_names():
        assert getattr(config_registry, name)().model_spec.name


def test_an_unknown_flag_is_named_with_the_closest_one(told):
    status, line = told(*NATIVE, "--training.step", "3")
    assert status == 2
    assert "ValueError: Unrecognized options: --training.step, 3; close: --training.steps" in line
    assert line.endswith("--config NAME --help lists all flags")


def test_a_value_of_the_wrong_type_is_named(told):
    status, line = told(*NATIVE, "--training.steps", "three")
    assert status == 2
    assert "--training.steps" in line
    assert "'three'" in line


def test_assets_without_config_json_are_refused(told, tmp_path):
    status, line = told(*NATIVE, "--hf_assets_path", str(tmp_path))
    assert status == 2
    assert f"{tmp_path} has no config.json; point --hf_assets_path at" in line


@pytest.mark.parametrize("length", [0, 5, 1000, -1], ids=lambda length: f"cut at {length}")
def test_a_truncated_weights_file_is_refused(length, told, assets):
    weights = assets / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:length])
    status, line = told(*NATIVE, "--hf_assets_path", str(assets))
    assert status == 2
    assert f"{weights} is not a readable safetensors file" in line
    assert line.endswith("fetch or export it again")


def test_loading_from_a_folder_without_weights_is_refused(told, assets):
    (assets / "model.safetensors").unlink()
    load = ["--checkpoint.enable", "--checkpoint.initial_load_in_hf"]
    status, line = told(*NATIVE, "--hf_assets_path", str(assets), *load)
    assert status == 2
    assert f"{assets} holds no safetensors file" in line
    assert "--hf_assets_path" in line


def test_a_refusal_after_the_trainer_was_built_is_one_line_as_well(told, tmp_path):
    status, line = told(*NATIVE, "--training.steps", "0", "--dump_folder", str(tmp_path / "dump"))
    assert status == 2
    assert "nothing to train: the checkpoint is at step 0 and training.steps is 0; raise --training.steps" in line


def test_help_lists_the_flags_of_the_trainer(tmp_path):
    launch.fork_ranks(job.main, ([*NATIVE, "--help"],), 1, tmp_path)
    text = (tmp_path / "rank0.log").read_text()
    assert "--record.gradient-steps" in text
    assert job.FAILURE_MARK not in text


def test_the_command_itself_ends_with_status_2_and_one_line(tmp_path):
    """In a process of its own, from a working folder whose ``kernels`` must not shadow a package of that name."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise ImportError('the wrong kernels')")
    command = [sys.executable, "-m", "trncheck.trainers", "--config", "qwen3_nativ_tiny"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--config must name one of" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rms_norm_eps", 1e-3),
        ("num_hidden_layers", 1),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 1e4}),
    ],
)
def test_a_native_configuration_refuses_another_models_folder(field, value, told, assets):
    path = assets / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    status, line = told(*NATIVE, "--hf_assets_path", str(assets))
    assert status == 2
    named = "rope_theta 10000.0 (built: 1000000.0)" if field == "rope_parameters" else f"{field} {value} (built: "
    assert f"{path} describes another model than the configuration builds: {named}" in line
