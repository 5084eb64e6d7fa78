"""The catalogue's entry of rotary embedding."""

import torch

from trncheck.kernels.catalogue import Refusal, entry
from trncheck.kernels.rope.operator import provider, rope
from trncheck.kernels.rope.reference import rope_reference

THETA = 1e6


@entry(
    operator="trncheck::rope",
    call=rope,
    reference=rope_reference,
    provider=provider,
    differentiable=("q_BHSD", "k_BHSD"),
    shapes={
        "tiny": {"batch": 2, "q_heads": 4, "k_heads": 2, "length": 256, "dim": 32, "tables": 2, "beyond": 64},
        "Qwen3-4B": {"batch": 1, "q_heads": 32, "k_heads": 8, "length": 256, "dim": 128, "tables": 1},
        "several tiles": {"batch": 2, "q_heads": 3, "k_heads": 1, "length": 768, "dim": 64, "tables": 0},
        "33 heads": {"batch": 1, "q_heads": 33, "k_heads": 1, "length": 256, "dim": 128, "tables": 0, "beyond": 64},
    },
    large_shapes={"Qwen3-30B-A3B": {"batch": 1, "q_heads": 32, "k_heads": 4, "length": 4096, "dim": 128, "tables": 1}},
    refused={
        "sequence of 64": Refusal(lambda i: i | {n: i[n][:, :, :64] for n in ("q_BHSD", "k_BHSD")}, "multiple of"),
        "short table": Refusal(lambda i: i | {"cache_BSC": i["cache_BSC"][:, :128]}, "ends at position 128"),
        "odd head dimension": Refusal(
            lambda i: {"q_BHSD": i["q_BHSD"][..., 1:], "k_BHSD": i["k_BHSD"][..., 1:], "cache_BSC": i["cache_BSC"]},
            "even head dimension",
        ),
        "mixed dtypes": Refusal(lambda i: i | {"k_BHSD": i["k_BHSD"].half()}, "cast both"),
    },
)
def rope_entry(shape: dict, dtype: torch.dtype, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Normal q and k, and tables of positions that start behind zero, in each row elsewhere.

    ``tables`` are those of a batch: one for each row, 1 for all, or 0 for one without a batch dimension; ``beyond`` is
    how many positions they go on behind the sequence. The halves of a table differ, as they do not in a model: else a
    kernel could mix them up unseen.
    """
    batch, length, dim = shape["batch"], shape["length"], shape["dim"]

    def normal(heads: int) -> torch.Tensor:
        return torch.randn(batch, heads, length, dim, generator=generator).to(dtype)

    first = 3 + torch.randint(1000, (), generator=generator)
    start_B1 = first + 1000 * torch.arange(max(shape["tables"], 1), dtype=torch.float64)[:, None]
    positions_BS = start_B1 + torch.arange(length + shape.get("beyond", 0), dtype=torch.float64)
    frequencies_D = THETA ** (-torch.arange(dim, dtype=torch.float64) / dim)
    angles_BSD = positions_BS[..., None] * frequencies_D
    cache_BSC = torch.cat([angles_BSD.cos(), angles_BSD.sin()], dim=-1).float()
    return {
        "q_BHSD": normal(shape["q_heads"]),
        "k_BHSD": normal(shape["k_heads"]),
        "cache_BSC": cache_BSC if shape["tables"] else cache_BSC[0],
    }
