"""Variants of the stand-in environment: each is a machine on which one thing is wrong, as a few changed files.

A rehearsal of a variant shows what the kit says to a user who has that machine.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trncheck.neuron.standin import folder as environment

PLAIN = "plain"
"""The environment in which nothing is wrong."""
HOT_OPERATOR = "aten::mm"
"""What falls back to the CPU in ``op-falls-back``: every linear layer runs it."""


class Variant(NamedTuple):
    """One thing that is wrong."""

    title: str
    change: Callable[[Path], None]
    """Changes the folder of a whole environment."""


def _wrong_driver(folder: Path) -> None:
    older = "2.27.4.0"  # of Neuron 2.29
    environment.write_driver(folder, older)
    environment.write_package(folder, "aws-neuronx-dkms", older)


def _xla_line(folder: Path) -> None:
    site = folder / "site"
    for file in (site / "torch_neuronx").iterdir():
        file.unlink()
    (site / "torch_neuronx" / "xla.py").write_text('"""Stand-in of trncheck for the XLA product: the name alone."""\n')
    (site / "torch_neuronx" / "__init__.py").write_text("from torch_neuronx import xla\n")
    environment.write_distribution(site, "torch-neuronx", f"2.9.0.2.15.32035+{environment.LOCAL}")


def _63_cores(folder: Path) -> None:
    devices = environment.listing()
    devices[5]["nc_count"] = 3
    devices[5]["neuroncore_ids"].pop()
    environment.write_listing(folder, devices)


def _busy_cores(folder: Path) -> None:
    devices = environment.listing()
    command = "python train.py --config stand-in"
    process = {"pid": 4194305, "command": command, "neuron_runtime_version": environment.LOCAL}  # above any real pid
    for device in devices[:2]:
        device["neuron_processes"] = [process]
    environment.write_listing(folder, devices)


def _op_falls_back(folder: Path) -> None:
    _change_package(folder, f'_standin.set_fallback_operators(["{HOT_OPERATOR}"])')


def _changed_signature(folder: Path) -> None:
    _change_package(
        folder,
        "_nki_op = nki_hop.nki_op",
        "torch_neuronx.nki_op = lambda name, fn=None: _nki_op(name, fn)  # has no mutates_args any more",
    )


def _compile_error(folder: Path) -> None:
    _change_package(
        folder,
        "from pathlib import Path",
        'text = Path(__file__).with_name("compile_error.txt").read_text()',
        "def refuse(kernel):",
        "    raise RuntimeError(text.replace('KERNEL', kernel.__name__))",
        "nki_hop.compile_kernel = refuse",
    )


def _no_op_tracking(folder: Path) -> None:
    _change_package(
        folder, "del torch_neuronx.get_fallback_ops, torch_neuronx.get_executed_ops, torch_neuronx.clear_op_tracking"
    )


VARIANTS = {
    "wrong-driver": Variant("the driver of an older release is loaded", _wrong_driver),
    "xla-line": Variant("torch-neuronx is the legacy PyTorch/XLA product", _xla_line),
    "63-cores": Variant("one device lacks a logical core", _63_cores),
    "busy-cores": Variant("another process holds two devices", _busy_cores),
    "op-falls-back": Variant(f"{HOT_OPERATOR} runs on the CPU", _op_falls_back),
    "changed-signature": Variant("torch_neuronx.nki_op has lost a parameter", _changed_signature),
    "compile-error": Variant("no NKI kernel compiles", _compile_error),
    "no-op-tracking": Variant("torch_neuronx does not say which operators ran where", _no_op_tracking),
}
"""By the name that ``--rehearse`` takes."""


def _change_package(folder: Path, *lines: str) -> None:
    """Run ``lines`` at the end of every import of torch_neuronx."""
    head = '"""What this variant of the rehearsal changes in torch_neuronx."""'
    imports = "import torch_neuronx\nfrom torch_neuronx import _standin, nki_hop"
    (folder / "site" / "torch_neuronx" / "variant.py").write_text("\n".join([head, imports, *lines]) + "\n")
