"""What a random start must be: the scheme's deviations, ones in the norms, and no two matrices alike."""

import itertools
import math
import re

from trncheck.conformance import bars
from trncheck.conformance.cases import Case
from trncheck.fixtures.geometry import INITIALIZER_RANGE, TINY, Geometry

# Standard deviation of a unit normal cut at 3 sigma, as the Transformers backend draws its head and tied embedding.
_CUT_AT_3_SIGMA = 0.98658


def head_std(path: str, geometry: Geometry) -> float:
    """Standard deviation of the LM head by the scheme of ``path``: the published one, or the Transformers backend's."""
    return _CUT_AT_3_SIGMA * geometry.hidden_size**-0.5 if path == "hf" else INITIALIZER_RANGE


def matrices(weights: dict) -> dict:
    """Those of ``weights`` that are matrices."""
    return {name: tensor for name, tensor in weights.items() if tensor.ndim == 2}


def hold_deviations(judge, weights: dict, case: Case) -> None:
    """Hold every group of ``weights``, under Hugging Face names, against what the case's path should draw."""
    for name, tensor in weights.items():
        if tensor.ndim == 1:
            judge.equal(f"{name}: elements that are not 1", int((tensor != 1).sum()), 0, elements=tensor.numel())
    errors = {
        name: abs(matrix.double().std().item() / _sigma(name, case) - 1) * math.sqrt(2 * matrix.numel())
        for name, matrix in matrices(weights).items()
    }
    for kind, names in itertools.groupby(sorted(errors, key=_kind), key=_kind):
        worst = max(names, key=lambda name: (math.isnan(errors[name]), errors[name]))
        what = f"{kind}: distance from {_sigma(worst, case):.4g}, {worst}"
        judge.at_most(what, errors[worst], bars.DEVIATION, unit="standard errors", elements=weights[worst].numel())


def _kind(name: str) -> str:
    return re.sub(r"(layers|experts)\.\d+\.", "", name).removeprefix("model.").removesuffix(".weight")


def _sigma(name: str, case: Case) -> float:
    """Standard deviation by the scheme of the case's path: the published one, or the Transformers backend's own."""
    if case.path != "hf":
        return INITIALIZER_RANGE
    geometry = TINY[case.model]
    if "lm_head" in name or ("embed_tokens" in name and geometry.tie_word_embeddings):
        return head_std(case.path, geometry)
    if "embed_tokens" in name:
        return 1.0
    if re.search(r"o_proj|mlp\.(up|down)_proj", name):
        layer = int(re.search(r"layers\.(\d+)", name)[1])
        return INITIALIZER_RANGE / math.sqrt(2 * (layer + 1))
    return INITIALIZER_RANGE


def closest(matrices: dict) -> tuple[float, str, int]:
    """Largest |correlation| of two matrices of one shape in standard errors, their names, and the number of pairs."""
    import torch

    worst, pair, pairs = 0.0, "none", 0
    shapes = {name: tuple(matrix.shape) for name, matrix in matrices.items()}
    for shape, group in itertools.groupby(sorted(shapes, key=shapes.get), key=shapes.get):
        names = list(group)
        rows_NK = torch.stack([matrices[name].double().flatten() for name in names])
        rows_NK = rows_NK - rows_NK.mean(1, keepdim=True)
        rows_NK = rows_NK / rows_NK.norm(dim=1, keepdim=True)
        correlation_NN = (rows_NK @ rows_NK.T).abs().fill_diagonal_(0)
        pairs += len(names) * (len(names) - 1) // 2
        errors = correlation_NN.max().item() * math.sqrt(math.prod(shape))
        if not errors <= worst:
            i, j = divmod(int(correlation_NN.argmax()), len(names))
            worst, pair = errors, f"{names[min(i, j)]} and {names[max(i, j)]}"
    return worst, pair, pairs
