"""The stand-in environment for tests that need one; they are skipped where it cannot be built."""

import os

import pytest

from trncheck.neuron import rehearsal
from trncheck.neuron.standin import build


@pytest.fixture(scope="session")
def rehearsed():
    """The environment of a process that takes part in the rehearsal of a variant: ``rehearsed("63-cores")``."""
    if reason := build.missing():
        pytest.skip(f"no stand-in device here: {reason}")
    return lambda variant=None: os.environ | rehearsal.environment(variant)
