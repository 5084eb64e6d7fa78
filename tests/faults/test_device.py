"""Faults of what a device tells of itself, and of kernels on it."""

import pytest

fault = pytest.mark.fault


@fault("device.used[native-dense-tied-2r]", "device of the run: expected 'neuron', found 'cpu'")
def test_training_fell_back_to_the_cpu():
    from trncheck.neuron import device

    device.DEVICE = "neuron"


@fault("device.used[nki-moe-2r]", "ranks with a core of their own")
def test_both_ranks_share_a_core():
    from trncheck.trainers.record import RunRecord

    RunRecord.cores = property(lambda run: ["0"] * run.world_size)


@fault("device.fallbacks[hf-dense-tied-2r]", "aten::_grouped_mm")
def test_hot_operator_falls_back():
    from trncheck.neuron import device

    device.fallbacks = lambda: device.Fallbacks(True, ("aten::mm",), ("aten::_grouped_mm", "aten::cumsum"))


@fault("device.fallbacks[native-dense-tied-2r]", "operators that ran on the device: 0")
def test_nothing_ran_on_the_device():
    from trncheck.neuron import device

    device.fallbacks = lambda: device.Fallbacks(True)


@fault("device.recompiles[nki-moe-2r]", "compilations after step 2")
def test_every_step_compiles():
    from trncheck.neuron import device

    device.Compilations.return_value.by_step = lambda: ([9, 1, 1, 1], "")


@fault("device.memory[native-dense-tied-2r]", "largest peak of a rank: 0 byte")
def test_memory_counter_stands_still():
    from trncheck.neuron import device

    device.memory = lambda: device.Memory(0, 0)


@fault("device.memory_at_size[native-4b]", "what a logical core has at LNC 2")
def test_a_rank_needs_more_memory_than_a_core_has():
    from trncheck.neuron import device

    device.memory = lambda: device.Memory(25 << 30, 26 << 30)


@fault("device.own_rope", "relative error")
def test_own_rope_kernel_is_wrong_beside_a_right_one_of_nkilib():
    from trncheck.conformance.kernel_runs import KernelRuns
    from trncheck.kernels.rope import operator

    theirs, run = operator._provided()[0], KernelRuns.run
    operator._provided = lambda: (theirs, "nkilib 2.33.0")

    def wrong_of_ours(self, *args, **kwargs):
        result = run(self, *args, **kwargs)
        ours = operator.provider() == "trncheck"
        return result._replace(outputs=[1.01 * output for output in result.outputs]) if ours else result

    KernelRuns.run = wrong_of_ours


@fault("device.simulated[rope]", "relative error")
def test_simulator_forgets_to_round():
    from trncheck.conformance.kernel_runs import KernelRuns

    simulated = KernelRuns.simulated

    def off(self, sample):
        result = simulated(self, sample)
        return result._replace(outputs=[1.01 * output for output in result.outputs])

    KernelRuns.simulated = off
