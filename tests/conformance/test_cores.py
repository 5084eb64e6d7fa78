"""NeuronCores of a run on trn2: what its checks need, and what stops it before it starts."""

import os
from types import SimpleNamespace

import pytest

from trncheck.conformance import cores
from trncheck.neuron import leases, machine
from trncheck.neuron.neuron_ls import Device, Holder

FOREIGN = Holder(4711, "python train.py", (0, 1), tuple(range(8)))


@pytest.fixture
def trn2(monkeypatch, tmp_path):
    """``trn2(*holders)``: this is a trn2.48xlarge on which these processes hold devices."""

    def be(*holders: Holder) -> None:
        devices = tuple(Device(n, 4, tuple(range(4 * n, 4 * n + 4)), 2) for n in range(16))
        found = machine.Machine(
            "trn2.48xlarge", tuple(range(16)), "2.31.7.0", "read", devices, lnc=2, lnc_source="neuron-ls", busy=holders
        )
        monkeypatch.setattr(machine, "inspect", lambda: found)

    leases._counted.cache_clear()
    monkeypatch.setenv(leases.FOLDER, str(tmp_path / "leases"))
    be()
    yield be
    leases._counted.cache_clear()


class Check(SimpleNamespace):
    """What the kit reads of a pytest item."""

    def __init__(self, mark: int = 0, ranks: int = 0, fixtures=()):
        parameters = {"case": SimpleNamespace(ranks=ranks)} if ranks else {}
        super().__init__(fixturenames=fixtures, callspec=SimpleNamespace(params=parameters), mark=mark)
        self.path, self.name = SimpleNamespace(stem="test_losses"), "test_start"

    def get_closest_marker(self, name):
        return SimpleNamespace(args=(self.mark,)) if name == "cores" and self.mark else None


@pytest.mark.parametrize(
    ("check", "count"),
    [
        (Check(), 0),
        (Check(ranks=2), 2),
        (Check(fixtures=("judge", "kernels")), 1),
        (Check(mark=64, ranks=2), 64),
    ],
)
def test_a_check_needs_what_it_declares_or_a_core_for_each_rank_or_one_for_itself(check, count):
    assert cores.needed(check) == count


def test_free_cores_are_no_obstacle(trn2):
    assert cores.obstacle({}, [Check(ranks=2), Check(mark=64)]) == ""


def test_checks_that_need_no_core_do_not_ask_for_any(trn2):
    trn2(FOREIGN)
    assert cores.obstacle({"NEURON_RT_VISIBLE_CORES": "none"}, [Check()]) == ""


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"NEURON_RT_VISIBLE_CORES": "4-7"},
            "target trn2: losses.start needs 64 logical cores, and NEURON_RT_VISIBLE_CORES=4-7 allows 4; unset that, "
            "or choose checks with --check or --level",
        ),
        (
            {"NEURON_RT_VISIBLE_CORES": "4-"},
            "target trn2: NEURON_RT_VISIBLE_CORES='4-': '4-' is neither a core nor a range; write, for example, "
            "NEURON_RT_VISIBLE_CORES=0-3,8",
        ),
    ],
)
def test_a_list_that_allows_too_few_or_says_nothing_is_one_line(trn2, environ, message):
    assert cores.obstacle(environ, [Check(ranks=2), Check(mark=64)]) == message


def test_cores_of_a_foreign_process_are_one_line_with_a_list_that_leaves_them_out(trn2):
    trn2(FOREIGN)
    assert cores.obstacle({}, [Check(ranks=2)]) == (
        "target trn2: devices are in use: cores 0-7 by pid 4711 (python train.py); end these processes, or leave them "
        "out with NEURON_RT_VISIBLE_CORES=8-63"
    )


@pytest.mark.parametrize("listed", ["8-63", "0-1,9"])
def test_a_list_that_leaves_a_foreign_process_its_cores_or_shares_a_device_is_taken(trn2, listed):
    trn2(FOREIGN)
    assert cores.obstacle({"NEURON_RT_VISIBLE_CORES": listed}, [Check(ranks=2)]) == ""


def test_a_borrower_is_waited_for_instead(trn2):
    trn2(Holder(os.getpid(), "pytest", (0,), (0, 1, 2, 3)))
    with leases.lease(2, allowed=range(4)):
        assert cores.obstacle({}, [Check(ranks=2)]) == ""


def test_evidence_says_which_cores_were_on_lease_and_how_long_they_were_waited_for(trn2):
    cores.lease_notes()
    with leases.lease(2, allowed=range(4)):
        pass
    notes = cores.lease_notes()
    assert notes["NeuronCores"] == "0-1 at LNC 2"
    assert notes["waited for NeuronCores"].endswith(" s")
    assert cores.lease_notes() == {}
