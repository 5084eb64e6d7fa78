"""Exported folders, loaded by stock Transformers in processes that have never seen torchtitan.

``python -m trncheck.conformance.reload`` imports Transformers once and forks a fresh child for every request, a JSON
line on its standard input: ``{"folder", "out"}``. Each child writes its finds to ``out``, and runs the batches that lie
there.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trncheck.trainers.errors import RunFailed


@dataclass(frozen=True)
class Reloaded:
    """What a fresh process found in an exported folder."""

    folder: Path
    facts: dict

    @cached_property
    def weights(self) -> dict:
        """Every parameter as loaded, under the names of a Hugging Face file."""
        from safetensors.torch import load_file

        return load_file(self.folder / "weights.safetensors")

    @cached_property
    def logits(self):
        """Logits of the batch, fp32 (B, L, V)."""
        from safetensors.torch import load_file

        return load_file(self.folder / "logits.safetensors")["logits"]


class Reloader:
    """Talks to the fresh process; starts it on entering, ends it on leaving."""

    def __init__(self, scratch: Path):
        self._scratch = scratch
        self._done: dict[Path, Reloaded] = {}
        self._keys: dict[Path, dict] = {}

    def __enter__(self):
        environment = os.environ | {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        with (self._scratch / "reload.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trncheck.conformance.reload"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
            )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def __call__(self, run) -> Reloaded:
        """Load the export of ``run`` with ``AutoModelForCausalLM``; its last and first batch are run through it."""
        if run.export not in self._done:
            self._done[run.export] = self._ask(run)
        return self._done[run.export]

    def keys(self, folder: Path) -> dict:
        """Facts of loading ``folder`` alone: ``missing_keys``, ``unexpected_keys``, ``mismatched_keys`` and so on."""
        if folder not in self._keys:
            out = self._scratch / f"keys-{len(self._keys):03}"
            out.mkdir()
            self._keys[folder] = self._request(folder, out)
        return self._keys[folder]

    def _ask(self, run) -> Reloaded:
        from safetensors.torch import save_file

        out = self._scratch / f"{len(self._done):03}"
        out.mkdir()
        save_file(run.final_batch(), out / "batch.safetensors")
        save_file(run.batch(1), out / "first_batch.safetensors")
        return Reloaded(out, self._request(run.export, out))

    def _request(self, folder: Path, out: Path) -> dict:
        self._process.stdin.write(json.dumps({"folder": str(folder), "out": str(out)}) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RunFailed(f"the fresh process died; see {self._scratch / 'reload.log'}")
        facts = json.loads((out / "reload.json").read_text())
        if error := facts.get("error"):
            raise RunFailed(f"stock Transformers cannot load {folder}: {error}")
        return facts


def _serve() -> None:
    import multiprocessing

    import torch
    from transformers import AutoTokenizer, Qwen3ForCausalLM, Qwen3MoeForCausalLM  # noqa: F401

    import trncheck.trainers.reference  # noqa: F401

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    for line in sys.stdin:
        request = json.loads(line)
        child = multiprocessing.get_context("fork").Process(target=_reload, args=(request,))
        child.start()
        child.join()
        out = Path(request["out"], "reload.json")
        if not out.exists():
            out.write_text(json.dumps({"error": f"the process ended with status {child.exitcode}"}))
        answers.write("done\n")


def _reload(request: dict) -> None:
    out = Path(request["out"])
    try:
        facts = _look(Path(request["folder"]), out)
    except Exception as error:
        facts = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    (out / "reload.json").write_text(json.dumps(facts))


def _look(folder: Path, out: Path) -> dict:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trncheck.trainers.reference import file_named, forward

    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    dtypes = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()})
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    facts = {
        **{key: sorted(map(str, report[key])) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")},
        "error_messages": [str(message) for message in report.get("error_msgs", [])],
        "class": type(model).__name__,
        "dtypes": dtypes,
        "tied": head.data_ptr() == embedding.data_ptr(),
        "vocabulary": len(AutoTokenizer.from_pretrained(folder)),
        "vocab_size": model.config.vocab_size,
    }
    if not (out / "batch.safetensors").exists():
        return facts
    save_file(file_named(model), out / "weights.safetensors")
    with torch.no_grad():
        logits, _ = forward(model, load_file(out / "batch.safetensors"))
        _, first_loss = forward(model, load_file(out / "first_batch.safetensors"))
    save_file({"logits": logits.float().contiguous()}, out / "logits.safetensors")
    return facts | {"first_loss": first_loss.item()}


if __name__ == "__main__":
    _serve()
