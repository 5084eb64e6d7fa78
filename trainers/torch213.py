"""What torchtitan 0.3.0 expects of torch and torch 2.13 does not have yet, whatever the device.

Each part looks whether torch has it, and touches nothing where it does (torch 2.14).
"""

import functools
from pathlib import Path

import torch
import torch.distributed

from trncheck.trainers.substitutes import runs_transformers


def install() -> None:
    """Set the process-wide seams; before torchtitan's models are imported, and after its device is set."""
    _name_set_timeout()
    _shard_without_spmd_annotations()


def adapt(config) -> None:
    """Keep a native ``Trainer.Config`` off annotations that torch's FSDP cannot read."""
    if not (fsdp_reads_spmd_types() or runs_transformers(config)):
        config.parallelism.spmd_backend = "partial_dtensor"


@functools.cache
def fsdp_reads_spmd_types() -> bool:
    """Whether torch's FSDP shards parameters that carry spmd_types annotations, torchtitan's default."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    return "spmd_types" in Path(_fsdp_param.__file__).read_text()


def _name_set_timeout() -> None:
    """torchtitan 0.3.0 calls ``torch.distributed.set_timeout`` after step 1; torch 2.13 has it under a private name."""
    if not hasattr(torch.distributed, "set_timeout"):
        torch.distributed.set_timeout = torch.distributed.distributed_c10d._set_pg_timeout


def _shard_without_spmd_annotations() -> None:
    """Give FSDP a plain one-dimensional mesh for the Transformers model, which has no other backend."""
    if fsdp_reads_spmd_types():
        return
    from torchtitan.distributed import full_dtensor

    resolve = full_dtensor.resolve_fsdp_mesh

    @functools.wraps(resolve)
    def resolve_fsdp_mesh(parallel_dims):
        mesh, dims = resolve(parallel_dims)
        if parallel_dims.spmd_backend != "spmd_types" or dims is None:
            return mesh, dims
        if mesh.ndim != 1:
            raise ValueError(
                f"the Transformers path on torch {torch.__version__} shards over data parallel ranks only; "
                f"set tensor, context, expert and replicate degrees to 1 (mesh is {mesh})"
            )
        return mesh, None

    full_dtensor.resolve_fsdp_mesh = resolve_fsdp_mesh
