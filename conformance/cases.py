"""What is trained: every combination of path, model and number of ranks that the kit judges."""

from dataclasses import dataclass

import pytest

_CONFIGS = {
    ("native", "dense-tied"): "qwen3_native_tiny",
    ("native", "dense-untied"): "qwen3_native_tiny_untied",
    ("native", "moe"): "qwen3_moe_tiny",
    ("hf", "dense-tied"): "qwen3_hf_tiny",
    ("hf", "dense-untied"): "qwen3_hf_tiny_untied",
    ("hf", "moe"): "qwen3_hf_moe_tiny",
    ("nki", "moe"): "qwen3_moe_nki_tiny_nki_rope",
}
_SMOKE = {("native", "dense-tied", 1), ("hf", "dense-tied", 1), ("native", "moe", 2)}


@dataclass(frozen=True)
class Case:
    """One trained combination."""

    path: str
    """``native`` (torchtitan's own model), ``nki`` (the same with NKI kernels) or ``hf`` (Transformers' model)."""
    model: str
    """A name of ``geometry.TINY``."""
    ranks: int

    @property
    def config(self) -> str:
        return _CONFIGS[self.path, self.model]

    @property
    def level(self) -> str:
        return "smoke" if (self.path, self.model, self.ranks) in _SMOKE else "standard"

    def __str__(self) -> str:
        return f"{self.path}-{self.model}-{self.ranks}r"


@dataclass(frozen=True)
class Layout:
    """One step of a tiny configuration, laid out over ranks and micro-batches by torchtitan's flags."""

    name: str
    config: str
    model: str
    """A name of ``geometry.TINY``."""
    ranks: int = 1
    flags: str = ""
    mesh: tuple[tuple[str, int], ...] = ()
    """Mesh dimensions, by size, that the parameters must lie on."""

    def __str__(self) -> str:
        return self.name


CASES = [Case(path, model, ranks) for (path, model) in _CONFIGS for ranks in (1, 2)]


def each_case(*, where=lambda case: True):
    """Parametrise a check over ``CASES``; the level of each is the case's own."""
    chosen = [pytest.param(case, id=str(case), marks=pytest.mark.level(case.level)) for case in CASES if where(case)]
    return pytest.mark.parametrize("case", chosen)


def each_layout(*layouts: Layout):
    """Parametrise a check over ``layouts``, at level standard."""
    chosen = [pytest.param(layout, id=str(layout), marks=pytest.mark.level("standard")) for layout in layouts]
    return pytest.mark.parametrize("layout", chosen)
