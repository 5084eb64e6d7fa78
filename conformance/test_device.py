"""Did the work really happen on the NeuronCores, all of it, and in the same way twice?"""

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case
from trncheck.conformance.hardware import JOBS
from trncheck.conformance.kernel_compare import hold_result
from trncheck.kernels import catalogue

pytestmark = [pytest.mark.trn2]

PATHS = [Case("native", "dense-tied", 2), Case("hf", "dense-tied", 2), Case("nki", "moe", 2)]
HOT = ("mm", "bmm", "addmm", "linear", "matmul", "embedding", "_grouped_mm", "scaled_dot_product", "_softmax", "silu")
"""Operators, without their overload, that carry a training step; one of them on the CPU makes it useless."""

SOME = bars.Bar(1, "what trains is somewhere")
HBM = bars.Bar(24 * 2**30, "a quarter of a Trainium2's 96 GiB: what a logical core has at LNC 2")

each_path = pytest.mark.parametrize("case", PATHS, ids=str)


@each_path
@pytest.mark.cores(2)
def test_used(judge, device_runs, case):
    """Every rank trained on a NeuronCore of its own, over the Neuron process group.

    Why: A process without its device exits at once or falls back: a wrong `torch-neuronx`, a device that does not
    resolve, or ranks that share a core. A run on the CPU gives the same losses, so losses cannot tell.

    Red when: parameters lie elsewhere than on `neuron`, the process group is another, or two ranks name one core.

    Reading a failure: `cpu` as device means that torch did not load torch-neuronx: `trncheck doctor` says which one is
    installed. Equal cores mean that NEURON_RT_VISIBLE_CORES was set for all ranks alike.
    """
    from trncheck.neuron import device

    run = device_runs.published(case)
    made = run.circumstances
    judge.equal("device of the run", made.device, device.DEVICE)
    judge.equal("process groups", run.backends, [device.BACKEND] * case.ranks)
    judge.equal("ranks with a core of their own", len(set(run.cores) - {""}), case.ranks)
    judge.note("device", f"{made.device_name}, cores {', '.join(run.cores)}")
    judge.note("attention", made.attention)
    for subject, why in made.substitutes.items():
        judge.note(f"instead of {subject}", why)


@each_path
@pytest.mark.cores(2)
def test_fallbacks(judge, device_runs, case):
    """No operator that carries a training step ran on the CPU instead.

    Why: Operators that the device lacks run on the CPU without a word, which is meant for bring-up and makes training
    slow by orders of magnitude; the numbers are right, so nothing else shows it.

    Red when: an operator of the list of hot ones is among those that fell back, or none was executed at all.

    Reading a failure: The message names the operators. Compare with the operator table of the release; a new one is a
    regression of torch-neuronx. `not-run`: this torch-neuronx does not say what fell back.
    """
    operators = device_runs.published(case).operators
    if not operators.measurable:
        pytest.skip(f"fallbacks are not measurable: {operators.why_not}")
    judge.at_least("operators that ran on the device", len(operators.executed), SOME)
    hot = [name for name in operators.fallen_back if _base(name) in HOT]
    judge.equal("hot operators that ran on the CPU", hot, [], elements=len(operators.executed))
    judge.note("ran on the CPU", ", ".join(operators.fallen_back) or "none")


@each_path
@pytest.mark.cores(2)
def test_recompiles(judge, device_runs, case):
    """After the second step nothing is compiled any more.

    Why: A shape that changes from step to step compiles a new graph each time: recompiles from the dynamic shapes of a
    mixture of experts were seen in the first recipes. Training then spends its time in the compiler.

    Red when: the count of compilations grows after step 2.

    Reading a failure: The message says at which steps. Steps of equal shapes that compile point to a value that is
    baked into a kernel or graph. `not-run`: this torch-neuronx does not count compilations.
    """
    compiled, why_not = device_runs.published(case).compiled
    if compiled is None:
        pytest.skip(f"compilations are not measurable: {why_not}")
    late = {f"step {step}": new for step, new in enumerate(compiled, start=1) if new and step > 2}
    judge.equal("compilations after step 2", late, {}, elements=len(compiled))
    judge.note("compilations by step", ", ".join(map(str, compiled)))


@each_path
@pytest.mark.cores(2)
def test_memory(judge, device_runs, case):
    """The peak of device memory is measured, after a synchronisation, and lies below what a core has.

    Why: The allocator is asynchronous, so a number that is read too early is too small, and a run that nearly fills
    the memory at this release may not fit at the next one.

    Red when: no memory is in use at the peak, or more than a logical core has.

    Reading a failure: Zero means that counters are not those of the device that trained. `not-run`: this torch-neuronx
    has no such counter.
    """
    _hold_memory(judge, device_runs.published(case).memory)


@pytest.mark.level("standard")
@pytest.mark.cores(1)
def test_own_rope(judge, device_kernels):
    """Where nkilib's RoPE kernel is in use, the kit's own is right on the device as well.

    Why: `rope_hf` is in no published API, so a release may change it without a word. Whether a change is the library's
    or the compiler's, only a second kernel on the same device can tell.

    Red when: outputs or gradients of the kit's kernel miss the bar that `kernels.forward` and `kernels.gradient` hold
    nkilib's against.

    Reading a failure: If `kernels.forward[rope]` is green, nkilib's kernel is right and the compiler treats ours
    otherwise; if both are red, look at the release's NKI. `not-run`: nkilib is not installed, so that `kernels` judges
    the kit's own already.
    """
    from trncheck.kernels.rope.operator import own_kernel

    if device_kernels.entry("rope").provider() == "trncheck":
        pytest.skip("nkilib is not installed: kernels.forward[rope] judges the kit's own kernel")
    judge.note("beside", device_kernels.entry("rope").provider())
    for sample in device_kernels.samples("rope"):
        with own_kernel():
            got = device_kernels.run(sample, device_kernels.degrees[-1])
        hold_result(judge, sample, got, device_kernels)


@pytest.mark.parametrize("kernel", catalogue.names())
@pytest.mark.level("standard")
@pytest.mark.informative
@pytest.mark.cores(1)
def test_simulated(judge, device_kernels, kernel):
    """The simulator is right for what the device is given; reported beside the device's own parity, never instead.

    Why: A test that passed in a simulator failed on hardware (https://github.com/aws-neuron/aws-neuron-sdk/issues/1138).
    With both errors side by side a reader sees how much a green nightly on a CPU is worth.

    Red when: the simulator's outputs or gradients miss the bar that the device is held against.

    Reading a failure: `kernels.forward` says whether the device is right for the same sample. If it is, the simulator
    models an instruction wrongly; the index of the worst element says where.
    """
    for sample in device_kernels.samples(kernel):
        hold_result(judge, sample, device_kernels.simulated(sample), device_kernels)
        ours, theirs = device_kernels.kernel(sample, device_kernels.degrees[-1]), device_kernels.simulated(sample)
        gap = max(
            (a.double() - b.double()).abs().max().item() for a, b in zip(ours.outputs, theirs.outputs, strict=True)
        )
        judge.report(f"{sample}, largest |device - simulator|", gap)


@pytest.mark.parametrize("job", JOBS.values(), ids=str)
@pytest.mark.level("full")
@pytest.mark.cores(64)
def test_memory_at_size(judge, instance, job):
    """A path at published size fits a logical core's memory on every rank.

    Why: The walkthrough's models were chosen to fit one instance; a release whose compiler keeps more alive breaks that
    first.

    Red when: a rank's peak is more than a logical core has.

    Reading a failure: Compare the peak with the last release's (`trncheck diff`). `not-run`: this torch-neuronx has no
    counter.
    """
    _hold_memory(judge, instance.random_start(job).memory)


def _hold_memory(judge, memory) -> None:
    if memory.peak is None:
        pytest.skip(f"memory is not measurable: {memory.why_not}")
    judge.at_least("largest peak of a rank", memory.peak, SOME, unit="byte")
    judge.at_most("largest peak of a rank", memory.peak, HBM, unit="byte")


def _base(name: str) -> str:
    return name.removeprefix("aten::").split(".")[0]
