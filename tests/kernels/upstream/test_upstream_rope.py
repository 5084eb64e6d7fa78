"""RoPE: nkilib's rope_hf against ours and the truth, and its kernel for the other layout."""

import pytest
import torch

from trncheck.kernels import runtime
from trncheck.kernels.rope.reference import rope_reference

B, HQ, HK, D = 2, 4, 2, 64
ULPS_FP32 = 4 * 2**-24
"""Products and sums in the same order, so a few roundings apart."""


def _inputs(length: int, dtype: torch.dtype, three: bool) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(7)
    q_BHSD = torch.randn(B, HQ, length, D, generator=generator).to(dtype)
    k_BHSD = torch.randn(B, HK, length, D, generator=generator).to(dtype)
    angles_BSF = torch.rand(B if three else 1, length, D // 2, generator=generator) * 6.28
    cache_BSC = torch.cat([angles_BSF.cos().repeat(1, 1, 2), angles_BSF.sin().repeat(1, 1, 2)], dim=-1).to(dtype)
    return q_BHSD, k_BHSD, cache_BSC


def _tables(cache_BSC: torch.Tensor, packed: bool) -> dict[str, torch.Tensor]:
    cache = cache_BSC if len(cache_BSC) > 1 else cache_BSC[0]
    if packed:
        return {"rope_cache": cache.contiguous()}
    return {"cos": cache[..., :D].contiguous(), "sin": cache[..., D:].contiguous()}


def _expected(q, k, cache, backward: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if not backward:
        return rope_reference(q, k, cache)
    inputs = [torch.zeros_like(x, requires_grad=True) for x in (q, k)]
    return torch.autograd.grad(rope_reference(*inputs, cache), inputs, (q, k))


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("three", [False, True], ids=["2-D", "3-D"])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "separate"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_rope_hf_agrees_with_ours(upstream, lnc, dtype, packed, three, backward):
    q, k, cache = _inputs(256 * lnc, dtype, three)
    tables = _tables(cache, packed)
    ours_kernel = runtime.load("trncheck.kernels.rope.kernel").rope_hf
    results = []
    for kernel in (ours_kernel, upstream.module("core.embeddings.rope_hf").rope_hf):
        outs = torch.empty_like(q), torch.empty_like(k)
        results.append(upstream.run(kernel, q, k, *outs, **tables, backward=backward, lnc=lnc))
        assert results[-1][0] is outs[0]
    ours, theirs = results
    truth = _expected(q.double(), k.double(), cache.double(), backward)
    what = "gradient" if backward else "rotated"
    if dtype is torch.float32:
        for mine, yours, true in zip(ours, theirs, truth, strict=True):
            upstream.agree(f"{what} fp32, with ours", yours, mine, ULPS_FP32)
            upstream.agree(f"{what} fp32, with fp64", yours, true, ULPS_FP32)
        return
    plain = _expected(q, k, cache, backward)
    for mine, yours, torchs, true in zip(ours, theirs, plain, truth, strict=True):
        allowed = 2 * upstream.error(torchs, true)
        upstream.agree(f"{what} bf16, with fp64", yours, true, allowed)
        assert upstream.error(mine, true) <= allowed


def test_rope_hf_refuses_a_sequence_of_64(upstream):
    q, k, cache = _inputs(64, torch.float32, False)
    kernel = upstream.module("core.embeddings.rope_hf").rope_hf
    problem = r"seq len must be multiple of 128 \* LNC=1, got 64"
    upstream.refused(problem, kernel, q, k, torch.empty_like(q), torch.empty_like(k), **_tables(cache, True))


@pytest.mark.parametrize("way", ["halves", "pairs by DMA", "pairs by matmul"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_rope_head_dimension_first(upstream, lnc, way):
    generator = torch.Generator().manual_seed(8)
    batch, heads, length = 2, 2, 64
    x_DBHS = torch.randn(D, batch, heads, length, generator=generator)
    angles_FBS = torch.rand(D // 2, batch, length, generator=generator) * 6.28
    out = upstream.run(
        upstream.module("core.embeddings.rope").RoPE,
        x_DBHS.bfloat16(),
        angles_FBS.cos().bfloat16(),
        angles_FBS.sin().bfloat16(),
        lnc_shard=lnc == 2,
        contiguous_layout=way == "halves",
        relayout_in_sbuf=way == "pairs by matmul",
        lnc=lnc,
    )
    x, cos, sin = (values.bfloat16().double() for values in (x_DBHS, angles_FBS.cos(), angles_FBS.sin()))
    first, second = (slice(0, D // 2), slice(D // 2, D)) if way == "halves" else (slice(0, D, 2), slice(1, D, 2))
    cos, sin = cos[:, :, None], sin[:, :, None]
    want = torch.empty_like(x)
    want[first] = x[first] * cos - x[second] * sin
    want[second] = x[second] * cos + x[first] * sin
    upstream.agree(f"rotated bf16, {way}", out, want, 2**-7)
