"""What Neuron lacks, or may lack, for torchtitan's Trainer: each is tried on it, and what fails gets a substitute.

TorchNeuron's public documentation leaves open whether it has these. Nothing here is for a defect of numbers: what
computes is used, and the checks judge it.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

from trncheck.neuron import host
from trncheck.neuron.device import DEVICE
from trncheck.trainers import substitutes


def adapt(config) -> dict[str, str]:
    """Change a ``Trainer.Config`` so that it runs on Neuron; returns what it gets instead of what, and why.

    Collective. Computes on the device, so call it after ``init_process_group``.
    """
    from torchtitan.tools.logging import logger

    if host.rehearsal():
        substitutes.leave_without_sleeping()
    instead = {}
    if failure := failure_of(flex_attention):
        substitutes.attend_with_dense_masks(config)
        instead["attention"] = f"{substitutes.DENSE}: FlexAttention fails with {failure}"
    if dist.get_world_size() > 1 and (failure := failure_of(scaled_sum)):
        config.model_spec.parallelize_fn = substitutes.sum_only(config.model_spec.parallelize_fn)
        instead["reductions"] = f"SUM: PREMUL_SUM fails with {failure}"
    for subject, what in instead.items():
        logger.info(f"Neuron gets other {subject}, {what}")
    return instead


def failure_of(attempt: Callable[[], None]) -> str | None:
    """What ``attempt`` raises, in one line; None where it does not."""
    try:
        attempt()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    return None


def flex_attention() -> None:
    """Attend forward and backward over two documents as torchtitan does, compiled mask and all."""
    from torch.nn.attention.flex_attention import and_masks
    from torch.nn.attention.flex_attention import flex_attention as uncompiled
    from torchtitan.models.common import attention

    batch, length = 1, 256
    q, k, v = (torch.ones(batch, length, 2, 64, device=DEVICE, requires_grad=True) for _ in range(3))
    with torch.no_grad():
        uncompiled(*(x.transpose(1, 2) for x in (q, k, v)))  # refuses an unknown device without compiling for it
    positions = (torch.arange(length, device=DEVICE) % (length // 2)).expand(batch, length)
    mask_mod = and_masks(attention.get_causal_mask_mod(), attention.get_document_mask_mod(positions))
    mask = attention.create_attention_mask(mask_mod, batch, None, length, length, device=q.device)
    attention.FlexAttention.Config().build()(q, k, v, attention_masks=mask).sum().backward()


def scaled_sum() -> None:
    """Reduce one number for every rank with PREMUL_SUM, as FSDP does. Collective."""
    ranks = dist.get_world_size()
    ones, mine = torch.ones(ranks, device=DEVICE), torch.zeros(1, device=DEVICE)
    dist.reduce_scatter_single(mine, ones, op=dist.ReduceOp.PREMUL_SUM(0.5))
    if mine.item() != ranks / 2:
        raise ArithmeticError(f"half of {ranks} ones is {mine.item()}")
