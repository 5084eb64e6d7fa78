"""Children that do one call each: forked from here, from a server that has imported everything, or fresh.

A fork takes about a second where a fresh process takes ten. A process that has used a device, or may have one that no
fork survives, must not be forked itself.
"""

import functools
import importlib
import multiprocessing
import multiprocessing.connection
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing import forkserver
from pathlib import Path

from trncheck.trainers.causes import cause
from trncheck.trainers.errors import RunFailed

Call = tuple[Callable, tuple, dict[str, str]]
"""Function, arguments, and variables of the child's environment."""

_WARM = ("config_registry", "describe", "reference", "stock")
"""Modules with all that children need."""


def fork(calls: Sequence[Call], log_folder: Path, timeout: float = 300) -> None:
    """Make each call in a child on the CPU, output to ``log_folder/rank<i>.log``.

    Children are forked from this process or, where this has a device, from a server without.
    Raises RunFailed as soon as one child fails, or after ``timeout`` seconds; the others are ended then.
    """
    from trncheck.trainers.devices import DEVICE_TYPE

    if DEVICE_TYPE == "cpu":
        warm_up()
        _run("fork", calls, log_folder, timeout)
    else:
        _run("forkserver", calls, log_folder, timeout, _server("0"))


def serve(calls: Sequence[Call], log_folder: Path, timeout: float = 300) -> None:
    """The same on the device, in children of a server that has it and has not used it."""
    _run("forkserver", calls, log_folder, timeout, _server("1"))


def spawn(calls: Sequence[Call], log_folder: Path, timeout: float = 300) -> None:
    """The same on the device, in fresh processes."""
    _run("spawn", calls, log_folder, timeout)


def warm_up() -> None:
    """Import what every child needs, once, and keep torch to the one thread that survives a fork."""
    import torch

    torch.set_num_threads(1)
    for name in _WARM:
        importlib.import_module(f"trncheck.trainers.{name}")


def _run(method: str, calls: Sequence[Call], log_folder: Path, timeout: float, server=None) -> None:
    context = multiprocessing.get_context(method)
    logs = [log_folder / f"rank{i}.log" for i in range(len(calls))]
    children = [
        context.Process(target=_child, args=(*call, log), daemon=True) for call, log in zip(calls, logs, strict=True)
    ]
    for child, (_, _, environment) in zip(children, calls, strict=True):
        # A fresh process needs its variables before it gets to its call, because it imports torch on the way.
        with _environment(environment) if method == "spawn" else nullcontext(), _served_by(server):
            child.start()
    deadline = time.monotonic() + timeout
    try:
        while (alive := [child for child in children if child.is_alive()]) and not any(c.exitcode for c in children):
            left = deadline - time.monotonic()
            if left <= 0:
                raise RunFailed(f"no end after {timeout:g} s; last output in {logs[0]}")
            multiprocessing.connection.wait([child.sentinel for child in alive], timeout=left)
        if any(child.exitcode for child in children):
            _await(children, seconds=2)  # so that the rank with the cause, too, writes its line
            raise RunFailed(cause(logs, [child.exitcode for child in children]))
    finally:
        for child in children:
            child.kill()
            child.join()


def _child(function: Callable, arguments: tuple, environment: dict[str, str], log: Path) -> None:
    with log.open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(environment)
    function(*arguments)


@functools.cache
def _server(autoload: str) -> forkserver.ForkServer:
    """A process that has imported everything; with ``autoload`` 0 one whose torch does not load a device."""
    server = forkserver.ForkServer()
    server.set_forkserver_preload([f"trncheck.trainers.{name}" for name in _WARM])
    with _environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "OMP_NUM_THREADS": "1"}):
        server.ensure_running()
    return server


@contextmanager
def _served_by(server: forkserver.ForkServer | None):
    """Let children that start inside be those of ``server``; multiprocessing itself knows one server only."""
    default = forkserver.connect_to_new_process
    forkserver.connect_to_new_process = server.connect_to_new_process if server else default
    try:
        yield
    finally:
        forkserver.connect_to_new_process = default


@contextmanager
def _environment(variables: dict[str, str]):
    """Set ``variables`` for a process that starts inside, and no longer."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _await(children, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
