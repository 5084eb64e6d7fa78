"""The machine: what is read from it, what is unknown, and one line for each thing that keeps it from being whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.neuron import host, machine
from trncheck.reports.store import load_report


def entry(number: int, cores: int = 4, lnc: int = 2, processes=(), **fields) -> dict:
    """A device as the user guide of neuron-ls shows it."""
    return {
        "neuron_device": number,
        "bdf": "cc:00.0",
        "cpu_affinity": "48-95,144-191",
        "numa_node": "1",
        "connected_to": [12, 3, 4, 1],
        "nc_count": cores,
        "logical_neuroncore_config": lnc,
        "memory_size": 103079215104,
        "neuroncore_ids": list(range(number * 8 // lnc, number * 8 // lnc + cores)),
        "neuron_processes": list(processes),
    } | fields


def process(pid: int, command: str = "neuron-bench exec --run-as-cc-neff --...") -> dict:
    return {"pid": pid, "command": command, "neuron_runtime_version": "2.0.0"}


class Computer:
    """A root folder and an answer of neuron-ls; a whole trn2.48xlarge until something is changed."""

    def __init__(self, folder: Path):
        self.root = folder
        self.entries = [entry(number) for number in range(16)]
        self.answers: dict[str, str | None] = {}
        self.write("sys/devices/virtual/dmi/id/product_name", "trn2.48xlarge\n")
        self.write("sys/module/neuron/version", "2.31.7.0\n")
        for number in range(16):
            self.write(f"dev/neuron{number}", "")
        self.write("dev/neuron_monitor", "")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def output(self, command: list[str]) -> str | None:
        assert command[0] == "neuron-ls"
        return self.answers.get(command[1], None) if self.answers else self._listing(command)

    def _listing(self, command: list[str]) -> str | None:
        return json.dumps(self.entries) if command[1] == "--json-output" else None


@pytest.fixture
def computer(tmp_path, monkeypatch) -> Computer:
    made = Computer(tmp_path)
    monkeypatch.setattr(host, "root", lambda: made.root)
    monkeypatch.setattr(host, "output", made.output)
    return made


def problem() -> str:
    """The one problem of the machine, in one line."""
    (line,) = machine.problems(machine.inspect())
    assert "\n" not in line
    return line


def test_whole_trn2(computer):
    found = machine.inspect()
    assert machine.problems(found) == []
    assert (found.devices, found.logical_cores, found.physical_cores) == (16, 64, 128)
    assert (found.lnc, found.lnc_source) == (2, "neuron-ls")
    assert found.logical_cores_at(1) == 128
    assert str(found) == "trn2.48xlarge, 16 Neuron devices, 64 logical cores (LNC 2), driver 2.31.7.0"


def test_whole_trn2_at_lnc_1(computer):
    computer.entries = [entry(number, cores=8, lnc=1) for number in range(16)]
    found = machine.inspect()
    assert machine.problems(found) == []
    assert (found.logical_cores, found.expected_logical_cores, found.logical_cores_at(2)) == (128, 128, 64)


@pytest.mark.parametrize(("lnc", "cores"), [(2, 4), (1, 8)])
def test_smallest_instance(computer, lnc, cores):
    computer.write("sys/devices/virtual/dmi/id/product_name", "trn2.3xlarge")
    for number in range(1, 16):
        computer.remove(f"dev/neuron{number}")
    computer.entries = [entry(0, cores=cores, lnc=lnc, connected_to=None)]
    found = machine.inspect()
    assert machine.problems(found) == []
    assert found.expected_logical_cores == cores
    assert "1 Neuron device," in str(found)


def test_63_of_64_cores(computer):
    computer.entries[5] = entry(5, cores=3)
    line = problem()
    assert line.startswith("63 of 64 logical cores of a trn2.48xlarge at LNC 2: device 5 has 3 of 4; reboot")


def test_device_without_a_file(computer):
    computer.remove("dev/neuron15")
    computer.entries.pop()
    assert problem().startswith("15 of 16 devices of a trn2.48xlarge: no /dev/neuron15; reboot")


def test_device_that_neuron_ls_does_not_list(computer):
    computer.entries.pop(3)
    assert problem().startswith("neuron-ls lists 15 of 16 devices, not 3;")


def test_driver_that_is_not_loaded(computer):
    computer.remove("sys/module/neuron/version")
    for number in range(16):
        computer.remove(f"dev/neuron{number}")
    computer.answers = {"--json-output": None}
    assert machine.inspect().is_neuron
    assert "the Neuron driver is not loaded, and there is no /dev/neuron0" in problem()
    assert "modprobe neuron" in problem()


def test_container_without_devices(computer):
    for number in range(16):
        computer.remove(f"dev/neuron{number}")
    assert "driver 2.31.7.0 is loaded, but there is no /dev/neuron0" in problem()


def test_neuron_ls_that_is_missing(computer):
    computer.answers = {"--json-output": None}
    found = machine.inspect()
    assert "aws-neuronx-tools" in problem()
    assert (found.logical_cores, found.lnc, found.expected_logical_cores, found.logical_cores_at(2)) == (None,) * 4
    assert "unknown logical cores (LNC unknown)" in str(found)


@pytest.mark.parametrize("answer", ["", "+--------+", "[]", "{}", '{"error": "no"}', "[1]", "null", '[{"pid": 1}]'])
def test_neuron_ls_that_cannot_be_read(computer, answer):
    computer.answers = {"--json-output": answer}
    assert "printed no list of devices" in problem()


@pytest.mark.parametrize("old", [None, "unknown flag: --json-output"])
def test_answer_of_the_next_release(computer, old):
    for item in computer.entries:
        del item["logical_neuroncore_config"]
    top = {"instance_type": "trn2.48xlarge", "logical_neuroncore_config": 2, "neuron_devices": computer.entries}
    computer.answers = {"--json-output": old, "--output-format": json.dumps(top)}
    computer.remove("sys/devices/virtual/dmi/id/product_name")
    found = machine.inspect()
    assert machine.problems(found) == []
    assert (found.instance_type, found.logical_cores, found.lnc) == ("trn2.48xlarge", 64, 2)


def test_fields_that_are_missing_are_unknown(computer):
    computer.entries = [{"neuron_device": number} for number in range(16)]
    found = machine.inspect()
    assert (found.logical_cores, found.lnc, found.busy) == (None, None, ())
    assert machine.problems(found) == []


def test_fields_of_another_kind_are_unknown(computer):
    odd = {"nc_count": "4", "logical_neuroncore_config": True, "neuroncore_ids": 3, "neuron_processes": {"pid": 1}}
    computer.entries = [{"neuron_device": number} | odd for number in range(16)]
    found = machine.inspect()
    assert (found.logical_cores, found.lnc, found.busy) == (None, None, ())


def test_cores_are_counted_by_their_numbers_where_no_count_is_given(computer):
    for item in computer.entries:
        del item["nc_count"]
    assert machine.inspect().logical_cores == 64


def test_lnc_of_the_instance_where_neuron_ls_does_not_say(computer):
    for item in computer.entries:
        del item["logical_neuroncore_config"]
    computer.write("opt/aws/neuron/logical_nc_config", "NEURON_LOGICAL_NC_CONFIG=2\nNEURON_LOGICAL_NC_CONFIG=1\n")
    found = machine.inspect()
    assert (found.lnc, found.lnc_source) == (1, "/opt/aws/neuron/logical_nc_config")


def test_lnc_that_trainium2_does_not_know(computer):
    computer.entries = [entry(number, lnc=4) for number in range(16)]
    assert problem().startswith("LNC is 4 (neuron-ls), and a Trainium2 knows 1 and 2 only")


def test_devices_that_differ_in_lnc(computer):
    computer.entries[7] = entry(7, cores=8, lnc=1)
    assert problem().startswith("the devices differ in LNC (1 and 2)")
    assert machine.inspect().lnc is None


def test_cores_that_another_job_holds_are_one_line(computer):
    for number in (2, 3):
        computer.entries[number]["neuron_processes"] = [process(10**7, "python -m  train\n--all")]
    line = problem()
    assert line.startswith("cores are in use: pid 10000000 (python -m train --all) holds cores 8-15; wait")
    assert "NEURON_RT_VISIBLE_CORES" in line


def test_many_holders_are_still_one_line(computer):
    for number in range(16):
        computer.entries[number]["neuron_processes"] = [process(10**7 + number)]
    assert "and 13 more;" in problem()


def test_holder_in_another_container_and_unknown_cores(computer):
    computer.entries[1] = {"neuron_device": 1, "neuron_processes": [process(10**7, "")]}
    found = machine.inspect()
    assert "(no command shown, so perhaps of another container) holds device 1;" in machine.problems(found)[0]


def test_own_processes_hold_nothing(computer):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        computer.entries[0]["neuron_processes"] = [process(os.getpid()), process(child.pid)]
        assert machine.inspect().busy == ()
    finally:
        child.communicate(b"\n")


def test_processes_of_other_workers_are_of_the_same_run(computer, monkeypatch):
    computer.entries[0]["neuron_processes"] = [process(os.getppid())]
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert [holder.pid for holder in machine.inspect().busy] == [os.getppid()]
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert machine.inspect().busy == ()


@pytest.mark.parametrize("product", ["Standard PC (Q35 + ICH9, 2009)", "Google Compute Engine", "m7i.large"])
def test_other_machines_are_no_neuron_machines(computer, product):
    computer.write("sys/devices/virtual/dmi/id/product_name", product)
    computer.remove("sys/module/neuron/version")
    for number in range(16):
        computer.remove(f"dev/neuron{number}")
    computer.answers = {"--json-output": None}
    found = machine.inspect()
    assert not found.is_neuron
    assert str(found) == "none"
    assert machine.problems(found)


def test_instance_type_that_the_table_does_not_know(computer):
    computer.write("sys/devices/virtual/dmi/id/product_name", "trn3.48xlarge")
    found = machine.inspect()
    assert found.expected_logical_cores is None
    assert machine.problems(found) == []


def test_a_rehearsal_says_that_it_is_one(computer, monkeypatch):
    monkeypatch.setenv(host.REHEARSAL, str(computer.root))
    assert str(machine.inspect()).startswith("stand-in for trn2.48xlarge, ")


def test_nothing_heavy_is_imported():
    code = (
        "import sys\n"
        "from trncheck.neuron import machine, settings\n"
        "settings.conflicts({}, machine.inspect())\n"
        "print({'torch', 'pytest', 'numpy'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "set()\n"


@pytest.mark.parametrize(
    ("cores", "holders", "outcome", "says"),
    [
        (4, [], "pass", ""),
        (3, [process(10**7, "python old_job.py")], "fail", "63 of 64 logical cores"),
    ],
    ids=["whole", "63 cores and busy"],
)
def test_check_of_the_suite(tmp_path, cores, holders, outcome, says):
    """The check itself runs on hardware only: here on files and a neuron-ls that stand in for it."""
    computer = Computer(tmp_path / "stand-in" / "root")
    computer.entries[9] = entry(9, cores=cores, processes=holders)
    tools = tmp_path / "stand-in" / "bin"
    tools.mkdir()
    (tools / "neuron-ls").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(computer.entries)}\nEND\n")
    (tools / "neuron-ls").chmod(0o755)
    stand_in = {host.REHEARSAL: str(tmp_path / "stand-in"), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q"]
    suite = ["--pyargs", "trncheck.conformance", "--target", "trn2", "--check", "environment.machine"]
    ended = subprocess.run([*command, *suite], cwd=tmp_path, env=os.environ | stand_in, capture_output=True, text=True)
    reports = list(tmp_path.glob("results/*/*/*/report.json"))
    assert len(reports) == 1, ended.stdout + ended.stderr
    (result,) = load_report(reports[0]).results
    assert (result.id, result.outcome.value) == ("environment.machine", outcome)
    assert says in result.message
    assert len(result.message.splitlines()) == (0 if outcome == "pass" else 2)
    assert result.evidence["machine"].startswith("stand-in for trn2.48xlarge, 16 Neuron devices")
