"""Inputs on which nothing can be decided: a check must not pass on them, nor fail a kernel that is right."""

from dataclasses import replace


def _ill_conditioned(inputs):
    """Let the inputs of the experts cancel: each hidden value is a ten-thousandth of what it is the sum of."""

    def cancelling(sizes, dtype, generator):
        made = inputs(sizes, dtype, generator)
        made["x_RD"][:, 1::2] = made["x_RD"][:, ::2]
        for name in ("w1_EFD", "w3_EFD"):
            made[name][..., 1::2] = -made[name][..., ::2] * (1 + 1e-4)
        return made

    return cancelling


def _plant(spoil=lambda result: result) -> None:
    """Ill-conditioned inputs, one sample, and ``spoil`` on what the kernel returns."""
    from trncheck.conformance.kernel_runs import KernelRuns
    from trncheck.kernels import catalogue

    load, every, run = catalogue.load, KernelRuns.samples, KernelRuns.kernel
    catalogue.load = lambda name: replace(load(name), inputs=_ill_conditioned(load(name).inputs))
    KernelRuns.samples = lambda self, kernel: [s for s in every(self, kernel) if str(s) == "tiny float32"]
    KernelRuns.kernel = lambda self, *args: spoil(run(self, *args))


def _of(results: dict):
    (result,) = results.values()
    return result.outcome.value, result.message


def test_ill_conditioned_inputs_are_inconclusive(conformance):
    outcome, message = _of(conformance(["kernels.forward[experts]"], plant=_plant))
    assert outcome == "inconclusive", message
    assert "ill-conditioned: plain torch itself is off by" in message


def test_nan_on_ill_conditioned_inputs_fails(conformance):
    def spoil(result):
        result.outputs[0][3] = float("nan")
        return result

    outcome, message = _of(conformance(["kernels.forward[experts]"], plant=lambda: _plant(spoil)))
    assert outcome == "fail", message
    assert "elements are not finite, and plain torch's are" in message
