"""Sums, norms and losses of nkilib against plain formulas."""

import ml_dtypes
import numpy as np
import pytest
import torch

BF16 = 2**-7
"""One rounding to bf16, with a little room."""
FP32 = 1e-5


def _random(*shape, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(130, 2100), (3, 40, 300)], ids=str)
def test_cumsum(upstream, shape):
    x = _random(*shape, seed=1)
    out = upstream.run(upstream.module("core.cumsum.cumsum").cumsum, x)
    upstream.agree("sums fp32", out, x.double().cumsum(-1), FP32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_cross_entropy(upstream, lnc, dtype):
    positions, vocabulary = 50, 1000
    name, within = ("float32", FP32) if dtype is torch.float32 else ("bfloat16", 2**-6)
    logits = (3 * _random(positions, vocabulary, seed=2)).to(dtype)
    targets = torch.randint(vocabulary, (positions,), generator=torch.Generator().manual_seed(3)).int()
    module = upstream.module("experimental.loss.cross_entropy")
    # 25 positions of a core in batches of 16, 1000 columns in chunks of 384: both leave a remainder.
    tiles = {"positions_per_batch": 16, "chunk_size": 384, "dtype": name}
    loss, lse = upstream.run(module.cross_entropy_forward, logits, targets, **tiles, lnc=lnc)
    exact = logits.double().requires_grad_()
    true_loss = torch.nn.functional.cross_entropy(exact, targets.long(), reduction="none")
    upstream.agree(f"loss {name}", loss, true_loss, within)
    upstream.agree(f"log-sum-exp {name}", lse, exact.logsumexp(1), within)
    (true_gradient,) = torch.autograd.grad(true_loss.mean(), exact)
    given = logits.clone()
    gradient = upstream.run(module.cross_entropy_backward, given, targets, lse, **tiles, lnc=lnc)
    assert gradient is given
    upstream.agree(f"gradient {name}", gradient, true_gradient, 3 * within)


def _by_partition(x_TH: torch.Tensor, lnc: int, transposed: bool = False) -> torch.Tensor:
    """(T, H) as nkilib's token generation kernels lay it out: (128, T, H / 128)."""
    columns = x_TH.shape[1] // 128
    if transposed:
        return x_TH.reshape(-1, columns, 128).permute(2, 0, 1)
    # Each core has half of the columns.
    return x_TH.reshape(-1, lnc, 128, columns // lnc).permute(2, 0, 1, 3).reshape(128, -1, columns)


@pytest.mark.usefixtures("mended_dge_mode")
@pytest.mark.parametrize("transposed", [False, True], ids=["H0 outside", "H1 outside"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_rmsnorm_tkg(upstream, lnc, transposed):
    batch, length, hidden = 8, 4, 512
    x_BSH, gamma_1H = _random(batch, length, hidden, seed=4).bfloat16(), _random(1, hidden, seed=5).bfloat16()
    out = torch.zeros(128, batch * length, hidden // 128, dtype=torch.bfloat16)
    kernel = upstream.module("core.subkernels.rmsnorm_tkg").rmsnorm_tkg
    upstream.run(kernel, x_BSH, gamma_1H, out, hidden_dim_tp=transposed, lnc=lnc)
    x_TH = x_BSH.double().reshape(-1, hidden)
    want_TH = x_TH * (x_TH.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gamma_1H.double()
    upstream.agree(
        f"normed bf16{'' if transposed else ', dge_mode mended'}", out, _by_partition(want_TH, lnc, transposed), BF16
    )


@pytest.mark.usefixtures("mended_dge_mode")
@pytest.mark.parametrize("lnc", [1, 2])
def test_layernorm_tkg(upstream, lnc):
    batch, length, hidden = 8, 4, 512
    x_BSH = _random(batch, length, hidden, seed=16).bfloat16()
    gamma_1H, beta_1H = (_random(1, hidden, seed=seed).bfloat16() for seed in (17, 18))
    out = torch.zeros(128, batch * length, hidden // 128, dtype=torch.bfloat16)
    kernel = upstream.module("core.subkernels.layernorm_tkg").layernorm_tkg
    upstream.run(kernel, x_BSH, gamma_1H, out, beta_1H, lnc=lnc)
    x_TH = x_BSH.double().reshape(-1, hidden)
    want_TH = torch.nn.functional.layer_norm(x_TH, (hidden,), gamma_1H[0].double(), beta_1H[0].double(), 1e-6)
    upstream.agree("normed bf16, dge_mode mended", out, _by_partition(want_TH, lnc), 2 * BF16)


@pytest.mark.parametrize("lnc", [1, 2])
def test_rmsnorm_quant(upstream, lnc):
    """Rows divided by their largest value over 240, fp8's largest, which the kernel puts behind each row's bytes."""
    hidden = 512
    x_BSH, gamma_1H = _random(2, 128, hidden, seed=6), _random(1, hidden, seed=7)
    as_bf16 = (tensor.numpy().astype(ml_dtypes.bfloat16) for tensor in (x_BSH, gamma_1H))  # torch lacks fp8 up to 240
    module = upstream.module("core.rmsnorm.rmsnorm_quant")
    out = upstream.run(module.rmsnorm_quant_kernel, *as_bf16, module.RmsNormQuantKernelArgs(), lnc=lnc)
    values = out[..., :hidden].astype(np.float32)
    scale = np.ascontiguousarray(out[..., hidden:]).view(np.float32)
    x = x_BSH.bfloat16().double()
    want = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gamma_1H.bfloat16().double()
    upstream.agree("scale", scale, want.abs().amax(-1, keepdim=True) / 240, BF16)
    upstream.agree("fp8 times scale", values * scale, want, 2**-4)
