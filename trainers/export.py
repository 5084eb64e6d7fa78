"""Completes the safetensors that torchtitan exports to a folder that Transformers loads by itself."""

import json
import shutil
from pathlib import Path

_COMPANIONS = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def complete_export(folder: Path, *, source: Path, dtype: str) -> None:
    """Add config.json (with the exported dtype) and the tokenizer of ``source``; mark the files as PyTorch's.

    torchtitan writes weights and index only, without the ``format`` mark that some readers insist on, and leaves a
    second copy of the weights in ``sharded``. Raises ValueError where ``source`` has no config.json.
    """
    if not (source / "config.json").is_file():
        raise ValueError(f"{source} has no config.json, so the export {folder} cannot be completed")
    config = json.loads((source / "config.json").read_text())
    config["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name in _COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    for file in sorted(folder.glob("*.safetensors")):
        _mark(file)
    shutil.rmtree(folder / "sharded", ignore_errors=True)


def _mark(file: Path) -> None:
    """Set the format mark in a safetensors header: 8 bytes of length, JSON, then the data, which is copied as it is."""
    with file.open("rb") as source:
        header = json.loads(source.read(int.from_bytes(source.read(8), "little")))
        metadata = header.setdefault("__metadata__", {})
        if metadata.get("format") == "pt":
            return
        metadata["format"] = "pt"
        encoded = json.dumps(header, separators=(",", ":")).encode()
        encoded += b" " * (-len(encoded) % 8)
        marked = file.with_suffix(".tmp")
        with marked.open("wb") as target:
            target.write(len(encoded).to_bytes(8, "little") + encoded)
            shutil.copyfileobj(source, target)
    marked.replace(file)
