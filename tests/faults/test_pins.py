"""Faults in what is installed."""

import pytest

fault = pytest.mark.fault


def _install(name: str, **found) -> None:
    """Make the machine answer ``found`` for the package ``name``."""
    from trncheck.conformance import pins
    from trncheck.fixtures.installed import Found

    original = pins.probe
    pins.probe = lambda *args: original(*args) | {name: Found(**found)}


@fault("pins.pin[transformers]", "5.15.0 is installed, 5.16.0 expected")
def test_older_transformers():
    _install("transformers", version="5.15.0")


@fault("pins.pin[transformers]", "5.16.10 is installed, 5.16.0 expected")
def test_version_that_only_looks_like_the_pinned_one():
    _install("transformers", version="5.16.10")


@fault("pins.pin[nki]", "placeholder on PyPI")
def test_empty_placeholder():
    _install("nki", version="0.0.1", empty=True)


@fault("pins.impostors", "legacy PyTorch/XLA product")
def test_xla_line_of_torch_neuronx():
    _install("torch-neuronx", version="2.9.0.2.13.24727")


@fault("pins.stack", "no stack is met: torch is 2.12.1")
def test_torch_of_no_stack():
    _install("torch", version="2.12.1+cpu")
