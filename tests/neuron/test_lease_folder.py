"""Where the locks of leases are: one folder for all users and jobs of a host."""

from pathlib import Path

from trncheck.neuron import leases, machine


def test_the_folder_is_open_to_all_users(tmp_path):
    folder = tmp_path / "leases"
    with leases.lease(1, allowed=range(4), folder=folder):
        assert folder.stat().st_mode & 0o7777 == 0o1777
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666}


def test_a_temporary_folder_of_ones_own_does_not_hide_the_others(monkeypatch, tmp_path):
    monkeypatch.delenv(leases.FOLDER, raising=False)
    before = leases.default_folder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert leases.default_folder() == before == Path("/tmp/trncheck-leases")


def test_a_rehearsal_has_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.delenv(leases.FOLDER, raising=False)
    monkeypatch.setenv("TRNCHECK_REHEARSAL", str(tmp_path / "stand-in"))
    assert leases.default_folder() == Path("/tmp/trncheck-leases-stand-in")


def test_cores_are_counted_by_device_files_where_neuron_ls_says_nothing(monkeypatch):
    found = machine.Machine("trn2.3xlarge", (0,), "2.31.7.0", "absent", (), lnc=None, lnc_source=None, busy=())
    monkeypatch.setattr(machine, "inspect", lambda: found)
    for environ, cores in (({}, range(4)), ({"NEURON_LOGICAL_NC_CONFIG": "1"}, range(8))):
        leases._counted.cache_clear()
        assert leases.usable(environ) == (tuple(cores), 8 // len(cores))
    leases._counted.cache_clear()
