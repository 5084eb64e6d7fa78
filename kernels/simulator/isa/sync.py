"""What the two cores of a launch do together."""

from trncheck.kernels.simulator import access
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.instruction import instruction
from trncheck.kernels.simulator.isa.enums import dma_engine as dma_engines
from trncheck.kernels.simulator.isa.enums import engine as engines
from trncheck.kernels.simulator.storage import Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

_GPSIMD_BYTES = {4: 1024, 2: 512, 1: 256}
"""Bytes per partition that GpSimd's DMA can move, by bytes of an element."""


@instruction
def core_barrier(data, cores, engine=engines.gpsimd, name=None):
    """Wait until the other core of the launch comes to its barrier; does nothing on one core.

    ``data`` is the shared HBM tensor whose writes the other core must see; ``cores`` is (0, 1).
    """
    core = current()
    if not isinstance(engine, engines):
        raise NkiError(f"engine {engine!r} must be one of nisa.engine")
    if not isinstance(data, NkiTensor):
        raise NkiError(f"data must be a tensor, not {data!r}")
    if data.on_chip:
        core.warn(f"data {list(data.shape)} is in {data.buffer.value}, which the other core cannot see")
    if isinstance(cores, int):
        core.warn(f"cores is {cores}, so no core waits; a barrier needs (0, 1)")
        return
    if not isinstance(cores, tuple | list) or tuple(cores) != (0, 1):
        raise NkiError(f"cores must be (0, 1), not {cores!r}")
    if core.degree == 2:
        core.scheduler.meet(core, ("core_barrier",))


@instruction
def sendrecv(src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=dma_engines.dma, name=None):
    """Exchange SBUF tiles of one shape and dtype between the two cores; both must come to the same ``pipe_id``."""
    core = current()
    if core.degree != 2:
        raise NkiError("needs a launch on two cores, kernel[2]")
    other = 1 - core.index
    for operand, rank in (("send_to_rank", send_to_rank), ("recv_from_rank", recv_from_rank)):
        if rank != other:
            raise NkiError(f"{operand} must be {other} on core {core.index}, not {rank!r}")
    for operand, tensor in (("src", src), ("dst", dst)):
        if not isinstance(tensor, NkiTensor) or tensor.buffer is not Buffer.sbuf:
            raise NkiError(f"{operand} must be a tensor in sbuf, not {tensor!r}")
    if (src.shape, src.dtype) != (dst.shape, dst.dtype):
        raise NkiError(
            f"src {list(src.shape)} {src.dtype} and dst {list(dst.shape)} {dst.dtype} must agree in shape and dtype"
        )
    if not isinstance(dma_engine, dma_engines):
        raise NkiError(f"dma_engine {dma_engine!r} must be one of nisa.dma_engine")
    values, taint = access.read(src, "src")
    if dma_engine is dma_engines.gpsimd_dma:
        _check_gpsimd(src, values.itemsize)
    theirs, their_taint, their_dtype = core.scheduler.meet(
        core, ("sendrecv", pipe_id), (values.copy(), None if taint is None else taint.copy(), src.dtype)
    )
    if (theirs.shape, their_dtype) != (dst.shape, dst.dtype):
        raise NkiError(
            f"core {other} sends {list(theirs.shape)} {their_dtype}, core {core.index} expects {list(dst.shape)} "
            f"{dst.dtype}"
        )
    access.write(dst, theirs, their_taint)


def _check_gpsimd(tensor: NkiTensor, itemsize: int) -> None:
    per_partition, limit = tensor.size // tensor.shape[0] * itemsize, _GPSIMD_BYTES.get(itemsize, 0)
    if per_partition > limit:
        raise NkiError(
            f"{list(tensor.shape)} {tensor.dtype} takes {per_partition} bytes per partition; gpsimd_dma moves {limit}"
        )
