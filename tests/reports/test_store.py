"""The folder of a run: round trip, atomic writes, and one clear line for a file that cannot be read."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from trncheck.reports import store
from trncheck.reports.schema import Measurement
from trncheck.reports.store import RunFolder, load_report, new_run_id


def test_round_trip_by_file_and_by_folder(tmp_path, report):
    folder = RunFolder.create(tmp_path, report)
    assert folder.path == tmp_path / "2.33.0" / "cpu" / report.run_id
    assert load_report(folder.path) == report
    assert load_report(folder.path / "report.json") == report


def test_finish_leaves_all_files_and_no_other(tmp_path, report):
    folder = RunFolder.create(tmp_path, report)
    folder.finish(report)
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == ["junit.xml", "report.html", "report.json", "report.md"]
    assert folder.page.name == "report.html"


def test_run_ids_sort_by_time_and_differ():
    ids = [new_run_id() for _ in range(50)]
    assert len(set(ids)) == 50
    stamps = [run_id.split("-")[0] for run_id in ids]
    assert stamps == sorted(stamps)


def test_numbers_that_are_not_finite_survive(tmp_path, report):
    report.results[0].measurements = [
        Measurement(name="nan", value=math.nan, bar=math.inf),
        Measurement(name="minus", value=-math.inf),
    ]
    report.curves[0].losses[3] = math.nan
    folder = RunFolder.create(tmp_path, report)
    first, second = load_report(folder.path).results[0].measurements
    assert math.isnan(first.value)
    assert first.bar == math.inf
    assert second.value == -math.inf
    assert math.isnan(load_report(folder.path).curves[0].losses[3])

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads((folder.path / "report.json").read_text(), parse_constant=refuse)


def test_lone_surrogates_do_not_stop_a_write(tmp_path, report):
    report.results[0].message = "file \udcff\ud800"
    report.results[0].evidence = {"path\udcff": "a\udcff"}
    folder = RunFolder.create(tmp_path, report)
    loaded = load_report(folder.path).results[0]
    assert loaded.message == "file \ufffd\ufffd"
    assert loaded.evidence == {"path\ufffd": "a\ufffd"}


def test_an_interrupted_write_leaves_the_older_file(tmp_path, report, monkeypatch):
    folder = RunFolder.create(tmp_path, report)

    def killed(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    changed = report.model_copy(update={"seed": 99})
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.write(changed)
    assert load_report(folder.path).seed == report.seed
    folder.write(changed)
    assert load_report(folder.path).seed == 99
    assert [path.name for path in folder.path.iterdir()] == ["report.json"]


def test_killed_process_leaves_a_readable_report(tmp_path, report):
    """SIGKILL while a process does nothing but write."""
    folder = RunFolder.create(tmp_path, report.model_copy(update={"complete": False}))
    code = (
        "import sys; from pathlib import Path; from trncheck.reports.store import RunFolder, load_report\n"
        "folder = RunFolder(Path(sys.argv[1])); report = load_report(folder.path); print('on', flush=True)\n"
        "while True: folder.write(report)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(folder.path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    for _ in range(20):
        assert load_report(folder.path).complete is False
    process.kill()
    process.communicate()
    assert len(load_report(folder.path).results) == len(report.results)


def one_line_error(path: Path) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        load_report(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_missing_file(tmp_path):
    assert "No such file" in one_line_error(tmp_path / "report.json")
    assert "report.json" in one_line_error(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[]", b"null", b'{"a": 1}'])
def test_files_that_are_no_report(tmp_path, content):
    (tmp_path / "report.json").write_bytes(content)
    one_line_error(tmp_path / "report.json")


def test_cut_file_names_the_line(tmp_path, report):
    path = RunFolder.create(tmp_path, report).path / "report.json"
    path.write_text("\n".join(path.read_text().split("\n")[:40]))
    assert "line 40" in one_line_error(path)


def test_reads_what_an_older_kit_wrote(tmp_path, report):
    path = RunFolder.create(tmp_path, report).path / "report.json"
    data = json.loads(path.read_text())
    data["schema_version"] = "1.0"
    del data["executions"]
    path.write_text(json.dumps(data))
    assert load_report(path) == report.model_copy(update={"executions": []})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["results"][3].update(outcome="great"), "results[3].outcome"),
        (lambda d: d["results"][3].pop("title"), "results[3].title"),
        (lambda d: d["pins"][0].update(extra="\x1b[31m\n"), "pins[0].extra"),
        (lambda d: d.update(seed="many"), "seed"),
        (lambda d: d.update(schema_version="2.0"), "schema version 2.0"),
        (lambda d: d.update(schema_version=["\n" * 100]), "schema version"),
    ],
)
def test_wrong_content_names_the_field(tmp_path, report, change, told):
    path = RunFolder.create(tmp_path, report).path / "report.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    assert told in one_line_error(path)


def test_folder_that_cannot_be_made(tmp_path, report):
    blocked = tmp_path / "results"
    blocked.write_text("a file")
    with pytest.raises(ValueError, match="cannot be written") as caught:
        RunFolder.create(blocked, report)
    assert str(blocked) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_run_folder_is_never_used_twice(tmp_path, report):
    RunFolder.create(tmp_path, report)
    with pytest.raises(ValueError, match="File exists"):
        RunFolder.create(tmp_path, report)


@pytest.mark.parametrize("release", ["", "..", "../../etc", "a\nb", "a/b"])
def test_names_cannot_leave_the_results_folder(tmp_path, report, release):
    with pytest.raises(ValueError, match="cannot name a results folder"):
        RunFolder.create(tmp_path / "results", report.model_copy(update={"release": release}))
    assert not list(tmp_path.iterdir())


def test_page_without_its_packages_leaves_the_other_files(tmp_path, report, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    folder = RunFolder.create(tmp_path, report)
    with pytest.raises(ValueError, match=r"report\.html needs jinja2: pip install"):
        folder.finish(report)
    assert (folder.path / "report.md").exists()
    assert (folder.path / "junit.xml").exists()


def test_schema_and_store_import_nothing_heavy():
    code = (
        "import sys, trncheck.reports.schema, trncheck.reports.store\n"
        "print([n for n in ('jinja2', 'matplotlib', 'rich', 'torch', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
