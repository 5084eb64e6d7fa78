"""The part of ``surface_table`` that is torchtitan's; the paths of the trainer are what breaks."""

from trncheck.neuron.surface_part import part as _part

_ALL = "all paths of the trainer"
_HF = "the Transformers path (qwen3_hf_*)"
_NATIVE = "the native paths (qwen3_native_*, qwen3_moe_*)"
_MOE = "the mixture of experts (qwen3_moe_*)"

TORCHTITAN = (
    _part("torchtitan.config", _ALL, "ConfigManager .parse_args", "ConfigManager(0)"),
    _part("torchtitan.config", _ALL, "DebugConfig(seed=, enable_structured_logging=)"),
    _part(
        "torchtitan.config",
        _ALL,
        "TrainingConfig(local_batch_size=, global_batch_size=, seq_len=, steps=, mixed_precision_param=, "
        "disable_cuda_graphs=) .mixed_precision_reduce",
    ),
    _part("torchtitan.config", "kernels in native models, and experts in fp32", "derive(2)"),
    _part("torchtitan.config", "--override.imports trncheck.kernels.overrides.*", "override(target=, description=)"),
    _part(
        "torchtitan.trainer",
        _ALL,
        "Trainer(1) .batch_generator .close .config .dataloader .metrics_processor .model_config .model_parts "
        ".post_dataloading_process .step .train .train_step",
        "Trainer.batch_generator(2)",
        "Trainer.post_dataloading_process(3)",
        "Trainer.train(1)",
        "Trainer.train_step(2)",
        "Trainer.Config .activation_checkpoint .checkpoint .compile .dataloader .debug .dump_folder .hf_assets_path "
        ".loss .lr_scheduler .metrics .model_spec .optimizer .override .parallelism .training .build",
    ),
    _part("torchtitan.trainer", "runs on a CPU, which would sleep 2 s at their end", "time"),
    _part("torchtitan.tools.logging", _ALL, "init_logger(0)", "logger.info"),
    _part("torchtitan.tools.utils", "training on a CPU", "device_type device_module"),
    _part("torchtitan.components.checkpointer", _ALL, "CheckpointManager"),
    _part(
        "torchtitan.components.checkpointer",
        "loading, resuming and exporting",
        "CheckpointManager.Config(last_save_in_hf=) .enable .export_dtype .folder .initial_load_in_hf "
        ".initial_load_path .last_save_model_only .load_only .load_step",
    ),
    _part(
        "torchtitan.components.loss",
        _ALL,
        "IGNORE_INDEX",
        "CrossEntropyLoss",
        "CrossEntropyLoss.Config(global_vocab_size=)",
    ),
    _part(
        "torchtitan.components.loss", "losses in chunks", "ChunkedLossWrapper", "ChunkedLossWrapper.Config(loss_fn=)"
    ),
    _part(
        "torchtitan.components.metrics",
        "losses and gradient norms of every step",
        "MetricsProcessor.Config(log_freq=, disable_color_printing=)",
        "MetricsProcessor .device_memory_monitor",
        "MetricsProcessor.log(5, extra_metrics=)",
    ),
    _part("torchtitan.components.optimizer", _ALL, "default_adamw(lr=)"),
    _part("torchtitan.components.optimizer", _ALL, "LRSchedulersContainer.Config(warmup_steps=) .decay_ratio"),
    _part("torchtitan.components.optimizer", _NATIVE, "register_moe_load_balancing_hook"),
    _part("torchtitan.distributed.activation_checkpoint", "real sizes", "SelectiveAC.Config()"),
    _part("torchtitan.distributed.full_dtensor", "the Transformers path on torch 2.13", "resolve_fsdp_mesh(1)"),
    _part("torchtitan.distributed.pipeline_parallel", _NATIVE, "pipeline_llm"),
    _part("torchtitan.hf_datasets", "the generated corpus", "DatasetConfig(path=, loader=, sample_processor=)"),
    _part(
        "torchtitan.hf_datasets.text_datasets",
        "all data",
        "DATASETS",
        "HuggingFaceTextDataLoader(1, dp_world_size=, local_batch_size=, seq_len=, ...)",
        "HuggingFaceTextDataLoader.Config(dataset=) .dataset_path",
    ),
    _part(
        "torchtitan.models.common",
        _NATIVE,
        "CosSinRoPE.Config(dim=, max_seq_len=, theta=)",
        "Embedding.Config(num_embeddings=, embedding_dim=, param_init=)",
        "Linear.Config(in_features=, out_features=, param_init=)",
    ),
    _part("torchtitan.models.common.attention", "masks by document", "FlexAttention(1)", "FlexAttention.Config()"),
    _part(
        "torchtitan.models.common.attention",
        "attention on a device without FlexAttention",
        "FlexAttention.forward(4, attention_masks=, scale=, enable_gqa=)",
        "_compiled_create_block_mask create_block_mask",
    ),
    _part(
        "torchtitan.models.common.attention",
        "the probe of FlexAttention on Neuron",
        "create_attention_mask(5, device=)",
        "get_causal_mask_mod(0)",
        "get_document_mask_mod(1)",
    ),
    _part("torchtitan.models.common.config_utils", _ALL, "decoder_vocab_size(1)"),
    _part(
        "torchtitan.models.common.config_utils",
        _NATIVE,
        "get_attention_config(1)",
        "make_ffn_config(dim=, hidden_dim=, w1_param_init=, w2w3_param_init=)",
        "make_gqa_config(dim=, n_heads=, n_kv_heads=, head_dim=, wqkv_param_init=, wo_param_init=, "
        "inner_attention=, fuse_qkv=, rope=, qk_norm=)",
    ),
    _part(
        "torchtitan.models.common.config_utils",
        _MOE,
        "make_moe_config(num_experts=, router=, routed_experts=, load_balance_coeff=)",
        "make_routed_experts_config(dim=, hidden_dim=, num_experts=, top_k=, param_init=, comm_backend=)",
        "make_router_config(dim=, num_experts=, gate_param_init=, top_k=, score_func=, route_norm=)",
    ),
    _part(
        "torchtitan.models.common.moe",
        "experts by NKI kernels, and in fp32",
        "GroupedExperts ._grouped_mm",
        "GroupedExperts.forward(3)",
        "GroupedExperts.Config .num_experts",
    ),
    _part(
        "torchtitan.models.common.moe",
        _HF,
        "MoE .init_states",
        "MoE.Config .load_balance_coeff .num_experts .routed_experts .router",
    ),
    _part("torchtitan.models.common.nn_modules", _NATIVE, "RMSNorm.Config(normalized_shape=, eps=, param_init=)"),
    _part("torchtitan.models.common.param_init", _NATIVE, "skip_param_init"),
    _part(
        "torchtitan.models.common.rope",
        "the rope kernel in native models",
        "RoPE",
        "CosSinRoPE .apply_rotary_emb",
        "CosSinRoPE.apply_rotary_emb(3)",
        "CosSinRoPE.Config .theta .max_seq_len",
    ),
    _part(
        "torchtitan.models.qwen3",
        _NATIVE,
        "Qwen3Model",
        "Qwen3Model.Config(vocab_size=, dim=, norm=, enable_weight_tying=, tok_embeddings=, lm_head=, layers=) "
        ".build .traverse .update_from_config",
        "model_registry(1)",
        "parallelize_qwen3",
    ),
    _part(
        "torchtitan.models.qwen3.model",
        _NATIVE,
        "Qwen3TransformerBlock.Config(attention_norm=, ffn_norm=, attention=, feed_forward=, moe=)",
    ),
    _part("torchtitan.models.qwen3.state_dict_adapter", _NATIVE, "Qwen3StateDictAdapter(2) .from_hf .to_hf"),
    _part(
        "torchtitan.models.utils",
        "loading and exporting experts on the Transformers path",
        "MoEStateDictAdapter ._concatenate_expert_weights ._concatenate_expert_weights_dtensor "
        "._get_local_experts_weights",
        "MoEStateDictAdapter._concatenate_expert_weights(5)",
        "MoEStateDictAdapter._concatenate_expert_weights_dtensor(4)",
        "MoEStateDictAdapter._get_local_experts_weights(5)",
    ),
    _part(
        "torchtitan.protocols.model_spec",
        _ALL,
        "ModelSpec(name=, flavor=, model=, parallelize_fn=, pipelining_fn=, post_optimizer_build_fn=, "
        "state_dict_adapter=) .traverse",
    ),
    _part(
        "torchtitan.experiments.transformers_modeling_backend",
        _HF,
        "HFTransformerModel(1) .init_states",
        "HFTransformerModel.init_states(1, buffer_device=)",
        "HFTransformerModel.Config(model_config=)",
        "HFTransformerModel.Config.update_from_config(1, config=)",
        "TitanModelConfig() .attn_mask_type",
        "TitanMoeModelConfig(load_balance_coeff=) .attn_mask_type",
        "model_registry(1)",
    ),
    _part(
        "torchtitan.experiments.transformers_modeling_backend.model",
        "the Transformers path on a device without FlexAttention",
        "flex_attention_forward(5)",
    ),
    _part(
        "torchtitan.experiments.transformers_modeling_backend.moe_replacement",
        "experts of the Transformers path, which stock puts into the host's memory",
        "_HFContiguousMoE .to_empty .init_states",
    ),
    _part(
        "torchtitan.experiments.transformers_modeling_backend.trainer",
        _HF,
        "HFTransformerTrainer(1)",
        "HFTransformerTrainer.Config",
    ),
)
