"""Starts runs: ranks forked from a process that has imported everything already, or a real torchrun.

Forking takes about a second where torchrun takes ten, and keeps the caller's process clean: a run patches
Transformers, switches off the garbage collector and more, all of which ends with its ranks.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psutil

from trncheck.neuron import leases, settings
from trncheck.neuron.machine import device_files
from trncheck.trainers import children, torchrun
from trncheck.trainers.causes import cause
from trncheck.trainers.errors import RunFailed
from trncheck.trainers.job import train
from trncheck.trainers.record import RunRecord
from trncheck.trainers.torchrun import Rendezvous

Launcher = Literal["fork", "serve", "torchrun"]


def run(
    config: str,
    *,
    dump_folder: Path,
    flags: Sequence[str] = (),
    world_size: int = 1,
    launcher: Launcher = "fork",
    timeout: float = 300,
    meeting: Rendezvous | None = None,
) -> RunRecord:
    """Train ``--config config`` with torchtitan ``flags`` on ``world_size`` ranks of this machine.

    ``fork`` trains on the CPU, and sets this process' torch to one thread. ``serve`` takes a device that forks survive
    until it is used, as the stand-in's, and ``torchrun`` any; both give each rank a NeuronCore of its own, for which
    they wait. torchrun takes part in a job of several machines where ``meeting`` says so; these share the dump folder.
    Raises RunFailed with the first failing rank's exception, also after ``timeout`` seconds, and ValueError where this
    process may not use a core for each rank.
    """
    assert launcher == "torchrun" or not meeting, "forked ranks are of one machine"
    dump_folder = Path(dump_folder)
    dump_folder.mkdir(parents=True, exist_ok=True)
    flags = ["--config", config, "--dump_folder", str(dump_folder), *flags]
    if launcher == "torchrun":
        _torchrun(flags, world_size, dump_folder, timeout, meeting)
    elif launcher == "serve":
        _serve(flags, world_size, dump_folder, timeout)
    else:
        fork_ranks(train, (flags,), world_size, dump_folder, timeout)
    return RunRecord(dump_folder, world_size * (meeting.nodes if meeting else 1))


def fork_ranks(function: Callable, arguments: tuple, world_size: int, log_folder: Path, timeout: float = 300) -> None:
    """Run ``function`` in ``world_size`` forked children with the environment that torchrun gives its ranks."""
    with _rendezvous(world_size) as ranks:
        children.fork([(function, arguments, rank) for rank in ranks], log_folder, timeout)


def run_rank(function: Callable, arguments: tuple, log_folder: Path, launcher: Launcher) -> None:
    """Run ``function`` as the only rank of its world; in place of torchrun, a fresh process with a NeuronCore."""
    if launcher == "fork":
        fork_ranks(function, arguments, 1, log_folder)
        return
    with _on_cores(1, log_folder) as (rank,):
        start = children.spawn if launcher == "torchrun" else children.serve
        start([(function, arguments, rank)], log_folder)


def _serve(flags: list[str], world_size: int, dump_folder: Path, timeout: float) -> None:
    with _on_cores(world_size, dump_folder) as ranks:
        children.serve([(_train_on_own_core, (flags,), rank) for rank in ranks], dump_folder, timeout)


def _train_on_own_core(flags: list[str]) -> None:
    leases.enter(os.environ)
    train(flags)


@contextmanager
def _on_cores(world_size: int, folder: Path):
    """Environment of each rank, with cores on lease, as torchrun would give it."""
    with _rendezvous(world_size) as ranks, torchrun.with_cores(environment_of_ranks(folder), world_size) as environment:
        yield [environment | rank for rank in ranks]


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
        raise RunFailed(cause([log]))


def _kill_tree(process: subprocess.Popen) -> None:
    """End torchrun and its ranks, which live in sessions of their own; nothing to do where it has ended."""
    if process.poll() is None:
        root = psutil.Process(process.pid)
        for member in [*root.children(recursive=True), root]:
            with suppress(psutil.NoSuchProcess):  # it has just ended by itself
                member.kill()
        # Not process.wait(), which never ends where a signal has interrupted it before.
        psutil.wait_procs([root], timeout=30)
