"""``trncheck doctor``: the verdict in the first line, the rest on one screen, and a meaningful exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.cli import main
from trncheck.conformance import diagnosis, pins
from trncheck.conformance import identify as identification
from trncheck.fixtures.installed import Found
from trncheck.fixtures.manifest import load_release
from trncheck.neuron import host
from trncheck.neuron.settings import FLAGS, SETTINGS
from trncheck.neuron.surface import Miss, Survey

CPU = {"torch": Found("2.13.0+cpu"), "transformers": Found("5.16.0"), "torchtitan": Found("0.3.0", "torchtitan")}
FORK = Found("0.2.2+neuron.1", commit="1a2b3c4", refs=frozenset({"release-2.33"}))
SOFTWARE = {pin.name: Found(pin.accepts[0]) for pin in load_release("2.33.0").pins if pin.needs == "neuron"} | {
    "torch": Found("2.14.0"),
    "torch-neuronx": Found("2.14.3.0.7"),
    "transformers": Found("5.16.0"),
    "torchtitan-neuron": FORK,
}
WHOLE = "Neuron 2.33.0, native line, trn2.48xlarge with 64 logical cores at LNC 2"


class Computer:
    """A machine: what is installed, the files of its devices, what neuron-ls says, and what a probe of names finds."""

    def __init__(self, root: Path):
        self.root = root
        self.software = dict(CPU)
        self.survey = Survey()
        self.surveys = 0
        self.listing: list[dict] = []

    def become_trn2(self, devices: int = 16, cores: int = 4) -> None:
        self.software = dict(SOFTWARE)
        self.write("sys/devices/virtual/dmi/id/product_name", "trn2.48xlarge")
        self.write("sys/module/neuron/version", "2.31.7.0")
        for number in range(devices):
            self.write(f"dev/neuron{number}", "")
            self.listing.append({"neuron_device": number, "nc_count": 4, "logical_neuroncore_config": 2})
        self.listing[-1]["nc_count"] = cores

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def output(self, command: list[str], timeout: float = 30) -> str | None:
        return json.dumps(self.listing) if command == ["neuron-ls", "--json-output"] and self.listing else None

    def ask_for_names(self) -> Survey:
        self.surveys += 1
        return self.survey


@pytest.fixture
def computer(tmp_path, monkeypatch):
    made = Computer(tmp_path)
    for name in [*os.environ]:
        if name.startswith(("NEURON_", "NKI", "TORCH_NEURONX_", "XLA_", "PJRT_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv(host.REHEARSAL, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(host, "root", lambda: tmp_path)
    monkeypatch.setattr(host, "output", made.output)
    monkeypatch.setattr(identification, "probe", lambda *_: made.software)
    monkeypatch.setattr(identification, "package_version", lambda name: None)
    monkeypatch.setattr(diagnosis.surface, "survey", made.ask_for_names)
    return made


@pytest.fixture
def doctor(capsys):
    """The exit status, and the lines printed."""

    def run(*arguments: str) -> tuple[int, list[str]]:
        status = main(["doctor", *arguments])
        return status, capsys.readouterr().out.splitlines()

    return run


def problems(lines: list[str]) -> list[str]:
    """The list below the heading."""
    if "Problems" not in lines:
        return []
    rest = lines[lines.index("Problems") + 1 :]
    return [line.removeprefix("  - ") for line in rest[: rest.index("")]]


def test_cpu_that_has_what_a_cpu_needs_is_ready_for_that(computer, doctor):
    status, lines = doctor()
    assert status == 0
    assert lines[0] == (
        "no Neuron device, no Neuron software is installed: this machine can judge on --target cpu only, and is ready "
        "for that"
    )
    assert problems(lines) == []
    assert computer.surveys == 0, "nothing asks torch where nothing Neuron is installed"
    assert len(lines) < 30


def test_cpu_with_other_software_is_not_ready(computer, doctor):
    computer.software["torch"] = Found("2.12.1")
    status, lines = doctor()
    assert status == 1
    assert "not ready: torch: 2.12.1 is installed, 2.14.0 or 2.13.0 expected" in lines[0]
    assert len(problems(lines)) == 1


def test_cpu_is_not_what_was_asked_for(computer, doctor):
    status, lines = doctor("--target", "trn2")
    assert status == 1
    assert lines[0].startswith("no Neuron software is installed, no Neuron device: not ready: this machine: the Neuron")


def test_whole_neuron_machine_is_ready(computer, doctor):
    computer.become_trn2()
    status, lines = doctor()
    assert (status, lines[0]) == (0, f"{WHOLE}: ready")
    assert computer.surveys == 1
    (machine,) = [line for line in lines if line.startswith("  trn2.48xlarge, 16 Neuron devices, 64 logical cores")]
    assert machine.endswith("driver 2.31.7.0")
    shown = "\n".join(lines)
    assert all(setting.name in shown for setting in (*SETTINGS, *FLAGS))


def missing_core(computer):
    computer.listing[-1]["nc_count"] = 3


def missing_device(computer):
    (computer.root / "dev/neuron15").unlink()


def busy_core(computer):
    computer.listing[0] |= {
        "neuroncore_ids": [0, 1, 2, 3],
        "neuron_processes": [{"pid": 99999999, "command": "python train.py"}],
    }


def xla_line(computer):
    computer.software["torch-neuronx"] = Found("2.9.0.2.15.32035")


def placeholder(computer):
    computer.software["nki"] = Found("0.0.1")


def older_compiler(computer):
    computer.software["neuronx-cc"] = Found("2.27.5334.0")


def older_driver(computer):
    computer.software["aws-neuronx-dkms"] = Found("2.30.2.0")


def changed_name(computer):
    computer.survey.misses.append(Miss("torch_neuronx.nki_op", "is missing", "the NKI kernels"))


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (missing_core, "63 of 64 logical cores of a trn2.48xlarge at LNC 2: device 15 has 3 of 4; reboot"),
        (missing_device, "15 of 16 devices of a trn2.48xlarge: no /dev/neuron15; reboot"),
        (busy_core, "cores are in use: pid 99999999 (python train.py) holds cores 0-3; wait"),
        (xla_line, "torch-neuronx: 2.9.0.2.15.32035 is installed (of Neuron 2.31.0 or 2.31.1), 2.14.3 or 2.13.3 expec"),
        (placeholder, "nki: 0.0.1 is installed, 0.7.0 expected; nki 0.0.1 is the placeholder on PyPI"),
        (older_compiler, "neuronx-cc: 2.27.5334.0 is installed (of Neuron 2.32.0), 2.28.7631.0 expected; pip install"),
        (older_driver, "aws-neuronx-dkms: 2.30.2.0 is installed (of Neuron 2.32.0), 2.31.7.0 expected; install"),
        (changed_name, "torch_neuronx.nki_op is missing; breaks the NKI kernels"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_fault_is_one_line_with_its_remedy_and_named_in_the_verdict(computer, doctor, break_it, problem):
    computer.become_trn2()
    break_it(computer)
    status, lines = doctor()
    assert status == 1
    (line,) = problems(lines)
    assert line.startswith(problem)
    assert lines[0].endswith(f": not ready: {line.split('; ')[0]}")


def test_settings_that_contradict_are_problems_and_shown(computer, doctor, monkeypatch):
    computer.become_trn2()
    monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1")
    status, lines = doctor()
    assert status == 1
    assert problems(lines)[0].startswith("NEURON_RT_STOCHASTIC_ROUNDING_EN=1 rounds at random")
    assert any(line.startswith("  NEURON_RT_STOCHASTIC_ROUNDING_EN=1: ") for line in lines)


def test_several_problems_are_counted_and_the_machine_comes_first(computer, doctor):
    computer.become_trn2()
    older_compiler(computer)
    missing_core(computer)
    _, lines = doctor()
    assert lines[0].startswith("a mixture of Neuron releases, 2.33.0 with neuronx-cc of 2.32.0, trn2.48xlarge with 63 ")
    assert lines[0].endswith("device 15 has 3 of 4 (and 1 more problem)")
    assert [line.split()[0] for line in problems(lines)] == ["63", "neuronx-cc:"]


@pytest.mark.parametrize(
    ("version", "says"),
    [("2.31.1", "has the PyTorch/XLA line"), ("2.32.0", "has no torch-neuronx")],
)
def test_older_release_is_recognised_and_cannot_train(computer, doctor, version, says):
    computer.become_trn2()
    stack = [*(load_release(version).stacks[0].pins if load_release(version).stacks else [])]
    computer.software = {pin.name: Found(pin.accepts[0]) for pin in [*stack, *load_release(version).pins]}
    status, lines = doctor()
    assert status == 1
    assert lines[0].startswith(f"Neuron {version}, ")
    (line,) = problems(lines)
    assert line == (
        f"Neuron {version} {says}, and this kit trains with the native TorchNeuron only; install Neuron 2.33.0 or newer"
    )
    assert computer.surveys == 0


def test_release_can_be_chosen(computer, doctor):
    computer.become_trn2()
    status, lines = doctor("--release", "2.33.1")
    assert status == 0
    assert lines[0].startswith("Neuron 2.33.1, as far as its versions are known, native line, ")
    assert any(line.split()[:2] == ["nki", "unknown"] for line in lines)


def test_json_holds_everything_in_plain_types(computer, doctor):
    computer.become_trn2()
    older_compiler(computer)
    status, lines = doctor("--format", "json")
    found = json.loads("\n".join(lines))
    assert status == 1
    assert (found["ready"], found["release"], found["torch_neuronx_line"]) == (False, "2.33.0", "native")
    assert found["mixture"]["2.32.0"] == ["neuronx-cc"]
    assert found["machine"]["logical_cores"] == found["machine"]["expected_logical_cores"] == 64
    (compiler,) = [part for part in found["components"] if part["name"] == "neuronx-cc"]
    assert (compiler["found"], compiler["status"], compiler["releases"]) == ("2.27.5334.0", "different", ["2.32.0"])
    assert len(found["problems"]) == 1
    assert found["verdict"].startswith("a mixture of Neuron releases")
    assert {"name", "value", "default"} <= found["settings"][0].keys()


def test_rehearsal_says_so_first_and_does_not_judge_the_interpreter(computer, doctor, monkeypatch):
    computer.become_trn2()
    computer.software["python"] = Found("3.11.7")
    monkeypatch.setattr(pins, "rehearsal", lambda: computer.root)
    monkeypatch.setattr(host, "rehearsal", lambda: computer.root)
    status, lines = doctor()
    assert (status, lines[0]) == (0, f"REHEARSAL, no Neuron hardware: {WHOLE}: ready")
    assert any(line.startswith("  stand-in for trn2.48xlarge") for line in lines)


def test_unknown_release_is_one_line_and_status_2(computer, capsys):
    assert main(["doctor", "--release", "2.3"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trncheck doctor: unknown release '2.3': did you mean")
    assert err.count("\n") == 1


def test_releases_say_which_is_the_default_and_what_a_run_against_them_is_worth(capsys):
    assert main(["releases"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith(" (default)")] == ["2.33.0"]
    older = next(index for index, line in enumerate(lines) if line.startswith("2.31.0 "))
    assert "Ships PyTorch/XLA only, on which this kit does not train" in lines[older + 1]


def test_no_framework_is_imported_where_there_is_no_device():
    heavy = {"torch", "numpy", "pytest", "transformers"}
    code = (
        "import os, sys; from trncheck.cli import main; main(['doctor', '--target', 'cpu', '--format', 'json']); "
        f"print({heavy} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "set()"
