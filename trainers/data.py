"""The synthetic corpus as a torchtitan dataloader."""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
from dataclasses import dataclass

from datasets import Dataset
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
        super().__init__(
            config, dp_world_size=dp_world_size, local_batch_size=local_batch_size, seq_len=seq_len, **kwargs
        )
