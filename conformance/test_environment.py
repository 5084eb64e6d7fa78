"""Is this the machine, and are these the settings, under which a result means what its report says?"""

import os

import pytest

from trncheck.conformance.identify import identify
from trncheck.neuron import machine as machines
from trncheck.neuron import settings, surface


@pytest.mark.trn2
def test_machine(judge, target, machine):
    """The machine is whole: driver loaded, all devices and cores of the instance type there, and free.

    Why: A process that initialises the runtime claims every core that it sees, and one of an earlier job that still
    runs leaves none; what a user gets is that the number of cores cannot be determined, in every test
    (https://github.com/aws-neuron/aws-neuron-samples/issues/44,
    https://github.com/huggingface/optimum-neuron/issues/619). A driver that is not loaded, or devices that are not
    handed into a container, look alike (https://github.com/aws-neuron/aws-neuron-sdk/issues/415).

    Red when: the driver is not loaded, neuron-ls does not answer, devices or cores are fewer than the instance type
    has, LNC is neither 1 nor 2, or processes that are not of this run hold devices.

    Reading a failure: One line for each problem, with what to do about it. Nothing else of the report counts before
    this is green: other checks fail because of it. What neuron-ls does not say is unknown, in the evidence, and no
    failure.
    """
    if target == "cpu":
        pytest.skip("a CPU has no NeuronCores")
    judge.note("machine", str(machine))
    if instance := machines.INSTANCES.get(machine.instance_type or ""):
        judge.note("expected", f"{machine.expected_logical_cores} logical cores: {instance.source}")
    found = machines.problems(machine)
    judge.equal("problems of the machine", len(found), 0, elements=max(machine.devices, 1))
    judge.failures[:] = found


def test_settings(judge, machine):
    """The environment variables contradict neither each other nor the machine, and leave results what they seem.

    Why: Casts by the compiler that nobody asked for in the model made outputs differ in the first decimal place
    (https://github.com/aws-neuron/aws-neuron-sdk/issues/244). The compiler has to be told the same LNC as the runtime,
    and stochastic rounding, the simulator, or a fallback to the CPU or to eager execution change what a result means.

    Red when: LNC of runtime, compiler or machine differ, a list of cores is malformed or reaches beyond the machine, or
    a variable casts, rounds at random, falls back without a word, compiles for another chip, or is of the PyTorch/XLA
    line.

    Reading a failure: One line for each variable, with its value and what to do; most of them come from a shell's
    profile or a launch template. `trncheck doctor` lists all variables that matter, and what a run sets itself.
    """
    found = settings.conflicts(os.environ, machine)
    judge.note(
        "set here", ", ".join(row.name for row in settings.describe(os.environ) if row.value != "unset") or "none"
    )
    judge.equal("conflicts", len(found), 0, elements=len(settings.SETTINGS) + len(settings.FLAGS))
    judge.failures[:] = found


def test_release(judge, request, release, target):
    """What is installed of Neuron is one release, the one under judgement, and not a mixture.

    Why: Driver, runtime, compiler and the packages for torch are installed by three package managers, and each of them
    upgrades alone: an executable of a newer compiler is refused by an older runtime
    (https://github.com/aws-neuron/aws-neuron-sdk/issues/820), after the whole compilation.

    Red when: a component of Neuron's own is missing or of another release, the loaded driver included.

    Reading a failure: The first component that disagrees, what is installed, which release that is of, and what is
    expected; `pins.pin` has all of them, and `trncheck doctor` the table. `not-run` on a CPU: nothing of Neuron is
    installed there. A version that nobody published is not compared.
    """
    found = identify(request.config.option.release or release.version, target)
    if target == "cpu" and not found.installed:
        pytest.skip(f"{found}, as it should be on a CPU")
    judge.note("installed", str(found))
    for number, remark in enumerate(found.remarks, 1):
        judge.note(f"remark {number}", remark)
    judge.equal("what is installed is one release", found.is_whole, True, elements=max(len(found.installed), 1))
    if judge.failures:
        first, *others = [part.problem for part in found.components if part.is_own and part.problem] or [str(found)]
        judge.failures[:] = [first + (f" (and {len(others)} more)" if others else "")]
    elif mixture := found.mixture:
        parts = "; ".join(f"{', '.join(names)} of {version}" for version, names in mixture.items())
        judge.fail(f"a mixture of Neuron releases: {parts}; install one of them whole")


@pytest.mark.level("standard")
def test_surface(judge):
    """Every name of torch, torchtitan, Transformers, torch_neuronx, nki and nkilib that the kit relies on is there.

    Why: A name that is gone, or a parameter that has another name, ends a run in the middle, after hours in the worst
    case, with a traceback that tells nothing about the release. So do published NKI samples with another nki
    (https://github.com/aws-neuron/aws-neuron-sdk/issues/1327).

    Red when: a name is missing and nothing takes its place, a parameter or field that the kit uses is gone, a new one
    is demanded, or a package cannot be imported.

    Reading a failure: One line for each name, with what does not work because of it. A release that means to change the
    name needs a change of the kit, in `neuron/surface_table.py` and where the name is used. Packages that are not
    installed, and names that have a substitute, stand in the evidence.
    """
    found = surface.survey()
    for number, note in enumerate([*found.notes, *(miss.line for miss in found.replaced)], 1):
        judge.note(f"remark {number}", note)
    judge.equal("names missing or changed", len(found.misses), 0, elements=max(found.probed, 1))
    judge.failures[:] = [miss.line for miss in found.misses]
