"""Where tensors' bytes lie, and what is said of files that are wrong."""

import json

import pytest
import torch
from safetensors.torch import save_file

from trncheck.conformance.export_bytes import read_bytes
from trncheck.conformance.export_files import INDEX


@pytest.fixture
def folder(tmp_path):
    """Two files and their index."""
    save_file({"a": torch.zeros(2, 3), "s": torch.tensor(1.0)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.zeros(4, dtype=torch.bfloat16)}, tmp_path / "model-2.safetensors")
    index = {"a": "model-1.safetensors", "s": "model-1.safetensors", "b": "model-2.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": 36}, "weight_map": index}))
    return tmp_path


def write(path, header: dict, data: bytes, pad: int = 0) -> None:
    encoded = json.dumps(header).encode()
    encoded += b" " * ((-len(encoded)) % 8 + pad)
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def tensor(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_folder_that_is_right_has_no_problems_and_its_size(folder):
    found = read_bytes(folder)
    assert (found.tensors, found.total_size, found.problems) == (36, 36, [])
    assert found.files == found.indexed == {"model-1.safetensors", "model-2.safetensors"}


def test_folder_without_an_index_has_no_total_size(folder):
    (folder / INDEX).unlink()
    found = read_bytes(folder)
    assert found.total_size is None
    assert found.indexed == found.files


def test_index_without_metadata_has_no_total_size(folder):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    assert read_bytes(folder).total_size is None


@pytest.mark.parametrize(
    ("header", "size", "pad", "problem"),
    [
        (
            {"a": tensor(0, 8, [2]), "b": tensor(12, 20, [2])},
            20,
            0,
            "b starts at byte 12, and what is before it ends at 8",
        ),
        (
            {"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])},
            12,
            0,
            "b starts at byte 4, and what is before it ends at 8",
        ),
        ({"a": tensor(0, 2, [1], "BF16"), "b": tensor(2, 6, [1])}, 6, 0, "b starts at byte 2, not a multiple of its 4"),
        ({"a": tensor(0, 8, [3])}, 8, 0, "a has 8 bytes for 12"),
        ({"a": tensor(0, 8, [2])}, 9, 0, "header and tensors have"),
        ({"a": tensor(0, 8, [2])}, 8, 3, "not a multiple of 8"),
    ],
    ids=["gap", "overlap", "alignment", "length", "bytes behind the end", "header"],
)
def test_odd_file_is_described(tmp_path, header, size, pad, problem):
    write(tmp_path / "model.safetensors", header, b"\0" * size, pad)
    assert any(problem in found for found in read_bytes(tmp_path).problems)
