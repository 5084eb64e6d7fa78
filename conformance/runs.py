"""The runs that the checks look at. Each is made once per session, when the first check asks for it."""

import functools
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trncheck.conformance.cases import Case, Layout
from trncheck.fixtures import corpus
from trncheck.fixtures.tiny import tiny_folder

STEPS = 20
RATE = 1e-3
"""Learning rate of the runs that are held against plain Transformers; constant."""
GRADIENT_STEPS = range(1, 11)
"""Steps whose gradients are compared between kernels on and off."""
PEAK_RATE = 3e-3
"""Of the runs with a schedule."""
MAX_NORM = 0.1
"""Of the runs that are clipped; gradients of the published weights have norms around 1."""
ROWS, SEQ_LEN = 8, 64
"""Global batch of the tiny configurations."""
PROMPTS = 63
"""Of ``corpus.batch``: of the first 8 rows, one has no label left and the others have 3 to 44."""

_LR = "--optimizer.param_groups.0.optimizer_kwargs.lr"
_CONSTANT_RATE = f"--lr_scheduler.warmup_steps 0 --lr_scheduler.decay_ratio 0 {_LR} {RATE}"
_UNCLIPPED = "--training.max_norm 1e9"
_LOAD = "--checkpoint.enable --checkpoint.initial_load_in_hf"


def _all(numbers) -> str:
    return " ".join(map(str, numbers))


@dataclass(frozen=True)
class Reference:
    """What plain Transformers gave for the same weights and batches."""

    losses: list[float]
    logits: object
    """fp32 tensor (B, L, V) of step 1."""
    gradients: dict
    weights: dict
    """After step 1."""


def once(method: Callable) -> Callable:
    """Keep a method's result, or the exception it raised, by its arguments, in the instance."""

    @functools.wraps(method)
    def call(self, *args):
        kept = vars(self).setdefault("_kept", {})
        key = (method.__name__, *args)
        if key not in kept:
            try:
                kept[key] = (method(self, *args), None)
            except Exception as error:
                kept[key] = (None, error)
        value, error = kept[key]
        if error:
            raise error
        return value

    return call


class RunBook:
    """Runs by what they are for. All folders lie below ``root``."""

    def __init__(self, root: Path, launcher: str, progress: Callable[[str], None] = lambda text: None):
        self._root = root
        self.launcher = launcher
        self._progress = progress
        self._count = 0

    @once
    def published_weights(self, model: str) -> Path:
        """The folder that stands in for published weights."""
        from trncheck.trainers.published import published_folder

        self._progress(f"published weights of the tiny {model} model, trained unless cached")
        return published_folder(model)

    @once
    def published(self, case: Case):
        """20 steps from the published weights at a constant rate, everything recorded, exported at the end."""
        return self._run(
            case,
            f"--training.steps {STEPS} {_CONSTANT_RATE} {_UNCLIPPED} {_LOAD} --record.batches --record.logit_steps 1"
            f" --record.gradient_steps {_all(GRADIENT_STEPS)} --record.weight_steps 0 1 {STEPS} --record.final_logits",
            weights=self.published_weights(case.model),
        )

    @once
    def switched(self, config: str, model: str):
        """``published`` on one rank in another configuration: the same model with kernels."""
        return self._run(
            Case("native", model, 1),
            f"--training.steps {STEPS} {_CONSTANT_RATE} {_UNCLIPPED} {_LOAD}"
            f" --record.gradient_steps {_all(GRADIENT_STEPS)}",
            weights=self.published_weights(model),
            config=config,
        )

    @once
    def flagged(self, case: Case, flags: str):
        """The first two steps of ``published``, with ``flags`` that switch kernels on."""
        flags = f"--training.steps 2 {_CONSTANT_RATE} {_UNCLIPPED} {_LOAD} {flags}"
        return self._run(case, flags, weights=self.published_weights(case.model))

    @once
    def clipped(self, case: Case):
        """One step from the published weights with gradients clipped to ``MAX_NORM``."""
        return self._run(
            case,
            f"--training.steps 1 {_CONSTANT_RATE} --training.max_norm {MAX_NORM} {_LOAD} --record.gradient_steps 1",
            weights=self.published_weights(case.model),
        )

    @once
    def torchrun(self, case: Case):
        """The start of ``published`` through a real torchrun."""
        return self._run(
            case,
            f"--training.steps 2 {_CONSTANT_RATE} {_UNCLIPPED} {_LOAD}",
            weights=self.published_weights(case.model),
            launcher="torchrun",
        )

    @once
    def random(self, case: Case):
        """20 steps from random initialisation."""
        return self._run(case, f"--training.steps {STEPS}")

    @once
    def stock_experts(self):
        """One step with torchtitan's own bfloat16 experts from the published weights."""
        return self._run(
            Case("native", "moe", 1),
            f"--training.steps 1 {_UNCLIPPED} {_LOAD} --record.gradient_steps 1",
            weights=self.published_weights("moe"),
            config="qwen3_moe_tiny_stock_experts",
        )

    @once
    def exported(self, case: Case, dtype: str, sharded: bool):
        """One step from the published weights, exported in ``dtype``; ``sharded``: from a source of several files."""
        source = self.split_weights(case.model) if sharded else self.published_weights(case.model)
        flags = (
            f"--training.steps 1 {_LOAD} --checkpoint.export_dtype {dtype} --record.batches"
            " --record.weight_steps 1 --record.final_logits"
        )
        return self._run(case, flags, weights=source)

    @once
    def reference(self, model: str) -> Reference:
        """Plain Transformers on the published weights and the corpus' own batches, in a process of its own."""
        return self._train_plainly(model, [corpus.batch(step, ROWS, SEQ_LEN) for step in range(1, STEPS + 1)])

    @once
    def activations(self, case: Case, config: str = ""):
        """What left each module in step 1 of ``published``, and its gradient; in ``config`` instead of the case's."""
        record = self._run(
            case,
            f"--training.steps 1 {_CONSTANT_RATE} {_UNCLIPPED} {_LOAD} --record.activations",
            weights=self.published_weights(case.model),
            config=config or None,
        )
        return record.activations(1)

    @once
    def reference_activations(self, model: str):
        """The same of plain Transformers."""
        from safetensors.numpy import save_file as save_arrays

        from trncheck.trainers import activations, children
        from trncheck.trainers.reference import record_plainly

        out = self._folder(f"reference-{model}-activations")
        save_arrays(corpus.batch(1, ROWS, SEQ_LEN), out / "batch-1.safetensors")
        children.fork([(record_plainly, (self.published_weights(model), out / "batch-1.safetensors", out), {})], out)
        return activations.load([out / "activations.safetensors"])

    @once
    def full_size(self):
        """One step of the whole Qwen3-0.6B geometry from random initialisation, on the corpus."""
        from trncheck.fixtures.tiny import bare_folder

        return self._run(
            Case("native", "dense-tied", 1),
            "--training.steps 1 --training.local_batch_size 8 --training.seq_len 64",
            weights=bare_folder("Qwen3-0.6B"),
            config="qwen3_native_0_6b_corpus",
        )

    @once
    def described(self, config: str, published: str) -> dict:
        """What ``config`` builds on the meta device, beside the config.json of a published model."""
        from trncheck.fixtures.geometry import PUBLISHED
        from trncheck.trainers import children
        from trncheck.trainers.describe import describe

        folder = self._folder(f"{config}-described")
        PUBLISHED[published].write_config(folder)
        children.fork([(describe, (config, folder, folder / "described.json"), {})], folder)
        return json.loads((folder / "described.json").read_text())

    @once
    def stock(self, config: str) -> dict:
        """What stock torchtitan, without our repairs, leaves wrong in ``config``."""
        from trncheck.trainers import launch
        from trncheck.trainers.stock import inspect_stock

        folder = self._folder(f"{config}-stock")
        launch.run_rank(inspect_stock, (config, folder, folder / "stock.json"), folder, self.launcher)
        return json.loads((folder / "stock.json").read_text())

    @once
    def straight(self, case: Case):
        """Six steps without a break, over two ends of an epoch; the learning rate warms up and decays."""
        return self._run(case, self._resumable(steps=6), weights=self.published_weights(case.model))

    @once
    def restarted(self, case: Case):
        """The same six steps as 2 + 2 + 2, each part a new process that resumes from the dump folder."""
        folder = self._folder(f"{case}-restarted")
        for steps in (2, 4, 6):
            resume = f" --checkpoint.load_step {steps - 2}" if steps > 2 else ""
            flags = self._resumable(steps=steps) + resume
            record = self._run(case, flags, weights=self.published_weights(case.model), folder=folder)
        return record

    def rerun(self, case: Case, *, steps: int, load_step: int, ranks: int = 0):
        """Train again in the dump folder of ``restarted``, on as many ``ranks`` unless others are asked for.

        A ``load_step`` of -1 is no ``--checkpoint.load_step``.
        """
        done = self.restarted(case)
        copy = self._folder(f"{case}-rerun")
        shutil.copytree(done.folder / "checkpoint", copy / "checkpoint")
        flags = self._resumable(steps=steps) + f" --checkpoint.load_step {load_step}"
        case = replace(case, ranks=ranks or case.ranks)
        return self._run(case, flags, weights=self.published_weights(case.model), folder=copy)

    def _resumable(self, *, steps: int) -> str:
        # 24 rows are an epoch of 3 steps; from the second one on they come in another order.
        return (
            f"--training.steps {steps} --lr_scheduler.warmup_steps 2 --lr_scheduler.total_steps 8 {_LR} {PEAK_RATE}"
            f" --dataloader.rows 24 {_LOAD} --checkpoint.interval 2 --record.batches"
            " --checkpoint.no-last_save_in_hf --checkpoint.no-last_save_model_only"
        )

    @once
    def laid_out(self, layout: Layout, tied_router: bool = False):
        """One step from the published weights with ignored labels, laid out as asked for.

        ``tied_router``: from weights whose router gives every expert the same score.
        """
        weights = self.tied_router_weights(layout.model) if tied_router else self.published_weights(layout.model)
        flags = (
            f"--training.steps 1 {_CONSTANT_RATE} {_UNCLIPPED} {_LOAD} --checkpoint.load_only"
            f" --checkpoint.no-last_save_in_hf --dataloader.prompts {PROMPTS} --record.batches"
            f" --record.gradient_steps 1 {layout.flags}"
        )
        return self._run(Case("native", layout.model, layout.ranks), flags, weights=weights, config=layout.config)

    @once
    def reference_step(self, model: str, rows: int = ROWS, seq_len: int = SEQ_LEN) -> Reference:
        """One step of plain Transformers on what ``laid_out`` trains on."""
        return self._train_plainly(model, [corpus.batch(1, rows, seq_len, prompts=PROMPTS)])

    def _train_plainly(self, model: str, batches: list[dict]) -> Reference:
        from safetensors.numpy import save_file as save_arrays
        from safetensors.torch import load_file

        from trncheck.trainers import children
        from trncheck.trainers.reference import train_plainly

        out = self._folder(f"reference-{model}")
        files = [out / f"batch-{step}.safetensors" for step in range(1, len(batches) + 1)]
        for batch, file in zip(batches, files, strict=True):
            save_arrays(batch, file)
        weights = self.published_weights(model)
        self._progress(f"training plain Transformers on the tiny {model} model")
        children.fork([(train_plainly, (weights, files, [RATE] * len(files), out), {})], out)
        return Reference(
            losses=json.loads((out / "losses.json").read_text()),
            logits=load_file(out / "logits.safetensors")["logits"],
            gradients=load_file(out / "gradients.safetensors"),
            weights=load_file(out / "weights.safetensors"),
        )

    @once
    def tied_router_weights(self, model: str) -> Path:
        """The published weights with routers of zeros, in one file."""
        import safetensors.torch

        folder = self._folder(f"{model}-with-tied-routers")
        shutil.copytree(self.published_weights(model), folder, dirs_exist_ok=True)
        for file in folder.glob("*.safetensors"):
            tensors = safetensors.torch.load_file(file)
            tied = {name: tensor.zero_() if ".mlp.gate." in name else tensor for name, tensor in tensors.items()}
            safetensors.torch.save_file(tied, file, {"format": "pt"})
        return folder

    @once
    def split_weights(self, model: str) -> Path:
        """The published weights in three files with an index."""
        import safetensors.torch

        source, folder = self.published_weights(model), self._folder(f"{model}-in-three-files")
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(source / name, folder / name)
        tensors = {
            name: tensor
            for file in source.glob("*.safetensors")
            for name, tensor in safetensors.torch.load_file(file).items()
        }
        parts, index = 3, {}
        size = math.ceil(len(tensors) / parts)
        for part in range(parts):
            file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
            names = sorted(tensors)[part * size : (part + 1) * size]
            safetensors.torch.save_file({name: tensors[name] for name in names}, folder / file, {"format": "pt"})
            index |= dict.fromkeys(names, file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
        return folder

    def _run(self, case: Case, flags: str, *, weights=None, folder=None, launcher=None, config=None):
        from trncheck.trainers import launch

        folder = folder or self._folder(str(case))
        self._progress(f"training {config or case.config} on {case.ranks} rank{'s' * (case.ranks > 1)}")
        return launch.run(
            config or case.config,
            dump_folder=folder,
            flags=["--hf_assets_path", str(weights or tiny_folder(case.model)), *flags.split()],
            world_size=case.ranks,
            launcher=launcher or self.launcher,
        )

    def _folder(self, name: str) -> Path:
        self._count += 1
        folder = self._root / f"{self._count:03}-{name}"
        folder.mkdir(parents=True)
        return folder
