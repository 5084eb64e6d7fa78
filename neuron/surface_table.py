"""Every foreign name that the kit relies on, by module, and what does not work without it; ``surface`` probes it.

A test holds the table against the sources.
"""

from trncheck.neuron.surface_part import part as _part
from trncheck.neuron.surface_torchtitan import TORCHTITAN

_ALL = "all paths of the trainer"
_KERNELS = "the NKI kernels and their checks"
_CHECKS = "the checks of kernels and of fidelity"

TORCH = (
    _part(
        "torch",
        "everything",
        "Generator Size Tensor __version__ arange bfloat16 bool cat cumsum device dtype empty empty_like equal finfo",
        "float32 float64 from_dlpack from_numpy full iinfo int32 int64 is_grad_enabled long manual_seed no_grad ones",
        "ones_like ops randint randn rsqrt set_default_dtype set_num_threads stack tensor uint8 where zeros zeros_like",
        "autograd.grad(2, allow_unused=)",
        "nn.Module .named_modules .register_forward_hook .to_empty",
        "nn.init.normal_",
        "nn.init.ones_",
        "nn.init.zeros_",
        "nn.functional.cross_entropy",
        "nn.functional.pad",
        "nn.functional.silu",
        "nn.functional.scaled_dot_product_attention(3, attn_mask=, scale=, enable_gqa=)",
        "optim.AdamW",
    ),
    _part("torch", "training on a CPU, and to tell a device from none", "cpu"),
    _part("torch", _CHECKS, "get_deterministic_debug_mode set_deterministic_debug_mode"),
    _part("torch", _CHECKS, "use_deterministic_algorithms(1, warn_only=)"),
    _part("torch._utils", "the choice of the device: every run", "_get_available_device_type(0)"),
    _part("torch._subclasses.fake_tensor", _KERNELS, "FakeTensor FakeTensorMode"),
    _part("torch.utils._python_dispatch", "the checks of what an operator writes", "TorchDispatchMode"),
    _part("torch.library", _KERNELS, "custom_op(2, mutates_args=)", "opcheck(2, raise_exception=)"),
    _part(
        "torch.distributed",
        "every run, which has a process group also on one rank",
        "barrier destroy_process_group get_backend get_rank get_world_size is_initialized",
        "TCPStore(2, is_master=, wait_for_workers=)",
        "set_timeout | distributed_c10d._set_pg_timeout",
    ),
    _part(
        "torch.distributed",
        "the probe of PREMUL_SUM on Neuron",
        "ReduceOp.PREMUL_SUM",
        "reduce_scatter_single(2, op=)",
    ),
    _part("torch.distributed.checkpoint", "the one line about a checkpoint that fails", "CheckpointException"),
    _part(
        "torch.distributed.fsdp", "sums instead of PREMUL_SUM on CPUs", "FSDPModule .set_force_sum_reduction_for_comms"
    ),
    _part("torch.distributed.fsdp._fully_shard", "whether FSDP reads spmd_types annotations", "_fsdp_param"),
    _part("torch.distributed.tensor", _ALL, "DTensor .to_local .full_tensor .device_mesh .placements"),
    _part("torch.distributed.tensor", "the rope kernel under tensor parallelism", "DTensor.from_local(3, run_check=)"),
    _part("torch.nn.attention.flex_attention", "the probe of FlexAttention on Neuron", "and_masks flex_attention"),
)

TRANSFORMERS = (
    _part(
        "transformers",
        "the models that everything is held against",
        "AutoConfig.from_pretrained(1)",
        "AutoModelForCausalLM.from_config(dtype=, ...)",
        "AutoModelForCausalLM.from_pretrained(1, dtype=, attn_implementation=, output_loading_info=)",
        "AutoTokenizer.from_pretrained(1)",
        "Qwen3ForCausalLM Qwen3MoeForCausalLM",
    ),
    _part(
        "transformers.integrations.sdpa_attention",
        "the Transformers path on a device without FlexAttention",
        "sdpa_attention_forward(5)",
    ),
    _part(
        "transformers.models.qwen3.modeling_qwen3",
        "rotary frequencies and the rope kernel on the Transformers path",
        "apply_rotary_pos_emb(4)",
        "Qwen3RotaryEmbedding .compute_default_rope_parameters",
    ),
    _part(
        "transformers.models.qwen3_moe.modeling_qwen3_moe",
        "rotary frequencies and the rope kernel on the Transformers path",
        "apply_rotary_pos_emb(4)",
        "Qwen3MoeRotaryEmbedding .compute_default_rope_parameters",
    ),
)

NKI = (
    _part("nki", _KERNELS, "jit"),
    _part("nki", "kernels on CPU tensors", "simulate(1)"),
    _part(
        "nki.language",
        _KERNELS,
        "add float32 int32 multiply psum sbuf shared_hbm silu silu_dx subtract tile_size",
        "tile_size.pmax",
        "ndarray(1, dtype=, buffer=)",
        "num_programs(1)",
        "program_id(1)",
        "program_ndim(0)",
    ),
    _part(
        "nki.isa",
        _KERNELS,
        "activation(1, op=, data=)",
        "core_barrier(2)",
        "dma_copy(2, oob_mode=)",
        "memset(2)",
        "nc_matmul(1, stationary=, moving=)",
        "nc_transpose(2)",
        "oob_mode.skip",
        "tensor_copy(2)",
        "tensor_tensor(3, op=)",
    ),
)

NKILIB = (
    _part(
        "nkilib.core.embeddings.rope_hf",
        "nkilib's RoPE kernel",
        "rope_hf(4, rope_cache=, backward=)",
        instead="the kit's own RoPE kernel runs",
    ),
)

TORCH_NEURONX = (
    _part("torch", "everything on Neuron", "neuron .is_available .synchronize .device_count .set_device"),
    _part(
        "torch",
        "memory of a run",
        "neuron.memory_stats | neuron.max_memory_allocated",
        instead="memory is not measurable",
    ),
    _part(
        "torch",
        "peaks of memory by step",
        "neuron.reset_peak_memory_stats",
        instead="peaks are those since the process started",
    ),
    _part(
        "torch_neuronx",
        "which operators ran on the CPU instead",
        "get_fallback_ops(0)",
        "get_executed_ops(0)",
        "clear_op_tracking(0)",
        instead="which operators ran on the CPU is not measurable",
    ),
    _part(
        "torch_neuronx",
        "graph capture of NKI kernels",
        "nki_op(2, mutates_args=) | nki_hop.nki_op(2, mutates_args=)",
        instead="torch.library.custom_op registers them",
    ),
    _part(
        "torch_neuronx",
        "NKI kernels on the device",
        "wrap_nki(1) | nki_hop.wrap_nki(1)",
        instead="kernels are called themselves, as is documented",
    ),
)

TABLE = TORCH + TORCHTITAN + TRANSFORMERS + NKI + NKILIB + TORCH_NEURONX
PACKAGES = ("torch", "torchtitan", "transformers", "nki", "nkilib", "torch_neuronx")
"""Whose names have to be here."""
