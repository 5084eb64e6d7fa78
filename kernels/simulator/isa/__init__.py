"""``nki.isa``: the instructions."""

from trncheck.kernels.simulator.isa import enums as constants
from trncheck.kernels.simulator.isa.activations import activation, activation_reduce
from trncheck.kernels.simulator.isa.copies import memset, nc_stream_shuffle, tensor_copy, tensor_copy_predicated
from trncheck.kernels.simulator.isa.dma import dma_compute, dma_copy
from trncheck.kernels.simulator.isa.dma_transpose import dma_transpose
from trncheck.kernels.simulator.isa.elementwise import reciprocal, scalar_tensor_tensor, tensor_scalar, tensor_tensor
from trncheck.kernels.simulator.isa.enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from trncheck.kernels.simulator.isa.reductions import (
    bn_aggr,
    bn_stats,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar_reduce,
    tensor_tensor_scan,
)
from trncheck.kernels.simulator.isa.scalars import (
    get_nc_version,
    register_alloc,
    register_load,
    register_move,
    register_store,
    scalar_load,
    scalar_store,
)
from trncheck.kernels.simulator.isa.search import (
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_n_gather,
)
from trncheck.kernels.simulator.isa.selection import affine_select, iota, nonzero_with_count, range_select
from trncheck.kernels.simulator.isa.sync import core_barrier, sendrecv
from trncheck.kernels.simulator.isa.tensor_engine import nc_matmul, nc_transpose
from trncheck.kernels.simulator.registers import NkiScalar, VirtualRegister

# Deprecated names of the engines, which older kernels still use.
tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown
