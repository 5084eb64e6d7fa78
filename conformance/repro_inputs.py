"""What the process that ran a failed check keeps of its inputs, for the bundle."""

import tempfile
from pathlib import Path

import pytest

from trncheck.conformance.repro import SUBJECTS, Kept, Weights
from trncheck.fixtures.cache import file_digest
from trncheck.reports.schema import CheckResult

LARGEST = 20_000_000
"""Bytes of inputs that are kept; larger ones are left to their seed."""
_MODELS = {"paths.stock_experts": "moe", "paths.torchrun": "dense-tied"}
"""Model of the checks without a case."""


def keep(item: pytest.Item, result: CheckResult) -> Kept | None:
    """Write the inputs of ``item`` to a folder where its ``result`` is a failure; None where no bundle is wanted.

    What goes wrong here becomes the note, because the check's own failure matters more.
    """
    if not result.outcome.is_failure or result.subject not in SUBJECTS:
        return None
    kept = Kept()
    try:
        folder = Path(tempfile.mkdtemp(prefix="trncheck-repro-"))
        kept.folder = str(folder)
        case = item.callspec.params if hasattr(item, "callspec") else {}
        if "kernel" in case:
            kept.note = _keep_sample(item.funcargs["kernels"], case["kernel"], result.message, folder)
        elif model := _model(result.id, case):
            kept.note = _keep_batch(folder)
            kept.weights = [_weights(item.funcargs["runs"], model)]
        else:
            kept.note = "the check has no inputs"
    except Exception as error:
        problem = f"not all was kept: {type(error).__name__}: {' '.join(str(error).split())}"
        kept.note = f"{kept.note}; {problem}" if kept.note else problem
    return kept


def _keep_sample(kernels, kernel: str, message: str, folder: Path) -> str:
    from safetensors.torch import save_file

    sample = _failing(kernels.samples(kernel), message)
    tensors = {f"input {name}": value for name, value in kernels.inputs(sample).items()}
    tensors |= {f"upstream gradient {i}": gradient for i, gradient in enumerate(kernels.upstream(sample))}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > LARGEST:
        return f"sample {sample}: {size:,} bytes of inputs, of which none is kept; their seed makes them again"
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, folder / "sample.safetensors")
    return f"sample {sample}: inputs and upstream gradients"


def _failing(samples: list, message: str):
    """The sample that the first failure which names one is about; some name the dtype alone."""
    for line in message.split("\n"):
        for name in (str, lambda sample: sample.dtype):
            for sample in samples:
                if line.startswith(f"{name(sample)},"):
                    return sample
    return samples[0]


def _keep_batch(folder: Path) -> str:
    from safetensors.numpy import save_file

    from trncheck.conformance.runs import ROWS, SEQ_LEN
    from trncheck.fixtures import corpus

    save_file(corpus.batch(1, ROWS, SEQ_LEN), folder / "batch-1.safetensors")
    return "batch 1 as the corpus has it"


def _model(check: str, case: dict) -> str | None:
    from trncheck.conformance.test_kernel_training import ROUTES, SWITCHED

    if "case" in case:
        return case["case"].model
    if case.get("config") in SWITCHED:
        return SWITCHED[case["config"]][0].model
    if case.get("route") in ROUTES:
        return ROUTES[case["route"]][0].model
    return _MODELS.get(check)


def _weights(runs, model: str) -> Weights:
    folder = runs.published_weights(model)
    files = {file.name: file_digest(file) for file in sorted(folder.glob("*.safetensors"))}
    generator = "trncheck.trainers.published.published_folder"
    return Weights(generator=generator, model=model, folder=folder.name, sha256=files)
