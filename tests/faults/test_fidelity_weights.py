"""Faults in what masks, heads, random starts and exported files are."""

import json
import math

import pytest
import torch

fault = pytest.mark.fault


def _wrap(owner, name: str, wrapper) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


# --- documents


@fault("fidelity.documents[native-moe-1r]", "document, other document")
def test_positions_not_restarted():
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataset

    def running(original, self):
        for inputs, labels in original(self):
            yield inputs | {"positions": torch.arange(len(labels))}, labels

    _wrap(HuggingFaceTextDataset, "__iter__", running)


@fault("fidelity.documents[hf-dense-tied-1r]", "first document, other document")
def test_mask_leaks_across_documents():
    from trncheck.trainers import substitutes

    def causal(_original, block_mask, batch, length, device):
        return torch.ones(batch, 1, length, length, dtype=torch.bool, device=device).tril()

    _wrap(substitutes, "dense_mask", causal)


@fault("fidelity.documents[nki-moe-1r]", "document, before it")
def test_mask_shows_the_next_token():
    from trncheck.trainers import substitutes

    def one_more(original, *args):
        mask = original(*args)
        return mask | mask.roll(-1, dims=-2)

    _wrap(substitutes, "dense_mask", one_more)


@fault("fidelity.documents[native-dense-tied-1r]", "document, behind it")
def test_tokens_see_only_their_neighbour():
    from trncheck.trainers import substitutes

    _wrap(substitutes, "dense_mask", lambda original, *args: original(*args).triu(-1))


# --- tied heads


@fault("fidelity.tied[native-tied-different]", "refused, naming the head: expected True, found False")
def test_different_head_dropped_in_silence():
    from trncheck.trainers import job

    job.check_head = lambda folder: None


@fault("fidelity.tied[hf-tied-equal]", "error: expected ''")
def test_copy_of_the_embedding_refused():
    from trncheck.trainers import fidelity

    fidelity._differing_rows = lambda files: 1


@fault("fidelity.tied[hf-untied-different]", "weights before step 1")
def test_head_taken_from_the_embedding():
    from torchtitan.experiments.transformers_modeling_backend.state_dict_adapter import HFTransformerStateDictAdapter

    def tie(original, self, tensors):
        state = original(self, tensors)
        return state | {"model.lm_head.weight": state["model.model.embed_tokens.weight"]}

    _wrap(HFTransformerStateDictAdapter, "from_hf", tie)


# --- starts


@fault("fidelity.random_start[native-moe-1r]", "mlp.gate: distance from 0.02")
def test_router_drawn_by_its_width():
    from trncheck.trainers import native

    def wide(original, **kwargs):
        initialise = {"weight": lambda tensor: torch.nn.init.normal_(tensor, std=tensor.shape[-1] ** -0.5)}
        return original(**kwargs | {"gate_param_init": initialise})

    _wrap(native, "make_router_config", wide)


@fault("fidelity.random_start[native-moe-1r]", "largest correlation, model.layers.")
def test_experts_drawn_from_one_generator_state():
    from trncheck.trainers import native

    def alike(original, **kwargs):
        def initialise(tensor):
            torch.nn.init.normal_(tensor[:1], std=0.02)
            return tensor.copy_(tensor[:1].clone().expand_as(tensor))

        return original(**kwargs | {"param_init": dict.fromkeys(kwargs["param_init"], initialise)})

    _wrap(native, "make_routed_experts_config", alike)


@fault("fidelity.random_start[hf-dense-tied-1r]", "elements that are not 1: expected 0")
def test_norms_start_at_zero():
    from trncheck.trainers.transformers_model import RepairedTransformersModel

    def zeroed(original, self, **kwargs):
        original(self, **kwargs)
        torch.nn.init.zeros_(self.norm.weight)

    _wrap(RepairedTransformersModel, "init_states", zeroed)


@fault("fidelity.watch_sharded_start[native-moe-2r]", "self_attn.o_proj: distance from 0.02")
def test_sharded_matrix_drawn_twice_as_wide():
    from trncheck.trainers import native

    def wide(original, **kwargs):
        initialise = {"weight": lambda tensor: torch.nn.init.normal_(tensor, std=0.04)}
        return original(**kwargs | {"wo_param_init": initialise})

    _wrap(native, "make_gqa_config", wide)


# --- exported bytes


def _after_export(change) -> None:
    from trncheck.trainers import trainer

    def export(original, folder, **kwargs):
        original(folder, **kwargs)
        change(folder)

    _wrap(trainer, "complete_export", export)


@fault("fidelity.export_bytes[moe-several-files]", "total_size of the index")
def test_total_size_off_by_one_tensor():
    def shrink(folder):
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        index["metadata"]["total_size"] -= 4 * math.prod((512, 64))
        path.write_text(json.dumps(index))

    _after_export(shrink)


@fault("fidelity.export_bytes[dense-tied-several-files]", "files against the index: 1 unexpected: model-extra")
def test_file_that_the_index_does_not_name():
    from safetensors.torch import save_file

    _after_export(lambda folder: save_file({}, folder / "model-extra.safetensors", {"format": "pt"}))


@fault("fidelity.export_bytes[dense-tied-bfloat16]", "problems of the files")
def test_bytes_behind_the_last_tensor():
    def append(folder):
        for file in folder.glob("*.safetensors"):
            with file.open("ab") as tail:
                tail.write(b"\0" * 64)

    _after_export(append)
