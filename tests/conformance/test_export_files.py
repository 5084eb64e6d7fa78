"""Headers and index of a Hugging Face folder, read without the weights."""

import json

import pytest
import torch
from safetensors.torch import save_file

from trncheck.conformance.export_files import INDEX, TensorHeader, read_headers


@pytest.fixture
def folder(tmp_path):
    """Two files and their index."""
    save_file({"a": torch.zeros(2, 3), "s": torch.tensor(1.0)}, tmp_path / "model-1.safetensors", {"format": "pt"})
    save_file({"b": torch.zeros(4, dtype=torch.bfloat16)}, tmp_path / "model-2.safetensors")
    index = {"a": "model-1.safetensors", "s": "model-1.safetensors", "b": "model-2.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": 36}, "weight_map": index}))
    return tmp_path


def test_headers_have_file_dtype_and_shape(folder):
    assert read_headers(folder).headers == {
        "a": TensorHeader("model-1.safetensors", "F32", (2, 3)),
        "s": TensorHeader("model-1.safetensors", "F32", ()),
        "b": TensorHeader("model-2.safetensors", "BF16", (4,)),
    }


def test_format_mark_is_told_apart_from_tensors(folder):
    assert read_headers(folder).formats == {"model-1.safetensors": "pt", "model-2.safetensors": None}


def test_header_size_leaves_exactly_the_weights(folder):
    sizes = read_headers(folder).header_bytes
    for name, weights in {"model-1.safetensors": 28, "model-2.safetensors": 8}.items():
        assert (folder / name).stat().st_size == 8 + sizes[name] + weights


def test_index_is_read_as_it_stands(folder):
    assert read_headers(folder).index == {
        "a": "model-1.safetensors",
        "s": "model-1.safetensors",
        "b": "model-2.safetensors",
    }
    (folder / INDEX).unlink()
    assert read_headers(folder).index is None


def test_tensor_in_two_files_is_noticed(folder):
    assert read_headers(folder).repeated == []
    save_file({"a": torch.zeros(1), "z": torch.zeros(1)}, folder / "model-3.safetensors")
    assert read_headers(folder).repeated == ["a"]


def test_folder_without_weights_has_no_headers(tmp_path):
    assert read_headers(tmp_path).headers == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:5],
        lambda whole: whole[:40],
        lambda whole: b"<html>not found</html>",
        lambda whole: whole[:8] + b"\xff" * 20 + whole[28:],
        lambda whole: (7).to_bytes(8, "little") + b'"a": 1}',
        lambda whole: (2).to_bytes(8, "little") + b"[]",
        lambda whole: (10).to_bytes(8, "little") + b'{"a": {} }',
    ],
    ids=["empty", "size cut", "header cut", "a web page", "not text", "not JSON", "a list", "no dtype"],
)
def test_damaged_file_is_named(folder, damage):
    file = folder / "model-1.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"model-1\.safetensors: not a safetensors file") as error:
        read_headers(folder)
    assert "\n" not in str(error.value)


def test_weights_are_not_read(folder):
    # The header alone is enough: a folder of 60 GB takes no longer than this one.
    file = folder / "model-1.safetensors"
    whole = read_headers(folder).headers
    file.write_bytes(file.read_bytes()[: 8 + read_headers(folder).header_bytes[file.name]])
    assert read_headers(folder).headers == whole
