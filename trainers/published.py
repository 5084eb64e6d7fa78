"""Tiny models that stand in for published weights: trained by this trainer until their loss is far from random."""

import math
import tempfile
from importlib.metadata import version
from pathlib import Path

from trncheck.fixtures import cache, corpus, tiny
from trncheck.trainers import launch

CONFIGS = {
    "dense-tied": "qwen3_native_tiny",
    "dense-untied": "qwen3_native_tiny_untied",
    "moe": "qwen3_moe_tiny",
}
STEPS = 80
_FLAGS = (
    f"--training.steps {STEPS} --lr_scheduler.total_steps {2 * STEPS} --training.local_batch_size 8"
    " --optimizer.param_groups.0.optimizer_kwargs.lr 1.5e-2 --checkpoint.enable --checkpoint.initial_load_in_hf"
).split()


def published_folder(model: str) -> Path:
    """The trained twin of ``tiny.tiny_folder(model)`` as a Hugging Face folder, from the cache or trained now.

    Its last loss is below half of ln V, so that a start from it cannot be mistaken for a random one. The same
    machine type and versions give the same bytes; matrix products differ in rounding between processor families.
    """
    key = {
        "model": model,
        "flags": _FLAGS,
        "source": cache.source_digest(*sorted(map(str, Path(__file__).parent.glob("*.py")))),
        "base": tiny.tiny_folder(model).name,
        "versions": {name: version(name) for name in ("numpy", "torch", "torchtitan", "transformers")},
    }
    return cache.cached_folder(f"published-{model}", key, lambda folder: _train(model, folder))


def _train(model: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        run = launch.run(CONFIGS[model], dump_folder=Path(scratch), flags=_FLAGS)
        limit = math.log(corpus.VOCABULARY) / 2
        if not run.losses[-1] < limit:
            raise RuntimeError(f"{model} was trained to a loss of {run.losses[-1]:.3f}, which is not below {limit:.3f}")
        for file in run.export.iterdir():
            file.rename(folder / file.name)
