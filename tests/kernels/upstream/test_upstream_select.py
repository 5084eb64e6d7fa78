"""Choosing and indexing: nkilib's router, top-k, largest value and nonzero kernels."""

import tempfile

import pytest
import torch

from trncheck.kernels.simulator.errors import NkiError


def _random(*shape, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ROUTERS = {
    "softmax first": {"router_pre_norm": True},
    "softmax first, normed": {"router_pre_norm": True, "norm_topk_prob": True},
    "softmax last": {"router_pre_norm": False},
    "sigmoid first, scatter": {"act": "SIGMOID", "use_indirect_dma_scatter": True},
    "sigmoid last, scatter": {"act": "SIGMOID", "router_pre_norm": False, "use_indirect_dma_scatter": True},
    "column tiling": {"router_pre_norm": False, "use_column_tiling": True},
    "tokens sharded": {"router_pre_norm": False, "shard_on_tokens": True},
}


@pytest.mark.usefixtures("legacy_typing")
@pytest.mark.parametrize("case", ROUTERS)
def test_router_topk(upstream, case):
    options = dict(ROUTERS[case])
    lnc = 2 if "shard_on_tokens" in options else 1
    tokens, hidden, experts, top_k = 32 if "use_column_tiling" in options else 128, 256, 16, 4
    x_HT, bias_1E = _random(hidden, tokens, seed=9), _random(1, experts, seed=10)
    w_HE = _random(hidden, experts, seed=11) / hidden**0.5
    module = upstream.module("core.router_topk.router_topk")
    kinds = upstream.module("core.utils.common_types").RouterActFnType
    act = options.pop("act", "SOFTMAX")
    logits, affinities = torch.zeros(tokens, experts), torch.zeros(tokens, experts)
    index = torch.zeros(tokens, top_k, dtype=torch.int32)
    logits, index, affinities = upstream.run(
        module.router_topk, x_HT, w_HE, bias_1E, logits, affinities, index, kinds[act], top_k, 0, 0, lnc=lnc, **options
    )
    want_logits = x_HT.double().T @ w_HE.double() + bias_1E.double()
    want_index = want_logits.topk(top_k).indices
    activate = torch.sigmoid if act == "SIGMOID" else lambda x: x.softmax(-1)
    if options.get("router_pre_norm", True):
        everyone = activate(want_logits)
        chosen = everyone.gather(1, want_index)
        if options.get("norm_topk_prob"):
            chosen = chosen / chosen.sum(-1, keepdim=True)
    else:
        chosen = activate(want_logits.gather(1, want_index))
    upstream.agree(f"logits fp32, {case}", logits, want_logits, 1e-5)
    upstream.agree(f"indices, {case}", index, want_index, 0.0)
    want = torch.zeros_like(want_logits).scatter(1, want_index, chosen)
    if options.get("router_pre_norm", True) and not options.get("norm_topk_prob"):
        want = everyone
    upstream.agree(f"affinities, {case}", affinities, want, 1e-5)


@pytest.mark.parametrize("chunk", [None, 128])
def test_find_nonzero_indices(upstream, chunk):
    rows, columns = 256, 16
    x = (_random(rows, columns, seed=10) > 0.8).float()
    kernel = upstream.module("core.subkernels.find_nonzero_indices").find_nonzero_indices
    indices, counts = upstream.run(kernel, x, chunk_size=chunk, lnc=2)
    want = torch.full((columns, rows), -1)
    for column in range(columns):
        found = x[:, column].nonzero().flatten()
        want[column, : len(found)] = found
    upstream.agree("indices", indices, want, 0.0)
    upstream.agree("counts", counts, x.sum(0), 0.0)


@pytest.mark.usefixtures("circulant")
@pytest.mark.parametrize(("vocabulary", "top_k"), [(512, 8), (4096, 64)])
def test_topk(upstream, vocabulary, top_k, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the kernel's host code puts constants
    rows = 8
    x = _random(rows, vocabulary, seed=11)
    utils = upstream.module("core.topk.rotational_topk_utils")
    module = upstream.module("core.topk.rotational_topk")
    config = utils.create_rotational_topk_config(
        inp_shape=tuple(x.shape),
        topk_config=utils.create_topk_config(
            inp_shape=tuple(x.shape), inp_dtype="float32", k=top_k, sorted=True, num_programs=2
        ),
    )
    config = module.prepare_rotational_constants(config)
    values, indices = upstream.run(module.rotational_topk, x, config, lnc=config.n_prgs)
    want = x.double().topk(top_k)
    upstream.agree(f"{top_k} largest fp32", values, want.values, 0.0)
    upstream.agree(f"indices of {top_k}", indices, want.indices, 0.0)


def test_find_nonzero_indices_with_count(upstream):
    x = (_random(1, 512, seed=15) > 0.7).float()
    kernel = upstream.module("experimental.benchmark.find_nonzero_indices_with_count").find_nonzero_indices_with_count
    found = x[0].nonzero().flatten()
    want = torch.full((1, 513), -1)
    want[0, : len(found)], want[0, -1] = found, len(found)
    upstream.agree("indices and count", upstream.run(kernel, x, lnc=1), want, 0.0)


BEYOND_THE_END = pytest.mark.xfail(
    raises=NkiError,
    reason="indexed_flatten beyond the output's end: the simulator skips out of bounds rows of a vector_offset only",
)


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param((0, 10, 26, 48), id="within"),
        pytest.param((0, 10, 30, 50), id="beyond the end", marks=BEYOND_THE_END),
    ],
)
def test_indexed_flatten(upstream, offsets):
    """Rows go to blocks that ``offsets`` name; the second overwrites the end of the first."""
    rows, length, block, blocks = 4, 512, 32, 64
    x = torch.arange(rows * length, dtype=torch.int32).reshape(rows, length)
    want = torch.full((blocks, block), -1, dtype=torch.int32)
    for row, offset in zip(x.reshape(rows, -1, block), offsets, strict=True):
        want[offset : offset + len(row)] = row[: blocks - offset]
    kernel = upstream.module("core.subkernels.indexed_flatten").indexed_flatten
    out = upstream.run(kernel, x, block, block * blocks, torch.tensor(offsets, dtype=torch.int32), lnc=2)
    upstream.agree("flattened", out, want.flatten(), 0.0)


@pytest.mark.parametrize("vocabulary", [1024, 5000])
@pytest.mark.parametrize("lnc", [1, 2])
def test_cascaded_max(upstream, lnc, vocabulary):
    x = _random(4, vocabulary, seed=8)
    values, indices = upstream.run(upstream.module("core.max.cascaded_max").cascaded_max, x, lnc=lnc)
    upstream.agree("largest value fp32", values, x.double().amax(-1, keepdim=True), 0.0)
    upstream.agree("its index", indices, x.argmax(-1, keepdim=True), 0.0)
