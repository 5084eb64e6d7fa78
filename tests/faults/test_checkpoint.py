"""Faults in what the last step exports."""

import json

import pytest

fault = pytest.mark.fault


def _after_export(change) -> None:
    """Call ``change(folder)`` when an export is complete."""
    from trncheck.trainers import trainer

    original = trainer.complete_export

    def export(folder, **kwargs):
        original(folder, **kwargs)
        change(folder)

    trainer.complete_export = export


def _rewrite(change) -> None:
    """Pass the tensors of every exported file through ``change(tensors)``, which edits the dict."""
    from safetensors.torch import load_file, save_file

    def rewrite(folder):
        for file in folder.glob("*.safetensors"):
            tensors = load_file(file)
            change(tensors)
            save_file(tensors, file, {"format": "pt"})

    _after_export(rewrite)


@fault("checkpoint.structure[native-dense-tied-1r]", "1 missing: model.layers.1.mlp.up_proj.weight")
def test_tensor_missing_from_the_file():
    _rewrite(lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))


@fault("checkpoint.reload[native-dense-tied-1r]", "missing keys: expected [], found ['model.layers.1.mlp.up_proj")
def test_tensor_missing_at_reload():
    _rewrite(lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))


@fault("checkpoint.reload[hf-dense-tied-1r]", "unexpected keys: expected [], found ['model.layers.0.self_attn.qnorm")
def test_tensor_renamed():
    def rename(tensors):
        tensors["model.layers.0.self_attn.qnorm.weight"] = tensors.pop("model.layers.0.self_attn.q_norm.weight")

    _rewrite(rename)


@fault("checkpoint.structure[native-dense-untied-1r]", "shape: expected (512, 64), found (511, 64)")
def test_vocabulary_cut():
    _rewrite(lambda tensors: tensors.update({"lm_head.weight": tensors["lm_head.weight"][:-1].clone()}))


@fault("checkpoint.structure[native-moe-2r]", "format marks")
def test_format_mark_missing():
    from trncheck.trainers import export

    export._mark = lambda file: None


@fault("checkpoint.structure[native-moe-1r]", "index against headers")
def test_index_names_another_file():
    def misname(folder):
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        index["weight_map"]["model.norm.weight"] = "model-00002-of-00002.safetensors"
        path.write_text(json.dumps(index))

    _after_export(misname)


@fault("checkpoint.structure[hf-moe-1r]", "tokenizer.json is the source's: expected True, found False")
def test_tokenizer_with_two_words_swapped():
    def swap(folder):
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace('"w002"', '"w00x"').replace('"w003"', '"w002"'))

    _after_export(swap)


@fault("checkpoint.head[native-dense-tied-1r]", "lm_head.weight is in the files: expected False, found True")
def test_tied_head_written():
    def write(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    _rewrite(write)


@fault("checkpoint.reload[native-dense-untied-1r]", "head is the embedding: expected False, found True")
def test_untied_head_exported_as_tied():
    def tie(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": True}))

    def both(folder):
        tie(folder)
        from safetensors.torch import load_file, save_file

        file = next(folder.glob("*.safetensors"))
        tensors = load_file(file)
        del tensors["lm_head.weight"]
        save_file(tensors, file, {"format": "pt"})

    _after_export(both)


@fault("checkpoint.weights[native-dense-tied-1r]", "model.norm.weight (1 of 64 elements")
def test_one_element_off_by_one_bit():
    def flip(tensors):
        import torch

        tensors["model.norm.weight"].view(torch.int32)[3] ^= 1

    _rewrite(flip)


@fault("checkpoint.logits[native-dense-tied-1r]", "largest |difference|")
def test_norm_epsilon_changed_in_the_config():
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rms_norm_eps": 1e-3}))

    _after_export(change)


@fault("checkpoint.export_as_asked[dense-tied-bfloat16]", "dtype: expected 'BF16', found 'F32'")
def test_export_dtype_ignored():
    from torchtitan.components.checkpointer import CheckpointManager

    original = CheckpointManager.__init__

    def ignore(self, config, **kwargs):
        config.export_dtype = "float32"
        original(self, config, **kwargs)

    CheckpointManager.__init__ = ignore


@fault("checkpoint.export_as_asked[moe-several-files]", "index.json is there: expected True, found False")
def test_no_index_for_several_files():
    _after_export(lambda folder: (folder / "model.safetensors.index.json").unlink())
