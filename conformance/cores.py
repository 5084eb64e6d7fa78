"""NeuronCores of a run on trn2: what its checks need, and one line before the run where they cannot have that."""

from collections.abc import Collection

import pytest

_IN_PROCESS = {"kernels", "device_kernels"}
"""Fixtures with which a check computes on a core by itself, and not through ranks of torchrun."""


def in_process(item: pytest.Item) -> bool:
    """Whether the check itself computes on a NeuronCore."""
    return not _IN_PROCESS.isdisjoint(getattr(item, "fixturenames", ()))


def needed(item: pytest.Item) -> int:
    """Logical cores that the check needs on a Neuron device: what it declares, else the ranks of what it looks at."""
    if mark := item.get_closest_marker("cores"):
        return mark.args[0]
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return max((getattr(value, "ranks", 0) for value in parameters), default=0) or int(in_process(item))


def obstacle(environ: dict[str, str], items: Collection[pytest.Item]) -> str:
    """Why the cores that ``items`` need cannot be had on this machine, in one line; empty where they can.

    Cores that another run of trncheck has on lease are none: this one waits for them.
    """
    from trncheck.conformance.plugin import check_id
    from trncheck.neuron import cores, leases, locks

    most = max(items, key=needed)
    if not needed(most):
        return ""
    try:
        allowed, _ = leases.usable(environ)
        locks.shared_folder(leases.default_folder())
    except ValueError as error:
        return f"target trn2: {error}"
    inherited = cores.inherited(environ)
    if inherited and needed(most) > len(allowed):
        return (
            f"target trn2: {check_id(most)} needs {needed(most)} logical cores, and {inherited} allows "
            f"{len(allowed)}; unset that, or choose checks with --check or --level"
        )
    return _busy(set(allowed))


def lease_notes() -> dict[str, str]:
    """Evidence of the leases since the last call: which cores, and how long they were waited for; often none."""
    from trncheck.neuron import cores, leases

    fresh = leases.untold()
    if not fresh:
        return {}
    waited = sum(lease.waited_s for lease in fresh)
    listed = "; ".join(cores.show(lease.cores) for lease in fresh)
    return {"NeuronCores": f"{listed} at LNC {fresh[-1].lnc}", "waited for NeuronCores": f"{waited:.3f} s"}


def _busy(allowed: set[int]) -> str:
    from trncheck.neuron import cores, leases, machine

    borrowers = leases.borrowers()
    # Of a device that is partly left to others, neuron-ls does not say which part they hold.
    foreign = [
        holder
        for holder in machine.inspect().busy
        if holder.pid not in borrowers and holder.cores and allowed.issuperset(holder.cores)
    ]
    if not foreign:
        return ""
    who = "; ".join(
        f"cores {cores.show(holder.cores)} by pid {holder.pid} ({holder.command or 'of another container'})"
        for holder in foreign
    )
    left = allowed.difference(*(holder.cores for holder in foreign))
    remedy = f", or leave them out with {cores.VISIBLE}={cores.show(left)}" if left else ""
    return f"target trn2: devices are in use: {who}; end these processes{remedy}"
