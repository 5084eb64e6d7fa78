"""Every repair of ``trainers/cpu.py`` and ``trainers/torch213.py`` is still needed: without it the trainer fails.

A test that reports "the repair can go" is good news: torch or torchtitan have caught up, so delete the repair.
"""

import ast
import inspect
import math
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NoReturn

import pytest
import torch
import torch.distributed

from trncheck.fixtures import corpus
from trncheck.trainers import cpu, job, launch, substitutes, torch213
from trncheck.trainers.reference import document_mask

DEVICE_MEMBERS = sorted(name for name, member in vars(cpu._CpuModule).items() if isinstance(member, staticmethod))


def can_go(repair: str) -> NoReturn:
    pytest.fail(
        f"torch {torch.__version__} and torchtitan {version('torchtitan')} do without {repair}: the repair can go"
    )


@pytest.fixture
def symptom_without(tmp_path: Path) -> Callable[..., str]:
    """``symptom_without(repair, undo, config)``: how training fails where ``undo()`` was called in every rank."""

    def attempt(repair: str, undo: Callable[[], None], config: str, flags: str = "", ranks: int = 1) -> str:
        def rank(arguments: list[str]) -> None:
            undo()
            job.train(arguments)

        arguments = ["--config", config, "--dump_folder", str(tmp_path), "--training.steps", "2", *flags.split()]
        try:
            launch.fork_ranks(rank, (arguments,), ranks, tmp_path)
        except launch.RunFailed as failure:
            return str(failure)
        can_go(repair)

    return attempt


def rebind(old: object, new: object) -> None:
    """Replace an object under every name by which torchtitan's modules know it."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torchtitan"):
            for name, value in list(vars(module).items()):
                if value is old:
                    setattr(module, name, new)


def restore_statement(module: ModuleType, name: str) -> None:
    """Run once more the statement by which ``module`` itself defines ``name``."""
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.Assign) and name in [getattr(target, "id", None) for target in statement.targets]:
            exec(compile(ast.Module([statement], []), module.__file__, "exec"), vars(module))


def test_the_repaired_trainer_trains_every_model(dense, moe_on_two_ranks, transformers_on_two_ranks):
    for run in (dense, moe_on_two_ranks, transformers_on_two_ranks):
        assert len(run.losses) == 3
        assert all(math.isfinite(loss) for loss in run.losses)


# --- device module


def test_torchtitan_takes_a_machine_without_accelerator_for_cuda(symptom_without):
    def undo():
        import torchtitan.tools.utils

        device_type, device_module = torchtitan.tools.utils.get_device_info()
        rebind(torchtitan.tools.utils.device_module, device_module)
        for name, module in list(sys.modules.items()):
            if name.startswith("torchtitan") and vars(module).get("device_type") == "cpu":
                module.device_type = device_type

    assert "cuda" in symptom_without("the device module", undo, "qwen3_native_tiny")


@pytest.mark.parametrize("member", DEVICE_MEMBERS)
def test_torch_cpu_lacks_a_member_of_the_device_module(member, symptom_without):
    symptom = symptom_without(f"_CpuModule.{member}", lambda: delattr(cpu._CpuModule, member), "qwen3_native_tiny")
    if member == "current_device":  # torch.cpu has it, but its answer is no index
        assert "TypeError" in symptom
    else:
        assert f"has no attribute '{member}'" in symptom


# --- the rest of the process


def test_torchtitan_calls_set_timeout_which_torch_has_under_another_name(symptom_without):
    def undo():
        if torch.distributed.set_timeout is torch.distributed.distributed_c10d._set_pg_timeout:
            del torch.distributed.set_timeout

    assert "no attribute 'set_timeout'" in symptom_without("the name set_timeout", undo, "qwen3_native_tiny")


def test_fsdp_cannot_shard_the_transformers_model_by_spmd_annotations(symptom_without):
    from torchtitan.distributed.full_dtensor import resolve_fsdp_mesh

    stock = getattr(resolve_fsdp_mesh, "__wrapped__", None) or can_go("resolve_fsdp_mesh")
    symptom = symptom_without("resolve_fsdp_mesh", lambda: rebind(resolve_fsdp_mesh, stock), "qwen3_hf_tiny", ranks=2)
    assert "all parameters must be DTensors on the full SPMD mesh" in symptom


def test_fsdp_cannot_shard_native_experts_by_spmd_annotations(symptom_without):
    def undo():
        torch213.adapt = lambda config: None

    symptom = symptom_without(
        "partial_dtensor", undo, "qwen3_moe_tiny", "--parallelism.expert_parallel_degree 2", ranks=2
    )
    assert "all parameters must be DTensors on the full SPMD mesh" in symptom


def test_the_transformers_path_refuses_meshes_that_the_repair_does_not_cover(symptom_without):
    flags = "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1"
    symptom = symptom_without("the one-dimensional mesh", lambda: None, "qwen3_hf_tiny", flags, ranks=2)
    assert "set tensor, context, expert and replicate degrees to 1" in symptom


def test_block_masks_are_compiled_by_torchtitan_and_need_a_compiler(symptom_without, tmp_path, monkeypatch):
    from torchtitan.models.common import attention

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))

    def undo():
        import torch._inductor.config

        torch._inductor.config.cpp.cxx = (str(tmp_path / "no-such-compiler"),)
        substitutes.build_masks_eagerly = lambda: restore_statement(attention, "_compiled_create_block_mask")

    assert "No working C++ compiler found" in symptom_without("eager masks", undo, "qwen3_native_tiny")


def test_torchtitan_sleeps_at_the_end_of_a_run(symptom_without):
    def undo():
        from torchtitan import trainer

        def sleep(seconds):
            raise RuntimeError(f"slept for {seconds} s")

        trainer.time = SimpleNamespace(**vars(time) | {"sleep": sleep})

    assert "slept for 2 s" in symptom_without("the trainer without its sleep", undo, "qwen3_native_tiny")


def test_only_the_trainer_is_kept_from_sleeping():
    from torchtitan import trainer

    assert trainer.time.sleep is not time.sleep
    assert inspect.isbuiltin(time.sleep)


def test_seams_cannot_be_set_once_torchtitan_has_read_the_device():
    with pytest.raises(RuntimeError, match=r"import trncheck\.trainers\.devices before torchtitan\."):
        cpu.install()


# --- per configuration


def test_gloo_has_no_scaled_sum(symptom_without):
    def undo():
        substitutes.sum_only = lambda parallelize_fn: parallelize_fn

    assert "PREMUL_SUM with Gloo" in symptom_without("SUM-only reductions", undo, "qwen3_native_tiny", ranks=2)


def test_flex_attention_has_no_backward_pass_on_a_cpu(symptom_without):
    def undo():
        substitutes._attend_with_dense_masks = lambda model_spec: None

    symptom = symptom_without("dense masks", undo, "qwen3_native_tiny")
    assert "FlexAttention does not support backward on CPU" in symptom


def test_flex_attention_has_no_backward_pass_in_the_transformers_path_either(symptom_without):
    def undo():
        substitutes._attend_with_dense_masks_in_transformers = lambda: None

    symptom = symptom_without("dense masks in Transformers", undo, "qwen3_hf_tiny")
    assert "FlexAttention does not support backward on CPU" in symptom


@pytest.mark.parametrize("restarts", [(), (1,), (63,), (5, 6, 7, 40), tuple(range(64))], ids=len)
def test_the_dense_mask_is_the_explicit_document_mask(restarts):
    from torch.nn.attention.flex_attention import and_masks, create_block_mask
    from torchtitan.models.common.attention import get_causal_mask_mod, get_document_mask_mod

    positions_BL = torch.from_numpy(corpus.batch(1, rows_per_step=3, seq_len=64)["positions"])
    positions_BL[1] = torch.arange(64)
    for start in restarts:
        positions_BL[1, start:] = torch.arange(64 - start)
    batch, length = positions_BL.shape
    mask_mod = and_masks(get_causal_mask_mod(), get_document_mask_mod(positions_BL))
    block_mask = create_block_mask(mask_mod, batch, None, length, length, device="cpu")
    dense = substitutes.dense_mask(block_mask, batch, length, "cpu")
    assert torch.equal(dense, document_mask(positions_BL))


# --- accelerators


def in_a_process_that_finds(device: str, code: str) -> None:
    pretend = f"import sys, types, torch; torch._utils._get_available_device_type = lambda: {device!r}"
    command = [sys.executable, "-P", "-c", f"{pretend}\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["neuron", "cuda"])
def test_an_accelerator_never_loads_the_cpu_repairs(device):
    code = """
torch.neuron = types.ModuleType("torch.neuron")
import trncheck.trainers.devices
assert "trncheck.trainers.cpu" not in sys.modules
"""
    in_a_process_that_finds(device, code)


def test_the_whole_trainer_on_an_accelerator_leaves_torchtitan_alone():
    code = """
torch.neuron = types.ModuleType("torch.neuron")
from trncheck.trainers import children, launch
children.warm_up()
import time, torchtitan.tools.utils, torchtitan.trainer
from torchtitan.models.common import attention
from trncheck.trainers import config_registry
assert torchtitan.tools.utils.device_type == "neuron"
assert torchtitan.tools.utils.device_module is torch.neuron
assert torchtitan.trainer.time is time
assert attention._compiled_create_block_mask is not attention.create_block_mask
assert config_registry.qwen3_native_tiny().parallelism.spmd_backend == "spmd_types"
assert "trncheck.trainers.cpu" not in sys.modules
"""
    in_a_process_that_finds("neuron", code)


def test_a_torch_that_has_everything_is_left_alone(tmp_path):
    (tmp_path / "fsdp_param.py").write_text("import spmd_types")
    code = f"""
from torch.distributed.fsdp._fully_shard import _fsdp_param
_fsdp_param.__file__ = {str(tmp_path / "fsdp_param.py")!r}
torch.distributed.set_timeout = theirs = object()
from trncheck.trainers import config_registry, torch213
from torchtitan.distributed import full_dtensor
config = config_registry.qwen3_native_tiny()
torch213.adapt(config)
assert config.parallelism.spmd_backend == "spmd_types"
assert torch.distributed.set_timeout is theirs
assert full_dtensor.resolve_fsdp_mesh.__module__ == "torchtitan.distributed.full_dtensor"
assert not hasattr(full_dtensor.resolve_fsdp_mesh, "__wrapped__")
"""
    in_a_process_that_finds("cpu", code)


def test_every_module_that_imports_torchtitan_sets_the_device_first():
    """Any of them may be the first that a user imports; torchtitan reads the device while it is imported."""
    for file in Path(cpu.__file__).parent.glob("*.py"):
        imports = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [getattr(node, "module", None) or node.names[0].name for node in imports]
        ours = [name for name in names if name.startswith(("torchtitan", "trncheck."))]
        if any(name.startswith("torchtitan") for name in ours):
            assert ours[0] == "trncheck.trainers.devices", file.name
