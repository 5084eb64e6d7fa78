"""Starts runs: ranks forked from a process that has imported everything already, or a real torchrun.

Forking takes about a second where torchrun takes ten, and keeps the caller's process clean: a run patches
Transformers, switches off the garbage collector and more, all of which ends with its ranks.
"""

import functools
import importlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psutil

from trncheck.neuron import settings
from trncheck.neuron.machine import device_files
from trncheck.trainers import torchrun
from trncheck.trainers.errors import RunFailed
from trncheck.trainers.job import FAILURE_MARK, train
from trncheck.trainers.record import RunRecord
from trncheck.trainers.torchrun import Rendezvous

_WARM = ("config_registry", "describe", "reference", "stock")
"""Modules with all that children need."""


def run(
    config: str,
    *,
    dump_folder: Path,
    flags: Sequence[str] = (),
    world_size: int = 1,
    launcher: Literal["fork", "torchrun"] = "fork",
    timeout: float = 300,
    meeting: Rendezvous | None = None,
) -> RunRecord:
    """Train ``--config config`` with torchtitan ``flags`` on ``world_size`` ranks of this machine.

    ``fork`` trains on the CPU, and sets this process' torch to one thread. ``torchrun`` takes the device, gives each
    rank a NeuronCore of its own, for which it waits, and takes part in a job of several machines where ``meeting`` says
    so; these share the dump folder. Raises RunFailed with the first failing rank's exception, also after ``timeout``
    seconds, and ValueError where this process may not use a core for each rank.
    """
    assert launcher == "torchrun" or not meeting, "forked ranks are of one machine"
    dump_folder = Path(dump_folder)
    dump_folder.mkdir(parents=True, exist_ok=True)
    flags = ["--config", config, "--dump_folder", str(dump_folder), *flags]
    if launcher == "torchrun":
        _torchrun(flags, world_size, dump_folder, timeout, meeting)
    else:
        fork_ranks(train, (flags,), world_size, dump_folder, timeout)
    return RunRecord(dump_folder, world_size * (meeting.nodes if meeting else 1))


def fork_ranks(function: Callable, arguments: tuple, world_size: int, log_folder: Path, timeout: float = 300) -> None:
    """Run ``function`` in ``world_size`` forked children with the environment that torchrun gives its ranks."""
    with _rendezvous(world_size) as ranks:
        fork([(function, arguments, rank) for rank in ranks], log_folder, timeout)


def run_rank(function: Callable, arguments: tuple, log_folder: Path, launcher: Literal["fork", "torchrun"]) -> None:
    """Run ``function`` as the only rank of its world: forked on the CPU, or fresh with a NeuronCore."""
    if launcher == "fork":
        fork_ranks(function, arguments, 1, log_folder)
        return
    environment = environment_of_ranks(log_folder)
    with (
        _rendezvous(1) as (rank,),
        torchrun.with_cores(environment, 1) as environment,
        _environment(environment | rank),
    ):
        # Its environment is there from the start, because it imports torch before it gets to its call.
        _run_children(multiprocessing.get_context("spawn"), [(function, arguments, {})], log_folder, timeout=300)


def fork(calls: Sequence[tuple[Callable, tuple, dict[str, str]]], log_folder: Path, timeout: float = 300) -> None:
    """Run each ``(function, arguments, environment)`` in a child on the CPU, output to ``log_folder/rank<i>.log``.

    Children are forked from this process or, where this has a device, which no fork survives, from one without.
    Raises RunFailed as soon as one child fails; the others are ended then.
    """
    _run_children(_forking(), calls, log_folder, timeout)


def _run_children(context, calls: Sequence[tuple[Callable, tuple, dict[str, str]]], log_folder: Path, timeout: float):
    logs = [log_folder / f"rank{i}.log" for i in range(len(calls))]
    children = [
        context.Process(target=_child, args=(*call, log), daemon=True) for call, log in zip(calls, logs, strict=True)
    ]
    for child in children:
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
            raise RunFailed(_cause(logs, [child.exitcode for child in children]))
    finally:
        for child in children:
            child.kill()
            child.join()


def warm_up() -> None:
    """Import what every child needs, once, and keep torch to the one thread that survives a fork."""
    import torch

    torch.set_num_threads(1)
    for name in _WARM:
        importlib.import_module(f"trncheck.trainers.{name}")


def _child(function: Callable, arguments: tuple, environment: dict[str, str], log: Path) -> None:
    with log.open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(environment)
    function(*arguments)


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


@functools.cache
def _forking():
    """What forks children that compute on the CPU: this process, or where it has a device a server without."""
    from trncheck.trainers.devices import DEVICE_TYPE

    if DEVICE_TYPE == "cpu":
        warm_up()
        return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"trncheck.trainers.{name}" for name in _WARM])
    with _environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}):
        multiprocessing.forkserver.ensure_running()
    return context


def _await(children, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))


@contextmanager
def _rendezvous(world_size: int):
    """Environment of each rank, around a store that this process serves, so that no port has to be guessed."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    yield [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world_size)]
    del store


def environment_of_ranks(dump_folder: Path) -> dict[str, str]:
    """This process' environment and what a torchrun of the trainer sets beside it, where the user has not.

    On a machine with Neuron devices that is every variable that a run does not leave to its default.
    """
    environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONSAFEPATH": "1"}
    if device_files():
        environment |= settings.explicit(environment, dump_folder)
    return environment


def _torchrun(flags: list[str], world_size: int, dump_folder: Path, timeout: float, meeting: Rendezvous | None) -> None:
    log = dump_folder / (f"torchrun-{meeting.node_rank}.log" if meeting else "torchrun.log")
    environment = environment_of_ranks(dump_folder)
    with log.open("wb") as file, torchrun.with_cores(environment, world_size) as environment:
        process = subprocess.Popen(
            torchrun.command(world_size, flags, meeting), stdout=file, stderr=subprocess.STDOUT, env=environment
        )
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"no end after {timeout:g} s; last output in {log}") from None
        finally:
            _kill_tree(process)
    if status:
        raise RunFailed(_cause([log]))


def _kill_tree(process: subprocess.Popen) -> None:
    """End torchrun and its ranks, which live in sessions of their own; nothing to do where it has ended."""
    if process.poll() is None:
        root = psutil.Process(process.pid)
        for member in [*root.children(recursive=True), root]:
            with suppress(psutil.NoSuchProcess):  # it has just ended by itself
                member.kill()
        # Not process.wait(), which never ends where a signal has interrupted it before.
        psutil.wait_procs([root], timeout=30)


def _cause(logs: Sequence[Path], exit_codes: Sequence[int | None] = ()) -> str:
    """What failed first, and its log: a rank that died without a failure line, else the earliest such line.

    Ranks that lost their peer write theirs later. ``exit_codes`` are those of the ranks, where they are known.
    """
    outputs = [log.read_text(errors="replace").splitlines() if log.exists() else [] for log in logs]
    failures = [_failures(lines) for lines in outputs]
    for rank, code in enumerate(exit_codes):
        if code and not failures[rank]:
            return f"rank {rank} {_ending(code)}; last output: {_last(outputs[rank])} (log: {logs[rank]})"
    if found := [(*failure, log) for log, ranks in zip(logs, failures, strict=True) for failure in ranks]:
        _, exception, log = min(found)
        return f"{exception} (log: {log})"
    return f"ended without a word; last output: {_last(outputs[0])} (log: {logs[0]})"


def _failures(lines: list[str]) -> list[tuple[float, str]]:
    """Time and exception of every failure line."""
    marked = [line.split(FAILURE_MARK, 1)[1].split(maxsplit=1) for line in lines if FAILURE_MARK in line]
    return [(float(when), exception) for when, exception in marked]


def _ending(exit_code: int) -> str:
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"


def _last(lines: list[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "none")
