"""Leases of cores between processes of a host: who gets which, when they are free again, and what is said."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from trncheck.neuron import leases
from trncheck.neuron.core_locks import CoresBusy

ALL = range(64)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "leases"


@pytest.fixture(autouse=True)
def of_its_own(monkeypatch, folder):
    """No list of the tester's shell, and the locks where no other process looks."""
    for name in ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "NEURON_LOGICAL_NC_CONFIG", leases.LEASE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(leases.FOLDER, str(folder))


def lease(count, allowed=ALL, **options):
    return leases.lease(count, allowed=allowed, **{"timeout": 0} | options)


@contextmanager
def other_process(code: str):
    """Python code in a process of its own, up to its first line of output, which is the value; killed at the end."""
    program = "from trncheck.neuron import leases\nimport os, sys\n" + textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def holding(count: int, allowed: str = "range(64)", lnc: int = 2) -> str:
    return f"""
        with leases.lease({count}, allowed={allowed}, lnc={lnc}) as held:
            print(*held.cores, flush=True)
            sys.stdin.read()
    """


# --- who gets what


def test_a_lease_is_of_neighbours_on_a_multiple_of_their_number():
    with other_process(holding(1)), lease(4) as held:
        assert held.cores == (4, 5, 6, 7)


def test_where_no_neighbours_are_free_others_do():
    with other_process(holding(1, "(5,)")), lease(3, allowed=(4, 5, 6, 7)) as held:
        assert held.cores == (4, 6, 7)


def test_a_lease_stays_within_what_is_allowed():
    with lease(2, allowed=(1, 3)) as held:
        assert held.cores == (1, 3)


def test_two_processes_have_different_cores():
    with other_process(holding(2, "(4, 5, 6, 7)")) as (_, theirs), lease(2, allowed=(4, 5, 6, 7)) as held:
        assert theirs == "4 5"
        assert held.cores == (6, 7)


@pytest.mark.parametrize(("theirs", "their_lnc", "mine", "my_lnc"), [(7, 1, 3, 2), (6, 1, 3, 2), (3, 2, 6, 1)])
def test_leases_of_either_lnc_exclude_each_other(theirs, their_lnc, mine, my_lnc):
    with (
        other_process(holding(1, f"({theirs},)", their_lnc)),
        pytest.raises(CoresBusy),
        lease(1, allowed=(mine,), lnc=my_lnc),
    ):
        pass


def test_neighbours_at_lnc_1_share_a_logical_core_of_lnc_2_without_harm():
    with other_process(holding(1, "(7,)", 1)), lease(1, allowed=(6,), lnc=1) as held:
        assert held.cores == (6,)


def test_what_is_started_under_a_lease_sees_its_cores_and_nothing_that_contradicts_them():
    with lease(2, allowed=(6, 7)) as held:
        environ = held.environ({"NEURON_RT_NUM_CORES": "64", "HOME": "/home"})
    assert environ == {
        "NEURON_RT_VISIBLE_CORES": "6-7",
        "NEURON_LOGICAL_NC_CONFIG": "2",
        "TRNCHECK_LEASE": held.id,
        "HOME": "/home",
    }


# --- what is said


def test_more_than_is_allowed_is_refused_at_once(monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "4-7")
    wanted = "64 logical cores are needed, but NEURON_RT_VISIBLE_CORES=4-7 allows 4"
    with pytest.raises(ValueError, match=wanted), lease(64, allowed=(4, 5, 6, 7), timeout=3600):
        pass


def test_more_than_the_machine_has_is_refused_at_once():
    wanted = "128 logical cores are needed, but there are 64 at NEURON_LOGICAL_NC_CONFIG=2"
    with pytest.raises(ValueError, match=wanted), lease(128, timeout=3600):
        pass


def test_busy_cores_are_one_line_that_names_who_has_them():
    with other_process(holding(2, "(4, 5)")) as (process, _), pytest.raises(CoresBusy) as busy, lease(64):
        pass
    assert str(busy.value).startswith(
        f"of the logical cores 0-63, 64 were not free at once: 4-5 held by pid {process.pid} ({sys.executable} -P -c"
    )
    assert "\n" not in str(busy.value)


def test_a_process_does_not_wait_for_another_lease_while_it_holds_one():
    with other_process(holding(1, "(5,)")), lease(1, allowed=(4,)):
        with pytest.raises(CoresBusy, match="at once"), lease(1, allowed=(5,), timeout=3600):
            pass
        with lease(1, allowed=(6,), timeout=3600) as second:
            assert second.cores == (6,)


def test_a_process_that_needs_what_it_holds_itself_is_told_so():
    with (
        lease(1, allowed=(4,)),
        pytest.raises(ValueError, match=rf"of the 64 that are allowed this very process \(pid {os.getpid()}\)"),
        lease(64, timeout=3600),
    ):
        pass


def test_a_folder_that_is_no_folder_is_refused(folder):
    folder.write_text("")
    with pytest.raises(ValueError, match=f"{folder} is not a folder in which this user can make files"), lease(1):
        pass


# --- free again


def test_cores_are_free_again_at_the_end_of_a_lease():
    with lease(64):
        pass
    with lease(64) as held:
        assert len(held.cores) == 64


def test_cores_are_free_again_when_their_holder_was_killed():
    with other_process(holding(64)) as (process, _):
        process.send_signal(signal.SIGKILL)
        process.wait()
        with lease(64) as held:
            assert len(held.cores) == 64


def test_a_lease_that_ends_is_over_for_a_fork_as_well():
    reader, writer = os.pipe()
    with lease(64):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    with lease(64):
        os.close(writer)
    os.waitpid(child, 0)


def test_a_fork_that_leaves_the_block_does_not_end_the_lease_of_its_parent():
    with lease(64) as held:
        child = os.fork()
        if child == 0:
            leases._kept.close()
            try:
                raise SystemExit
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with other_process(f"""
            try:
                with leases.lease(1, allowed=({held.cores[0]},), timeout=0):
                    print("free")
            except ValueError:
                print("held")
        """) as (_, said):
            assert said == "held"


def test_what_a_killed_process_or_a_stranger_left_is_harmless(folder):
    with lease(64):
        pass
    for path in folder.iterdir():
        path.write_bytes(b"\xff{")
    (folder / "ticket-000000041").write_text("[1]")
    (folder / "ticket-of-a-stranger").write_text("")
    with lease(64) as held:
        assert len(held.cores) == 64
    assert not list(folder.glob("ticket-0*"))


# --- ranks


RANK = """
    core = leases.enter(os.environ)
    print(core, os.environ["NEURON_RT_VISIBLE_CORES"], "NEURON_RT_NUM_CORES" in os.environ, flush=True)
    sys.stdin.read()
"""


def rank_environ(monkeypatch, **environ: str) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_a_rank_keeps_its_core_when_its_launcher_is_gone(monkeypatch):
    with lease(2, allowed=(6, 7)) as held:
        rank_environ(monkeypatch, **held.environ({}), LOCAL_RANK="1", LOCAL_WORLD_SIZE="2", NEURON_RT_NUM_CORES="2")
        rank = other_process(RANK)
        process, said = rank.__enter__()
    try:
        assert said == "7 7 False"
        with pytest.raises(CoresBusy, match=rf"7 held by pid {process.pid} .*, started by pid"), lease(64):
            pass
        with lease(1, allowed=(6, 7)) as others:
            assert others.cores == (6,)
    finally:
        rank.__exit__(None, None, None)
    with lease(64):
        pass


def test_a_rank_that_comes_late_does_not_take_a_core_that_went_to_another(monkeypatch):
    with lease(1, allowed=(6,)) as held:
        pass
    with other_process(holding(1, "(6,)")) as (process, _):
        environ = held.environ({}) | {"LOCAL_RANK": "0"}
        with pytest.raises(CoresBusy, match=f"core 6 is no longer leased to this rank: .* pid {process.pid} "):
            leases.enter(environ)


def test_the_ranks_of_a_users_own_torchrun_take_their_cores(monkeypatch):
    rank_environ(monkeypatch, NEURON_RT_VISIBLE_CORES="4-7", LOCAL_RANK="2", LOCAL_WORLD_SIZE="4")
    with other_process(RANK) as (process, said):
        assert said == "6 6 False"
        with pytest.raises(CoresBusy, match=f"6 held by pid {process.pid} "):
            leases.enter({"NEURON_RT_VISIBLE_CORES": "6-7", "LOCAL_RANK": "0"})


def test_a_process_that_is_no_rank_is_left_alone(folder):
    environ = {"NEURON_RT_VISIBLE_CORES": "4-7"}
    assert leases.enter(environ) is None
    assert environ == {"NEURON_RT_VISIBLE_CORES": "4-7"}
    assert not folder.exists()


# --- waiting


def waiting_process(count: int) -> str:
    return f"""
        import threading
        print("asks", flush=True)
        with leases.lease({count}, allowed=range(64), timeout=60) as held:
            print(len(held.cores), held.waited_s > 0, sum(lease.waited_s for lease in leases.taken()) > 0, flush=True)
            sys.stdin.read()
    """


def wait_for(condition) -> None:
    pause, patience = threading.Event(), 1000
    while not condition():
        patience -= 1
        assert patience, "the other process did not get there"
        pause.wait(0.01)


def test_a_request_for_all_is_not_overtaken_by_requests_for_one(folder):
    with lease(1, allowed=(0,)), other_process(waiting_process(64)) as (large, _):
        wait_for(lambda: queue(folder) == [64])
        with pytest.raises(CoresBusy, match=rf"an earlier request by pid {large.pid} "), lease(1, allowed=(9,)):
            pass


def test_a_request_for_other_cores_passes_by(folder):
    with lease(1, allowed=(0,)), other_process(waiting_process(64)):
        wait_for(lambda: queue(folder) == [64])
        with lease(1, allowed=(64,)) as held:
            assert held.cores == (64,)


def test_who_waited_gets_the_cores_and_knows_how_long(folder):
    with other_process(holding(64)) as (holder, _), other_process(waiting_process(64)) as (waiter, _):
        wait_for(lambda: queue(folder) == [64])
        holder.kill()
        assert waiter.stdout.readline().strip() == "64 True True"


def test_a_killed_waiter_is_in_nobodys_way(folder):
    with lease(1, allowed=(0,)):
        with other_process(waiting_process(64)) as (waiter, _):
            wait_for(lambda: queue(folder) == [64])
            waiter.kill()
            waiter.wait()
        with lease(1, allowed=(9,)) as held:
            assert held.cores == (9,)


def queue(folder: Path) -> list[int]:
    """Cores that each waiting request wants."""
    lines = [path.read_text() for path in sorted(folder.glob("ticket-*"))]
    return [json.loads(line)["count"] for line in lines if line.strip()]
