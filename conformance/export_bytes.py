"""Where the bytes of a Hugging Face folder's tensors lie, by headers, file sizes and index."""

import json
import math
from pathlib import Path
from typing import NamedTuple

from trncheck.conformance.export_files import INDEX

_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "U8": 1}


class Bytes(NamedTuple):
    """The bytes of a folder's safetensors files."""

    tensors: int
    """Of all tensors by dtype and shape."""
    problems: list[str]
    """What is wrong with a file: gaps, overlaps, sizes, alignment."""
    total_size: int | None
    """As the index says it; None where there is none."""
    indexed: set[str]
    """Files that the index names."""
    files: set[str]
    """Files that are there."""


def read_bytes(folder: Path) -> Bytes:
    """The layout of ``folder``; reads no weights. ``read_headers`` says first whether headers can be read at all."""
    total, problems = 0, []
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        if size % 8:
            problems.append(f"{path.name}: header of {size} bytes, not a multiple of 8")
        end = 0
        for name, of in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, width = of["data_offsets"][0], _BYTES[of["dtype"]]
            length = math.prod(of["shape"]) * width
            total += length
            if begin != end:
                problems.append(f"{path.name}: {name} starts at byte {begin}, and what is before it ends at {end}")
            if begin % width:
                problems.append(f"{path.name}: {name} starts at byte {begin}, not a multiple of its {width} bytes")
            end = of["data_offsets"][1]
            if end - begin != length:
                problems.append(f"{path.name}: {name} has {end - begin} bytes for {length}")
        if path.stat().st_size != 8 + size + end:
            problems.append(f"{path.name}: {path.stat().st_size} bytes, header and tensors have {8 + size + end}")
    index = json.loads((folder / INDEX).read_text()) if (folder / INDEX).is_file() else None
    return Bytes(
        total,
        problems,
        index and index.get("metadata", {}).get("total_size"),
        set(index["weight_map"].values()) if index else {path.name for path in files},
        {path.name for path in files},
    )
