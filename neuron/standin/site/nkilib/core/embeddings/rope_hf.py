"""Stand-in for the NKI Library's rotary embedding: the kernel of trncheck, which has its contract."""

from trncheck.kernels.rope.kernel import rope_hf

__all__ = ["rope_hf"]
