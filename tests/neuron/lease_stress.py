"""Eight processes ask for NeuronCores at once, and some are killed.

``python tests/neuron/lease_stress.py --rounds 200`` prints one line, and what went wrong.

A round is over when every process has had its cores or was killed. Beside the locks there is a witness: a table in
shared memory of who uses which physical core, that each process checks when it is told that a core is its own.
"""

import argparse
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

from trncheck.neuron import cores, leases
from trncheck.neuron.core_locks import CoresBusy

PROCESSES = 8
PHYSICAL = 128
LISTS = ("4-7", "1,3", "0-63")
"""Inherited lists; at LNC 2 all of a trn2.48xlarge, at LNC 1 half of it."""
ORPHAN = 0.4
"""Seconds that a rank lives on when its launcher was killed: longer than others take to look at the cores again."""
_EXITING = 0x4  # of the flags in /proc/PID/stat
DEADLOCK = 60.0
"""Seconds after which a round is stuck."""


class Witness:
    """Process ids by physical core: of who leased it, and of a rank that it started."""

    def __init__(self):
        self._table = mmap.mmap(-1, 2 * PHYSICAL * 8)

    def enter(self, physical: int, role: int) -> str:
        """Note this process; the complaint where another one is there that lives."""
        complaint = ""
        if role == 0:
            complaint = " ".join(filter(None, (self._intruder(physical, other) for other in (0, 1))))
        self._set(physical, role, os.getpid())
        return complaint

    def leave(self, physical: int, role: int) -> None:
        self._set(physical, role, 0)

    def _intruder(self, physical: int, role: int) -> str:
        pid = struct.unpack_from("q", self._table, 8 * (2 * physical + role))[0]
        return f"physical core {physical} is in use by pid {pid} ({('leaser', 'rank')[role]})" if _lives(pid) else ""

    def _set(self, physical: int, role: int, pid: int) -> None:
        struct.pack_into("q", self._table, 8 * (2 * physical + role), pid)


def _lives(pid: int) -> bool:
    """Whether the process runs; the kernel drops a dying one's locks a moment before it is gone."""
    if not pid:
        return False
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return state not in "ZX" and not int(fields[5]) & _EXITING


def work(chance: random.Random, folder: Path, witness: Witness, complain: int) -> None:
    """One process: lease, check, perhaps start ranks that may outlive it, release."""
    text, lnc = chance.choice(LISTS), chance.choice((1, 2, 2))
    environ = {cores.VISIBLE: text, cores.LNC: str(lnc)}
    allowed = cores.allowed(environ, PHYSICAL // lnc)
    count = chance.choice((1, 1, 2, len(allowed)))
    with leases.lease(count, allowed=allowed, lnc=lnc, timeout=DEADLOCK, folder=folder) as held:
        mine = [part for core in held.cores for part in range(core * lnc, core * lnc + lnc)]
        for complaint in filter(None, (witness.enter(part, 0) for part in mine)):
            os.write(complain, f"overlap: {complaint}, leased by pid {os.getpid()}\n".encode())
        if len(held.cores) != count or not set(held.cores) <= set(cores.parse(text)):
            os.write(complain, f"{held.cores} for {count} of {text}\n".encode())
        ranks = min(count, chance.choice((0, 0, 1, 2)))
        for rank in range(ranks):
            told, seconds = held.environ(environ) | {"LOCAL_RANK": str(rank)}, chance.random() / 20
            if os.fork() == 0:
                os._exit(_rank(told, seconds, folder, witness, complain))
        time.sleep(chance.random() / 40)
        for _ in range(ranks):
            os.wait()  # as a launcher does, unless it is killed
        for part in mine:
            witness.leave(part, 0)


def _rank(environ: dict[str, str], seconds: float, folder: Path, witness: Witness, complain: int) -> int:
    """Stands for a process that torchrun starts, to which no lock is handed down."""
    launcher = os.getppid()
    os.closerange(complain + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        core, lnc = leases.enter(environ, folder), cores.lnc(environ)
    except CoresBusy:
        return 0  # its launcher was killed before it got here, and the core went to another process
    except Exception as error:
        os.write(complain, f"rank: {type(error).__name__}: {error}\n".encode())
        return 1
    for part in range(core * lnc, core * lnc + lnc):
        witness.enter(part, 1)
    if environ[cores.VISIBLE] != str(core):
        os.write(complain, f"rank on core {core} was told {environ[cores.VISIBLE]}\n".encode())
    time.sleep(seconds)
    if os.getppid() != launcher:
        time.sleep(ORPHAN)
    for part in range(core * lnc, core * lnc + lnc):
        witness.leave(part, 1)
    return 0


def play(number: int, seed: int, folder: Path, witness: Witness, complain: int) -> dict[str, int]:
    """One round; counts of how its processes ended."""
    chance = random.Random(f"{seed}/{number}")
    ended = {"served": 0, "killed": 0, "failed": 0}
    children = []
    for process in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work(random.Random(f"{seed}/{number}/{process}"), folder, witness, complain)
                status = 0
            except BaseException as error:
                os.write(complain, f"{type(error).__name__}: {error}\n".encode())
            os._exit(status)
        children.append(pid)
    for victim in chance.sample(children, chance.choice((0, 1, 2, 3))):
        time.sleep(chance.random() / 20)
        os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + DEADLOCK + 5
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            children.remove(pid)
            ended["served" if status == 0 else "killed" if os.WIFSIGNALED(status) else "failed"] += 1
        elif time.monotonic() > deadline:
            raise SystemExit(f"round {number}: deadlock, {len(children)} processes still wait")
        else:
            time.sleep(0.001)
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    total, started = {"served": 0, "killed": 0, "failed": 0}, time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as complaints:
        folder, witness = Path(scratch) / "leases", Witness()
        for number in range(options.rounds):
            for how, count in play(number, options.seed, folder, witness, complaints.fileno()).items():
                total[how] += count
        with leases.lease(PHYSICAL // 2, allowed=range(PHYSICAL // 2), timeout=10, folder=folder):
            left = list(folder.glob("ticket-*"))
        complaints.seek(0)
        wrong = complaints.read().decode().splitlines()
    print(
        f"{options.rounds} rounds, {PROCESSES} processes: {total['served']} served, {total['killed']} killed, "
        f"{total['failed']} failed, {len(wrong)} complaints, {time.monotonic() - started:.1f} s; afterwards all "
        f"{PHYSICAL // 2} cores were leased at once, {len(left)} tickets were left over"
    )
    print(*wrong[:20], sep="\n", end="")
    return int(bool(wrong or left or total["failed"]))


if __name__ == "__main__":
    sys.exit(main())
