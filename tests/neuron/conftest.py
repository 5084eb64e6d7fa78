"""The stand-in environment for tests that need one; they are skipped where it cannot be built."""

import importlib
import os
import sys
import types

import pytest

from trncheck.neuron import rehearsal
from trncheck.neuron.standin import build


@pytest.fixture(scope="session")
def rehearsed():
    """The environment of a process that takes part in the rehearsal of a variant: ``rehearsed("63-cores")``."""
    if reason := build.missing():
        pytest.skip(f"no stand-in device here: {reason}")
    return lambda variant=None: os.environ | rehearsal.environment(variant)


@pytest.fixture
def torch_neuronx(monkeypatch, tmp_path):
    """Installs a ``torch_neuronx`` with the given source, and modules of it by keyword; call it once."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch_neuronx"]:
            del sys.modules[name]

    def install(source: str = "", **modules: str) -> types.ModuleType:
        folder = tmp_path / "site" / "torch_neuronx"
        folder.mkdir(parents=True)
        for name, text in {"__init__": source, **modules}.items():
            (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(folder.parent)
        forget()
        return importlib.import_module("torch_neuronx")

    yield install
    forget()
