"""Stock torchtitan's Transformers backend, without our repairs: does it still have the defects they are for?"""

import trncheck.trainers.devices  # noqa: F401 (sets the device before torchtitan reads it)

# isort: split
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torchtitan.experiments.transformers_modeling_backend import (
    HFTransformerModel,
    TitanModelConfig,
    TitanMoeModelConfig,
    model_registry,
)

from trncheck.trainers.recorder import local_tensors


class PoisonedModel(HFTransformerModel):
    """The stock model, with NaN in place of whatever its memory held before: what stays NaN was never initialised."""

    @dataclass(kw_only=True, slots=True, init=False)
    class Config(HFTransformerModel.Config):
        # Transformers wraps the constructor of every subclass that does not define one, and the wrapper wants fields.
        def __init__(self, model_config, **kwargs):
            HFTransformerModel.Config.__init__(self, model_config, **kwargs)

    def to_empty(self, *, device, recurse: bool = True):
        model = super().to_empty(device=device, recurse=recurse)
        with torch.no_grad():
            for _, tensor in local_tensors([model]):
                if tensor.is_floating_point():
                    tensor.fill_(float("nan"))
        return model


def inspect_stock(config_name: str, dump_folder: Path, out: Path) -> None:
    """Build the trainer of ``config_name`` with the stock model and adapter; write what is wrong, as JSON, to ``out``.

    ``uninitialised``: names of tensors that hold NaN after the random start; ``exported``: names in its export.
    """
    import torch.distributed

    from trncheck.trainers import config_registry

    config = getattr(config_registry, config_name)()
    config.dump_folder = str(dump_folder)
    moe = config.model_spec.flavor == "full_moe"
    stock = model_registry(config.model_spec.flavor)
    config.model_spec.state_dict_adapter = stock.state_dict_adapter
    config.model_spec.model = PoisonedModel.Config(TitanMoeModelConfig() if moe else TitanModelConfig())
    trainer = config.build()
    try:
        uninitialised = [
            name
            for name, tensor in local_tensors(trainer.model_parts)
            if tensor.is_floating_point() and tensor.isnan().any()
        ]
        adapter = stock.state_dict_adapter(trainer.model_config, config.hf_assets_path)
        exported = sorted(adapter.to_hf(trainer.model_parts[0].state_dict()))
        out.write_text(json.dumps({"uninitialised": uninitialised, "exported": exported}))
    finally:
        trainer.close()
        torch.distributed.destroy_process_group()
