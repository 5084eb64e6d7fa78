"""Is a head that config.json contradicts refused, in one file and in several, before anything is trained?"""

import json

import pytest
import torch
from safetensors.torch import save_file

from trncheck.trainers.fidelity import check_head

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def folder(tmp_path):
    """``folder(tied, *tensors by file)`` writes config.json and files."""

    def write(tied, *files):
        config = {} if tied is None else {"tie_word_embeddings": tied}
        (tmp_path / "config.json").write_text(json.dumps(config))
        for i, tensors in enumerate(files):
            save_file(tensors, tmp_path / f"model-{i}.safetensors")
        return tmp_path

    return write


def matrix(rows: int = 5000) -> torch.Tensor:
    return torch.arange(rows * 2.0).reshape(rows, 2).bfloat16()


def test_tied_model_without_a_head_and_untied_one_with_any_head_pass(folder):
    check_head(folder(True, {EMBEDDING: matrix()}))
    check_head(folder(False, {EMBEDDING: matrix(), HEAD: matrix()}))
    check_head(folder(False, {EMBEDDING: matrix(), HEAD: matrix() + 9}))


def test_copy_of_the_embedding_passes_in_another_file(folder):
    check_head(folder(True, {EMBEDDING: matrix()}, {HEAD: matrix()}))


def test_flag_that_is_not_there_says_nothing(folder):
    check_head(folder(None, {EMBEDDING: matrix(), HEAD: matrix() + 9}))


@pytest.mark.parametrize("row", [0, 4095, 4096, 4999])
def test_one_different_element_of_a_tied_head_is_refused(folder, row):
    head = matrix()
    head[row, 1] += 1000
    with pytest.raises(ValueError, match=r"differs from model\.embed_tokens\.weight in 1 rows.*tie_word_embeddings"):
        check_head(folder(True, {EMBEDDING: matrix()}, {HEAD: head}))


def test_tied_head_of_another_size_is_refused(folder):
    with pytest.raises(ValueError, match="in 5001 rows"):
        check_head(folder(True, {EMBEDDING: matrix(), HEAD: matrix(5001)}))


def test_untied_model_without_a_head_is_refused(folder):
    with pytest.raises(ValueError, match=r"holds no lm_head\.weight.*tie_word_embeddings to true"):
        check_head(folder(False, {EMBEDDING: matrix()}))
