"""The operators ``trncheck::experts`` and ``trncheck::experts_backward``: SwiGLU experts by NKI kernels."""

import torch

from trncheck.kernels import runtime
from trncheck.kernels.moe.blocks import plan_blocks, plan_sums
from trncheck.kernels.operators import define

EXPERTS = "trncheck::experts"
DTYPES = (torch.float32, torch.bfloat16)


def experts(
    x_RD: torch.Tensor,
    num_tokens_per_expert_E: torch.Tensor,
    w1_EFD: torch.Tensor,
    w2_EDF: torch.Tensor,
    w3_EFD: torch.Tensor,
) -> torch.Tensor:
    """``(silu(x @ w1.T) * (x @ w3.T)) @ w2.T`` of every row by its expert; differentiable in all but the counts.

    Args:
        x_RD: Rows sorted by expert; those behind the last expert's belong to none, and come out as zero.
        num_tokens_per_expert_E: Integers that sum to at most R; how many rows each expert has.
        w1_EFD, w2_EDF, w3_EFD: Weights of the gate, down and up projections; local tensors, no DTensor.
        x and the weights are all float32 or all bfloat16, of any strides.

    Returns:
        (R, D), contiguous, in x's dtype. No rows (R = 0) give no rows, and zero gradients, without a launch.

    Raises:
        ValueError: Shapes, dtypes or counts other than these. Counts that are on a device are not looked at, since that
            would make it wait.
    """
    return _experts(x_RD, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD)[0]


def validate(
    x_RD: torch.Tensor,
    num_tokens_per_expert_E: torch.Tensor,
    w1_EFD: torch.Tensor,
    w2_EDF: torch.Tensor,
    w3_EFD: torch.Tensor,
) -> None:
    """ValueError unless the tensors fit together; looks at shapes and dtypes alone."""
    dtypes = [part.dtype for part in (x_RD, w1_EFD, w2_EDF, w3_EFD)]
    if len(set(dtypes)) > 1 or dtypes[0] not in DTYPES:
        named = ", ".join(f"{name} {dtype}" for name, dtype in zip(("x", "w1", "w2", "w3"), dtypes, strict=True))
        raise ValueError(f"experts: {named}; cast all of them to float32 or all to bfloat16")
    if x_RD.ndim != 2 or w1_EFD.ndim != 3:
        raise ValueError(f"experts: x needs the shape (R, D) and w1 (E, F, D), got {_shapes(x_RD, w1_EFD)}")
    num_experts, hidden, width = w1_EFD.shape
    if x_RD.shape[1] != width or w3_EFD.shape != w1_EFD.shape or w2_EDF.shape != (num_experts, width, hidden):
        raise ValueError(
            "experts: x, w1, w2, w3 need the shapes (R, D), (E, F, D), (E, D, F), (E, F, D), got "
            + _shapes(x_RD, w1_EFD, w2_EDF, w3_EFD)
        )
    counts = num_tokens_per_expert_E
    if counts.dtype not in (torch.int32, torch.int64) or counts.shape != (num_experts,):
        raise ValueError(
            f"experts: {num_experts} experts need as many counts, int32 or int64; got {counts.dtype} {_shapes(counts)}"
        )


def _forward(
    x_RD: torch.Tensor,
    num_tokens_per_expert_E: torch.Tensor,
    w1_EFD: torch.Tensor,
    w2_EDF: torch.Tensor,
    w3_EFD: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Also returns x @ w1.T and x @ w3.T, (R, F) in x's dtype, for the backward pass alone."""
    outputs = _outputs(x_RD, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD)
    _check_counts(num_tokens_per_expert_E, len(x_RD))
    if len(x_RD) == 0:
        return outputs
    return runtime.launch(
        EXPERTS,
        "forward",
        runtime.load("trncheck.kernels.moe.forward").experts_forward,
        *(part.contiguous() for part in (x_RD, w1_EFD, w2_EDF, w3_EFD)),
        *plan_blocks(num_tokens_per_expert_E, len(x_RD)),
    )


def _outputs(x_RD, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD):
    validate(x_RD, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD)
    rows, hidden = x_RD.shape[0], w1_EFD.shape[1]
    return x_RD.new_empty(x_RD.shape), x_RD.new_empty(rows, hidden), x_RD.new_empty(rows, hidden)


def _backward(
    dout_RD: torch.Tensor,
    x_RD: torch.Tensor,
    gate_RF: torch.Tensor,
    up_RF: torch.Tensor,
    num_tokens_per_expert_E: torch.Tensor,
    w1_EFD: torch.Tensor,
    w2_EDF: torch.Tensor,
    w3_EFD: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    if len(x_RD) == 0:
        return tuple(part.new_zeros(part.shape) for part in (x_RD, w1_EFD, w2_EDF, w3_EFD))
    row_of_slot_S, expert_of_block_N1 = plan_blocks(num_tokens_per_expert_E, len(x_RD))
    dx_RD, *dw = runtime.launch(
        EXPERTS,
        "backward",
        runtime.load("trncheck.kernels.moe.backward").experts_backward,
        *(part.contiguous() for part in (dout_RD, x_RD, gate_RF, up_RF, w1_EFD, w2_EDF, w3_EFD)),
        row_of_slot_S,
        expert_of_block_N1,
        plan_sums(expert_of_block_N1, len(w1_EFD)),
    )
    # Summed in fp32, rounded here and only here; the kernel's last expert is none.
    return dx_RD, *(gradient[:-1].to(w1_EFD.dtype) for gradient in dw)


def _gradients(dout_RD, x_RD, gate_RF, up_RF, num_tokens_per_expert_E, w1_EFD, w2_EDF, w3_EFD):
    return tuple(part.new_empty(part.shape) for part in (x_RD, w1_EFD, w2_EDF, w3_EFD))


def _setup_context(ctx, inputs, output) -> None:
    x_RD, num_tokens_per_expert_E, *weights = inputs
    _, gate_RF, up_RF = output
    ctx.mark_non_differentiable(gate_RF, up_RF)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x_RD, gate_RF, up_RF, num_tokens_per_expert_E, *weights)


def _gradient(ctx, dout_RD, _dgate_RF, _dup_RF):
    if dout_RD is None:
        return (None,) * 5
    dx_RD, *dw = _experts_backward(dout_RD, *ctx.saved_tensors)
    gradients = (dx_RD, None, *dw)
    return tuple(part if needed else None for part, needed in zip(gradients, ctx.needs_input_grad, strict=True))


_experts_backward = define(f"{EXPERTS}_backward", _backward, fake=_gradients)
_experts = define(EXPERTS, _forward, fake=_outputs, backward=_gradient, setup_context=_setup_context)


def _check_counts(num_tokens_per_expert_E: torch.Tensor, rows: int) -> None:
    if num_tokens_per_expert_E.device.type != "cpu":
        return
    counts = num_tokens_per_expert_E.tolist()
    if min(counts, default=0) < 0 or sum(counts) > rows:
        raise ValueError(f"experts: counts must not be negative and sum to at most {rows} (rows of x), got {counts}")


def _shapes(*tensors: torch.Tensor) -> str:
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
