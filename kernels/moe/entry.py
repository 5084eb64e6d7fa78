"""The catalogue's entry of expert computation."""

import torch

from trncheck.kernels.catalogue import Refusal, entry
from trncheck.kernels.moe.operator import experts
from trncheck.kernels.moe.reference import experts_reference


@entry(
    operator="trncheck::experts",
    call=experts,
    reference=experts_reference,
    differentiable=("x_RD", "w1_EFD", "w2_EDF", "w3_EFD"),
    shapes={
        "tiny": {"experts": 16, "rows": 500, "dim": 64, "hidden": 48},
        "several tiles": {"experts": 12, "rows": 700, "dim": 192, "hidden": 160},
        "wide": {"experts": 3, "rows": 330, "dim": 640, "hidden": 72},
        "128 experts": {"experts": 128, "rows": 300, "dim": 32, "hidden": 24},
        "a row for each": {"experts": 12, "rows": 12, "dim": 32, "hidden": 24},
    },
    large_shapes={"Qwen3-30B-A3B": {"experts": 4, "rows": 300, "dim": 2048, "hidden": 768}},
    refused={
        "three-dimensional rows": Refusal(lambda i: i | {"x_RD": i["x_RD"][None]}, "x needs the shape"),
        "another hidden size": Refusal(lambda i: i | {"w2_EDF": i["w2_EDF"][..., 1:]}, "need the shapes"),
        "mixed dtypes": Refusal(lambda i: i | {"w1_EFD": i["w1_EFD"].half()}, "cast all of them"),
        "counts of too few experts": Refusal(
            lambda i: i | {"num_tokens_per_expert_E": i["num_tokens_per_expert_E"][1:]}, "as many counts"
        ),
        "more rows than there are": Refusal(
            lambda i: i | {"num_tokens_per_expert_E": i["num_tokens_per_expert_E"] + 1000}, "sum to at most"
        ),
    },
)
def experts_entry(shape: dict, dtype: torch.dtype, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Normal rows and weights; a full block, a block and a row, empty experts, and three rows of no expert.

    With as many rows as experts each gets one, which takes as many blocks as there can be.
    """
    experts_, rows, dim, hidden = shape["experts"], shape["rows"], shape["dim"], shape["hidden"]

    def normal(*sizes: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*sizes, generator=generator) * scale).to(dtype)

    counts_E = torch.full((experts_,), int(rows == experts_))
    left = 0 if rows == experts_ else rows - 3
    for expert, wanted in ((1, 128), (0, 129), (experts_ - 1, 1)):
        counts_E[expert] += min(wanted, left)
        left -= min(wanted, left)
    others = torch.arange(3, max(experts_ - 1, 3), 2)
    if len(others):
        counts_E.index_add_(
            0, others[torch.randint(len(others), (left,), generator=generator)], torch.ones(left).long()
        )
    else:
        counts_E[0] += left
    return {
        "x_RD": normal(rows, dim),
        "num_tokens_per_expert_E": counts_E,
        "w1_EFD": normal(experts_, hidden, dim, scale=dim**-0.5),
        "w2_EDF": normal(experts_, dim, hidden, scale=hidden**-0.5),
        "w3_EFD": normal(experts_, hidden, dim, scale=dim**-0.5),
    }
