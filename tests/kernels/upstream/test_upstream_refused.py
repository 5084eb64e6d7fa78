"""Kernels of nkilib that do not run, and why; one that starts to shows up as passed."""

import pytest
import torch


def test_a_loop_over_dynamic_range(upstream):
    """NKI 0.7 has no nl.dynamic_range, and says so."""
    kernel = upstream.module("experimental.dynamic_shapes.dynamic_elementwise_add").dynamic_elementwise_add
    x = torch.zeros(256, 512, dtype=torch.bfloat16)
    problem = r"nl\.dynamic_range no longer exists in NKI 0\.7; use nl\.fori_loop"
    upstream.refused(problem, kernel, x, x, torch.tensor([[1]], dtype=torch.int32), lnc=1)


def test_a_number_in_the_place_of_an_enum(upstream):
    """Why other tests mend nkilib's constant in memory: NKI takes a member of nisa.dge_mode, not its value."""
    kernel = upstream.module("core.subkernels.rmsnorm_tkg").rmsnorm_tkg
    x, gamma = torch.zeros(1, 1, 256, dtype=torch.bfloat16), torch.zeros(1, 256, dtype=torch.bfloat16)
    out = torch.zeros(128, 1, 2, dtype=torch.bfloat16)
    upstream.refused(r"dge_mode 3 must be one of nisa\.dge_mode", kernel, x, gamma, out, lnc=1)


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(
            "core.mlp.mlp",
            marks=pytest.mark.xfail(raises=SyntaxError, reason="mlp: the source does not parse (April 2026)"),
        ),
        *(
            pytest.param(
                name,
                marks=pytest.mark.xfail(
                    raises=TypeError,
                    reason=f"{name.rpartition('.')[2]}: nki.jit(debug_kernel=...), which NKI does not document",
                ),
            )
            for name in ("core.qkv.qkv", "experimental.transformer.attention_block_tkg")
        ),
        *(
            pytest.param(
                name,
                marks=pytest.mark.xfail(
                    raises=ModuleNotFoundError,
                    reason=f"{name.rpartition('.')[2]}: needs nki.collectives, which spans devices",
                ),
            )
            for name in (
                "experimental.collectives.fg_allgather",
                "experimental.collectives.fgcc",
                "experimental.collectives.sb2sb_allgather",
                "experimental.transformer.transformer_tkg",
            )
        ),
    ],
)
def test_imports(upstream, module):
    upstream.module(module)


@pytest.mark.usefixtures("nkilib_folder")
@pytest.mark.parametrize(
    "kernels", ["bwmm_shard_on_block_mx", "bwmm_shard_on_I_mx", "moe_tkg's MX variants", "rmsnorm_mx_quantize_tkg"]
)
def test_microscaling(kernels):
    pytest.skip(f"{kernels}: quantize_mx and nc_matmul_mx exist from Trainium3 on, and the simulator is a Trainium2")
