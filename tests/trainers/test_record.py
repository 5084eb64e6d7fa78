"""What a run writes down is what happened, whole and under Hugging Face names, and writing it changes nothing."""

import hashlib

import pytest
import torch
from safetensors.torch import load_file

from trncheck.fixtures import corpus
from trncheck.fixtures.tiny import tiny_folder
from trncheck.trainers.record import fingerprint

ROWS, SEQ_LEN, VOCABULARY = 8, 64, corpus.VOCABULARY


def test_the_global_batch_reads_back_in_the_order_of_the_corpus(dense_on_two_ranks):
    for step in (1, 2, 3):
        recorded, fed = dense_on_two_ranks.batch(step), corpus.batch(step, ROWS, SEQ_LEN)
        assert recorded.keys() == fed.keys()
        for name, column in fed.items():
            assert recorded[name].dtype == torch.int64
            assert torch.equal(recorded[name], torch.from_numpy(column))


def test_logits_are_those_of_the_recorded_batch(dense_on_two_ranks):
    logits, batch = dense_on_two_ranks.logits(1), dense_on_two_ranks.batch(1)
    assert (logits.dtype, logits.shape) == (torch.float32, (ROWS, SEQ_LEN, VOCABULARY))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    assert loss.item() == pytest.approx(dense_on_two_ranks.losses[0], abs=1e-6)


def test_final_logits_and_batch_are_of_one_micro_batch_per_rank(dense_on_two_ranks):
    final, last = dense_on_two_ranks.final_batch(), dense_on_two_ranks.batch(3)
    assert all(torch.equal(final[name], last[name]) for name in last)
    assert dense_on_two_ranks.final_logits().shape == (ROWS, SEQ_LEN, VOCABULARY)
    assert not torch.equal(dense_on_two_ranks.final_logits(), dense_on_two_ranks.logits(1))


@pytest.mark.parametrize(("run", "model"), [("dense_on_two_ranks", "dense-tied"), ("moe_on_two_ranks", "moe")])
def test_weights_and_gradients_are_whole_and_bear_the_names_of_the_file(run, model, request):
    record = request.getfixturevalue(run)
    in_file = load_file(tiny_folder(model) / "model.safetensors")
    weights, gradients = record.weights(0), record.gradients(1)
    assert weights.keys() == gradients.keys() == in_file.keys()
    for name, tensor in in_file.items():
        assert torch.equal(weights[name], tensor), name
        assert gradients[name].shape == tensor.shape
        assert gradients[name].isfinite().all()
        assert gradients[name].any(), name


def test_recorded_gradients_have_the_norm_that_was_logged(dense_on_two_ranks):
    """Gradients are recorded as clipped to 1, which these are; the logged norm is the one before."""
    for step in (1, 2):
        squares = sum(gradient.double().square().sum() for gradient in dense_on_two_ranks.gradients(step).values())
        logged = dense_on_two_ranks.steps[step - 1].grad_norm
        assert squares.sqrt().item() == pytest.approx(min(logged, 1.0), rel=1e-4)


def test_the_last_recorded_weights_are_the_exported_ones(dense_on_two_ranks):
    weights = dense_on_two_ranks.weights(3)
    exported = load_file(dense_on_two_ranks.export / "model-00001-of-00001.safetensors")
    assert exported.keys() == weights.keys()
    assert all(torch.equal(exported[name], weights[name]) for name in weights)


def test_recording_everything_leaves_the_run_bit_for_bit_as_it_was(dense_on_two_ranks, train):
    unrecorded = train("qwen3_native_tiny", ranks=2)
    assert unrecorded.steps == dense_on_two_ranks.steps
    for file in unrecorded.export.iterdir():
        assert file.read_bytes() == (dense_on_two_ranks.export / file.name).read_bytes()


def test_steps_that_are_not_logged_are_left_out_of_the_losses(dense, train):
    sparse = train("qwen3_native_tiny", "--metrics.log_freq 2")
    assert sparse.steps == dense.steps[:2]
    assert sparse.seconds_per_step > 0


def test_a_run_without_export_says_so(train):
    run = train("qwen3_native_tiny", "--training.steps 1 --checkpoint.no-enable")
    with pytest.raises(FileNotFoundError, match="holds no exported model"):
        _ = run.export


def test_a_fingerprint_tells_bits_dtypes_and_shapes_apart():
    tensor = torch.tensor([[1.0, 2.0], [0.0, 4.0]])
    others = [tensor.T.contiguous(), tensor.flatten(), tensor.view(torch.int32), tensor.double()]
    others += [torch.tensor([[1.0, 2.0], [-0.0, 4.0]]), tensor.nextafter(torch.tensor(9.0))]
    assert len({fingerprint(t) for t in [tensor, *others]}) == 1 + len(others)
    assert fingerprint(tensor) == fingerprint(tensor.T.contiguous().T) == fingerprint(tensor.clone())


def test_token_hashes_follow_from_the_corpus_alone(dense):
    """sha256 over the rows' hashes, each over input, positions and labels; as ``Step.tokens`` says."""
    batch = corpus.batch(2, ROWS, SEQ_LEN)
    rows = [
        hashlib.sha256(b"".join(batch[name][i].tobytes() for name in ("input", "positions", "labels"))).hexdigest()[:16]
        for i in range(ROWS)
    ]
    assert dense.steps[1].tokens == hashlib.sha256("".join(rows).encode()).hexdigest()[:16]
