"""Attention, its gradient, its projections and a convolution of nkilib against plain torch."""

import pytest
import torch

BF16 = 2**-6


def _random(*shape, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _attend(q, k, v, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The output and the log-sum-exp of the scores, from (..., length, dim)."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_attention_cte(upstream, lnc, causal):
    heads, length, dim = 2, 256, 64
    q, k, v = (_random(heads, length, dim, seed=seed).bfloat16() for seed in (12, 13, 14))
    kernel = upstream.module("core.attention.attention_cte").attention_cte
    out = upstream.run(
        kernel, q, k.transpose(1, 2).contiguous(), v, scale=dim**-0.5, causal_mask=causal, tp_q=True, lnc=lnc
    )
    want, _ = _attend(q.double(), k.double(), v.double(), causal)
    upstream.agree(f"attended bf16, {'causal' if causal else 'full'}", out, want, BF16)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_attention_bwd(upstream, lnc, causal):
    heads, length, dim = 2, 512, 64
    inputs = [_random(1, heads, length, dim, seed=seed).bfloat16() for seed in (19, 20, 21)]
    dout = _random(1, heads, length, dim, seed=22).bfloat16()
    leaves = [x.double().requires_grad_() for x in inputs]
    out, lse = _attend(*leaves, causal)
    want = torch.autograd.grad(out, leaves, dout.double())
    q, k, v, o, do = (x.detach().bfloat16().transpose(2, 3).contiguous() for x in (*inputs, out, dout))
    by_tile = lse.detach().float().reshape(1, heads, length // 128, 128).transpose(2, 3).contiguous()
    kernel = upstream.module("core.attention.attention_bwd").attention_bwd
    got = upstream.run(kernel, q, k, v, o, do, by_tile, use_causal_mask=causal, mixed_precision=True, lnc=lnc)
    for name, gradient, true in zip("qkv", got, want, strict=True):
        case = "causal" if causal else "full"
        upstream.agree(f"gradient of {name} bf16, {case}", gradient, true.transpose(2, 3), BF16)


@pytest.mark.parametrize("phase", ["cte", "tkg"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_qkv(upstream, lnc, phase):
    x_BSH, w_HC = (
        _random(2, 128 if phase == "cte" else 2, 512, seed=32).bfloat16(),
        _random(512, 384, seed=33).bfloat16(),
    )
    types = upstream.module("core.utils.common_types")
    kernel = getattr(upstream.module(f"core.qkv.qkv_{phase}"), f"qkv_{phase}")
    norm = {"norm_type" if phase == "tkg" else "fused_norm_type": types.NormType.NO_NORM}
    out = upstream.run(kernel, x_BSH, w_HC, output_layout=types.QKVOutputLayout.BSD, **norm, lnc=lnc)
    upstream.agree("projected bf16", out, x_BSH.double() @ w_HC.double(), BF16)


@pytest.mark.parametrize("lnc", [1, 2])
def test_output_projection_cte(upstream, lnc):
    batch, heads, dim, length, hidden = 1, 2, 64, 256, 512
    x_BNDS = _random(batch, heads, dim, length, seed=23).bfloat16()
    w_CH, bias_1H = _random(heads * dim, hidden, seed=24).bfloat16(), _random(1, hidden, seed=25).bfloat16()
    module = upstream.module("core.output_projection.output_projection_cte.output_projection_cte")
    out = upstream.run(module.output_projection_cte, x_BNDS, w_CH, bias_1H, lnc=lnc)
    want = x_BNDS.double().flatten(1, 2).transpose(1, 2) @ w_CH.double() + bias_1H.double()
    upstream.agree("projected bf16", out, want, BF16)


@pytest.mark.parametrize("lnc", [1, 2])
def test_output_projection_tkg(upstream, lnc):
    dim, batch, heads, length, hidden = 128, 4, 2, 2, 1024
    x_DBNS = _random(dim, batch, heads, length, seed=26).bfloat16()
    w_CH, bias_1H = _random(heads * dim, hidden, seed=27).bfloat16(), _random(1, hidden, seed=28).bfloat16()
    kernel = upstream.module("core.output_projection.output_projection_tkg").output_projection_tkg
    out = upstream.run(kernel, x_DBNS, w_CH, bias_1H, lnc=lnc)
    x_TC = x_DBNS.double().permute(1, 3, 2, 0).reshape(batch * length, -1)
    upstream.agree("projected bf16", out, x_TC @ w_CH.double() + bias_1H.double(), BF16)


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 3)])
def test_conv1d(upstream, lnc, stride, dilation):
    x_BCL, w_KCM, bias_M = _random(2, 96, 200, seed=29), _random(5, 96, 160, seed=30), _random(160, seed=31)
    kernel = upstream.module("experimental.conv.conv1d").conv1d
    options = {"stride": stride, "dilation": dilation}
    out = upstream.run(kernel, x_BCL, w_KCM, bias_M, padding=(2, 1), lnc_shard=lnc == 2, lnc=lnc, **options)
    padded = torch.nn.functional.pad(x_BCL.double(), (2, 1))
    want = torch.nn.functional.conv1d(padded, w_KCM.double().permute(2, 1, 0), bias_M.double(), **options)
    upstream.agree(f"convolved fp32, stride {stride}, dilation {dilation}", out, want, 1e-5)
