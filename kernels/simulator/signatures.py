"""Documented signatures of the NKI 0.7 functions that kernels call: parameter names in order, and which are required.

The lint checks kernel sources against this table, and tests check the simulator's functions against it. Every
instruction also takes the keywords of `COMMON_KEYWORDS`, which the entries do not repeat.
"""

from dataclasses import dataclass

COMMON_KEYWORDS = ("name",)


@dataclass(frozen=True)
class Signature:
    """Parameters of one function in the order of the call; the required ones come first."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.required + self.optional


def _of(required: str = "", optional: str = "") -> Signature:
    return Signature(tuple(required.split()), tuple(optional.split()))


ISA: dict[str, Signature] = {
    # data movement
    "dma_copy": _of("dst src", "priority oob_mode dge_mode engine"),
    "dma_compute": _of("dst srcs reduce_op", "scales unique_indices oob_mode"),
    "dma_transpose": _of("dst src", "axes priority dge_mode oob_mode"),
    "tensor_copy": _of("dst src", "engine"),
    "memset": _of("dst value", "engine"),
    "tensor_copy_predicated": _of("dst src predicate", "reverse_pred"),
    "nc_stream_shuffle": _of("dst src shuffle_mask"),
    "sendrecv": _of("src dst send_to_rank recv_from_rank pipe_id", "dma_engine"),
    "core_barrier": _of("data cores", "engine"),
    # tensor engine
    "nc_matmul": _of(
        "dst stationary moving",
        "is_stationary_onezero is_moving_onezero is_transpose accumulate tile_position tile_size perf_mode",
    ),
    "nc_transpose": _of("dst data", "engine"),
    # vector, scalar and GpSimd engines
    "tensor_tensor": _of("dst data1 data2 op", "engine"),
    "tensor_scalar": _of("dst data op0 operand0", "reverse0 op1 operand1 reverse1 engine"),
    "scalar_tensor_tensor": _of(
        "dst data op0 operand0 op1 operand1", "reverse0 reverse1 reduce_cmd reduce_op reduce_res"
    ),
    "tensor_reduce": _of("dst op data axis", "negate keepdims"),
    "tensor_tensor_scan": _of("dst data0 data1 initial op0 op1", "reverse0 reverse1"),
    "activation": _of("dst op data", "bias scale reduce_op reduce_res reduce_cmd engine"),
    "reciprocal": _of("dst data"),
    "iota": _of("dst pattern", "offset channel_multiplier"),
    "affine_select": _of("dst pattern channel_multiplier on_true_tile on_false_value", "cmp_op offset"),
    "max8": _of("dst src"),
    "nc_find_index8": _of("dst data vals"),
    # registers and scalars
    "register_alloc": _of("", "x"),
    "register_move": _of("dst src"),
    "register_load": _of("dst src"),
    "register_store": _of("dst src"),
    "scalar_load": _of("src"),
    "scalar_store": _of("dst value"),
    "get_nc_version": _of(),
}

LANGUAGE: dict[str, Signature] = {
    "ndarray": _of("shape dtype", "buffer name address"),
    "ds": _of("start size"),
    "load": _of("src", "dtype"),
    "store": _of("dst value"),
    "shared_identity_matrix": _of("n", "dtype"),
    "fori_loop": _of("lower upper body_fun", "step"),
    "while_loop": _of("init body_fun"),
    "program_id": _of("", "axis"),
    "num_programs": _of("", "axes"),
    "program_ndim": _of(),
    "device_print": _of("prefix tensor"),
}

# Parameters that take a member of an enum of `nki.isa`, never a raw number.
ENUMS: dict[str, str] = {
    "engine": "engine",
    "dge_mode": "dge_mode",
    "oob_mode": "oob_mode",
    "reduce_cmd": "reduce_cmd",
    "dma_engine": "dma_engine",
    "perf_mode": "matmul_perf_mode",
}
