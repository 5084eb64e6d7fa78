"""What lies in a Hugging Face folder, read from headers and index alone."""

import json
from dataclasses import dataclass
from pathlib import Path

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class TensorHeader:
    file: str
    dtype: str
    """safetensors' name: ``F32``, ``BF16``, ``F16``."""
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WeightFiles:
    """The safetensors files of a folder."""

    headers: dict[str, TensorHeader]
    """By tensor name."""
    repeated: list[str]
    """Tensor names that more than one file holds."""
    formats: dict[str, str | None]
    """File -> its ``format`` mark."""
    header_bytes: dict[str, int]
    """File -> size of its header, bytes."""
    index: dict[str, str] | None
    """Tensor name -> file, as the index says; None where there is no index."""


def read_headers(folder: Path) -> WeightFiles:
    """Headers and index of ``folder``, without reading any weights. Raises ValueError for a damaged file."""
    headers, repeated, formats, sizes = {}, [], {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        header, sizes[path.name] = _header(path)
        formats[path.name] = header.pop("__metadata__", {}).get("format")
        for name, entry in header.items():
            if name in headers:
                repeated.append(name)
            headers[name] = TensorHeader(path.name, entry["dtype"], tuple(entry["shape"]))
    index = json.loads((folder / INDEX).read_text())["weight_map"] if (folder / INDEX).is_file() else None
    return WeightFiles(headers, repeated, formats, sizes, index)


def _header(path: Path) -> tuple[dict, int]:
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return json.loads(file.read(size)), size
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a safetensors file ({error})") from None
