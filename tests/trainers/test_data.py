"""torchtitan's own tokenizer, packing and dataset turn the corpus into the batches that ``corpus.batch`` predicts."""

import pytest
import torch

from trncheck.fixtures import corpus
from trncheck.fixtures.tiny import tiny_folder

ROWS, SEQ_LEN, STEPS = 8, 64, 3


@pytest.fixture
def loader(warm):
    """``loader(ranks, rank)`` over an epoch of four global batches of 8 rows."""
    from torchtitan.components.tokenizer import HuggingFaceTokenizer

    from trncheck.trainers.data import CorpusDataLoader

    tokenizer = HuggingFaceTokenizer(tokenizer_path=str(tiny_folder("dense-tied")))

    def build(ranks: int, rank: int, rows: int = 4 * ROWS, seed: int = 0):
        return CorpusDataLoader.Config(rows=rows, seed=seed).build(
            dp_world_size=ranks,
            dp_rank=rank,
            tokenizer=tokenizer,
            seq_len=SEQ_LEN,
            local_batch_size=ROWS // ranks,
        )

    return build


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_the_ranks_together_feed_the_batches_of_the_corpus(ranks, loader):
    shares = [iter(loader(ranks, rank)) for rank in range(ranks)]
    for step in range(1, STEPS + 1):
        parts = [inputs | {"labels": labels} for inputs, labels in map(next, shares)]
        expected = corpus.batch(step, ROWS, SEQ_LEN)
        assert {name for part in parts for name in part} == expected.keys()
        for name, column in expected.items():
            assert torch.equal(torch.cat([part[name] for part in parts]), torch.from_numpy(column)), (step, name)


def test_the_seed_of_the_loader_is_that_of_the_corpus(loader):
    inputs, _ = next(iter(loader(1, 0, seed=5)))
    assert torch.equal(inputs["input"], torch.from_numpy(corpus.batch(1, ROWS, SEQ_LEN, seed=5)["input"]))


def test_an_epoch_that_is_no_multiple_of_the_global_batch_is_refused(loader):
    with pytest.raises(ValueError, match=r"dataloader\.rows=12 must be a multiple of the global batch, 8"):
        loader(2, 0, rows=12)
