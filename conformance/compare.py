"""Errors between two sets of tensors, by parameter group, and the resolution of numbers."""

import math
import re
from collections.abc import Mapping

_GROUPS = {
    "embedding": r"embed_tokens",
    "head": r"lm_head",
    "q and k norms": r"self_attn\.[qk]_norm",
    "norms": r"norm",
    "attention": r"self_attn",
    "experts": r"mlp\.experts",
    "router": r"mlp\.gate\.",
    "feed-forward": r"mlp",
}


def ulp(value: float, eps: float = 2.0**-23) -> float:
    """Distance of two neighbours at the magnitude of ``value``, in a dtype with ``eps``: fp32 unless given."""
    return eps * 2.0 ** math.floor(math.log2(abs(value))) if value else 0.0


def parameter_group(name: str) -> str:
    """The group of a Hugging Face parameter name, e.g. ``attention``."""
    return next((group for group, pattern in _GROUPS.items() if re.search(pattern, name)), "other")


def relative_errors(got: Mapping, want: Mapping, scale: Mapping | None = None) -> dict[str, tuple[float, str, int]]:
    """Group -> (largest ||got - want|| / ||scale|| of its tensors, that tensor's name, elements), in fp64.

    ``scale`` is ``want`` unless given. Names that only one side has are left out: demand the names' equality apart.
    """
    errors: dict[str, tuple[float, str, int]] = {}
    for name in sorted(got.keys() & want.keys()):
        reference = (scale or want)[name].double().norm().item()
        difference = (got[name].double() - want[name].double()).norm().item()
        # A NaN must win against any number, and a zero reference allows no difference.
        error = difference / reference if reference else (0.0 if difference == 0 else float("inf"))
        group = parameter_group(name)
        worst, worst_name, elements = errors.get(group, (-1.0, "", 0))
        if not (error <= worst or math.isnan(worst)):
            worst, worst_name = error, name
        errors[group] = (worst, worst_name, elements + want[name].numel())
    return errors


def pooled_errors(got: Mapping, want: Mapping) -> dict[str, tuple[float, int]]:
    """Group -> (||got - want|| / ||want|| over all of its tensors together, elements), in fp64.

    For rounding that flips a near-tie of the router: the one expert that lost a row of a few is far off by itself.
    """
    sums: dict[str, tuple[float, float, int]] = {}
    for name in got.keys() & want.keys():
        group = parameter_group(name)
        off, all_, elements = sums.get(group, (0.0, 0.0, 0))
        off += (got[name].double() - want[name].double()).square().sum().item()
        all_ += want[name].double().square().sum().item()
        sums[group] = off, all_, elements + want[name].numel()
    return {group: (math.sqrt(off / all_), elements) for group, (off, all_, elements) in sorted(sums.items())}
