"""The twins that stand in for published weights know the corpus, as plain Transformers reads them."""

import json
import math

import pytest
from safetensors.numpy import save_file

from trncheck.fixtures import corpus
from trncheck.trainers import children, launch
from trncheck.trainers.published import CONFIGS, STEPS, published_folder
from trncheck.trainers.reference import train_plainly


@pytest.mark.parametrize("model", CONFIGS)
def test_a_twin_is_far_below_a_random_start_on_rows_it_has_not_seen(model, tmp_path):
    batch = tmp_path / "batch.safetensors"
    save_file(corpus.batch(STEPS + 1, rows_per_step=16, seq_len=64), batch)
    children.fork([(train_plainly, (published_folder(model), [batch], [0.0], tmp_path), {})], tmp_path)
    (loss,) = json.loads((tmp_path / "losses.json").read_text())
    assert loss < math.log(corpus.VOCABULARY) / 2


def test_a_twin_is_trained_once(monkeypatch):
    folder = published_folder("dense-tied")
    monkeypatch.setattr(launch, "run", lambda *_, **__: pytest.fail("trained again"))
    assert published_folder("dense-tied") == folder
