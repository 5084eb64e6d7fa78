"""Rotary embedding by the kernel in torchtitan's and in Transformers' layout, against plain torch."""

import importlib.util
import sys

import pytest
import torch

from trncheck.kernels import counters, runtime
from trncheck.kernels.rope import operator as rope_operator
from trncheck.kernels.rope.layout import apply_rotary, apply_rotary_transformers
from trncheck.kernels.rope.operator import ROPE, rope
from trncheck.kernels.rope.reference import rope_reference

B, HQ, HK, D = 2, 3, 1, 16
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def table(positions: int, batch: int = 1) -> torch.Tensor:
    """(batch, positions, 1, 2D); each row of the batch starts at a position of its own."""
    start = torch.arange(batch)[:, None] * 7
    angle = (torch.arange(positions) + start)[..., None] / 1e6 ** (torch.arange(0, D, 2) / D)
    angle = torch.cat((angle, angle), -1)
    return torch.cat((angle.cos(), angle.sin()), -1)[:, :, None]


def inputs(length: int, dtype: torch.dtype, layout: str = "contiguous"):
    """Leaf tensors q (B, S, HQ, D) and k (B, S, HK, D) of the same values in different strides."""
    generator = torch.Generator().manual_seed(length)
    made = []
    for heads in (HQ, HK):
        values = torch.randn(B, length, heads, D, generator=generator)
        if layout == "expanded":
            values = values[:1].expand(B, -1, -1, -1)
        elif layout == "transposed":
            values = values.transpose(1, 2).contiguous().transpose(1, 2)
        elif layout == "sliced":
            wide = torch.zeros(B, length + 5, heads, 2 * D)
            wide[:, 2:-3, :, D:] = values
            values = wide[:, 2:-3, :, D:]
        made.append(values.to(dtype).requires_grad_())
    return made


def reference(q_BSHD, k_BSHD, cache):
    q_BHSD, k_BHSD = rope_reference(q_BSHD.transpose(1, 2), k_BSHD.transpose(1, 2), cache.squeeze(2))
    return q_BHSD.transpose(1, 2), k_BHSD.transpose(1, 2)


def double(tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def error(actual, truth) -> float:
    assert actual.shape == truth.shape
    return ((actual.double() - truth).norm() / truth.norm()).item()


def assert_as_good_as_plain(actual, plain, truth):
    for ours, theirs, true in zip(actual, plain, truth, strict=True):
        assert error(ours, true) <= 1.5 * error(theirs, true)


@DTYPES
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "expanded"])
def test_outputs_and_gradients_in_any_strides(layout, dtype):
    leaves = inputs(100, dtype, layout)
    cache = table(150, batch=B)
    truth_leaves = double(leaves)
    actual, plain, truth = (
        apply_rotary(*leaves, cache),
        reference(*leaves, cache),
        reference(*truth_leaves, cache.double()),
    )
    assert_as_good_as_plain(actual, plain, truth)
    cotangents = [torch.randn(part.shape, dtype=dtype).transpose(0, 1).contiguous().transpose(0, 1) for part in actual]
    gradients = [
        torch.autograd.grad(outputs, of, [c.to(outputs[0].dtype) for c in cotangents])
        for outputs, of in ((actual, leaves), (plain, leaves), (truth, truth_leaves))
    ]
    assert_as_good_as_plain(*gradients)


@pytest.mark.parametrize("length", [1, 255, 256, 257])
def test_any_length(length):
    leaves = inputs(length, torch.float32)
    cache = table(300)
    assert_as_good_as_plain(
        apply_rotary(*leaves, cache), reference(*leaves, cache), reference(*double(leaves), cache.double())
    )


def test_agrees_with_torchtitan():
    import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

    # isort: split
    from torchtitan.models.common.rope import CosSinRoPE

    leaves = inputs(100, torch.float32)
    cache = table(100)
    for ours, theirs in zip(apply_rotary(*leaves, cache), CosSinRoPE.apply_rotary_emb(*leaves, cache), strict=True):
        torch.testing.assert_close(ours, theirs)


@DTYPES
def test_agrees_with_transformers(dtype):
    from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

    q_BHSD, k_BHSD = (part.transpose(1, 2) for part in inputs(100, dtype))
    cache = table(100).squeeze(2)
    cos, sin = cache.to(dtype).chunk(2, -1)
    theirs = apply_rotary_pos_emb(q_BHSD, k_BHSD, cos, sin)
    for ours, other in zip(rope_reference(q_BHSD, k_BHSD, cache), theirs, strict=True):
        assert torch.equal(ours, other)
    truth = rope_reference(q_BHSD.double(), k_BHSD.double(), torch.cat((cos, sin), -1).double())
    assert_as_good_as_plain(apply_rotary_transformers(q_BHSD, k_BHSD, cos, sin), theirs, truth)


def test_table_in_fp32_is_not_rounded_to_the_dtype_of_queries():
    """Every element, forward and backward, is the truth rounded once: rounded tables would be four roundings off."""
    leaves, cache = inputs(100, torch.bfloat16), table(3000, batch=B)[:, 2000:]
    truth_leaves = double(leaves)
    actual, truth = apply_rotary(*leaves, cache), reference(*truth_leaves, cache.double())
    gradients = torch.autograd.grad(actual, leaves, [part.detach() for part in actual])
    true_gradients = torch.autograd.grad(truth, truth_leaves, [part.detach().double() for part in actual])
    for ours, true in zip((*actual, *gradients), (*truth, *true_gradients), strict=True):
        rounding = true.abs() * torch.finfo(torch.bfloat16).eps / 2 + 1e-6  # of fp32, where terms cancel
        assert ((ours.double() - true).abs() <= rounding).all()


def test_gradient_of_one_result_alone():
    q, k = inputs(100, torch.float32)
    apply_rotary(q, k, table(100))[0].square().sum().backward()
    assert q.grad.norm() > 0
    assert k.grad.count_nonzero() == 0


def test_rotation_back_gives_the_input():
    q, k = inputs(100, torch.float32)
    gradients = torch.autograd.grad(apply_rotary(q, k, table(100)), (q, k), apply_rotary(q, k, table(100)))
    torch.testing.assert_close(gradients[0], q)
    torch.testing.assert_close(gradients[1], k)


@DTYPES
def test_launches_are_counted(dtype):
    q, k = inputs(100, dtype)
    with counters.counting() as launches:
        apply_rotary(q, k, table(100))[0].sum().backward()
    name = str(dtype).removeprefix("torch.")
    assert {key[:3]: n for key, n in launches.items()} == {
        (ROPE, "forward", name): 1,
        (ROPE, "backward", name): 1,
    }


def replaced(**changes):
    q, k = inputs(100, torch.float32)
    return {"q": q, "k": k, "cache": table(100)} | changes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (replaced(k=torch.zeros(B, 100, HK, D + 2)), "same even head dimension, got 16 and 18"),
        (replaced(q=torch.zeros(B, 100, HQ, 3), k=torch.zeros(B, 100, HK, 3)), "same even head dimension, got 3"),
        (replaced(k=torch.zeros(B + 1, 100, HK, D)), "same batch and sequence"),
        (replaced(k=torch.zeros(B, 99, HK, D)), "same batch and sequence"),
        (replaced(cache=table(99)), "ends at position 99, the sequence has 100"),
        (replaced(cache=table(100)[..., :D]), "last dimension of 32"),
        (replaced(cache=table(100, batch=3)), "batch must be 1 or 2, got 3"),
        (replaced(cache=table(100).squeeze(2)), "shape \\(1 or B, S, 1, 2D\\)"),
        (replaced(cache=table(100).long()), "must hold cosines and sines"),
        (replaced(cache=table(100).requires_grad_()), "detach it"),
        (replaced(k=torch.zeros(B, 100, HK, D, dtype=torch.bfloat16)), "cast both"),
        (replaced(q=torch.zeros(B, 100, HQ, D).half(), k=torch.zeros(B, 100, HK, D).half()), "cast both"),
        (replaced(q=torch.zeros(100, HQ, D)), "4 dimensions"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message):
    with pytest.raises(ValueError, match=message) as raised:
        apply_rotary(*arguments.values())
    assert "\n" not in str(raised.value)


def test_operator_wants_whole_tiles():
    q, k = (part.transpose(1, 2) for part in inputs(100, torch.float32))
    with pytest.raises(ValueError, match=f"pad it to a multiple of {128 * runtime.lnc()}"):
        rope(q, k, table(100).squeeze(2))


@pytest.mark.parametrize("batch", [1, B])
def test_operator_cuts_a_longer_table(batch):
    q, k = (part.transpose(1, 2) for part in inputs(256, torch.float32))
    cache = table(300, batch=batch).squeeze(2)
    longer, exact = rope(q, k, cache), rope(q, k, cache[:, :256])
    assert all(map(torch.equal, longer, exact))
    if batch == 1:
        assert all(map(torch.equal, longer, rope(q, k, cache[0])))


def test_tables_of_two_shapes_are_refused():
    q, k = (part.transpose(1, 2) for part in inputs(100, torch.float32))
    with pytest.raises(ValueError, match="cos and sin need one shape"):
        apply_rotary_transformers(q, k, torch.zeros(1, 100, D), torch.zeros(1, 99, D))


# --- provider


@pytest.mark.skipif(importlib.util.find_spec("nkilib") is not None, reason="nkilib is installed")
def test_own_kernel_where_nkilib_is_not_installed():
    assert rope_operator.provider() == "trncheck"


@pytest.fixture
def nkilib(monkeypatch, tmp_path):
    """A package with the one kernel, which does nothing but copy."""
    folder = tmp_path / "nkilib" / "core" / "embeddings"
    folder.mkdir(parents=True)
    for package in (folder, *folder.parents[:2]):
        (package / "__init__.py").touch()
    (folder / "rope_hf.py").write_text(
        "def rope_hf(q, k, q_out, k_out, cos=None, sin=None, rope_cache=None, backward=False):\n"
        "    return q_out.copy_(q), k_out.copy_(k)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        rope_operator.runtime, "launch", lambda _op, _direction, kernel, *args, **kw: kernel(*args, **kw)
    )
    for cached in (rope_operator._provided, rope_operator.runtime.load):
        cached.cache_clear()
    yield
    for cached in (rope_operator._provided, rope_operator.runtime.load):
        cached.cache_clear()
    for module in [module for module in sys.modules if module.split(".")[0] == "nkilib"]:
        del sys.modules[module]


@pytest.mark.usefixtures("nkilib")
def test_kernel_of_nkilib_goes_first():
    q, k = (part.transpose(1, 2) for part in inputs(256, torch.float32))
    assert rope_operator.provider() == "nkilib of unknown version"
    q_out, k_out = rope(q, k, table(256).squeeze(2))
    assert q_out.equal(q)
    assert k_out.equal(k)
