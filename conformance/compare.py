"""Errors between two sets of tensors, by parameter group."""

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
