"""The simulator's functions take the parameters that are documented."""

import inspect

import pytest

from trncheck.kernels.simulator import signatures
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl


def parameters(function) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Required and optional names; keywords that every instruction takes are left out."""
    known = inspect.signature(function).parameters.values()
    names = [p for p in known if p.name not in signatures.COMMON_KEYWORDS]
    required = tuple(p.name for p in names if p.default is p.empty)
    return required, tuple(p.name for p in names if p.default is not p.empty)


@pytest.mark.parametrize("name", signatures.ISA)
def test_instructions_take_the_documented_parameters(name):
    documented = signatures.ISA[name]
    assert parameters(getattr(nisa, name)) == (documented.required, documented.optional)


@pytest.mark.parametrize("name", ["load", "store"])
def test_functions_over_tiles_take_the_documented_parameters(name):
    documented = signatures.LANGUAGE[name]
    assert parameters(getattr(nl, name)) == (documented.required, documented.optional)
