"""The synthetic corpus as a torchtitan dataloader."""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from datasets import Dataset
from torchtitan.components.loss import IGNORE_INDEX
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader

from trncheck.fixtures import corpus


class CorpusDataLoader(HuggingFaceTextDataLoader):
    """Feeds the generated corpus; the global batch of step k is the same for every number of ranks.

    torchtitan gives rank r the r-th contiguous part of a map-style dataset, so the rows are laid out such that
    these parts, read side by side, give the corpus in order.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(HuggingFaceTextDataLoader.Config):
        dataset: str = "trncheck-corpus"

        rows: int = 1024
        """Packed rows of one epoch."""

        seed: int = 0
        """Seed of the corpus; another seed is another language."""

        prompts: int = 0
        """Ignore the labels of the first ``w % prompts`` words of a document that starts with word w; 0: none."""

    def __init__(self, config: Config, *, dp_world_size: int, local_batch_size: int, seq_len: int, **kwargs):
        global_batch = dp_world_size * local_batch_size
        if config.rows % global_batch:
            raise ValueError(f"dataloader.rows={config.rows} must be a multiple of the global batch, {global_batch}")

        def load(_path) -> Dataset:
            pairs = corpus.rows(config.rows, seq_len, config.seed)
            order = [
                start + rank * local_batch_size + i
                for rank in range(dp_world_size)
                for start in range(0, config.rows, global_batch)
                for i in range(local_batch_size)
            ]
            return Dataset.from_list([{"text": document} for row in order for document in pairs[row]])

        DATASETS[config.dataset] = DatasetConfig(
            path=config.dataset, loader=load, sample_processor=lambda sample: sample["text"]
        )
        self._prompts = config.prompts
        super().__init__(
            config, dp_world_size=dp_world_size, local_batch_size=local_batch_size, seq_len=seq_len, **kwargs
        )

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        batches = super().__iter__()
        return map(self._without_prompts, batches) if self._prompts else batches

    def _without_prompts(self, batch):
        inputs, labels_BL = batch
        positions_BL = inputs["positions"]
        column_BL = torch.arange(positions_BL.shape[1]).expand_as(positions_BL)
        first_word_BL = inputs["input"].gather(1, column_BL - positions_BL)
        return inputs, labels_BL.masked_fill(positions_BL < first_word_BL % self._prompts, IGNORE_INDEX)
