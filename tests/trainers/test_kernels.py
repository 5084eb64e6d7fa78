"""Kernels in the models of all paths: on every layer or an error, executed or an error, and with the same losses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trncheck.fixtures.tiny import tiny_folder
from trncheck.trainers import config_registry, kernels, launch

LAYERS, STEPS = 2, 2
NKI_ROPE, NKI_EXPERTS = "trncheck.kernels.overrides.nki_rope", "trncheck.kernels.overrides.nki_experts"

TINY = {
    "qwen3_native_tiny_nki_rope": ("qwen3_native_tiny", {"rope"}),
    "qwen3_moe_nki_tiny": ("qwen3_moe_tiny", {"experts"}),
    "qwen3_moe_nki_tiny_nki_rope": ("qwen3_moe_tiny", {"rope", "experts"}),
    "qwen3_hf_tiny_nki_rope": ("qwen3_hf_tiny", {"rope"}),
    "qwen3_hf_moe_tiny_nki_rope": ("qwen3_hf_moe_tiny", {"rope"}),
}
"""Configurations with kernels: the one without, and the operators."""

REAL = {
    "qwen3_native_4b_instruct_2507_nki_rope": {"rope"},
    "qwen3_hf_4b_instruct_2507_nki_rope": {"rope"},
    "qwen3_moe_nki_30b_a3b_4layers_64experts": {"experts"},
    "qwen3_moe_nki_30b_a3b_4layers_64experts_nki_rope": {"rope", "experts"},
}


@pytest.fixture(scope="module")
def losses_without(train) -> Callable[[str], list[float]]:
    runs = {}

    def losses(config: str) -> list[float]:
        if config not in runs:
            runs[config] = train(config, f"--training.steps {STEPS}")
        assert runs[config].kernel_counts == [{}, {}]
        return runs[config].losses

    return losses


def executions(counts: dict[str, int]) -> dict[tuple[str, str], int]:
    """Executions by operator and direction; all are in fp32."""
    assert {key.split()[2] for key in counts} == {"float32"}
    by_direction = {tuple(key.split()[:2]): number for key, number in counts.items()}
    assert len(by_direction) == len(counts)
    return by_direction


def expected(operators: set[str], micro_batches: int) -> dict[tuple[str, str], int]:
    return {
        (operator, direction): LAYERS * micro_batches for operator in operators for direction in ("forward", "backward")
    }


@pytest.mark.parametrize("config", TINY)
def test_training_with_kernels_gives_the_losses_of_training_without(config, train, losses_without):
    stock, operators = TINY[config]
    run = train(config, f"--training.steps {STEPS}")
    assert run.losses == pytest.approx(losses_without(stock), abs=1e-5)
    for counts in run.kernel_counts:
        assert executions(counts) == expected(operators, micro_batches=2)


@pytest.mark.parametrize(
    ("layout", "micro_batches"),
    [("", 2), ("--parallelism.expert_parallel_degree 2", 2), ("--parallelism.tensor_parallel_degree 2", 4)],
    ids=["sharded", "expert-parallel", "tensor-parallel"],
)
def test_two_ranks_execute_kernels_and_share_their_gradients(layout, micro_batches, train, losses_without):
    run = train("qwen3_moe_nki_tiny_nki_rope", f"--training.steps {STEPS} {layout}", ranks=2)
    assert run.losses == pytest.approx(losses_without("qwen3_moe_tiny"), abs=5e-5)
    for counts in run.kernel_counts:
        assert executions(counts) == expected({"rope", "experts"}, micro_batches)


def test_activation_checkpointing_executes_every_forward_twice(train, losses_without, monkeypatch):
    from torchtitan.distributed.activation_checkpoint import SelectiveAC

    def checkpointing():
        config = kernels.attach(config_registry.qwen3_moe_tiny(), rope=True, experts=True)
        config.activation_checkpoint = SelectiveAC.Config()
        return config

    monkeypatch.setattr(config_registry, "qwen3_moe_nki_tiny_nki_rope", checkpointing)
    run = train("qwen3_moe_nki_tiny_nki_rope", f"--training.steps {STEPS}")
    assert run.losses == pytest.approx(losses_without("qwen3_moe_tiny"), abs=1e-5)
    twice = {key: number * (1 + (key[1] == "forward")) for key, number in expected({"rope", "experts"}, 2).items()}
    assert executions(run.kernel_counts[0]) == twice


def test_flags_put_both_kernels_into_a_transformers_model(train, losses_without):
    run = train("qwen3_hf_moe_tiny", f"--training.steps {STEPS} --kernels.rope --kernels.experts")
    assert run.losses == pytest.approx(losses_without("qwen3_hf_moe_tiny"), abs=1e-5)
    assert executions(run.kernel_counts[0]) == expected({"rope", "experts"}, micro_batches=2)


@pytest.mark.parametrize("config", REAL)
def test_real_configurations_ask_for_their_kernels(config):
    built = getattr(config_registry, config)()
    assert kernels.asked(built) == REAL[config]
    if built.model_spec.name == "qwen3":
        for layer in built.model_spec.model.layers:
            places = {"rope": layer.attention.rope, "experts": layer.moe and layer.moe.routed_experts.inner_experts}
            attached = {name for name, place in places.items() if "Nki" in type(place).__qualname__}
            assert attached == REAL[config]


def test_a_kernel_in_one_transformers_model_is_in_no_other():
    """The class that Transformers made, and its module, stay as they are."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.qwen3 import modeling_qwen3

    rotate, forward = modeling_qwen3.apply_rotary_pos_emb, modeling_qwen3.Qwen3Attention.forward
    config = AutoConfig.from_pretrained(tiny_folder("dense-tied"))
    one, other = (AutoModelForCausalLM.from_config(config).model for _ in range(2))
    kernels.attach_to_transformers(one.layers, rope=True, experts=False)
    assert {type(layer.self_attn).__name__ for layer in one.layers} == {"NkiQwen3Attention"}
    assert {type(layer.self_attn) for layer in other.layers} == {modeling_qwen3.Qwen3Attention}
    assert (modeling_qwen3.apply_rotary_pos_emb, modeling_qwen3.Qwen3Attention.forward) == (rotate, forward)


def test_an_attention_without_the_rotary_function_is_refused():
    from torch import nn

    with pytest.raises(ValueError, match=r"MultiheadAttention\.forward does not call apply_rotary_pos_emb"):
        kernels.rotate_with_kernel(nn.MultiheadAttention(4, 1))


# --- layers without a kernel


def on_first_layer_only(function: Callable, otherwise: Callable) -> Callable:
    calls = []

    def choose(*args):
        calls.append(args)
        return (function if len(calls) % LAYERS == 1 else otherwise)(*args)

    return choose


@pytest.mark.parametrize(
    ("config", "function", "left_out"),
    [
        ("qwen3_native_tiny_nki_rope", "nki_rope", r"layers\.1\.attention\.rope \(CosSinRoPE\)"),
        ("qwen3_moe_nki_tiny", "nki_experts", r"layers\.1\.moe\.routed_experts\.inner_experts \(SameDtypeExperts\)"),
    ],
)
def test_a_layer_of_a_native_model_that_is_left_out_is_named(config, function, left_out, train, monkeypatch):
    from trncheck.kernels import overrides

    attach = getattr(overrides, function)
    monkeypatch.setattr(overrides, function, on_first_layer_only(attach, otherwise=lambda found: found))
    with pytest.raises(launch.RunFailed, match=rf"kernels were asked for but {left_out} has none; --kernels"):
        train(config)


def test_a_layer_of_a_transformers_model_that_is_left_out_is_named(train, monkeypatch):
    rotate = on_first_layer_only(kernels.rotate_with_kernel, otherwise=lambda attention: None)
    monkeypatch.setattr(kernels, "rotate_with_kernel", rotate)
    with pytest.raises(launch.RunFailed, match=r"asked for but \S*layers\.1\.self_attn \(Qwen3Attention\) has none"):
        train("qwen3_hf_tiny_nki_rope")


@pytest.mark.parametrize("config", ["qwen3_native_tiny", "qwen3_hf_tiny"])
def test_experts_of_a_dense_model_are_refused(config, train):
    with pytest.raises(launch.RunFailed, match="the experts kernel was asked for but the model has no layer for it"):
        train(config, "--kernels.experts")


@pytest.mark.parametrize("operator", ["rope", "experts"])
def test_a_kernel_that_is_attached_but_not_executed_is_named(operator, train, monkeypatch):
    """For example because the operator falls back to plain torch."""
    from trncheck.kernels import counters

    bump = counters.bump

    def forget(name, direction, *rest):
        if not (name.endswith(operator) and direction == "backward"):
            bump(name, direction, *rest)

    monkeypatch.setattr(counters, "bump", forget)
    with pytest.raises(launch.RunFailed, match=rf"never executed on rank 0 .* step 1: {operator} backward; executed: "):
        train("qwen3_moe_nki_tiny_nki_rope")


# --- overrides


def test_overrides_put_kernels_into_a_configuration_without(train, losses_without):
    run = train("qwen3_moe_tiny", f"--training.steps {STEPS} --override.imports {NKI_ROPE} {NKI_EXPERTS}")
    assert run.losses == pytest.approx(losses_without("qwen3_moe_tiny"), abs=1e-5)
    assert executions(run.kernel_counts[0]) == expected({"rope", "experts"}, micro_batches=2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_module_of_experts_gives_each_row_the_weights_of_its_expert(dtype):
    """Forward and backward, in the dtype of its parameters, within twice the error of plain torch."""
    import torch
    from torchtitan.models.common.moe import GroupedExperts

    from trncheck.kernels.moe.reference import experts_reference
    from trncheck.kernels.overrides import nki_experts

    generator = torch.Generator().manual_seed(0)
    module = nki_experts(GroupedExperts.Config(dim=16, hidden_dim=12, num_experts=3)).build()
    weights = [module.w1_EFD, module.w2_EDF, module.w3_EFD]
    with torch.no_grad():
        for weight in weights:
            weight.copy_(torch.randn(weight.shape, generator=generator) / 4)
    module.to(getattr(torch, dtype))
    leaves = [torch.randn(40, 16, generator=generator).to(module.w1_EFD.dtype).requires_grad_()]
    leaves += [module.w1_EFD, module.w2_EDF, module.w3_EFD]
    counts_E = torch.tensor([20, 0, 17])
    upstream = torch.randn(40, 16, generator=generator)

    def results(call, leaves):
        out_RD = call(leaves[0], counts_E, *leaves[1:])
        return out_RD, *torch.autograd.grad(out_RD, leaves, upstream.to(out_RD.dtype))

    truth = results(experts_reference, [leaf.detach().double().requires_grad_() for leaf in leaves])
    plain = results(experts_reference, leaves)
    ours = results(lambda x_RD, counts_E, *_: module(x_RD, counts_E), leaves)
    for part, other, true in zip(ours, plain, truth, strict=True):
        assert part.dtype == other.dtype == getattr(torch, dtype)
        assert (part.double() - true).norm() <= 2 * (other.double() - true).norm()


def test_overrides_that_match_nothing_are_refused(train):
    with pytest.raises(launch.RunFailed, match="the experts kernel was asked for but the model has no layer for it"):
        train("qwen3_native_tiny", f"--override.imports {NKI_ROPE} {NKI_EXPERTS}")


def test_overrides_do_not_reach_a_transformers_model_and_say_so(train):
    with pytest.raises(launch.RunFailed, match=r"layers\.1\.self_attn \(Qwen3Attention\) have none; --kernels\.rope"):
        train("qwen3_hf_tiny", f"--override.imports {NKI_ROPE}")


def train_a_config_of_torchtitan(dump_folder: Path, overrides: list[str]) -> None:
    """torchtitan's own trainer and configuration; only sizes, data and what a CPU lacks are ours."""
    from torchtitan.config import TrainingConfig
    from torchtitan.models.qwen3.config_registry import qwen3_moe_debug

    from trncheck.kernels import counters
    from trncheck.trainers import cpu
    from trncheck.trainers.data import CorpusDataLoader

    config = qwen3_moe_debug()
    config.model_spec.model.layers = config.model_spec.model.layers[:LAYERS]
    for layer in config.model_spec.model.layers:
        layer.moe.routed_experts.inner_experts.hidden_dim = 32
    config.training = TrainingConfig(
        local_batch_size=1, seq_len=64, steps=1, mixed_precision_param="float32", disable_cuda_graphs=True
    )
    config.dataloader = CorpusDataLoader.Config()
    config.hf_assets_path = str(tiny_folder("moe"))
    config.dump_folder = str(dump_folder)
    config.checkpoint.enable = False
    config.override.imports = overrides
    cpu.adapt(config)
    trainer = config.build()
    with counters.counting() as executed:
        trainer.train()
    counts = {" ".join(key[:2]): number / LAYERS for key, number in executed.items()}
    (dump_folder / "counts.json").write_text(json.dumps(counts))


def test_overrides_put_kernels_into_a_configuration_of_torchtitan(tmp_path):
    launch.fork_ranks(train_a_config_of_torchtitan, (tmp_path, [NKI_ROPE, NKI_EXPERTS]), 1, tmp_path)
    per_layer = json.loads((tmp_path / "counts.json").read_text())
    twice = {f"trncheck::{operator} forward": 2 for operator in ("rope", "experts")}  # selective checkpointing
    assert per_layer == twice | {f"trncheck::{operator} backward": 1 for operator in ("rope", "experts")}


def test_an_override_refuses_settings_that_the_kernel_does_not_have():
    from torchtitan.models.gpt_oss.moe import GptOssGroupedExperts

    from trncheck.kernels.overrides import nki_experts

    experts = GptOssGroupedExperts.Config(dim=4, hidden_dim=4, num_experts=2)
    with pytest.raises(ValueError, match=r"NkiExperts cannot .* GptOssGroupedExperts, which has settings swiglu_limit"):
        nki_experts(experts)


def test_an_override_refuses_weights_that_the_kernel_does_not_have():
    from torchtitan.overrides.fused_swiglu import FusedGroupedExperts

    from trncheck.kernels.overrides import nki_experts

    experts = FusedGroupedExperts.Config(dim=4, hidden_dim=4, num_experts=2)
    with pytest.raises(ValueError, match=r"NkiExperts cannot .* FusedGroupedExperts, which has weights or buffers of"):
        nki_experts(experts)
