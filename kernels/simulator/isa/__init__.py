"""``nki.isa``: the instructions."""

from trncheck.kernels.simulator.isa import enums as constants
from trncheck.kernels.simulator.isa.dma import dma_compute, dma_copy
from trncheck.kernels.simulator.isa.dma_transpose import dma_transpose
from trncheck.kernels.simulator.isa.enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
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
from trncheck.kernels.simulator.isa.sync import core_barrier, sendrecv
from trncheck.kernels.simulator.isa.tensor_engine import nc_matmul, nc_transpose
from trncheck.kernels.simulator.registers import NkiScalar, VirtualRegister
from trncheck.kernels.simulator.isa.activations import activation
from trncheck.kernels.simulator.isa.copies import memset, tensor_copy
from trncheck.kernels.simulator.isa.elementwise import tensor_scalar, tensor_tensor
