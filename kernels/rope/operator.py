"""The operators ``trncheck::rope`` and ``trncheck::rope_backward``: rotary embedding by an NKI kernel."""

import contextlib
import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator

import torch

from trncheck.kernels import runtime
from trncheck.kernels.operators import define

ROPE = "trncheck::rope"
DTYPES = (torch.float32, torch.bfloat16)
TILE = 128
"""Positions that one core handles at a time."""

_NKILIB = "nkilib.core.embeddings.rope_hf"
_OWN = "trncheck.kernels.rope.kernel"


def rope(q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cache_BSC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q and k by an NKI kernel; differentiable in q and k.

    Args:
        q_BHSD, k_BHSD: (B, Hq, S, D) and (B, Hk, S, D), both float32 or both bfloat16, of any strides;
            D is even and S a multiple of ``TILE * runtime.lnc()``.
        cache_BSC: (1|B, S', 2D) or (S', 2D), S' >= S: cosines of full width D, then sines. Handed over as float32.

    Returns:
        Rotated q and k, contiguous, in the shapes and dtype of q and k.

    Raises:
        ValueError: Shapes or dtypes other than these, or a table that requires a gradient.

    Which kernel, and with which rounding: see ``provider``.
    """
    return _rope(q_BHSD, k_BHSD, cache_BSC)


def provider() -> str:
    """Whose kernel runs: ``nkilib VERSION`` where nkilib has one, else ``trncheck``.

    nkilib's casts the tables to q's dtype and rounds every product; trncheck's computes in fp32 and rounds once.
    """
    return _provided()[1]


def validate(q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cache_BSC: torch.Tensor) -> None:
    """ValueError unless the tensors fit together; S may be any length."""
    if q_BHSD.ndim != 4 or k_BHSD.ndim != 4:
        raise ValueError(f"rope: q and k need 4 dimensions, got {_shape(q_BHSD)} and {_shape(k_BHSD)}")
    if q_BHSD.dtype != k_BHSD.dtype or q_BHSD.dtype not in DTYPES:
        raise ValueError(f"rope: q is {q_BHSD.dtype}, k {k_BHSD.dtype}; cast both to float32 or both to bfloat16")
    batch, _, length, width = q_BHSD.shape
    if k_BHSD.shape[0] != batch or k_BHSD.shape[2] != length:
        raise ValueError(
            f"rope: q and k need the same batch and sequence, got {batch} x {length} and "
            f"{k_BHSD.shape[0]} x {k_BHSD.shape[2]}"
        )
    if k_BHSD.shape[3] != width or width % 2:
        raise ValueError(f"rope: q and k need the same even head dimension, got {width} and {k_BHSD.shape[3]}")
    if cache_BSC.ndim not in (2, 3) or cache_BSC.shape[-1] != 2 * width:
        raise ValueError(
            f"rope: the table needs a last dimension of {2 * width} (cos, then sin), got {_shape(cache_BSC)}"
        )
    if cache_BSC.ndim == 3 and cache_BSC.shape[0] not in (1, batch):
        raise ValueError(f"rope: the table's batch must be 1 or {batch}, got {cache_BSC.shape[0]}")
    if cache_BSC.shape[-2] < length:
        raise ValueError(
            f"rope: the table ends at position {cache_BSC.shape[-2]}, the sequence has {length}; enlarge it"
        )
    if not cache_BSC.dtype.is_floating_point:
        raise ValueError(f"rope: the table is {cache_BSC.dtype}; it must hold cosines and sines")
    if cache_BSC.requires_grad:
        raise ValueError("rope: the table gets no gradient; detach it")


def _outputs(q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cache_BSC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    validate(q_BHSD, k_BHSD, cache_BSC)
    multiple = TILE * runtime.lnc()
    if q_BHSD.shape[2] % multiple:
        raise ValueError(
            f"rope: a sequence of {q_BHSD.shape[2]}; pad it to a multiple of {multiple} (rope.layout does)"
        )
    return q_BHSD.new_empty(q_BHSD.shape), k_BHSD.new_empty(k_BHSD.shape)


def _launch(direction: str, q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cache_BSC: torch.Tensor):
    q_out_BHSD, k_out_BHSD = _outputs(q_BHSD, k_BHSD, cache_BSC)
    shared = cache_BSC[0] if cache_BSC.ndim == 3 and cache_BSC.shape[0] == 1 else cache_BSC
    return runtime.launch(
        ROPE,
        direction,
        _provided()[0],
        q_BHSD.contiguous(),
        k_BHSD.contiguous(),
        q_out_BHSD,
        k_out_BHSD,
        rope_cache=shared[..., : q_BHSD.shape[2], :].float().contiguous(),
        backward=direction == "backward",
    )


def _forward(q_BHSD: torch.Tensor, k_BHSD: torch.Tensor, cache_BSC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _launch("forward", q_BHSD, k_BHSD, cache_BSC)


def _backward(
    dq_BHSD: torch.Tensor, dk_BHSD: torch.Tensor, cache_BSC: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _launch("backward", dq_BHSD, dk_BHSD, cache_BSC)


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[2])  # a result without an upstream gradient gets zeros: autograd's default


def _gradient(ctx, dq_BHSD: torch.Tensor, dk_BHSD: torch.Tensor):
    return *_rope_backward(dq_BHSD, dk_BHSD, *ctx.saved_tensors), None


_rope_backward = define(f"{ROPE}_backward", _backward, fake=_outputs)
_rope = define(ROPE, _forward, fake=_outputs, backward=_gradient, setup_context=_setup_context)


@contextlib.contextmanager
def own_kernel() -> Iterator[None]:
    """Inside the context the kit's kernel runs, also where nkilib has one."""
    global _provided
    before, own = _provided, (runtime.load(_OWN).rope_hf, "trncheck")
    _provided = lambda: own  # noqa: E731
    try:
        yield
    finally:
        _provided = before


@functools.cache
def _provided() -> tuple[Callable, str]:
    if _nkilib_has_rope():
        return runtime.load(_NKILIB).rope_hf, f"nkilib {_nkilib_version()}"
    return runtime.load(_OWN).rope_hf, "trncheck"


def _nkilib_has_rope() -> bool:
    try:
        return importlib.util.find_spec(_NKILIB) is not None
    except ModuleNotFoundError as missing:  # a parent package
        if missing.name and _NKILIB.startswith(missing.name):
            return False
        raise


def _nkilib_version() -> str:
    """nkilib comes as a package of its own or within the compiler."""
    for package, note in (("nki-library", ""), ("neuronx-cc", "of neuronx-cc ")):
        try:
            return note + importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))
