"""What a launch returns: checks on it, the comparison of two core orders, and the way back to the caller."""

from dataclasses import dataclass

import numpy as np

from trncheck.kernels.simulator import arrays
from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.storage import TAINT, UNWRITTEN, Buffer
from trncheck.kernels.simulator.tensor import NkiTensor

NO_BARRIER = "a core_barrier is missing"


@dataclass(frozen=True)
class _Slot:
    """Stands in a result's structure for the array ``key``."""

    key: str


@dataclass
class Values:
    """Outputs and written arguments of one run."""

    structure: object
    arrays: dict[str, np.ndarray]
    mutated: list[str]
    """Arguments that the kernel wrote."""
    returned: list[str]
    """Arguments that it returned, whole or a view."""

    def deliver(self, arguments: dict):
        """Update written arguments in place, and return the outputs as the caller's kind of array."""
        as_torch = any(arrays.is_array(value) and not isinstance(value, np.ndarray) for value in arguments.values())
        for name in self.mutated:
            arrays.update(arguments[name], self.arrays[name])
        made = {
            key: arrays.like_caller(values, as_torch) for key, values in self.arrays.items() if key not in arguments
        }
        made |= arguments
        return _map(self.structure, lambda leaf: made[leaf.key] if isinstance(leaf, _Slot) else leaf)


def collect(kernel: str, returned: list, arguments: dict[str, NkiTensor], strict: bool) -> Values:
    """Take the outputs of core 0; NkiError for buffers that are no output and for values that nobody wrote."""
    found: dict[str, np.ndarray] = {}
    passed: dict[str, None] = {}
    delivered: list = []
    names = {id(tensor.storage): name for name, tensor in arguments.items()}

    def take(leaf):
        if not isinstance(leaf, NkiTensor):
            return leaf
        argument = names.get(id(leaf.storage))
        if argument is not None:
            passed[argument] = None
        key = argument if leaf.shape == leaf.storage.shape else None
        if key is None:
            if leaf.buffer is not Buffer.shared_hbm and argument is None:
                raise NkiError.at(leaf.storage.line, f"{kernel} returns {leaf!r}; an output must be in nl.shared_hbm")
            key = f"output {len(found)}"
            _check_written(kernel, key, leaf, strict)
            found[key] = arrays.values_of(leaf, copy=leaf.storage in delivered)
            delivered.append(leaf.storage)
        return _Slot(key)

    structure = _map(returned[0], take)
    mutated = [name for name, tensor in arguments.items() if tensor.storage.dirty]
    for name in mutated:
        _check_written(kernel, name, arguments[name], strict)
        found[name] = arrays.values_of(arguments[name], copy=False)
    return Values(structure, found, mutated, [*passed])


def differences(one: Values, other: Values) -> str | None:
    """The first array whose bytes differ between two runs, with its first differing element."""
    for key, values in one.arrays.items():
        theirs = other.arrays[key]
        if values.tobytes() != theirs.tobytes():
            same = values.view(np.uint8).reshape(*values.shape, -1) == theirs.view(np.uint8).reshape(*values.shape, -1)
            wrong = np.argwhere(~same.all(axis=-1))
            at = tuple(int(i) for i in wrong[0])
            return f"{key}{list(at)} ({values[at]} or {theirs[at]}; {len(wrong)} of {values.size} elements differ)"
    return None


def _check_written(kernel: str, key: str, tensor: NkiTensor, strict: bool) -> None:
    storage, core = tensor.storage, current()
    if storage.fresh:
        storage.settle()
    if storage.state is None:
        return
    state = storage.state.reshape(storage.shape)
    if (tainted := state >= TAINT).any():
        at = [int(i) for i in np.argwhere(tainted)[0]]
        origin = core.shared.origins[int(state[tuple(at)]) - TAINT] if len(core.shared.origins) else "another core"
        line, _, cause = origin.partition(": ")
        problem = (
            f"{kernel}: {key}{at} ({int(tainted.sum())} of {state.size} elements) comes from memory that was never "
            f"written; {cause}"
        )
        if late := core.shared.late.get(origin):
            problem += f"; {late}: {NO_BARRIER}"
        if strict:
            raise NkiError.at(line, problem)
        core.warnings[f"{line}: {problem}"] = None
    if (unwritten := state == UNWRITTEN).any():
        at = [int(i) for i in np.argwhere(unwritten)[0]]
        problem = f"{kernel}: {key}{at} was never written ({int(unwritten.sum())} of {state.size} elements)"
        if strict or unwritten.all():
            raise NkiError.at(storage.line, problem)
        core.warnings[f"{storage.line}: {problem}"] = None


def _map(structure, take):
    if isinstance(structure, tuple | list):
        return type(structure)(_map(item, take) for item in structure)
    if isinstance(structure, dict):
        return {key: _map(item, take) for key, item in structure.items()}
    return take(structure)
