"""Runs of the real trainer. Each takes one or two seconds, so those that several tests look at are made once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trncheck.fixtures.tiny import tiny_folder
from trncheck.trainers import children, launch
from trncheck.trainers.record import RunRecord

LOAD = "--checkpoint.enable --checkpoint.initial_load_in_hf"
"""Start from the weights of ``hf_assets_path``, and export at the end."""

Train = Callable[..., RunRecord]


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """Everything that the forked ranks need is imported here, before any test imports torchtitan itself."""
    children.warm_up()


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """``train(config, flags, ranks=, weights=)`` from the tiny weights into a fresh dump folder."""

    def start(config: str, flags: str = "", *, ranks: int = 1, weights: Path | None = None) -> RunRecord:
        return launch.run(
            config,
            dump_folder=tmp_path_factory.mktemp(config),
            flags=[
                *f"{LOAD} --training.steps 3 {flags}".split(),
                *(["--hf_assets_path", str(weights)] * bool(weights)),
            ],
            world_size=ranks,
        )

    return start


@pytest.fixture(scope="session")
def dense(train: Train) -> RunRecord:
    """Three steps of the native dense model on one rank, exported."""
    return train("qwen3_native_tiny")


@pytest.fixture(scope="session")
def dense_on_two_ranks(train: Train) -> RunRecord:
    """The same on two ranks, with all that can be recorded."""
    return train(
        "qwen3_native_tiny",
        "--record.batches --record.logit_steps 1 --record.gradient_steps 1 2 --record.weight_steps 0 3"
        " --record.final_logits",
        ranks=2,
    )


@pytest.fixture(scope="session")
def moe_on_two_ranks(train: Train) -> RunRecord:
    """Two ranks that share the experts, with gradients and weights recorded."""
    return train(
        "qwen3_moe_tiny",
        "--parallelism.expert_parallel_degree 2 --record.gradient_steps 1 --record.weight_steps 0",
        ranks=2,
    )


@pytest.fixture(scope="session")
def transformers_on_two_ranks(train: Train) -> RunRecord:
    return train("qwen3_hf_tiny", ranks=2)


@pytest.fixture
def dense_weights() -> Path:
    return tiny_folder("dense-tied")
