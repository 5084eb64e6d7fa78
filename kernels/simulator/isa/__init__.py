"""``nki.isa``: the instructions."""

from trncheck.kernels.simulator.isa import enums as constants
from trncheck.kernels.simulator.isa.enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from trncheck.kernels.simulator.isa.tensor_engine import nc_matmul, nc_transpose
from trncheck.kernels.simulator.registers import NkiScalar, VirtualRegister
