"""torchtitan overrides that put the kernels into a model: any torchtitan trainer takes them by name, as in

``--override.imports trncheck.kernels.overrides.nki_rope trncheck.kernels.overrides.nki_experts``
"""

from dataclasses import dataclass, fields

import torch
from torch.distributed.tensor import DTensor
from torchtitan.config import derive, override
from torchtitan.models.common.moe import GroupedExperts
from torchtitan.models.common.rope import CosSinRoPE

from trncheck.kernels.moe import operator
from trncheck.kernels.rope import layout


class NkiRoPE(CosSinRoPE):
    """CosSinRoPE whose rotation is the kernel's; cache and positions are torchtitan's."""

    @dataclass(kw_only=True, slots=True)
    class Config(CosSinRoPE.Config):
        pass

    @staticmethod
    def apply_rotary_emb(
        query: torch.Tensor, key: torch.Tensor, rope_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Query (B, S, Hq, D), key (B, S, Hk, D) and cache (1|B, S, 1, 2D), cos beside sin -> both rotated.

        Under tensor parallelism all three are DTensors; each rank rotates the heads that it has.
        """
        rotated = layout.apply_rotary(_local(query), _local(key), _local(rope_cache))
        return tuple(_as(like, part) for like, part in zip((query, key), rotated, strict=True))


class NkiExperts(GroupedExperts):
    """SwiGLU over tokens sorted by expert, forward and backward by the kernels, in the dtype of its inputs.

    torchtitan's own experts compute in bfloat16 whatever the training dtype.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(GroupedExperts.Config):
        pass

    def forward(self, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:
        """Rows (R, D) sorted by expert and the number of rows of each -> (R, D) in the dtype of ``x_RD``.

        Raises ValueError where rows and weights differ in dtype.
        """
        weights = map(_local, (self.w1_EFD, self.w2_EDF, self.w3_EFD))
        return operator.experts(x_RD, num_tokens_per_expert_E, *weights)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _as(like: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """``part`` distributed as ``like`` is."""
    if not isinstance(like, DTensor):
        return part
    return DTensor.from_local(part, like.device_mesh, like.placements, run_check=False)


@override(target=CosSinRoPE.Config, description="rotary embedding by the NKI kernel")
def nki_rope(config: CosSinRoPE.Config) -> NkiRoPE.Config:
    """The same rotary embedding, rotated by the kernel. Raises ValueError for one that is more than CosSinRoPE."""
    return _replace(config, NkiRoPE.Config)


@override(target=GroupedExperts.Config, description="grouped experts by the NKI kernels")
def nki_experts(config: GroupedExperts.Config) -> NkiExperts.Config:
    """The same experts, computed by the kernels. Raises ValueError for experts with other settings or weights."""
    return _replace(config, NkiExperts.Config)


def _replace(config, target: type):
    """``config`` as one of ``target``, for classes that differ from it in how they compute, not in what they hold."""
    ours, theirs = target._owner, type(config)._owner
    extra = {field.name for field in fields(config)} - {field.name for field in fields(target)}
    if extra or theirs.__init__ is not ours.__init__:
        what = f"settings {', '.join(sorted(extra))}" if extra else "weights or buffers of its own"
        raise ValueError(
            f"{ours.__name__} cannot stand in for {theirs.__name__}, which has {what}; "
            "leave this kernel out of --override.imports for that model"
        )
    return derive(config, target)
