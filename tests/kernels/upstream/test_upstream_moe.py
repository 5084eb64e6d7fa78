"""Experts in blocks: nkilib's forward kernels and their gradient against plain torch on the same routing."""

from dataclasses import dataclass

import pytest
import torch

from trncheck.kernels.moe.reference import experts_reference

T, D, F, E, B = 512, 512, 256, 4, 256
"""Tokens, hidden, intermediate, experts, slots of a block."""
BF16 = 2**-6
"""What bf16 intermediates leave, of the largest value."""


@dataclass
class Routing:
    """One problem: bf16 inputs in nkilib's layouts, and the truth in fp64."""

    hidden_TD: torch.Tensor
    affinity_TE: torch.Tensor
    gate_up_ED2F: torch.Tensor
    down_EFD: torch.Tensor
    token_of_slot_S: torch.Tensor
    """Int32; padding is T."""
    expert_of_block_N1: torch.Tensor

    @classmethod
    def make(cls, top_k: int) -> "Routing":
        generator = torch.Generator().manual_seed(top_k)

        def random(*shape, scale=1.0):
            return (torch.randn(*shape, generator=generator) * scale).bfloat16()

        scores_TE = torch.randn(T, E, generator=generator)
        chosen_TK = scores_TE.topk(top_k).indices
        affinity_TE = torch.zeros(T, E).scatter_(1, chosen_TK, scores_TE.sigmoid().gather(1, chosen_TK))
        blocks, experts = [], []
        for expert in range(E):
            tokens = (affinity_TE[:, expert] > 0).nonzero().flatten()
            for part in tokens.split(B):
                blocks.append(torch.cat([part, part.new_full((B - len(part),), T)]))
                experts.append(expert)
        if len(blocks) % 2:  # bwmm_shard_on_block deals blocks to the cores in turn
            blocks.append(torch.full((B,), T))
            experts.append(E - 1)
        return cls(
            random(T, D),
            affinity_TE.bfloat16(),
            random(E, D, 2, F, scale=D**-0.5),
            random(E, F, D, scale=F**-0.5),
            torch.cat(blocks).int(),
            torch.tensor(experts, dtype=torch.int32)[:, None],
        )

    def arguments(self, padding: int) -> dict[str, torch.Tensor | int]:
        """What forward and backward kernels take alike, with ``padding`` zero rows behind the tokens."""
        rows = lambda x: torch.cat([x, x.new_zeros(padding, x.shape[1])])  # noqa: E731
        return {
            "hidden_states": rows(self.hidden_TD),
            "expert_affinities_masked": rows(self.affinity_TE).reshape(-1, 1).contiguous(),
            "gate_up_proj_weight": self.gate_up_ED2F,
            "down_proj_weight": self.down_EFD,
            "block_size": B,
            "token_position_to_id": self.token_of_slot_S,
            "block_to_expert": self.expert_of_block_N1,
        }

    def truth(self) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The output (T, D), and the tensors that it is differentiable in: hidden, affinity, gate and up, down."""
        leaves = [x.double() for x in (self.hidden_TD, self.affinity_TE, self.gate_up_ED2F, self.down_EFD)]
        hidden_TD, affinity_TE, gate_up_ED2F, down_EFD = (x.requires_grad_() for x in leaves)
        expert_R, token_R = (self.affinity_TE.T > 0).nonzero(as_tuple=True)
        w1_EFD, w3_EFD = (gate_up_ED2F[:, :, i].transpose(1, 2) for i in (0, 1))
        counts_E = torch.bincount(expert_R, minlength=E)
        y_RD = experts_reference(hidden_TD[token_R], counts_E, w1_EFD, down_EFD.transpose(1, 2), w3_EFD)
        y_RD = y_RD * affinity_TE[token_R, expert_R, None]
        out_TD = torch.zeros_like(hidden_TD).index_add(0, token_R, y_RD)
        return out_TD, (hidden_TD, affinity_TE, gate_up_ED2F, down_EFD)

    def checkpoints(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Gate and up (N, 2, F, B) before the activation, and down (N, B, D) before the affinity, in bf16."""
        hidden = torch.cat([self.hidden_TD.float(), torch.zeros(1, D)])
        gate_up, down = [], []
        for expert, tokens in zip(self.expert_of_block_N1[:, 0], self.token_of_slot_S.split(B), strict=True):
            both_B2F = torch.einsum("bd,dgf->bgf", hidden[tokens], self.gate_up_ED2F[expert].float())
            gate_up.append(both_B2F.permute(1, 2, 0).bfloat16())
            gate_BF, up_BF = both_B2F.bfloat16().float().unbind(1)
            inner_BF = (torch.nn.functional.silu(gate_BF) * up_BF).bfloat16().float()
            down.append((inner_BF @ self.down_EFD[expert].float()).bfloat16())
        return torch.stack(gate_up), torch.stack(down)


@pytest.mark.parametrize("top_k", [1, 2])
def test_forward_shard_on_block(upstream, top_k):
    problem = Routing.make(top_k)
    kernel = upstream.module("core.moe.moe_cte.bwmm_shard_on_block").bwmm_shard_on_block
    arguments = problem.arguments(padding=1)
    # With top 2 row T, the padding's, is never initialised, and yet read and added to.
    out = upstream.run(kernel, **arguments, is_tensor_update_accumulating=top_k > 1, lnc=2, strict=top_k == 1)
    out_TD = out[:T] if out.dim() == 2 else out[:T, 0]
    upstream.agree(f"output bf16, top {top_k}", out_TD, problem.truth()[0], BF16)


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("skip", [False, True], ids=["pad", "skip"])
def test_forward_shard_on_intermediate(upstream, top_k, skip):
    problem = Routing.make(top_k)
    module = upstream.module("core.moe.moe_cte.bwmm_shard_on_I")
    modes = upstream.module("core.utils.common_types").ExpertAffinityScaleMode
    arguments = problem.arguments(padding=0 if skip else 1)
    if skip:
        tokens = arguments["token_position_to_id"]
        arguments["token_position_to_id"] = torch.where(tokens == T, -1, tokens)
    out = upstream.run(
        module.blockwise_mm_baseline_shard_intermediate,
        **arguments,
        skip_dma=module.SkipMode(skip_token=skip, skip_weight=False),
        is_tensor_update_accumulating=top_k > 1,
        expert_affinities_scaling_mode=modes.POST_SCALE,
        lnc=2,
    )
    upstream.agree(f"output bf16, top {top_k}{', skipping' if skip else ''}", out[:T], problem.truth()[0], BF16)


def test_forward_shard_on_intermediate_checkpoints(upstream):
    problem = Routing.make(2)
    module = upstream.module("core.moe.moe_cte.bwmm_shard_on_I")
    modes = upstream.module("core.utils.common_types").ExpertAffinityScaleMode
    out, gate_up, down = upstream.run(
        module.blockwise_mm_baseline_shard_intermediate,
        **problem.arguments(padding=1),
        expert_affinities_scaling_mode=modes.POST_SCALE,
        checkpoint_activation=True,
        lnc=2,
    )
    upstream.agree("output bf16, with checkpoints", out[:T], problem.truth()[0], BF16)
    want_gate_up, want_down = problem.checkpoints()
    upstream.agree("checkpoint of gate and up", gate_up, want_gate_up, BF16)
    upstream.agree("checkpoint of down", down, want_down, BF16)


def test_forward_shard_on_hidden(upstream):
    problem = Routing.make(2)
    kernel = upstream.module("experimental.moe.forward.bwmm_shard_on_H").blockwise_mm_baseline_shard_hidden
    out = upstream.run(kernel, **problem.arguments(padding=1), lnc=2)
    upstream.agree("output bf16, top 2", out[:T], problem.truth()[0], BF16)


def test_forward_hybrid_needs_dynamic_range(upstream):
    """NKI 0.7 has no nl.dynamic_range, and says so."""
    module = upstream.module("core.moe.moe_cte.bwmm_shard_on_I")
    arguments = Routing.make(1).arguments(padding=1)
    conditions = torch.ones(len(arguments["block_to_expert"]) + 1, dtype=torch.int32)
    conditions[-1] = 0
    kernel = module.blockwise_mm_baseline_shard_intermediate_hybrid
    problem = r"nl\.dynamic_range no longer exists in NKI 0\.7; use nl\.fori_loop"
    upstream.refused(problem, kernel, conditions, **arguments, lnc=2)


@pytest.mark.usefixtures("mended_dge_mode")
@pytest.mark.parametrize("every", [False, True], ids=["selected experts", "all experts"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_forward_token_generation(upstream, lnc, every):
    tokens, top_k = 8, 2
    problem = Routing.make(top_k)
    modes = upstream.module("core.utils.common_types").ExpertAffinityScaleMode
    affinity_TE = problem.affinity_TE[:tokens]
    chosen = affinity_TE.float().topk(top_k)
    out = upstream.run(
        upstream.module("core.moe.moe_tkg.moe_tkg").moe_tkg,
        problem.hidden_TD[:tokens],
        problem.gate_up_ED2F,
        problem.down_EFD,
        affinity_TE,
        chosen.indices.int(),
        every,
        rank_id=torch.zeros(1, 1, dtype=torch.int32) if every else None,
        expert_affinities_eager=None if every else chosen.values.bfloat16(),
        expert_affinities_scaling_mode=modes.POST_SCALE,
        lnc=lnc,
    )
    upstream.agree(
        f"{'all' if every else 'selected'} experts bf16, dge_mode mended", out, problem.truth()[0][:tokens], BF16
    )


def _backward(problem: Routing):
    gate_up, down = problem.checkpoints()
    dout_TD = torch.randn(T, D, generator=torch.Generator().manual_seed(11)).bfloat16()
    arguments = problem.arguments(padding=1) | {
        "gate_up_proj_act_checkpoint_T": gate_up,
        "down_proj_act_checkpoint": down,
        "output_hidden_states_grad": torch.cat([dout_TD, dout_TD.new_zeros(1, D)]),
    }
    return arguments, dout_TD


def test_backward_lacks_a_barrier(upstream):
    """The affinities' gradient is zeroed by both cores and written by block 0 with no barrier in between."""
    arguments, _ = _backward(Routing.make(2))
    kernel = upstream.module("experimental.moe.bwd.blockwise_mm_backward").blockwise_mm_bwd
    problem = r"output 1\[.*depends on which core runs first: a core_barrier is missing"
    upstream.refused(problem, kernel, **arguments, lnc=2)


def test_backward_without_that_gradient(upstream):
    """Whatever the missing barrier does not spoil is right."""
    problem = Routing.make(2)
    arguments, dout_TD = _backward(problem)
    kernel = upstream.module("experimental.moe.bwd.blockwise_mm_backward").blockwise_mm_bwd
    results = upstream.run(kernel, **arguments, lnc=2, orders=1)
    out_TD, leaves = problem.truth()
    dhidden_TD, _, dgate_up_ED2F, ddown_EFD = torch.autograd.grad(out_TD, leaves, dout_TD.double())
    upstream.agree("gradient of hidden, one core order", results[0][:T], dhidden_TD, BF16)
    upstream.agree("gradient of gate and up, one core order", results[2], dgate_up_ED2F, BF16)
    upstream.agree("gradient of down, one core order", results[3], ddown_EFD, BF16)
