"""Which Neuron release a machine has: releases, mixtures, the lines of torch-neuronx, and machines without any."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.conformance import identify as module
from trncheck.conformance.identify import identify
from trncheck.fixtures import installed
from trncheck.fixtures.installed import Found
from trncheck.fixtures.manifest import RELEASES_DIR, available_releases, default_release, load_release

CPU = {"torch": Found("2.13.0+cpu"), "transformers": Found("5.16.0"), "torchtitan": Found("0.3.0", "torchtitan")}
CPU |= {"torchtitan-neuron": CPU["torchtitan"], "python": Found("3.11.7")}


def machine(version: str, **changes: Found | None) -> dict[str, Found]:
    """Release ``version`` as it is installed, but for ``changes``; None takes a component away."""
    release = load_release(version)
    stack = release.stacks[0].pins if release.stacks else []
    found = {"python": Found("3.12.9"), "torch": Found("2.14.0"), "transformers": Found("5.16.0")}
    for pin in [*stack, *(pin for pin in release.pins if pin.needs == "neuron" and pin.name != "python")]:
        fork = {"commit": "1a2b3c4", "refs": frozenset({"main", *pin.accepts})} if pin.kind == "git" else {}
        found[pin.name] = Found("0.2.2+neuron.1" if fork else f"{pin.accepts[0]}.1", **fork)
    found |= {name.replace("_", "-"): item for name, item in changes.items()}
    return {name: item for name, item in found.items() if item is not None}


@pytest.fixture(autouse=True)
def _no_package_of_a_driver(monkeypatch):
    monkeypatch.setattr(module, "package_version", lambda name: None)


def one(lines: list[str]) -> str:
    (line,) = lines
    assert "\n" not in line
    return line


@pytest.mark.parametrize("version", [version for version in available_releases() if version != "2.33.1"])
def test_whole_release_is_named(version):
    found = identify(installed=machine(version))
    line = {"2.32.0": "without torch-neuronx", "2.33.0": "native line"}.get(version, "PyTorch/XLA line")
    assert str(found) == f"Neuron {version}, {line}"
    assert found.is_whole
    assert found.problems == []
    assert found.mixture == {}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"nki": Found("0.6.0")},
            'nki: 0.6.0 is installed (of Neuron 2.32.0), 0.7.0 expected; pip install --force-reinstall "nki==0.7.0.*"',
        ),
        (
            {"aws_neuronx_runtime_lib": Found("2.34.10.0")},
            "aws-neuronx-runtime-lib: 2.34.10.0 is installed (of Neuron 2.32.0), 2.35.30.0 expected; install",
        ),
        ({"neuronx_cc": Found("2.28.1.0")}, "neuronx-cc: 2.28.1.0 is installed, 2.28.7631.0 expected; pip install"),
        ({"aws_neuronx_tools": None}, "aws-neuronx-tools: not installed, 2.33.38.0 expected; install"),
        ({"transformers": Found("5.15.0")}, "transformers: 5.15.0 is installed, 5.16.0 expected; pip install"),
        ({"python": Found("3.11.7")}, "python: 3.11.7 is installed, 3.12 or 3.13 or 3.14 expected; install"),
        (
            {"torchtitan_neuron": Found("0.2.2", commit="1a2b3c4", refs=frozenset({"main"}))},
            "torchtitan-neuron: main at 1a2b3c4 is installed, release-2.33 expected; check out release-2.33",
        ),
        (
            {"torch_neuronx": Found("2.9.0.2.15.32035")},
            "torch-neuronx: 2.9.0.2.15.32035 is installed (of Neuron 2.31.0 or 2.31.1), 2.14.3 or 2.13.3 expected; "
            "torch-neuronx 2.9.0.2.15.32035 is the legacy PyTorch/XLA product",
        ),
        ({"nki": Found("0.0.1")}, "nki: 0.0.1 is installed, 0.7.0 expected; nki 0.0.1 is the placeholder on PyPI"),
    ],
)
def test_one_wrong_component_is_one_line_with_what_is_expected_found_and_the_remedy(changes, problem):
    found = identify(installed=machine("2.33.0", **changes))
    assert found.nearest == "2.33.0"
    assert one(found.problems).startswith(problem)


def test_first_problem_is_the_first_component_of_the_table():
    found = identify(installed=machine("2.33.0", nki=Found("0.6.0"), aws_neuronx_tools=None))
    assert [line.split(":")[0] for line in found.problems] == ["nki", "aws-neuronx-tools"]


def test_mixture_of_releases_is_named_component_by_component():
    older = {"aws_neuronx_runtime_lib": Found("2.34.10.0"), "aws_neuronx_collectives": Found("2.34.10.0")}
    found = identify(installed=machine("2.33.0", **older))
    assert str(found) == (
        "a mixture of Neuron releases, 2.33.0 with aws-neuronx-runtime-lib, aws-neuronx-collectives of 2.32.0"
    )
    assert not found.is_whole
    assert found.mixture == {
        "2.32.0": ["aws-neuronx-runtime-lib", "aws-neuronx-collectives"],
        "2.33.0": ["torch-neuronx", "torchtitan-neuron", "nki", "neuronx-cc", "aws-neuronx-dkms", "aws-neuronx-tools"],
    }


def test_component_that_releases_share_makes_no_mixture():
    assert identify(installed=machine("2.31.1")).mixture == {}
    assert identify(installed=machine("2.29.1")).mixture == {}


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (Found("2.14.3.0.99"), "native"),
        (Found("2.13.3.0.1"), "native"),
        (Found("2.9.0.2.15.32035"), "xla"),
        (Found("2.12.1"), "xla"),
        (Found("1.0"), "placeholder"),
        (Found("2.14.3.0", empty=True), "placeholder"),
        (None, "none"),
    ],
)
def test_line_of_torch_neuronx_is_told_by_its_version_and_its_emptiness(item, line):
    assert identify(installed=machine("2.33.0", torch_neuronx=item)).line == line


@pytest.mark.parametrize("target", ["cpu", "trn2"])
def test_machine_without_neuron_software(target):
    found = identify(target=target, installed=CPU)
    assert str(found) == "no Neuron software is installed"
    assert found.release.version == default_release()
    assert not found.is_whole
    assert (found.problems == []) is (target == "cpu")


def test_placeholders_are_no_neuron_software():
    found = identify(installed=CPU | {"nki": Found("0.0.1"), "neuronx-cc": Found("1.0.post1")})
    assert str(found) == "no Neuron software is installed, only PyPI's placeholders (nki 0.0.1, neuronx-cc 1.0.post1)"


def test_release_that_is_asked_for_is_the_one_compared_with():
    found = identify("2.31.0", installed=machine("2.31.1"))
    assert str(found) == "nearest to Neuron 2.31.1, not 2.31.0, PyTorch/XLA line"
    assert one(found.problems).startswith("aws-neuronx-tools: 2.31.15.0.1 is installed (of Neuron 2.31.1), 2.31.13.0 ")


def test_component_that_the_release_does_not_have_is_a_problem():
    found = identify("2.32.0", installed=machine("2.32.0", torch_neuronx=Found("2.14.3.0.1")))
    assert one(found.problems) == (
        "torch-neuronx: 2.14.3.0.1 is installed (of Neuron 2.33.0 or 2.33.1), none expected; Neuron 2.32.0 has no "
        "torch-neuronx: judge another release (--release), or uninstall it"
    )


def test_versions_that_are_unknown_are_neither_right_nor_wrong():
    found = identify("2.33.1", installed=machine("2.33.0", nki=Found("0.7.1")))
    assert str(found) == "Neuron 2.33.1, as far as its versions are known, native line"
    nki = next(part.row for part in found.components if part.row.name == "nki")
    assert (nki.expected, nki.found, nki.status) == ("unknown", "0.7.1", "not-applicable")
    assert nki.note == "cannot be judged: the package list of 2.33.1 was not found"


def test_release_of_unknown_versions_is_suggested_and_never_chosen():
    found = identify(installed=machine("2.33.0", nki=Found("0.7.1")))
    assert found.release.version == "2.33.0"
    assert "this may be Neuron 2.33.1, whose nki was not published: look with --release 2.33.1" in found.remarks
    older = identify(installed=machine("2.33.0", nki=Found("0.6.0")))
    assert not [line for line in older.remarks if "2.33.1" in line], "0.6.0 is known, and is of 2.32.0"


def test_manifest_of_ones_own_can_be_asked_for(tmp_path):
    path = tmp_path / "mine.yaml"
    text = (RELEASES_DIR / "2.33.1.yaml").read_text().replace("version: 2.33.1", "version: 2.33.2")
    path.write_text(text.replace("accepts: [unknown]", "accepts: [0.7.1]", 2))
    wrong = [line.split(":")[0] for line in identify(str(path), installed=machine("2.33.0")).problems]
    assert wrong == ["torchtitan-neuron", "nki"]


def test_driver_that_is_installed_and_not_loaded_is_told_from_a_wrong_one(monkeypatch):
    changes = {"aws_neuronx_dkms": Found("2.30.2.0")}
    assert "install aws-neuronx-dkms 2.31.7.0" in one(identify(installed=machine("2.33.0", **changes)).problems)
    monkeypatch.setattr(module, "package_version", lambda name: "2.31.7.0")
    assert "package 2.31.7.0 is installed, and another driver still runs: reboot" in one(
        identify(installed=machine("2.33.0", **changes)).problems
    )


@pytest.mark.parametrize(
    ("loaded", "packaged", "version"),
    [("2.31.7.0", "2.30.2.0", "2.31.7.0"), (None, "2.30.2.0", "2.30.2.0"), ("2.31.7.0", None, "2.31.7.0")],
    ids=["both", "package alone", "container"],
)
def test_driver_that_runs_counts_before_the_one_that_is_installed(monkeypatch, loaded, packaged, version):
    monkeypatch.setattr(installed, "loaded_driver", lambda: loaded)
    monkeypatch.setattr(installed, "package_version", lambda name: packaged)
    pin = next(pin for pin in load_release("2.33.0").pins if pin.name == installed.DRIVER)
    assert installed.probe([pin], [])[installed.DRIVER].version == version


# --- from real metadata and a package manager, in a folder


@pytest.fixture
def computer(tmp_path: Path, monkeypatch):
    """Installs distributions and system packages where this process finds them."""
    site, tools = tmp_path / "site", tmp_path / "bin"
    site.mkdir()
    tools.mkdir()
    query = 'for name; do :; done\ntest -f "$0.$name" && cat "$0.$name"\n'
    (tools / "dpkg-query").write_text(f"#!/bin/sh\n{query}")
    (tools / "dpkg-query").chmod(0o755)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")

    def install(name: str, version: str, entry_point: str = "", system: bool = False) -> None:
        if system:
            (tools / f"dpkg-query.{name}").write_text(f"installed 1:{version}-0abc\n")
            return
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{name}/core.so,,\n")
        if entry_point:
            (info / "entry_points.txt").write_text(f"[torch.backends]\n{entry_point}\n")

    return install


@pytest.mark.parametrize("entry_point", ["torch_neuronx = torch_neuronx:_autoload", ""])
def test_release_is_found_where_pip_and_dpkg_have_put_it(computer, entry_point):
    for pin in load_release("2.33.0").all_pins:
        if pin.kind != "git" and pin.name not in ("python", "torchtitan", "torch", "torch-neuronx"):
            computer(pin.name, pin.accepts[0], system=pin.kind == "system")
    computer("torch", "2.14.0")
    computer("torch-neuronx", "2.14.3.0.7", entry_point)
    found = identify()
    assert {line.split(":")[0] for line in found.problems} <= {"torchtitan-neuron", "python"}
    assert found.line == "native"
    assert any("torch.backends" in line for line in found.remarks) is not bool(entry_point)


def test_no_framework_is_imported():
    code = "import sys; from trncheck.conformance.identify import identify; identify(); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-P", "-c", code], text=True) == "False\n"
