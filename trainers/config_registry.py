"""One function per configuration, named for what it runs; ``--config NAME`` picks one, flags change the rest.

Paths: ``qwen3_hf_*`` trains the Transformers model through torchtitan, ``qwen3_native_*`` torchtitan's own dense
model, ``qwen3_moe_*`` torchtitan's own mixture of experts. Tiny sizes train in fp32 on the generated corpus, so that
paths can be compared; real sizes take weights and tokenizer from ``--hf_assets_path``. ``nki`` in a name says that the
experts, ``nki_rope`` that the rotary embedding are computed by the NKI kernels.
"""

from trncheck.trainers.devices import DEVICE_TYPE  # sets the device before torchtitan reads it

# isort: split
from pathlib import Path

from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import DebugConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.qwen3 import model_registry
from torchtitan.protocols.model_spec import ModelSpec

from trncheck.fixtures.geometry import PUBLISHED, TINY
from trncheck.fixtures.tiny import bare_folder, tiny_folder
from trncheck.trainers import native, transformers_model
from trncheck.trainers.data import CorpusDataLoader
from trncheck.trainers.experts import same_dtype
from trncheck.trainers.kernels import attach
from trncheck.trainers.trainer import NativeTrainer, TransformersTrainer


def qwen3_native_tiny() -> NativeTrainer.Config:
    return _tiny(NativeTrainer, _tiny_native_spec("dense-tied"), "dense-tied")


def qwen3_native_tiny_untied() -> NativeTrainer.Config:
    return _tiny(NativeTrainer, _tiny_native_spec("dense-untied"), "dense-untied")


def qwen3_moe_tiny() -> NativeTrainer.Config:
    """Experts compute in fp32 as everything else does; ``qwen3_moe_tiny_stock_experts`` has torchtitan's cast."""
    spec = _tiny_native_spec("moe")
    for layer in spec.model.layers:
        layer.moe.routed_experts.inner_experts = same_dtype(layer.moe.routed_experts.inner_experts)
    return _tiny(NativeTrainer, spec, "moe")


def qwen3_moe_tiny_stock_experts() -> NativeTrainer.Config:
    """torchtitan's own experts, which compute in bfloat16 whatever the training dtype."""
    return _tiny(NativeTrainer, _tiny_native_spec("moe"), "moe")


def qwen3_native_tiny_chunked_loss() -> NativeTrainer.Config:
    return _chunked_loss(qwen3_native_tiny())


def qwen3_moe_tiny_chunked_loss() -> NativeTrainer.Config:
    return _chunked_loss(qwen3_moe_tiny())


def qwen3_hf_tiny() -> TransformersTrainer.Config:
    return _tiny(TransformersTrainer, transformers_model.model_spec(moe=False), "dense-tied")


def qwen3_hf_tiny_untied() -> TransformersTrainer.Config:
    return _tiny(TransformersTrainer, transformers_model.model_spec(moe=False), "dense-untied")


def qwen3_hf_moe_tiny() -> TransformersTrainer.Config:
    return _tiny(TransformersTrainer, transformers_model.model_spec(moe=True), "moe")


def qwen3_native_tiny_nki_rope() -> NativeTrainer.Config:
    return attach(qwen3_native_tiny(), rope=True)


def qwen3_moe_nki_tiny() -> NativeTrainer.Config:
    return attach(qwen3_moe_tiny(), experts=True)


def qwen3_moe_nki_tiny_nki_rope() -> NativeTrainer.Config:
    return attach(qwen3_moe_tiny(), rope=True, experts=True)


def qwen3_hf_tiny_nki_rope() -> TransformersTrainer.Config:
    return attach(qwen3_hf_tiny(), rope=True)


def qwen3_hf_moe_tiny_nki_rope() -> TransformersTrainer.Config:
    return attach(qwen3_hf_moe_tiny(), rope=True)


def qwen3_native_0_6b() -> NativeTrainer.Config:
    return _real(NativeTrainer, model_registry("0.6B"), "Qwen3-0.6B")


def qwen3_native_0_6b_corpus() -> NativeTrainer.Config:
    """The whole 0.6B geometry on the generated corpus, in fp32 and without downloads; for a random start."""
    config = _tiny(NativeTrainer, model_registry("0.6B"), "dense-tied")
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    config.hf_assets_path = str(bare_folder("Qwen3-0.6B"))
    return config


def qwen3_native_4b_instruct_2507() -> NativeTrainer.Config:
    """torchtitan's 4B entry with the rotary base and positions of Instruct-2507."""
    spec = model_registry("4B")
    published = PUBLISHED["Qwen3-4B-Instruct-2507"]
    for layer in spec.model.layers:
        layer.attention.rope.theta = published.rope_theta
        layer.attention.rope.max_seq_len = published.max_position_embeddings
    return _real(NativeTrainer, spec, "Qwen3-4B-Instruct-2507")


def qwen3_moe_30b_a3b() -> NativeTrainer.Config:
    """torchtitan's 30B-A3B entry without its trained router bias, which a Hugging Face export cannot hold."""
    spec = model_registry("30B-A3B")
    for layer in spec.model.layers:
        layer.moe.load_balance_coeff = None
    return _real(NativeTrainer, spec, "Qwen3-30B-A3B")


def qwen3_moe_30b_a3b_4layers_64experts() -> NativeTrainer.Config:
    """30B-A3B cut to 4 layers, 64 experts and top-4, so that it fits one trn2.48xlarge."""
    name = "Qwen3-30B-A3B, 4 layers x 64 experts"
    return _real(NativeTrainer, native.model_spec(name, PUBLISHED[name]), "Qwen3-30B-A3B")


def qwen3_hf_0_6b() -> TransformersTrainer.Config:
    return _real(TransformersTrainer, transformers_model.model_spec(moe=False), "Qwen3-0.6B")


def qwen3_hf_4b_instruct_2507() -> TransformersTrainer.Config:
    return _real(TransformersTrainer, transformers_model.model_spec(moe=False), "Qwen3-4B-Instruct-2507")


def qwen3_hf_30b_a3b() -> TransformersTrainer.Config:
    return _real(TransformersTrainer, transformers_model.model_spec(moe=True), "Qwen3-30B-A3B")


def qwen3_native_4b_instruct_2507_nki_rope() -> NativeTrainer.Config:
    return attach(qwen3_native_4b_instruct_2507(), rope=True)


def qwen3_moe_nki_30b_a3b_4layers_64experts() -> NativeTrainer.Config:
    return attach(qwen3_moe_30b_a3b_4layers_64experts(), experts=True)


def qwen3_moe_nki_30b_a3b_4layers_64experts_nki_rope() -> NativeTrainer.Config:
    return attach(qwen3_moe_30b_a3b_4layers_64experts(), rope=True, experts=True)


def qwen3_hf_4b_instruct_2507_nki_rope() -> TransformersTrainer.Config:
    return attach(qwen3_hf_4b_instruct_2507(), rope=True)


def qwen3_native_4b_instruct_2507_corpus() -> NativeTrainer.Config:
    """As all ``*_corpus`` of real size: the real training configuration on generated text, without downloads."""
    return _on_corpus(qwen3_native_4b_instruct_2507())


def qwen3_hf_4b_instruct_2507_corpus() -> TransformersTrainer.Config:
    return _on_corpus(qwen3_hf_4b_instruct_2507())


def qwen3_moe_30b_a3b_4layers_64experts_corpus() -> NativeTrainer.Config:
    return _on_corpus(qwen3_moe_30b_a3b_4layers_64experts())


def qwen3_moe_nki_30b_a3b_4layers_64experts_nki_rope_corpus() -> NativeTrainer.Config:
    return _on_corpus(qwen3_moe_nki_30b_a3b_4layers_64experts_nki_rope())


def _on_corpus(config):
    """Rows of 1,024 tokens; what a run of a few steps needs is recorded."""
    config.dataloader = CorpusDataLoader.Config()
    config.lr_scheduler = LRSchedulersContainer.Config(warmup_steps=2)
    config.training.seq_len = 1024
    config.record.enable = True
    return config


def _tiny_native_spec(name: str) -> ModelSpec:
    return native.model_spec(name, TINY[name])


def _tiny(trainer: type, spec: ModelSpec, model: str):
    """Global batch of 8 rows x 64 tokens over any number of ranks up to 8; losses of every step are recorded."""
    config = _common(trainer, spec, assets=tiny_folder(model))
    config.loss = CrossEntropyLoss.Config(global_vocab_size=TINY[model].vocab_size)
    config.dataloader = CorpusDataLoader.Config()
    config.optimizer = default_adamw(lr=3e-3)
    config.lr_scheduler = LRSchedulersContainer.Config(warmup_steps=2)
    config.training = TrainingConfig(
        local_batch_size=4,
        global_batch_size=8,
        seq_len=64,
        steps=20,
        mixed_precision_param="float32",
        disable_cuda_graphs=True,
    )
    config.activation_checkpoint = None
    config.record.enable = True
    return config


def _chunked_loss(config):
    """The head and the loss over eight parts of each row, one after another, as the native real sizes compute them."""
    config.loss = ChunkedLossWrapper.Config(loss_fn=config.loss)
    return config


def _real(trainer: type, spec: ModelSpec, assets: str):
    """bf16 parameters over fp32 masters, selective activation checkpointing, C4."""
    config = _common(trainer, spec, assets=Path("assets/hf") / assets)
    vocabulary = {} if trainer is TransformersTrainer else {"global_vocab_size": decoder_vocab_size(spec)}
    loss = CrossEntropyLoss.Config(**vocabulary)
    # The Transformers backend reads the vocabulary into config.loss, so its loss cannot be wrapped.
    config.loss = loss if trainer is TransformersTrainer else ChunkedLossWrapper.Config(loss_fn=loss)
    config.dataloader = HuggingFaceTextDataLoader.Config(dataset="c4")
    config.optimizer = default_adamw(lr=3e-4)
    config.lr_scheduler = LRSchedulersContainer.Config(warmup_steps=200)
    config.training = TrainingConfig(
        local_batch_size=1, seq_len=4096, steps=1000, disable_cuda_graphs=DEVICE_TYPE != "cuda"
    )
    config.activation_checkpoint = SelectiveAC.Config()
    return config


def _common(trainer: type, spec: ModelSpec, *, assets: Path):
    return trainer.Config(
        model_spec=spec,
        hf_assets_path=str(assets),
        metrics=MetricsProcessor.Config(log_freq=1, disable_color_printing=True),
        checkpoint=CheckpointManager.Config(last_save_in_hf=True),
        debug=DebugConfig(seed=42, enable_structured_logging=False),
    )
