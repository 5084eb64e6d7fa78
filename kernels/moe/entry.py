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
        "tiny": {"experts": 16, "rows": 500, "dim": 64, "hidden": 47},
        "several tiles": {"experts": 12, "rows": 700, "dim": 192, "hidden": 160},
        "wide": {"experts": 3, "rows": 330, "dim": 640, "hidden": 72},
        "128 experts": {"experts": 128, "rows": 300, "dim": 32, "hidden": 24},
        "a row for each": {"experts": 12, "rows": 12, "dim": 32, "hidden": 24, "spread": 50},
        "busy expert": {"experts": 4, "rows": 11200, "dim": 16, "hidden": 136, "busy": 2, "unrouted": 140, "int32": 1},
        "hidden 1100": {"experts": 3, "rows": 60, "dim": 32, "hidden": 1100},
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
            lambda i: i | {"num_tokens_per_expert_E": i["num_tokens_per_expert_E"] + 1000},
            "sum to at most",
            by_value=True,
        ),
        "negative counts": Refusal(
            lambda i: i | {"num_tokens_per_expert_E": i["num_tokens_per_expert_E"].clone().fill_(-1)},
            "not be negative",
            by_value=True,
        ),
    },
)
def experts_entry(shape: dict, dtype: torch.dtype, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Rows and weights of a normal distribution; ``spread`` is that of the rows, and of the gates (1 unless given).

    ``int32`` counts stand for int64 ones.
    """
    experts_, rows, dim, hidden = shape["experts"], shape["rows"], shape["dim"], shape["hidden"]

    def normal(*sizes: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*sizes, generator=generator) * scale).to(dtype)

    counts_E = _counts(shape, generator)
    return {
        "x_RD": normal(rows, dim, scale=shape.get("spread", 1)),
        "num_tokens_per_expert_E": counts_E.int() if shape.get("int32") else counts_E,
        "w1_EFD": normal(experts_, hidden, dim, scale=dim**-0.5),
        "w2_EDF": normal(experts_, dim, hidden, scale=hidden**-0.5),
        "w3_EFD": normal(experts_, hidden, dim, scale=dim**-0.5),
    }


def _counts(shape: dict, generator: torch.Generator) -> torch.Tensor:
    """A full block, a block and a row, empty experts, and three rows of no expert.

    With as many rows as experts each gets one, which takes as many blocks as there can be. ``busy``: this expert gets
    all rows but the 100 of the expert before it and the ``unrouted`` ones.
    """
    experts_, rows = shape["experts"], shape["rows"]
    if rows == experts_:
        return torch.ones(experts_, dtype=torch.int64)
    counts_E = torch.zeros(experts_, dtype=torch.int64)
    if "busy" in shape:
        counts_E[shape["busy"] - 1] = 100
        counts_E[shape["busy"]] = rows - 100 - shape["unrouted"]
        return counts_E
    left = rows - 3
    for expert, wanted in ((1, 128), (0, 129), (experts_ - 1, 1)):
        counts_E[expert] += min(wanted, left)
        left -= min(wanted, left)
    others = torch.arange(3, max(experts_ - 1, 3), 2)
    if len(others):
        counts_E += others[torch.randint(len(others), (left,), generator=generator)].bincount(minlength=experts_)
    else:
        counts_E[0] += left
    return counts_E
