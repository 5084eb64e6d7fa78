"""How often kernels really ran, and what a launch did: counts by operator, direction, dtype and backend; and records.

A count is a launch. Where a graph holds the kernel (``torch.compile`` on a device), it is a launch traced, not run.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

BACKENDS = ("neuron", "nki.simulate", "simulator")
DIRECTIONS = ("forward", "backward")


class Key(NamedTuple):
    operator: str
    """``namespace::name``"""
    direction: str
    """One of ``DIRECTIONS``."""
    dtype: str
    """Of the rotated or multiplied tensors, without ``torch.``: ``bfloat16``."""
    backend: str
    """One of ``BACKENDS``: a device, the official simulator, or the kit's own."""


class Launch(NamedTuple):
    """What one launch did."""

    operator: str
    direction: str
    dtype: str
    backend: str
    """These four as in ``Key``."""
    cores: int
    """On which it ran; those that were asked for where ``instructions`` is None."""
    instructions: tuple[int, ...] | None
    """Executed by each core; None where it is not known: outside of the kit's own simulator."""
    warnings: tuple[str, ...] = ()
    """Of the kit's own simulator, one line each."""


_LOCK = threading.Lock()  # autograd runs backward passes in threads of its own
_COUNTS: Counter[Key] = Counter()
_OBSERVERS: list[Counter[Key]] = []
_LISTS: list[list[Launch]] = []


def bump(operator: str, direction: str, dtype: object, backend: str) -> None:
    """Count one launch. ``dtype`` is a torch dtype or its name."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction {direction!r} of a launch of {operator}; use one of {', '.join(DIRECTIONS)}")
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} of a launch of {operator}; use one of {', '.join(BACKENDS)}")
    key = Key(operator, direction, str(dtype).removeprefix("torch."), backend)
    with _LOCK:
        for counter in (_COUNTS, *_OBSERVERS):
            counter[key] += 1


def counts() -> dict[Key, int]:
    """A copy of all counts since the process started or ``reset``."""
    with _LOCK:
        return dict(_COUNTS)


def reset() -> None:
    """Forget all counts; what a ``counting()`` in progress has seen stays."""
    with _LOCK:
        _COUNTS.clear()


def counting() -> AbstractContextManager[Counter[Key]]:
    """Give the launches since entry, in whatever thread; up to date inside, final after the end. A missing key is 0."""
    return _listening(_OBSERVERS, Counter())


def record(launch: Launch) -> None:
    """Show what a launch did to every ``observing()`` in progress; it counts nothing."""
    with _LOCK:
        for launches in _LISTS:
            launches.append(launch)


def observing() -> AbstractContextManager[list[Launch]]:
    """Give records of the launches since entry, in whatever thread, in their order; up to date inside."""
    return _listening(_LISTS, [])


@contextmanager
def _listening(listeners: list, listener) -> Iterator:
    """Keep ``listener`` among ``listeners`` inside the context."""
    with _LOCK:
        listeners.append(listener)
    try:
        yield listener
    finally:
        with _LOCK:  # by identity: two empty ones are equal
            listeners[:] = [other for other in listeners if other is not listener]
