"""One rank's work, from the command line's flags to the end of training."""

import io
import os
import re
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from trncheck.neuron import leases
from trncheck.trainers.fidelity import check_config_json, check_head

FAILURE_MARK = "trncheck train: failed"
"""Starts the line that a failing rank leaves in its log: mark, time, exception."""

_MODULE = "trncheck.trainers"


def main(flags: list[str]) -> int:
    """Train as ``flags`` say, inside of a torchrun rank. Bad input gives one line and status 2."""
    # `python -m` puts the working folder first; in a checkout its `kernels` would shadow the package Transformers uses.
    here = Path.cwd()
    sys.path[:] = [entry for entry in sys.path if Path(entry or here) != here]
    try:
        if leases.on_device(os.environ):
            leases.enter(os.environ)  # before a framework is imported, which may read the list of cores
    except ValueError as error:
        _say(error)
        return 2
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
    from torch.distributed.checkpoint import CheckpointException  # not an Exception

    trainer = None
    try:
        config = parse(flags)
        from torchtitan.tools.logging import init_logger

        init_logger()
        trainer = config.build()
        trainer.train()
    except (Exception, CheckpointException) as error:
        _say(error)
        raise
    finally:
        if trainer:
            trainer.close()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def parse(flags: list[str]):
    """``--config NAME`` and torchtitan flags -> a ``Trainer.Config``. Raises ValueError for what cannot be run."""
    from trncheck.trainers import config_registry  # noqa: F401 (first: it sets the device)

    from torchtitan.config import ConfigManager  # isort: skip

    _check_name(flags)
    shown, refused = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(shown), redirect_stderr(refused):
            config = ConfigManager().parse_args(["--module", _MODULE, *flags])
    except SystemExit as end:
        if end.code:
            raise ValueError(_refusal(refused.getvalue())) from None
        print(shown.getvalue())  # --help
        raise
    _check_assets(config)
    return config


def config_names() -> list[str]:
    """Names that ``--config`` accepts."""
    from trncheck.trainers import config_registry

    return sorted(name for name in vars(config_registry) if name.startswith("qwen3_"))


def _say(error: BaseException) -> None:
    print(f"{FAILURE_MARK} {time.time():.3f} {_in_one_line(error)}", file=sys.stderr, flush=True)


def _in_one_line(error: BaseException) -> str:
    if ranks := getattr(error, "failures", None):  # of a checkpoint: every rank's exception, with its traceback
        error = next(iter(ranks.values()))[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _refusal(page: str) -> str:
    """What tyro says about bad flags, without the page around it: title, rule, reason, rule, help on close names."""
    title, *parts = re.split(r"(?m)^ *-{9,} *$", page)
    reason, *rest = parts or [title]
    close = re.findall(r"(?m)^ +(--[\w.-]+)", "".join(rest))
    hint = f"; close: {', '.join(dict.fromkeys(close[:4]))}" if close else ""
    return f"{' '.join(reason.split())}{hint}; --config NAME --help lists all flags"


def _check_name(flags: list[str]) -> None:
    name = next((flags[i + 1] for i, flag in enumerate(flags[:-1]) if flag == "--config"), None)
    name = name or next((flag.removeprefix("--config=") for flag in flags if flag.startswith("--config=")), None)
    if name not in config_names():
        raise ValueError(f"--config must name one of {', '.join(config_names())}; got {name}")


def _check_assets(config) -> None:
    folder = Path(config.hf_assets_path)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json; point --hf_assets_path at a Hugging Face model folder")
    check_weights(folder)
    if config.model_spec.name == "qwen3":
        check_config_json(config)
    checkpoint = config.checkpoint
    wanted = checkpoint.enable and checkpoint.initial_load_in_hf and not checkpoint.initial_load_path
    if wanted and not any(folder.glob("*.safetensors")):
        raise ValueError(
            f"{folder} holds no safetensors file for --checkpoint.initial_load_in_hf; point --hf_assets_path at a "
            "folder with weights"
        )
    if wanted:
        check_head(folder)


def check_weights(folder: Path) -> None:
    """Raise ValueError naming the first safetensors file of ``folder`` whose header or length is damaged."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "pt") as reader:
                reader.keys()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is not a readable safetensors file ({error}); fetch or export it again") from None
