"""What lies in a Hugging Face folder, read from headers and index alone."""

import json
from dataclasses import dataclass
from pathlib import Path

INDEX = "model.safetensors.index.json"
COMPANIONS = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
"""Files that an export takes from its source as they are, where the source has them."""


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
        found, formats[path.name], sizes[path.name] = _read(path)
        repeated.extend(name for name in found if name in headers)
        headers |= found
    index = json.loads((folder / INDEX).read_text())["weight_map"] if (folder / INDEX).is_file() else None
    return WeightFiles(headers, repeated, formats, sizes, index)


def _read(path: Path) -> tuple[dict[str, TensorHeader], str | None, int]:
    """Headers, ``format`` mark and size of the header."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > path.stat().st_size:
                raise ValueError(f"its header would have {size} bytes")
            header = json.loads(file.read(size))
        mark = header.pop("__metadata__", {}).get("format")
        found = {name: TensorHeader(path.name, of["dtype"], tuple(of["shape"])) for name, of in header.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: not a safetensors file ({type(error).__name__}: {error})") from None
    return found, mark, size
