"""One rank's work, from the command line's flags to the end of training."""

import sys
import time
from pathlib import Path

FAILURE_MARK = "trncheck train: failed"
"""Starts the line that a failing rank leaves in its log: mark, time, exception."""

_MODULE = "trncheck.trainers"


def main(flags: list[str]) -> int:
    """Train as ``flags`` say, inside of a torchrun rank. Bad input gives one line and status 2."""
    # `python -m` puts the working folder first; in a checkout its `kernels` would shadow the package Transformers uses.
    here = Path.cwd()
    sys.path[:] = [entry for entry in sys.path if Path(entry or here) != here]
    try:
        train(flags)
    except ValueError:
        return 2  # train has said why
    return 0


def train(flags: list[str]) -> None:
    """Build the configuration that ``flags`` describe, train it and take the process group down.

    Any exception leaves one line on stderr, in the form that ``launch`` looks for, and goes on.
    """
    import torch.distributed

    trainer = None
    try:
        config = parse(flags)
        from torchtitan.tools.logging import init_logger

        init_logger()
        trainer = config.build()
        trainer.train()
    except Exception as error:
        message = " ".join(str(error).split())
        print(f"{FAILURE_MARK} {time.time():.3f} {type(error).__name__}: {message}", file=sys.stderr, flush=True)
        raise
    finally:
        if trainer:
            trainer.close()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def parse(flags: list[str]):
    """``--config NAME`` and torchtitan flags -> a ``Trainer.Config``. Raises ValueError for an unknown name."""
    from trncheck.trainers import config_registry  # first: it sets the device

    from torchtitan.config import ConfigManager  # isort: skip

    _check_name(flags, config_registry)
    config = ConfigManager().parse_args(["--module", _MODULE, *flags])
    _check_assets(Path(config.hf_assets_path))
    return config


def config_names() -> list[str]:
    """Names that ``--config`` accepts."""
    from trncheck.trainers import config_registry

    return sorted(name for name in vars(config_registry) if name.startswith("qwen3_"))


def _check_name(flags: list[str], config_registry) -> None:
    name = next((flags[i + 1] for i, flag in enumerate(flags[:-1]) if flag == "--config"), None)
    name = name or next((flag.removeprefix("--config=") for flag in flags if flag.startswith("--config=")), None)
    if name is None or not hasattr(config_registry, name):
        raise ValueError(f"--config must name one of {', '.join(config_names())}; got {name}")


def _check_assets(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json; point --hf_assets_path at a Hugging Face model folder")
    check_weights(folder)


def check_weights(folder: Path) -> None:
    """Raise ValueError naming the first safetensors file of ``folder`` whose header or length is damaged."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "pt") as reader:
                reader.keys()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is not a readable safetensors file ({error}); fetch or export it again") from None
