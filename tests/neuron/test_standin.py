"""The stand-in device carries what torch and torchtitan ask of a real one; see the steps in ``ladder/``.

What it computes, it computes on the CPU: none of this says anything about Trainium.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.neuron import host

LADDER = Path(__file__).parent / "ladder"


def _climb(environment, steps: str, folder: Path, ranks: int) -> dict[str, str]:
    """What went wrong, by step and rank; at least 15 steps were tried on each."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    ended = subprocess.run(
        [sys.executable, *launcher, str(LADDER / "climb.py"), str(LADDER / steps), str(folder / "done")],
        env=environment | {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    by_rank = [json.loads((folder / f"done.{rank}").read_text()) for rank in range(ranks)]
    assert all(len(done) > 15 for done in by_rank)
    return {f"{step} on rank {rank}": why for rank, done in enumerate(by_rank) for step, why in done.items() if why}


def test_device_does_what_torch_asks(rehearsed, tmp_path):
    assert _climb(rehearsed(), "one_process.py", tmp_path, 1) == {}


def test_process_group_does_what_torch_asks(rehearsed, tmp_path):
    assert _climb(rehearsed(), "two_ranks.py", tmp_path, 2) == {}


def _python(environment, code: str) -> str:
    """What ``code`` prints, a traceback included."""
    command = [sys.executable, "-P", "-c", code]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return (ended.stdout + ended.stderr).strip()


@pytest.mark.parametrize("first", ["torch_neuronx", "nki"])
def test_any_order_of_imports_brings_the_device(rehearsed, first):
    code = f"import {first}; import torch, torch_neuronx, nki.isa; print(torch.ones(2, device='neuron').sum().item())"
    assert _python(rehearsed(), code) == "2.0"


def test_devices_are_the_cores_that_the_runtime_would_give(rehearsed):
    cases = {
        "{}": 64,
        "{'NEURON_RT_VISIBLE_CORES': '4-7,9'}": 5,
        "{'NEURON_RT_NUM_CORES': '2'}": 2,
        "{'NEURON_LOGICAL_NC_CONFIG': '1', 'NEURON_RT_VISIBLE_CORES': '64-127'}": 64,
    }
    code = "import os, torch; from torch_neuronx.registration import _logical_cores; plain = dict(os.environ)\n"
    for variables in cases:
        code += f"os.environ.clear(); os.environ.update(plain | {variables}); print(_logical_cores())\n"
    assert [int(line) for line in _python(rehearsed(), code).split()] == list(cases.values())


def test_it_never_loads_outside_of_a_rehearsal(rehearsed):
    environment = rehearsed()
    del environment[host.REHEARSAL]
    assert "for trncheck run --rehearse alone" in _python(environment, "import torch_neuronx")


def test_it_never_loads_beside_another_torch_neuronx(rehearsed, tmp_path):
    (tmp_path / "torch_neuronx").mkdir()
    environment = rehearsed()
    environment["PYTHONPATH"] += f":{tmp_path}"
    assert f"never takes the place of the torch-neuronx in {tmp_path}" in _python(environment, "import torch")


def test_it_never_takes_the_place_of_another_backend(rehearsed):
    environment = rehearsed() | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    code = "import torch; torch.utils.rename_privateuse1_backend('other'); import torch_neuronx"
    assert "never takes the place of backend 'other'" in _python(environment, code)
