"""A step of training through trncheck against the same step through torchtitan alone; and what kernels cost.

Both steps are taken in turns by one trainer, on the same model and data: the kit's, which checks and records, and
torchtitan's own ``train_step``, called past it. What makes torchtitan run on a CPU at all is in both.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Benchmark, Figure, ratio

CONFIGS = {"native dense": "qwen3_native_tiny", "MoE": "qwen3_moe_tiny", "Transformers": "qwen3_hf_tiny"}
OVERHEAD = 1.02
KERNELS, PLAIN = "qwen3_moe_nki_tiny_nki_rope", "qwen3_moe_tiny"
PAIRS, WARM_UP = 40, 5
"""Pairs of steps, and how many more come before them."""


def run(options) -> Iterator[Benchmark]:
    """``steps.overhead``, with one ratio per path, and ``steps.kernels``, by cores of the launch."""
    benchmark = Benchmark("steps.overhead", "A step takes as long as torchtitan's own.")
    for path, config in CONFIGS.items():
        ours, alone = _measure(config, PAIRS)
        benchmark.add(ratio(f"{path}: step through trncheck against torchtitan alone", ours, alone, bar=OVERHEAD))
        benchmark.add(Figure(f"{path}: step through trncheck", tuple(1e3 * seconds for seconds in ours), "ms"))
    yield benchmark

    benchmark = Benchmark("steps.kernels", "What a step with kernels in the simulator costs.")
    pairs = max(3, options.repeats // 2)
    for cores in ("1", "2"):
        with_kernels, without = (_measure(config, pairs, cores)[0] for config in (KERNELS, PLAIN))
        benchmark.add(ratio(f"LNC {cores}: step with expert and rotary kernels against without", with_kernels, without))
        benchmark.add(Figure(f"LNC {cores}: step with kernels", tuple(with_kernels), "s"))
    yield benchmark


def _measure(config: str, pairs: int, cores: str = "2") -> tuple[list[float], list[float]]:
    """Seconds of the steps through trncheck and of those through torchtitan alone, in a process of their own."""
    from trncheck.trainers.launch import fork_ranks

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "seconds.json")
        fork_ranks(_train, (config, pairs, cores, folder, str(out)), 1, Path(folder), timeout=900)
        ours, alone = json.loads(out.read_text())
    return ours, alone


def _train(config: str, pairs: int, cores: str, folder: str, out: str) -> None:
    os.environ["NEURON_LOGICAL_NC_CONFIG"] = cores
    from trncheck.trainers.job import parse

    steps = 2 * (pairs + WARM_UP)
    flags = ["--config", config, "--dump_folder", f"{folder}/run", "--training.steps", str(steps), "--record.enable"]
    trainer = parse(flags).build()
    kind = type(trainer)
    stock = next(base for base in kind.__mro__ if base.__module__.startswith("torchtitan"))
    recorder, seconds = trainer.recorder, ([], [])

    def step(data_iterator) -> None:
        pair, second = divmod(trainer.step - 1, 2)
        alone = (pair + second) % 2  # who goes first changes with every pair
        trainer.recorder = None if alone else recorder
        start = time.process_time()
        (stock if alone else kind).train_step(trainer, data_iterator)
        seconds[alone].append(time.process_time() - start)
        trainer.recorder = recorder

    trainer.train_step = step
    try:
        trainer.train()
    finally:
        trainer.close()
    Path(out).write_text(json.dumps([part[WARM_UP:] for part in seconds]))
