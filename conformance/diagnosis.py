"""Whether this machine is ready for a run, and everything that keeps it from being. Imports no torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trncheck.conformance.identify import Identification, identify
from trncheck.conformance.pins import Target
from trncheck.neuron import host, machine, settings, surface
from trncheck.reports.text import plural


@dataclass(frozen=True)
class Diagnosis:
    """The state of one machine for runs on ``target``."""

    target: Target
    identification: Identification
    machine: machine.Machine
    settings: tuple[settings.Row, ...]
    problems: tuple[str, ...]
    """What a run would be red for, one line each with the remedy; the first is the one to repair first."""
    remarks: tuple[str, ...]
    """What a reader should know and what is no fault."""
    rehearsal: bool

    @property
    def is_ready(self) -> bool:
        return not self.problems

    @property
    def verdict(self) -> str:
        """One line: what is here, and whether it is ready; if not, for which reason first."""
        prefix = "REHEARSAL, no Neuron hardware: " if self.rehearsal else ""
        more = f" (and {plural(len(self.problems) - 1, 'more problem')})" if len(self.problems) > 1 else ""
        # The remedies stand with the problems.
        why = f"not ready: {self.problems[0].split('; ')[0]}{more}" if self.problems else "ready"
        if self.target == "trn2":
            return f"{prefix}{self.identification}, {_where(self.machine)}: {why}"
        here = "a Neuron machine asked about --target cpu" if self.machine.is_neuron else "no Neuron device"
        able = "this machine can judge on --target cpu only, and is ready for that" if self.is_ready else why
        return f"{prefix}{here}, {self._software}: {able}"

    @property
    def _software(self) -> str:
        """What is installed; held against what a CPU needs, Neuron's own release is not what it is about."""
        return "with Neuron software" if self.identification.installed else str(self.identification)

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain types."""
        found = self.identification
        return {
            "ready": self.is_ready,
            "verdict": self.verdict,
            "rehearsal": self.rehearsal,
            "target": self.target,
            "release": found.release.version,
            "nearest_release": found.nearest,
            "matches": found.is_whole,
            "mixture": found.mixture,
            "torch_neuronx_line": found.line,
            "components": [
                part.row.model_dump(mode="json") | {"own": part.is_own, "releases": list(part.releases)}
                for part in found.components
            ],
            "machine": {
                "summary": str(self.machine),
                "instance_type": self.machine.instance_type,
                "devices": self.machine.devices,
                "logical_cores": self.machine.logical_cores,
                "expected_logical_cores": self.machine.expected_logical_cores,
                "lnc": self.machine.lnc,
                "driver": self.machine.driver,
                "busy": [{"pid": held.pid, "command": held.command} for held in self.machine.busy],
            },
            "settings": [row._asdict() for row in self.settings],
            "problems": list(self.problems),
            "remarks": list(self.remarks),
        }


def diagnose(release: str | None = None, target: str = "auto", environ: Mapping[str, str] | None = None) -> Diagnosis:
    """Look at this machine: about a second, and some 10 s more where the native torch-neuronx has to be probed.

    ``target`` auto is trn2 on a machine that has, or by its type should have, Neuron devices. Raises ValueError for an
    unknown release.
    """
    environ = os.environ if environ is None else environ
    found_machine = machine.inspect()
    chosen: Target = ("trn2" if found_machine.is_neuron else "cpu") if target == "auto" else target
    found = identify(release, chosen)
    problems = [*(machine.problems(found_machine) if chosen == "trn2" else ()), *found.problems]
    remarks = [*found.remarks]
    if chosen == "trn2":
        problems += _untrainable(found)
    problems += settings.conflicts(environ, found_machine)
    if chosen == "trn2" and found.line == "native":
        # Takes some 10 s, in a process of its own.
        survey = surface.survey()
        problems += [miss.line for miss in survey.misses]
        remarks += [*(miss.line for miss in survey.replaced), *survey.notes]
    return Diagnosis(
        target=chosen,
        identification=found,
        machine=found_machine,
        settings=tuple(settings.describe(environ)),
        problems=tuple(problems),
        remarks=tuple(remarks),
        rehearsal=host.rehearsal() is not None,
    )


def _where(found: machine.Machine) -> str:
    if not found.is_neuron:
        return "no Neuron device"
    name = found.instance_type or "unknown instance type"
    cores = "an unknown number of" if found.logical_cores is None else found.logical_cores
    return f"{name} with {cores} logical cores at LNC {found.lnc or 'unknown'}"


def _untrainable(found: Identification) -> list[str]:
    """A release that is installed as it should be, and that this kit cannot train on."""
    if found.line == "native" or any(part.row.name == "torch-neuronx" and part.problem for part in found.components):
        return []
    what = "has the PyTorch/XLA line" if found.line == "xla" else "has no torch-neuronx"
    return [
        f"Neuron {found.release.version} {what}, and this kit trains with the native TorchNeuron only; install "
        "Neuron 2.33.0 or newer"
    ]
