"""A rehearsal's environment is a whole machine, each variant has one thing wrong, and nothing can take it for real."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.cli import main
from trncheck.fixtures.installed import probe
from trncheck.fixtures.manifest import load_release
from trncheck.neuron import host, machine, rehearsal
from trncheck.neuron.standin import build
from trncheck.neuron.standin.variants import HOT_OPERATOR, VARIANTS

RELEASE = "2.33.0"


@pytest.fixture
def entered(rehearsed, monkeypatch):
    """Lets this process see the machine of a variant; it imports none of its packages."""

    def enter(variant: str | None = None) -> Path:
        environment = rehearsed(variant)
        for name in (host.REHEARSAL, "PATH"):
            monkeypatch.setenv(name, environment[name])
        folder = Path(environment[host.REHEARSAL])
        monkeypatch.syspath_prepend(folder / "site")
        return folder

    return enter


def _python(environment, code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout.strip()


def test_the_machine_is_a_whole_trn2_and_says_that_it_is_none(entered):
    entered()
    found = machine.inspect()
    assert (found.instance_type, found.devices, found.logical_cores, found.lnc) == ("trn2.48xlarge", 16, 64, 2)
    assert machine.problems(found) == []
    assert "stand-in" in str(found)


def test_devices_are_connected_as_documented(entered):
    """https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-ls.html"""
    devices = json.loads((entered() / "neuron-ls.json").read_text())
    neighbours = {device["neuron_device"]: set(device["connected_to"]) for device in devices}
    assert neighbours[0] == {12, 3, 4, 1}
    assert neighbours[15] == {11, 14, 3, 12}


def test_every_pin_is_installed_with_code_under_a_version_that_says_stand_in(entered):
    entered()
    release = load_release(RELEASE)
    found = probe([pin for pin in release.all_pins if pin.needs == "neuron"], [])
    assert found.keys() >= {"torch-neuronx", "nki", "neuronx-cc", "torchtitan-neuron", "aws-neuronx-tools"}
    assert not any(item.empty for item in found.values())
    for name in ("torch-neuronx", "nki", "neuronx-cc"):
        assert found[name].version.endswith("+standin")
    assert found["torchtitan-neuron"].refs == {"release-2.33"}
    assert found["aws-neuronx-tools"].version == "2.33.38.0"


def test_torch_neuronx_is_built_for_the_installed_torch(entered):
    entered()
    torch = importlib.metadata.version("torch").split(".")[:2]
    assert importlib.metadata.version("torch-neuronx").split(".")[:2] == torch


def test_nkilib_is_known_as_a_stand_in(rehearsed):
    code = "from trncheck.kernels.rope.operator import provider; print(provider())"
    assert re.fullmatch(r"nkilib of neuronx-cc .*\+standin", _python(rehearsed(), code))


def test_a_process_changes_nothing_in_the_folder(rehearsed):
    environment = rehearsed()
    folder = Path(environment[host.REHEARSAL])
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    _python(environment, "import torch_neuronx, nki, neuronxcc, nkilib.core.embeddings")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("variant", "says"),
    [
        ("63-cores", "63 of 64 logical cores"),
        ("busy-cores", "cores are in use"),
    ],
)
def test_variants_of_the_machine(entered, variant, says):
    entered(variant)
    assert says in " ".join(machine.problems(machine.inspect()))


def test_variant_wrong_driver(entered):
    entered("wrong-driver")
    assert machine.inspect().driver == "2.27.4.0"


def test_variant_xla_line(entered, rehearsed):
    entered("xla-line")
    assert importlib.metadata.version("torch-neuronx").startswith("2.9.0.")
    code = "import torch, torch_neuronx; print(hasattr(torch, 'neuron'), hasattr(torch_neuronx, 'nki_op'))"
    assert _python(rehearsed("xla-line"), code) == "False False"


_TRACKED = """
import torch, torch_neuronx
names = [name for name in ("get_executed_ops", "get_fallback_ops", "clear_op_tracking") if hasattr(torch_neuronx, name)]
torch.ones(2, 2, device="neuron") @ torch.ones(2, 2, device="neuron")
print(len(names), torch_neuronx.get_fallback_ops() if names else None)
"""
_SIGNATURE = "import inspect, torch_neuronx; print(*inspect.signature(torch_neuronx.nki_op).parameters)"
_COMPILED = """
import torch_neuronx
from nkilib.core.embeddings.rope_hf import rope_hf
try:
    torch_neuronx.wrap_nki(rope_hf)[2]()
except RuntimeError as error:
    print(len(str(error).splitlines()), "neuronx-cc" in str(error), "rope_hf" in str(error), "stand-in" in str(error))
"""


@pytest.mark.parametrize(
    ("variant", "code", "prints"),
    [
        ("op-falls-back", _TRACKED, f"3 ['{HOT_OPERATOR}']"),
        ("no-op-tracking", _TRACKED, "0 None"),
        ("changed-signature", _SIGNATURE, "name fn"),
        ("compile-error", _COMPILED, "52 True True True"),
    ],
)
def test_variants_of_torch_neuronx(rehearsed, variant, code, prints):
    assert _python(rehearsed(variant), code) == prints


def test_one_rehearsal_inside_another_leaves_no_trace_of_the_first(entered, monkeypatch):
    first = entered()
    monkeypatch.setenv("PYTHONPATH", f"{first / 'site'}:/elsewhere")
    second = rehearsal.environment("63-cores")
    assert second["PYTHONPATH"].split(":")[1:] == ["/elsewhere"]
    assert str(first) not in "".join(second.values())


# --- the command line


def _refused(capsys, *arguments: str) -> str:
    """The one line of a run that is refused with status 2."""
    try:
        status = main(["run", *arguments])
    except SystemExit as exit:  # argparse's
        status = exit.code
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    return captured.err.splitlines()[-1]


def test_another_target_is_refused(capsys):
    assert "--target cpu" in _refused(capsys, "--rehearse", "--target", "cpu")


def test_an_unknown_variant_is_refused_with_the_known_ones(capsys):
    assert "63-cores" in _refused(capsys, "--rehearse", "62-cores")


def test_no_compiler_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler" in _refused(capsys, "--rehearse")


def test_a_release_without_the_device_is_one_line(capsys, rehearsed):
    assert "no device to rehearse with" in _refused(capsys, "--rehearse", "--release", "2.32.0")


def test_a_real_device_is_refused(capsys, monkeypatch, tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "neuron0").touch()
    monkeypatch.setattr(host, "root", lambda: tmp_path)
    assert "this machine has Neuron itself" in _refused(capsys, "--rehearse")


def test_a_real_torch_neuronx_is_refused(capsys, monkeypatch, tmp_path):
    (tmp_path / "torch_neuronx").mkdir()
    (tmp_path / "torch_neuronx" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert f"torch-neuronx is installed here ({tmp_path}" in _refused(capsys, "--rehearse")


def test_help_lists_every_variant(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    words = re.sub(r"-\s+", "-", capsys.readouterr().out)
    assert all(name in words for name in VARIANTS)


def test_a_run_says_first_what_it_is(rehearsed, tmp_path):
    """Options of pytest come through, and the report is of target trn2 on a stand-in."""
    rehearsed()
    arguments = ["run", "--rehearse", "63-cores", "--check", "pins.pin[nki]", f"--results={tmp_path}", "-q"]
    again = "import sys; from trncheck.cli import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", again, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("Rehearsal: ")
    assert "Variant 63-cores: one device lacks a logical core." in ended.stdout.splitlines()[0]
    (report,) = tmp_path.rglob("report.json")
    read = json.loads(report.read_text())
    assert read["target"] == "trn2-rehearsal"
    assert read["verdict"]["status"] == "incomplete"


def test_what_cannot_be_built_is_one_line_with_the_compilers_error(monkeypatch, tmp_path):
    (tmp_path / "c++").write_text("#!/bin/sh\necho 'x.h:1:2: fatal error: no such header' >&2\nexit 1\n")
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    monkeypatch.setenv("TRNCHECK_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match=r"cannot be built with torch .*: x.h:1:2: fatal error: no such header") as e:
        build.extension()
    assert len(str(e.value).splitlines()) == 1
