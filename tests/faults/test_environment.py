"""Faults in the environment."""

import os
import tempfile
from pathlib import Path

import pytest

fault = pytest.mark.fault


@fault("environment.settings", "casts to lower precision")
def test_compiler_is_told_to_cast():
    os.environ["NEURON_CC_FLAGS"] = "--model-type=transformer --auto-cast=matmult"


@fault("environment.settings", "NEURON_CC_FLAGS compiles for LNC 1")
def test_runtime_and_compiler_differ_in_lnc():
    os.environ |= {"NEURON_LOGICAL_NC_CONFIG": "2", "NEURON_CC_FLAGS": "-lnc 1"}


@fault("environment.settings", "rounds at random")
def test_stochastic_rounding_is_on():
    os.environ["NEURON_RT_STOCHASTIC_ROUNDING_EN"] = "1"


@fault("environment.settings", "run eagerly")
def test_graphs_that_do_not_compile_may_run_eagerly():
    os.environ["TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"] = "0"


@fault("environment.settings", "runs backwards")
def test_malformed_list_of_cores():
    os.environ["NEURON_RT_VISIBLE_CORES"] = "7-4"


@fault("environment.settings", "PyTorch/XLA line")
def test_variable_of_the_xla_line():
    os.environ["XLA_USE_BF16"] = "1"


@fault("environment.release", "nki: 0.6.0 is installed (of Neuron 2.32.0), 0.7.0 expected")
def test_mixture_of_two_releases():
    from trncheck.conformance import identify
    from trncheck.fixtures.installed import Found

    original = identify.probe
    mixture = {"neuronx-cc": Found(version="2.28.7631.0"), "nki": Found(version="0.6.0")}
    identify.probe = lambda *args: original(*args) | mixture


@fault("environment.surface", "torch.library.opcheck is missing; breaks the NKI kernels")
def test_name_that_the_next_torch_does_not_have():
    folder = Path(tempfile.mkdtemp())
    (folder / "sitecustomize.py").write_text("import torch.library\n\ndel torch.library.opcheck\n")
    os.environ["PYTHONPATH"] = str(folder)
