"""torchtitan's Trainer for both kinds of model, with what trncheck asks of every run.

Four additions: a record of what was trained on and what came out, a refusal to resume by accident, a complete Hugging
Face folder at the end, and NKI kernels where they are asked for. Without kernels, none changes a number.
"""

from trncheck.trainers.devices import DEVICE_TYPE  # sets the device before torchtitan reads it

# isort: split
import re
from dataclasses import dataclass, field
from pathlib import Path

import torch.distributed
from torchtitan.experiments.transformers_modeling_backend.trainer import HFTransformerTrainer
from torchtitan.trainer import Trainer

from trncheck.neuron.device import DEVICE
from trncheck.trainers import poison, torch213
from trncheck.trainers.export import complete_export
from trncheck.trainers.kernels import Executions, KernelConfig, asked, attach, check_attached
from trncheck.trainers.recorder import RecordConfig, Recorder, local_tensors


class _Checked:
    """The additions; mixed in front of a torchtitan trainer."""

    def __init__(self, config):
        check_dump_folder(config)
        self.substitutes: dict[str, str] = {}
        """What the device gets instead of what torchtitan asks for, by subject, and why."""
        torch213.adapt(config)
        if DEVICE_TYPE == "cpu":
            from trncheck.trainers import cpu

            self.substitutes = cpu.adapt(config)
        attach(config)
        operators = asked(config)
        if config.record.poison:
            poison.fill_fresh_memory(DEVICE_TYPE)
        super().__init__(config)
        check_attached(self.model_parts, operators)
        self._executions = Executions(operators)
        self.recorder = Recorder(self, config.record) if config.record.enable else None

    def init_distributed(self):
        parallel_dims = super().init_distributed()
        if DEVICE_TYPE == DEVICE:
            from trncheck.trainers import neuron

            self.substitutes = neuron.adapt(self.config)  # tries things on the device, so not earlier
        return parallel_dims

    def post_dataloading_process(self, input_dict, labels):
        if self.recorder:
            self.recorder.note_batch(input_dict, labels)
        return super().post_dataloading_process(input_dict, labels)

    def batch_generator(self, data_iterable):
        # The Trainer calls this once, between loading a checkpoint and the first step.
        self._check_loaded()
        return super().batch_generator(data_iterable)

    def train_step(self, data_iterator):
        super().train_step(data_iterator)
        self.kernel_counts = self._executions.end_step(self.step)
        if self.recorder:
            self.recorder.note_step()

    def train(self):
        super().train()
        if self.recorder:
            self.recorder.note_end()
        checkpoint = self.config.checkpoint
        if not (checkpoint.enable and checkpoint.last_save_in_hf):
            return
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            complete_export(
                Path(self.config.dump_folder) / checkpoint.folder / f"step-{self.step}",
                source=Path(self.config.hf_assets_path),
                dtype=checkpoint.export_dtype,
            )

    def _check_loaded(self):
        if self.recorder:
            self.recorder.note_poison("loaded")
        for name, tensor in local_tensors(self.model_parts):
            if tensor.is_floating_point() and (bad := int((~tensor.isfinite()).sum())):
                raise ValueError(f"{name} holds {bad} non-finite values before step {self.step + 1}")
        if self.step >= self.config.training.steps:
            raise ValueError(
                f"nothing to train: the checkpoint is at step {self.step} and training.steps is "
                f"{self.config.training.steps}; raise --training.steps or use a fresh --dump_folder"
            )
        if self.recorder:
            self.recorder.note_start()


def check_dump_folder(config) -> None:
    """Refuse a run that the dump folder's checkpoints would silently turn into another one, or break later.

    torchtitan resumes from the newest ``step-N`` folder and ignores every ``initial_load_*`` option; here that needs
    ``--checkpoint.load_step`` by name. It also takes a Hugging Face export for a checkpoint, and fails on reading it.
    """
    checkpoint = config.checkpoint
    folder = Path(config.dump_folder) / checkpoint.folder
    steps = sorted(int(entry.name[5:]) for entry in folder.glob("step-*") if re.fullmatch(r"step-\d+", entry.name))
    if not (checkpoint.enable and steps):
        return
    asked = checkpoint.initial_load_in_hf or checkpoint.initial_load_path
    if asked and checkpoint.load_step == -1:
        raise ValueError(
            f"{folder} already holds step-{steps[-1]}, which torchtitan would resume instead of loading the weights "
            f"asked for; use a fresh --dump_folder, or --checkpoint.load_step {steps[-1]} to resume"
        )
    resumed = steps[-1] if checkpoint.load_step == -1 else checkpoint.load_step
    if (folder / f"step-{resumed}" / "config.json").is_file():
        raise ValueError(
            f"{folder}/step-{resumed} is a Hugging Face export, which cannot be resumed; start from it in a fresh "
            "--dump_folder with --checkpoint.initial_load_in_hf and --hf_assets_path"
        )


class NativeTrainer(_Checked, Trainer):
    """Trains torchtitan's own models."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        record: RecordConfig = field(default_factory=RecordConfig)
        kernels: KernelConfig = field(default_factory=KernelConfig)


class TransformersTrainer(_Checked, HFTransformerTrainer):
    """Trains a Transformers model; its config.json is the one of ``hf_assets_path``."""

    @dataclass(kw_only=True, slots=True)
    class Config(HFTransformerTrainer.Config):
        record: RecordConfig = field(default_factory=RecordConfig)
        kernels: KernelConfig = field(default_factory=KernelConfig)

        @property
        def hf_model(self) -> str:
            return self.hf_assets_path
