"""How torchrun is called: one machine or several, and a core for each rank where there are any."""

import socket
import sys
import threading

import pytest

from trncheck.neuron import leases
from trncheck.trainers import job, launch, torchrun
from trncheck.trainers.torchrun import Rendezvous


def test_a_job_of_one_machine_meets_nobody():
    assert torchrun.rendezvous({}) is None
    assert torchrun.rendezvous({"PET_NNODES": "1:1"}) is None
    assert " ".join(torchrun.command(2, ["--config", "x"])[1:]) == (
        "-m torch.distributed.run --standalone --nproc_per_node 2 -m trncheck.trainers --config x"
    )


@pytest.mark.parametrize(
    ("environ", "arguments"),
    [
        ({"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": "trn-a:29400"}, {}),
        ({}, {"nodes": 2, "node_rank": 1, "endpoint": "trn-a:29400"}),
        ({"PET_NNODES": "4:4", "PET_RDZV_ENDPOINT": "trn-a:29400"}, {"nodes": 2, "node_rank": 1}),
    ],
)
def test_several_machines_meet_where_arguments_or_torchruns_variables_say(environ, arguments):
    meeting = torchrun.rendezvous(environ, **arguments)
    assert meeting == Rendezvous(2, 1, "trn-a:29400")
    assert " ".join(torchrun.command(64, [], meeting)[3:-2]) == (
        "--nnodes 2 --node_rank 1 --rdzv_backend c10d --rdzv_endpoint trn-a:29400 --nproc_per_node 64"
    )


@pytest.mark.parametrize(
    ("environ", "arguments", "message"),
    [
        ({}, {"node_rank": 1}, "^a job of several nodes needs their number; give --nodes, or PET_NNODES$"),
        ({}, {"nodes": 2}, "^a job of 2 nodes needs --node-rank as well, or PET_NODE_RANK$"),
        ({}, {"nodes": 2, "node_rank": 0}, "^a job of 2 nodes needs --rendezvous as well, or PET_RDZV_ENDPOINT$"),
        ({}, {"nodes": 2, "node_rank": 2, "endpoint": "a:1"}, "^node rank 2 of 2 nodes; use 0 to 1$"),
        ({}, {"nodes": 2, "node_rank": 1, "endpoint": "trn-a"}, "^the rendezvous 'trn-a' is not HOST:PORT of node 0"),
        ({"PET_NNODES": "two"}, {}, "^PET_NNODES='two' is not a number of nodes$"),
    ],
)
def test_half_a_rendezvous_is_refused_with_what_is_missing(environ, arguments, message):
    with pytest.raises(ValueError, match=message):
        torchrun.rendezvous(environ, **arguments)


def test_two_machines_train_as_two_ranks_of_one_do(dense_on_two_ranks, dense_weights, tmp_path):
    """Both are this machine here, with a rank each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    flags = f"--hf_assets_path {dense_weights} --checkpoint.enable --checkpoint.initial_load_in_hf --training.steps 3"
    records = {}

    def node(rank: int) -> None:
        meeting = Rendezvous(2, rank, endpoint)
        records[rank] = launch.run(
            "qwen3_native_tiny", dump_folder=tmp_path, flags=flags.split(), launcher="torchrun", meeting=meeting
        )

    nodes = [threading.Thread(target=node, args=(rank,)) for rank in (0, 1)]
    for thread in nodes:
        thread.start()
    for thread in nodes:
        thread.join()
    assert sorted(records) == [0, 1]
    assert [step.tokens for step in records[0].steps] == [step.tokens for step in dense_on_two_ranks.steps]
    assert records[0].losses == records[1].losses == dense_on_two_ranks.losses


# --- cores


def test_without_neuron_devices_nothing_is_leased(monkeypatch, tmp_path):
    monkeypatch.setenv(leases.FOLDER, str(tmp_path / "leases"))
    monkeypatch.setattr(leases.machine, "device_files", lambda: ())
    with torchrun.with_cores({"A": "b"}, 2) as environ:
        assert environ == {"A": "b"}
    assert not (tmp_path / "leases").exists()


def test_ranks_on_a_neuron_machine_are_told_the_cores_of_a_lease(monkeypatch, tmp_path):
    monkeypatch.setenv(leases.FOLDER, str(tmp_path / "leases"))
    monkeypatch.setattr(leases.machine, "device_files", lambda: (0,))
    monkeypatch.setattr(leases, "_counted", lambda root, lnc: (2, 4))
    with torchrun.with_cores({"NEURON_RT_VISIBLE_CORES": "1-3"}, 2) as environ:
        assert environ["NEURON_RT_VISIBLE_CORES"] == "2-3"
        assert environ[leases.LEASE] == leases.taken()[-1].id
    with (
        pytest.raises(ValueError, match="4 logical cores are needed, but there are 3"),
        torchrun.with_cores({"NEURON_RT_VISIBLE_CORES": "1-3"}, 4),
    ):
        pass


def test_a_rank_that_cannot_have_its_core_says_so_before_it_loads_anything(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(leases.machine, "device_files", lambda: (0,))
    for name, value in {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "NEURON_RT_VISIBLE_CORES": "6-7"}.items():
        monkeypatch.setenv(name, value)
    assert job.main(["--config", "no such configuration"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(job.FAILURE_MARK)
    assert "ValueError: 4 ranks need a core each, but NEURON_RT_VISIBLE_CORES=6-7 allows 2; start torchrun" in said
    assert said.count("\n") == 1
