"""What the fidelity checks look at, made once per session: parts of real models, random starts, odd folders."""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from trncheck.conformance.cases import Case
from trncheck.conformance.runs import ROWS, SEQ_LEN, once
from trncheck.fixtures import corpus
from trncheck.fixtures.geometry import PUBLISHED, Geometry
from trncheck.fixtures.tiny import tiny_folder

_LOCAL_ROWS = ROWS // 2
"""Of the first micro-batch on one rank."""


@dataclass(frozen=True)
class Probed:
    """What a real configuration builds and computes (see ``trainers.probe``)."""

    folder: Path

    @cached_property
    def facts(self) -> dict:
        return json.loads((self.folder / "facts.json").read_text())

    @cached_property
    def computed(self) -> dict:
        from safetensors.torch import load_file

        return load_file(self.folder / "computed.safetensors")


class Loaded(NamedTuple):
    """What became of a folder with weights: an error in one line, or a finished run and the folder's tensors."""

    error: str
    run: object = None
    file: dict | None = None


class FidelityRuns:
    """All folders lie below ``root``; ``launcher`` as in ``RunBook``."""

    def __init__(self, root: Path, launcher: str):
        self._root = root
        self._launcher = launcher
        self._count = 0

    @once
    def probed(self, config: str, published: str) -> Probed:
        """Parts of the real ``config``, beside the config.json of a published model, in a process of their own."""
        from trncheck.trainers import children
        from trncheck.trainers.probe import probe

        geometry, folder = PUBLISHED[published], self._folder(config)
        geometry.write_config(folder)
        arguments = (config, folder, geometry, published_names(geometry), positions(geometry), folder)
        children.fork([(probe, arguments, {})], folder)
        return Probed(folder)

    @once
    def started(self, case: Case) -> Path:
        """Folder with ``weights`` and ``logits`` of a trainer at its random start (see ``trainers.start``)."""
        from trncheck.trainers import launch
        from trncheck.trainers.start import start

        folder = self._folder(str(case))
        flags = ["--config", case.config, "--hf_assets_path", str(tiny_folder(case.model)), "--dump_folder"]
        launch.run_rank(start, ([*flags, str(folder)], changed_columns(), folder), folder, self._launcher)
        return folder

    @once
    def random_weights(self, case: Case) -> dict:
        """Weights before the first step of a random start, under Hugging Face names."""
        from safetensors.torch import load_file

        from trncheck.trainers import launch

        if self._launcher == "fork" and case.ranks == 1:
            return load_file(self.started(case) / "weights.safetensors")
        flags = [
            "--hf_assets_path",
            str(tiny_folder(case.model)),
            "--training.steps",
            "1",
            "--record.weight_steps",
            "0",
        ]
        folder = self._folder(str(case))
        run = launch.run(case.config, dump_folder=folder, flags=flags, world_size=case.ranks, launcher=self._launcher)
        return run.weights(0)

    @once
    def loaded(self, path: str, tied: bool, head: str) -> Loaded:
        """One step from a folder whose config.json says ``tied``, and whose file has the ``head`` absent, equal or not.

        ``equal`` and ``different`` are as compared with the embedding.
        """
        from safetensors.torch import load_file, save_file

        from trncheck.trainers import launch
        from trncheck.trainers.errors import RunFailed

        model = "dense-tied" if tied else "dense-untied"
        folder = self._folder(f"{path}-{model}-{head}")
        source = folder / "source"
        shutil.copytree(tiny_folder(model), source)
        (file,) = source.glob("*.safetensors")
        tensors = load_file(file)
        tensors.pop("lm_head.weight", None)
        if head != "absent":
            embedding = tensors["model.embed_tokens.weight"]
            tensors["lm_head.weight"] = embedding.clone() if head == "equal" else embedding.flip(0).contiguous()
        save_file(tensors, file, {"format": "pt"})
        flags = "--training.steps 1 --checkpoint.enable --checkpoint.initial_load_in_hf --record.weight_steps 0"
        try:
            run = launch.run(
                Case(path, model, 1).config,
                dump_folder=folder / "out",
                flags=["--hf_assets_path", str(source), *flags.split()],
                launcher=self._launcher,
            )
        except RunFailed as failed:
            return Loaded(error=str(failed))
        return Loaded("", run, tensors)

    def _folder(self, name: str) -> Path:
        self._count += 1
        folder = self._root / f"{self._count:03}-{name}"
        folder.mkdir(parents=True)
        return folder


def published_names(geometry: Geometry) -> list[str]:
    """Names of the tensors in the published index of ``geometry``."""
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    if not geometry.tie_word_embeddings:
        names.append("lm_head.weight")
    projections = ("gate_proj", "up_proj", "down_proj")
    for i in range(geometry.num_hidden_layers):
        layer = f"model.layers.{i}"
        attention = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
        names += [f"{layer}.self_attn.{name}.weight" for name in attention]
        names += [f"{layer}.{name}_layernorm.weight" for name in ("input", "post_attention")]
        if geometry.is_moe:
            names.append(f"{layer}.mlp.gate.weight")
        experts = [f".experts.{e}" for e in range(geometry.num_experts)] or [""]
        names += [f"{layer}.mlp{expert}.{name}.weight" for expert in experts for name in projections]
    return names


def positions(geometry: Geometry) -> list[int]:
    """From the first to the last position that the published model knows."""
    last = geometry.max_position_embeddings - 1
    return [0, 1, 2, 63, 64, 4095, last // 2, last - 1, last]


def second_documents() -> list[int]:
    """Column at which the second document of each row of the first micro-batch starts, as the corpus has it."""
    positions_BL = corpus.batch(1, ROWS, SEQ_LEN)["positions"][:_LOCAL_ROWS]
    return [int((row == 0).nonzero()[0][1]) for row in positions_BL]


def changed_columns() -> dict[str, list[int]]:
    """Which column of each row becomes another token: amid the ``first`` document, or amid the ``second``."""
    starts = second_documents()
    return {"first": [start // 2 for start in starts], "second": [(start + SEQ_LEN) // 2 for start in starts]}
