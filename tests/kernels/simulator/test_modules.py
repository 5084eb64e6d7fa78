"""The name nki: the simulator takes it for a while, and never from the official package."""

import importlib
import sys

import pytest

from trncheck.kernels.simulator.modules import as_nki, official_nki

with as_nki():
    import nki
    import nki.isa as nisa
    import nki.language as nl


def test_nki_is_importable_inside_the_context_only():
    assert not official_nki()
    with as_nki():
        inside = importlib.import_module("nki.isa.constants")
        assert inside.oob_mode is nisa.oob_mode
        assert sys.modules["nki.language"] is nl
    with pytest.raises(ZeroDivisionError), as_nki():
        raise ZeroDivisionError
    assert [name for name in sys.modules if name.partition(".")[0] == "nki"] == []


def package(folder, *files):
    for name in files:
        path = folder / "nki" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("OFFICIAL = True\n")


@pytest.mark.parametrize("isa", ["isa.py", "isa/__init__.py"])
def test_the_official_nki_is_never_replaced(tmp_path, monkeypatch, isa):
    package(tmp_path, "__init__.py", isa)
    monkeypatch.syspath_prepend(tmp_path)
    assert official_nki()
    with pytest.raises(RuntimeError, match="the official nki is installed"), as_nki():
        pass
    assert "nki" not in sys.modules


@pytest.mark.parametrize("files", [["__init__.py"], ["../nki.py"]], ids=["package", "module"])
def test_a_placeholder_is_not_the_official_nki(tmp_path, monkeypatch, files):
    package(tmp_path, *files)
    monkeypatch.syspath_prepend(tmp_path)
    with as_nki():
        assert sys.modules["nki"].simulate is nki.simulate
    assert "nki" not in sys.modules

    placeholder = importlib.import_module("nki")
    try:
        with as_nki():
            assert sys.modules["nki"].simulate is nki.simulate
        assert sys.modules["nki"] is placeholder
    finally:
        del sys.modules["nki"]
