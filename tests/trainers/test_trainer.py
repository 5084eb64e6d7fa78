"""What the trainer adds to torchtitan's: guards before the first step, and a complete export after the last."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from trncheck.fixtures.tiny import tiny_folder
from trncheck.trainers import launch
from trncheck.trainers.export import complete_export

# --- the dump folder


def job_config(dump_folder: Path, **checkpoint) -> SimpleNamespace:
    defaults = {"enable": True, "initial_load_in_hf": True, "initial_load_path": None, "load_step": -1}
    return SimpleNamespace(
        dump_folder=str(dump_folder), checkpoint=SimpleNamespace(folder="checkpoint", **defaults | checkpoint)
    )


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A dump folder with checkpoints, whose newest is not the last in alphabetical order."""
    for name in ("step-9", "step-10", "step-x", "notes"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("asked", [{}, {"initial_load_in_hf": False, "initial_load_path": "/weights"}], ids=str)
def test_a_used_dump_folder_is_refused_for_a_run_that_loads_weights(used, asked):
    from trncheck.trainers.trainer import check_dump_folder

    with pytest.raises(ValueError, match=r"already holds step-10, .*--checkpoint\.load_step 10 to resume") as refusal:
        check_dump_folder(job_config(used, **asked))
    assert str(used / "checkpoint") in str(refusal.value)


@pytest.mark.parametrize("asked", [{"load_step": 9}, {"enable": False}, {"initial_load_in_hf": False}], ids=str)
def test_a_used_dump_folder_is_taken_where_resuming_is_meant_or_nothing_is_loaded(used, asked):
    from trncheck.trainers.trainer import check_dump_folder

    check_dump_folder(job_config(used, **asked))


@pytest.mark.parametrize("asked", [{"load_step": 10}, {"initial_load_in_hf": False}], ids=str)
def test_an_export_is_refused_as_a_checkpoint_to_resume(used, asked):
    from trncheck.trainers.trainer import check_dump_folder

    (used / "checkpoint" / "step-10" / "config.json").touch()
    with pytest.raises(ValueError, match=r"step-10 is a Hugging Face export, .* fresh --dump_folder"):
        check_dump_folder(job_config(used, **asked))
    check_dump_folder(job_config(used, load_step=9))


def test_a_fresh_dump_folder_is_taken(tmp_path):
    from trncheck.trainers.trainer import check_dump_folder

    (tmp_path / "checkpoint" / "step-x").mkdir(parents=True)
    check_dump_folder(job_config(tmp_path))


def test_the_trainer_itself_looks_at_its_dump_folder(dense):
    flags = ["--checkpoint.enable", "--checkpoint.initial_load_in_hf", "--training.steps", "5"]
    with pytest.raises(launch.RunFailed, match="already holds step-3, which torchtitan would resume"):
        launch.run("qwen3_native_tiny", dump_folder=dense.folder, flags=flags)


# --- before the first step


def test_a_run_of_zero_steps_is_refused(train):
    with pytest.raises(launch.RunFailed, match=r"nothing to train: .*raise --training\.steps"):
        train("qwen3_native_tiny", "--training.steps 0")


@pytest.mark.parametrize(
    ("config", "weight", "name"),
    [
        ("qwen3_native_tiny", "model.layers.1.mlp.up_proj.weight", "layers.1.feed_forward.w3.weight"),
        ("qwen3_hf_tiny", "model.norm.weight", "model.norm.weight"),
    ],
)
def test_a_loaded_weight_that_is_not_finite_is_named(config, weight, name, train, tmp_path, dense_weights):
    shutil.copytree(dense_weights, tmp_path / "weights")
    file = tmp_path / "weights" / "model.safetensors"
    weights = load_file(file)
    weights[weight].flatten()[3] = float("inf")
    weights[weight].flatten()[7] = float("nan")
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(launch.RunFailed, match=rf"{name} holds 2 non-finite values before step 1"):
        train(config, weights=tmp_path / "weights")


# --- the export


def test_an_export_is_a_complete_model_folder(dense, dense_weights):
    assert {path.name for path in dense.export.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model-00001-of-00001.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    source, config = (json.loads((folder / "config.json").read_text()) for folder in (dense_weights, dense.export))
    assert config == source | {"dtype": "float32"}
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (dense.export / name).read_bytes() == (dense_weights / name).read_bytes()


def test_an_export_holds_the_tensors_of_its_index_marked_for_pytorch(dense, dense_weights):
    index = json.loads((dense.export / "model.safetensors.index.json").read_text())["weight_map"]
    for file in set(index.values()):
        with safe_open(dense.export / file, "pt") as reader:
            assert reader.metadata()["format"] == "pt"
            assert set(reader.keys()) == {name for name, of in index.items() if of == file}
    assert index.keys() == load_file(dense_weights / "model.safetensors").keys()


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """An export as torchtitan leaves it: no config, no mark, a second copy; with an unaligned amount of data."""
    folder = tmp_path / "export"
    (folder / "sharded").mkdir(parents=True)
    tensors = {"b": torch.randn(3, 5), "a": torch.arange(7, dtype=torch.uint8), "c": torch.randn(2).bfloat16()}
    save_file(tensors, folder / "model-00001-of-00001.safetensors")
    save_file(tensors, folder / "sharded" / "shard-00001.safetensors")
    return folder


def test_marking_a_header_leaves_every_tensor_and_data_byte_alone(unfinished, dense_weights):
    file = unfinished / "model-00001-of-00001.safetensors"
    before, tensors = data_of(file), load_file(file)
    complete_export(unfinished, source=dense_weights, dtype="bfloat16")
    header_length = int.from_bytes(file.read_bytes()[:8], "little")
    assert header_length % 8 == 0  # the format wants its data aligned
    assert data_of(file) == before
    after = load_file(file)
    assert after.keys() == tensors.keys()
    assert all(torch.equal(after[name], tensors[name]) for name in tensors)
    with safe_open(file, "pt") as reader:
        assert reader.metadata() == {"format": "pt"}


def test_completing_an_export_twice_changes_nothing_more(unfinished, dense_weights):
    complete_export(unfinished, source=dense_weights, dtype="bfloat16")
    once = {path.name: path.read_bytes() for path in unfinished.iterdir()}
    complete_export(unfinished, source=dense_weights, dtype="bfloat16")
    assert {path.name: path.read_bytes() for path in unfinished.iterdir()} == once
    assert json.loads(once["config.json"])["dtype"] == "bfloat16"
    assert "sharded" not in once


def test_an_export_without_a_config_to_copy_is_refused(unfinished, tmp_path):
    with pytest.raises(ValueError, match=r"has no config\.json, so the export .* cannot be completed"):
        complete_export(unfinished, source=tmp_path, dtype="float32")


def data_of(file: Path) -> bytes:
    content = file.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


# --- the Transformers path's repairs


@pytest.fixture
def rotary():
    """A rotary module of plain Transformers whose frequencies are lost, as torchtitan's stock backend leaves them."""
    from transformers import AutoConfig
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    module = Qwen3RotaryEmbedding(AutoConfig.from_pretrained(tiny_folder("dense-tied")))
    for buffer in (module.inv_freq, module.original_inv_freq):
        buffer.fill_(float("nan"))
    return module


def test_rotary_frequencies_are_those_of_theta(rotary):
    from trncheck.trainers.transformers_model import restore_rotary

    restore_rotary("rotary_emb", rotary)
    for buffer in (rotary.inv_freq, rotary.original_inv_freq):
        assert buffer.tolist() == pytest.approx([1e6 ** (-2 * i / 32) for i in range(16)], rel=1e-6)
    assert rotary.attention_scaling == 1


def test_another_rotary_type_is_refused(rotary):
    from trncheck.trainers.transformers_model import restore_rotary

    rotary.config.rope_parameters["rope_type"] = "yarn"
    with pytest.raises(ValueError, match="rotary_emb: rope_type 'yarn' is not supported, only 'default'"):
        restore_rotary("rotary_emb", rotary)


@pytest.mark.parametrize("fault", [lambda f: f * 1.00001, lambda f: f.flip(0), lambda f: f * float("nan")])
def test_a_repair_that_gives_wrong_frequencies_is_noticed(fault, rotary, monkeypatch):
    from trncheck.trainers.transformers_model import restore_rotary

    compute = rotary.compute_default_rope_parameters

    def faulty(config, device):
        frequencies, scaling = compute(config, device)
        return fault(frequencies), scaling

    monkeypatch.setattr(rotary, "compute_default_rope_parameters", faulty)
    with pytest.raises(RuntimeError, match="rotary_emb: rotary frequencies are off by a factor"):
        restore_rotary("rotary_emb", rotary)


@pytest.fixture
def moe_adapter():
    from trncheck.trainers.transformers_adapter import Qwen3MoeTransformersAdapter

    return lambda tied: Qwen3MoeTransformersAdapter(SimpleNamespace(tie_word_embeddings=tied, num_experts=16), None)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_moe_weights_survive_the_way_into_torchtitan_and_back(tied, moe_adapter):
    """16 experts, so that expert 10 would come before expert 2 if names were sorted as text."""
    from_file = load_file(tiny_folder("moe") / "model.safetensors")
    if tied:
        del from_file["lm_head.weight"]
    before = {name: tensor.clone() for name, tensor in from_file.items()}
    inside = moe_adapter(tied).from_hf(dict(from_file))
    grouped = inside["model.model.layers.1.mlp.routed_experts.inner_experts.w2_EDF"]
    assert grouped.shape == (16, 64, 48)
    for expert in range(16):
        assert torch.equal(grouped[expert], before[f"model.layers.1.mlp.experts.{expert}.down_proj.weight"])
    kept = {name: tensor.clone() for name, tensor in inside.items()}
    back = moe_adapter(tied).to_hf(inside)
    assert back.keys() == before.keys() == from_file.keys()
    assert all(torch.equal(back[name], before[name]) for name in before)
    assert all(torch.equal(from_file[name], before[name]) for name in before)
    assert inside.keys() == kept.keys()
    assert all(torch.equal(inside[name], kept[name]) for name in kept)
    if tied:
        assert inside["model.lm_head.weight"] is inside["model.model.embed_tokens.weight"]


def test_gate_up_and_down_projections_are_told_apart(moe_adapter):
    names = {"w1_EFD": "gate_proj", "w3_EFD": "up_proj", "w2_EDF": "down_proj"}
    grouped = {name: torch.full((12, 2, 3), float(i)) for i, name in enumerate(names)}
    prefix = "model.model.layers.0.mlp.routed_experts.inner_experts."
    split = moe_adapter(tied=False).to_hf({prefix + name: tensor for name, tensor in grouped.items()})
    assert len(split) == 36
    for i, projection in enumerate(names.values()):
        assert (split[f"model.layers.0.mlp.experts.11.{projection}.weight"] == i).all()
