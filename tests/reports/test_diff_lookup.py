"""From a path or the name of a release to a run, and to its repeats."""

import os

import pytest

from trncheck.reports.lookup import find_repeats, find_report
from trncheck.reports.store import RunFolder


@pytest.fixture
def store(tmp_path, make_report):
    """Puts a run into the store and gives its folder."""

    def put(run_id: str, **changes):
        fields = {"run_id": run_id, "curves": [], "command": "pytest --pyargs trncheck.conformance"}
        return RunFolder.create(tmp_path, make_report(**fields | changes)).path

    put.root = tmp_path
    return put


def test_by_path(store):
    folder = store("run-1")
    for name in (folder, folder / "report.json", os.path.relpath(folder)):
        assert find_report(str(name), store.root / "elsewhere").run_id == "run-1"


def test_by_release_the_newest_whole_run(store):
    for run_id in ("20260101-a", "20260103-c", "20260102-b"):
        store(run_id)
    store("20260104-d", complete=False)
    store("20260105-e", command="pytest -W ignore::X --check 'pins.*'")
    (store("20260106-f") / "report.json").write_text("{")
    store("20260107-g", release="2.34.0")
    assert find_report("2.33.0", store.root).run_id == "20260103-c"


def test_targets_must_be_told_apart(store):
    store("run-1", target="cpu")
    store("run-2", target="trn2")
    with pytest.raises(ValueError, match=r"has runs on cpu and trn2 in .*: choose one with --target"):
        find_report("2.33.0", store.root)
    assert find_report("2.33.0", store.root, "trn2").run_id == "run-2"


def test_an_unknown_release_lists_the_known(store):
    store("run-1", release="2.32.0")
    store("run-2", release="2.33.0")
    with pytest.raises(ValueError, match=r"'2\.31\.0' is neither .* releases in .*: 2\.32\.0, 2\.33\.0$"):
        find_report("2.31.0", store.root)
    with pytest.raises(ValueError, match=r"releases in .*: none$"):
        find_report("2.31.0", store.root / "absent")
    with pytest.raises(ValueError, match=r"release with runs on trn2; releases"):
        find_report("2.33.0", store.root, "trn2")


def test_only_stopped_runs_are_no_run(store):
    store("run-1", complete=False)
    with pytest.raises(ValueError, match="has no whole run"):
        find_report("2.33.0", store.root)


@pytest.mark.parametrize("name", ["", ".", "..", "absent/report.json", "report.json", "/absent"])
def test_a_path_without_a_report_is_one_line(store, name, monkeypatch):
    monkeypatch.chdir(store.root)
    with pytest.raises(ValueError, match="cannot be read") as caught:
        find_report(name, store.root)
    assert "\n" not in str(caught.value)


def test_a_hostile_name_is_one_line(store):
    with pytest.raises(ValueError, match="neither") as caught:
        find_report("2.33.0\n\x1b[31m", store.root)
    assert str(caught.value).isprintable()


def test_a_folder_named_like_a_release_is_not_in_the_way(store, monkeypatch):
    store("run-1")
    monkeypatch.chdir(store.root)
    assert find_report("2.33.0", store.root).run_id == "run-1"


def test_repeats(store, make_report):
    report = make_report(run_id="old")
    store("1")
    store("2", level="full")
    store("3", release="2.32.0")
    store("4", kit_commit=None)
    store("5", complete=False)
    store("6", target="trn2")
    store("7", kit_version="0.2.0")
    (store("8") / "report.json").write_text('{"release": "2.33.0"')
    (store("9") / "report.json").write_text("[]")
    assert [run.run_id for run in find_repeats(report, store.root)] == ["1"]
    assert find_repeats(report, store.root / "absent") == []
