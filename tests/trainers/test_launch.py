"""Runs as a user starts them: what a failure says, what is left behind, and that a run can be made again."""

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from trncheck.fixtures.cache import folder_digests
from trncheck.trainers import children, job, launch, recorder

NATIVE = "qwen3_native_tiny"


def log_named_in(failure: BaseException) -> str:
    """Content of the log file that a RunFailed points at."""
    return Path(re.search(r"\(log: (.+)\)$", str(failure))[1]).read_text()


def before_recording_a_step(action: Callable[[], None]) -> Callable[[list[str]], None]:
    """A rank's work: train, but in rank 1 call ``action`` where the first step would be recorded."""

    def rank(flags: list[str]) -> None:
        note_step = recorder.Recorder.note_step

        def disturbed(self) -> None:
            action()
            note_step(self)

        if os.environ["RANK"] == "1":
            recorder.Recorder.note_step = disturbed
        job.train(flags)

    return rank


def train_two_ranks(rank: Callable[[list[str]], None], folder: Path) -> None:
    flags = ["--config", NATIVE, "--dump_folder", str(folder), "--training.steps", "3"]
    launch.fork_ranks(rank, (flags,), 2, folder)


def wait_forever() -> None:
    threading.Event().wait()


# --- failures


def test_a_failing_run_raises_the_exception_of_its_rank(tmp_path):
    with pytest.raises(launch.RunFailed, match=r"^ValueError: nothing to train: .*\(log: ") as failure:
        launch.run(NATIVE, dump_folder=tmp_path, flags=["--training.steps", "0"])
    assert "Traceback" in log_named_in(failure.value)


def test_of_two_ranks_the_one_that_failed_first_is_named(tmp_path):
    def fail() -> None:
        raise ArithmeticError("rank one\nhas had enough")

    with pytest.raises(launch.RunFailed, match=r"^ArithmeticError: rank one has had enough \(log: ") as failure:
        train_two_ranks(before_recording_a_step(fail), tmp_path)
    assert "ArithmeticError" in log_named_in(failure.value)


def test_a_killed_rank_is_named_rather_than_the_one_that_lost_it(tmp_path):
    def die() -> None:
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(launch.RunFailed, match=r"^rank 1 was killed by SIGKILL; last output: last words") as failure:
        train_two_ranks(before_recording_a_step(die), tmp_path)
    assert log_named_in(failure.value).rstrip().endswith("last words")


def test_a_rank_that_exits_without_a_word_is_noticed(tmp_path):
    with pytest.raises(launch.RunFailed, match=r"^rank 0 ended with status 7; last output: none \(log: "):
        launch.fork_ranks(os._exit, (7,), 1, tmp_path)


def test_a_child_other_than_a_trainer_is_quoted_with_its_exception(tmp_path):
    with pytest.raises(launch.RunFailed, match=r"last output: ZeroDivisionError: "):
        children.fork([(divmod, (1, 0), {})], tmp_path)


def test_a_broken_checkpoint_is_reported_by_its_cause(tmp_path, dense_weights):
    """torch raises CheckpointException, which is no Exception, with the tracebacks of all ranks as its text."""
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((dense_weights / name).read_bytes())
    weights = load_file(dense_weights / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    flags = f"--hf_assets_path {tmp_path} --checkpoint.enable --checkpoint.initial_load_in_hf".split()
    with pytest.raises(launch.RunFailed, match=r"^RuntimeError: Missing key .*: model\.norm\.weight\. \(log: "):
        launch.run(NATIVE, dump_folder=tmp_path, flags=flags)


def test_a_run_over_its_time_is_ended_with_all_its_ranks(tmp_path):
    with pytest.raises(launch.RunFailed, match=r"^no end after 0\.2 s; last output in .*rank0\.log"):
        launch.fork_ranks(wait_forever, (), 2, tmp_path, timeout=0.2)
    assert not multiprocessing.active_children()


def test_a_torchrun_over_its_time_is_ended_with_ranks_in_their_own_sessions(tmp_path, monkeypatch):
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f"#!/bin/sh\nsetsid sleep 600 & echo $! > {tmp_path}/rank.pid\nwait\n")
    torchrun.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(torchrun))
    with pytest.raises(launch.RunFailed, match=r"^no end after 2 s; last output in .*torchrun\.log"):
        launch.run(NATIVE, dump_folder=tmp_path, launcher="torchrun", timeout=2)
    rank = int((tmp_path / "rank.pid").read_text())
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(rank).wait(timeout=5)
    assert not psutil.pid_exists(rank) or psutil.Process(rank).status() == psutil.STATUS_ZOMBIE


# --- the caller


def test_a_run_leaves_the_calling_process_as_it_was(train):
    from transformers import AttentionInterface, PreTrainedModel

    def state() -> dict:
        return {
            "environment": dict(os.environ),
            "initialisation": (PreTrainedModel._init_weights, PreTrainedModel._initialize_weights),
            "attention": dict(AttentionInterface._global_mapping),
            "garbage collector": gc.isenabled(),
            "threads of autograd": torch.autograd.is_multithreading_enabled(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "process group": torch.distributed.is_initialized(),
            "generator": torch.get_rng_state().tolist(),
            "children": multiprocessing.active_children(),
        }

    before = state()
    train("qwen3_hf_tiny", "--training.steps 1")
    assert state() == before
    assert before["garbage collector"]


# --- runs made again


def test_the_same_run_twice_gives_the_same_bytes(dense, train):
    again = train(NATIVE)
    assert again.steps == dense.steps
    assert again.export != dense.export
    assert folder_digests(again.export) == folder_digests(dense.export)


def test_a_random_start_is_the_same_every_time(train):
    first = train(NATIVE, "--checkpoint.no-initial_load_in_hf --training.steps 1")
    torch.rand(1)  # ranks inherit this process' generator, and must not draw from it
    second = train(NATIVE, "--checkpoint.no-initial_load_in_hf --training.steps 1")
    assert first.steps == second.steps
    assert folder_digests(first.export) == folder_digests(second.export)


def test_two_ranks_see_the_same_tokens_and_lose_the_same(dense, dense_on_two_ranks):
    assert [step.tokens for step in dense_on_two_ranks.steps] == [step.tokens for step in dense.steps]
    assert len({step.tokens for step in dense.steps}) == len(dense.steps)
    assert dense_on_two_ranks.losses == pytest.approx(dense.losses, abs=1e-6, rel=0)


def test_both_paths_start_from_the_same_loss(dense, transformers_on_two_ranks):
    assert transformers_on_two_ranks.losses[0] == pytest.approx(dense.losses[0], abs=1e-6, rel=0)
