"""The NKI source of rotary embedding, called by itself: every way to hand it tables, against the formula in fp64."""

import pytest
import torch

from trncheck.kernels import runtime

B, HQ, HK, S, D = 2, 3, 1, 256, 16
WAYS = pytest.mark.parametrize("ways", ["separate", "packed"])
TABLES = pytest.mark.parametrize("batched", [False, True], ids=["2-D", "3-D"])
LONGER = pytest.mark.parametrize("positions", [S, S + 64], ids=["exact", "longer"])
CORES = pytest.mark.parametrize("cores", [1, 2])
BACKWARD = pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])


def tables(batched: bool, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine, (positions, D) or (B, positions, D), no two elements alike; the halves differ."""
    generator = torch.Generator().manual_seed(1)
    shape = (B, positions, D) if batched else (positions, D)
    angle = torch.rand(shape, generator=generator) * 6
    return angle.cos(), angle.sin()


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, heads, S, D, generator=generator) for heads in (HQ, HK)]


def launch(parts, cos, sin, *, ways: str, cores: int, backward: bool) -> tuple[torch.Tensor, ...]:
    kernel = runtime.load("trncheck.kernels.rope.kernel").rope_hf
    packed = {"rope_cache": torch.cat((cos, sin), dim=-1)}
    given = packed if ways == "packed" else {"cos": cos, "sin": sin}
    outputs = [torch.full_like(part, float("nan")) for part in parts]
    direction = "backward" if backward else "forward"
    return runtime.launch("tests::rope", direction, kernel, *parts, *outputs, cores=cores, backward=backward, **given)


def rotated(x_BHSD, cos, sin, *, backward: bool) -> torch.Tensor:
    """fp64; backward is the transpose of the rotation, by autograd."""
    cos, sin = (table.double()[..., :S, :].unsqueeze(-3) for table in (cos, sin))

    def rotate(x):
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin

    if not backward:
        return rotate(x_BHSD.double())
    leaf = torch.zeros_like(x_BHSD, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(rotate(leaf), leaf, x_BHSD.double())[0]


@BACKWARD
@CORES
@TABLES
@LONGER
@WAYS
def test_rotation(ways, positions, batched, cores, backward):
    parts, (cos, sin) = inputs(), tables(batched, positions)
    results = launch(parts, cos, sin, ways=ways, cores=cores, backward=backward)
    for result, part in zip(results, parts, strict=True):
        torch.testing.assert_close(result.double(), rotated(part, cos, sin, backward=backward), rtol=0, atol=1e-6)


@BACKWARD
@CORES
@TABLES
def test_separate_tables_give_the_bits_of_a_packed_one(batched, cores, backward):
    parts, (cos, sin) = inputs(), tables(batched, S)
    separate, packed = (
        launch(parts, cos, sin, ways=ways, cores=cores, backward=backward) for ways in ("separate", "packed")
    )
    assert all(map(torch.equal, separate, packed))
