"""Faults that give every process another model. They are planted in the fresh process, too."""

import os
import tempfile
from pathlib import Path

import pytest

fault = pytest.mark.fault


def _everywhere(config: str, source: str) -> None:
    """Execute ``source`` here, and at the start of every Python process that is started from here.

    Only the case of ``config`` is trained.
    """
    from trncheck.conformance import test_determinism

    test_determinism.CASES = tuple(case for case in test_determinism.CASES if case.config == config)
    folder = tempfile.mkdtemp()
    Path(folder, "sitecustomize.py").write_text(source)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    exec(source, {})


@fault("determinism.processes[native-dense-tied-1r]", "loss of step 1: expected")
def test_seed_from_the_time():
    _everywhere(
        "qwen3_native_tiny",
        """
import time
from trncheck.trainers.trainer import NativeTrainer
original = NativeTrainer.__init__
def seeded(self, config):
    config.debug.seed = time.time_ns() % 2**31
    original(self, config)
NativeTrainer.__init__ = seeded
""",
    )


@fault("determinism.processes[native-moe-2r]", "loss of step 1: expected")
def test_weights_drawn_in_the_order_of_a_set():
    _everywhere(
        "qwen3_moe_tiny",
        """
import torch
from trncheck.trainers.trainer import NativeTrainer
original = NativeTrainer._check_loaded
def drawn(self):
    original(self)
    names = dict(self.model_parts[0].named_parameters())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name in set(names):
            names[name]._local_tensor.mul_(1 + torch.rand((), generator=generator))
NativeTrainer._check_loaded = drawn
""",
    )


@fault("determinism.processes[hf-moe-2r]", "exported files that differ in a byte: expected [], found ['config.json']")
def test_time_in_the_export():
    _everywhere(
        "qwen3_hf_moe_tiny",
        """
import json, time
from trncheck.trainers import trainer
original = trainer.complete_export
def stamped(folder, **kwargs):
    original(folder, **kwargs)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"exported": time.time_ns()}))
trainer.complete_export = stamped
""",
    )
