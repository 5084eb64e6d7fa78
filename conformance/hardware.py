"""Runs at published size on a whole trn2.48xlarge, and the small runs that stand for them in a rehearsal."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from trncheck.conformance.random_starts import head_std
from trncheck.conformance.runs import once
from trncheck.fixtures.geometry import PUBLISHED, TINY, Geometry, random_init_loss

STEPS = 5
TIMEOUT = 2 * 60 * 60
"""Seconds for one run at published size: the first step compiles everything."""

_LOAD = "--checkpoint.enable --checkpoint.initial_load_in_hf"
_CONTINUE = f"{_LOAD} --checkpoint.load_only --checkpoint.no-last_save_in_hf"
_CONSTANT = "--lr_scheduler.warmup_steps 0 --lr_scheduler.decay_ratio 0"


@dataclass(frozen=True)
class Shape:
    """One way to run a job."""

    config: str
    model: str
    """A name of ``geometry.PUBLISHED``, or of ``geometry.TINY`` in a rehearsal."""
    ranks: int

    @property
    def geometry(self) -> Geometry:
        return PUBLISHED[self.model] if self.model in PUBLISHED else TINY[self.model]


@dataclass(frozen=True)
class Job:
    """A path of the walkthrough at its published size."""

    name: str
    path: str
    """``hf``, ``native`` or ``nki``."""
    real: Shape
    rehearsed: Shape
    without_kernels: str = ""
    """Configuration of ``real`` without its kernels, where it has any; that of ``rehearsed`` behind a blank."""

    def __str__(self) -> str:
        return self.name


JOBS = {
    job.name: job
    for job in (
        Job(
            "hf-4b",
            "hf",
            Shape("qwen3_hf_4b_instruct_2507_corpus", "Qwen3-4B-Instruct-2507", 64),
            Shape("qwen3_hf_tiny_untied", "dense-untied", 2),
        ),
        Job(
            "native-4b",
            "native",
            Shape("qwen3_native_4b_instruct_2507_corpus", "Qwen3-4B-Instruct-2507", 64),
            Shape("qwen3_native_tiny", "dense-tied", 2),
        ),
        Job(
            "moe-4layers-64experts",
            "nki",
            Shape(
                "qwen3_moe_nki_30b_a3b_4layers_64experts_nki_rope_corpus", "Qwen3-30B-A3B, 4 layers x 64 experts", 64
            ),
            Shape("qwen3_moe_nki_tiny_nki_rope", "moe", 2),
            without_kernels="qwen3_moe_30b_a3b_4layers_64experts_corpus qwen3_moe_tiny",
        ),
    )
}
"""The three paths of the public walkthrough, by name."""


class WholeInstance:
    """The runs of the walkthrough, each made when a check first asks for it. All folders lie below ``root``."""

    def __init__(
        self,
        root: Path,
        *,
        cores: int | None,
        assets: Path | None,
        rehearsal: bool,
        launcher: str,
        progress: Callable[[str], None],
    ):
        """``cores``: logical cores of this machine; ``assets``: where models are in folders under their own names."""
        self._root, self._cores, self._assets = root, cores, assets
        self.rehearsal, self._launcher = rehearsal, launcher
        self._progress = progress
        self._count = 0

    def shape(self, job: Job) -> Shape:
        """How ``job`` is run here. Skips where this machine has fewer cores than that needs."""
        shape = job.rehearsed if self.rehearsal else job.real
        if self._cores is not None and self._cores < shape.ranks:
            pytest.skip(f"needs {shape.ranks} logical NeuronCores, this machine has {self._cores}")
        return shape

    @once
    def random_start(self, job: Job):
        """Five steps from random initialisation, exported at the end."""
        return self._run(job, "random", "--checkpoint.enable --record.batches", self._bare(job))

    @once
    def published_start(self, job: Job):
        """Two steps from the published weights. Skips where they are not here."""
        flags = f"{_CONTINUE} {_CONSTANT} --record.batches"
        return self._run(job, "published", flags, self.weights(job), steps=2)

    @once
    def compiled(self, job: Job):
        """The random start once more, compiled for the device."""
        backend = "aot_eager" if self.rehearsal else "neuron"
        return self._run(job, "compiled", f"--compile.enable --compile.backend {backend}", self._bare(job))

    @once
    def continued(self, job: Job):
        """Five steps from the weights that the random start has exported, because those of another layout differ."""
        return self._run(job, "continued", _CONTINUE, self.random_start(job).export)

    @once
    def tensor_parallel(self, job: Job):
        """``continued``, laid out as TP 4 x FSDP 16; in a rehearsal as 2 x 2."""
        ranks = 4 if self.rehearsal else 64
        degree = f"--parallelism.tensor_parallel_degree {self.tensor_parallel_degree}"
        flags = f"{_CONTINUE} {degree} --training.global_batch_size {self.rows(job)}"
        return self._run(job, "tensor-parallel", flags, self.random_start(job).export, ranks=ranks)

    @property
    def tensor_parallel_degree(self) -> int:
        return 2 if self.rehearsal else 4

    @once
    def without_kernels(self, job: Job):
        """The random start once more, without kernels."""
        real, rehearsed = job.without_kernels.split()
        return self._run(job, "plain", "", self._bare(job), config=rehearsed if self.rehearsal else real)

    @once
    def again(self, job: Job):
        """The random start once more, and nothing changed."""
        return self._run(job, "again", "", self._bare(job))

    @once
    def plain_start(self, job: Job) -> float:
        """Loss of plain Transformers, in fp32 on the host's CPU, on the batch of ``published_start``'s first step."""
        from safetensors.torch import save_file

        from trncheck.trainers import children
        from trncheck.trainers.reference import loss_plainly

        out = self._folder(f"{job}-reference")
        save_file(self.published_start(job).batch(1), out / "batch.safetensors")
        self._progress(f"the loss of plain Transformers for {job}, on the CPU")
        arguments = (self.weights(job), out / "batch.safetensors", out / "loss.json")
        children.fork([(loss_plainly, arguments, {})], out, TIMEOUT)
        return json.loads((out / "loss.json").read_text())

    def weights(self, job: Job) -> Path:
        """The folder of the published weights. Skips where they are not here; the kit never fetches any."""
        shape = self.shape(job)
        if self.rehearsal:
            from trncheck.trainers.published import published_folder

            return published_folder(shape.model)
        if self._assets is None:
            pytest.skip(f"needs the published weights: --assets FOLDER, with {shape.model} in it")
        folder = self._assets / shape.model
        if not any(folder.glob("*.safetensors")):
            pytest.skip(f"needs the published weights: {folder} holds no safetensors file")
        return folder

    def predicted_start(self, job: Job) -> float:
        """Loss of a random start by the scheme alone, nats."""
        geometry = self.shape(job).geometry
        return random_init_loss(geometry.vocab_size, geometry.hidden_size, head_std(job.path, geometry))

    def rows(self, job: Job) -> int:
        """Rows of a global batch, the same in every layout; without tensor parallelism one micro-batch of all ranks."""
        return 8 if self.rehearsal else self.shape(job).ranks

    def _bare(self, job: Job) -> Path:
        from trncheck.fixtures.tiny import bare_folder, tiny_folder

        model = self.shape(job).model
        return tiny_folder(model) if self.rehearsal else bare_folder(model)

    def _run(self, job: Job, name: str, flags: str, weights: Path, *, steps=STEPS, ranks=None, config=None):
        from trncheck.trainers import launch

        shape = self.shape(job)
        ranks = ranks or shape.ranks
        self._progress(f"training {config or shape.config} on {ranks} ranks: {name}")
        return launch.run(
            config or shape.config,
            dump_folder=self._folder(f"{job}-{name}"),
            flags=[*f"--hf_assets_path {weights} --training.steps {steps}".split(), *flags.split()],
            world_size=ranks,
            launcher=self._launcher,
            timeout=TIMEOUT,
        )

    def _folder(self, name: str) -> Path:
        self._count += 1
        folder = self._root / f"{self._count:03}-{name}"
        folder.mkdir(parents=True)
        return folder
