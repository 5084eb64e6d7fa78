"""Expert computation in the dtype of its inputs; torchtitan's own casts to bfloat16 whatever the training dtype."""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor
from torchtitan.config import derive
from torchtitan.models.common.moe import GroupedExperts


class SameDtypeExperts(GroupedExperts):
    """SwiGLU over tokens sorted by expert, without the cast: fp32 training stays comparable in fp32."""

    @dataclass(kw_only=True, slots=True)
    class Config(GroupedExperts.Config):
        pass

    def forward(self, x_RD: torch.Tensor, num_tokens_per_expert_E: torch.Tensor) -> torch.Tensor:
        """Rows (R, D) sorted by expert and the number of rows of each -> (R, D) in the dtype of ``x_RD``."""
        w1_EFD, w2_EDF, w3_EFD = (
            weight.to_local() if isinstance(weight, DTensor) else weight
            for weight in (self.w1_EFD, self.w2_EDF, self.w3_EFD)
        )
        offsets_E = torch.cumsum(num_tokens_per_expert_E, dim=0, dtype=torch.int32)
        gate_RF = self._grouped_mm(A=x_RD, B_t=w1_EFD.transpose(-2, -1), offs=offsets_E)
        up_RF = self._grouped_mm(A=x_RD, B_t=w3_EFD.transpose(-2, -1), offs=offsets_E)
        return self._grouped_mm(A=F.silu(gate_RF) * up_RF, B_t=w2_EDF.transpose(-2, -1), offs=offsets_E)


def same_dtype(config: GroupedExperts.Config) -> SameDtypeExperts.Config:
    """The configuration of the same experts, without the cast."""
    return derive(config, SameDtypeExperts.Config)
