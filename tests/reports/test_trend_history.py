"""Reading a store of runs: what is kept, and that a file that cannot be read is named and skipped."""

import json

import pytest

from trncheck.reports.history import read_history
from trncheck.reports.schema import Measurement, Outcome
from trncheck.reports.store import RunFolder, load_report


@pytest.fixture
def put(make_report, tmp_path):
    """Stores a sample run; gives the path of its ``report.json``."""
    return lambda run_id, **changes: (
        RunFolder.create(tmp_path, make_report(run_id=run_id, **changes)).path / "report.json"
    )


def test_what_is_kept_equals_the_report(put, tmp_path):
    path = put("1")
    report = load_report(path)
    (run,) = read_history([tmp_path]).runs
    assert (run.path, run.run_id, run.release, run.level) == (path, "1", report.release, report.level)
    assert (run.kit_commit, run.complete, run.whole) == (report.kit_commit, True, True)
    assert list(run.results) == [result.id for result in report.results]
    for result in report.results:
        kept = run.results[result.id]
        assert (kept.outcome, kept.required, kept.version) == (result.outcome, result.required, result.version)
        assert bool(kept.message) == (result.outcome.is_failure and bool(result.message))
        assert [(n.name, n.value, n.bar, n.relation, n.unit) for n in kept.numbers] == [
            (m.name, m.value, m.bar, m.relation, m.unit) for m in result.measurements
        ]


def test_a_report_of_an_older_kit_is_kept_like_any_other(put, tmp_path):
    path = put("1")
    data = json.loads(path.read_bytes())
    del data["executions"]
    path.write_text(json.dumps(data | {"schema_version": "1.0"}))
    assert [(run.run_id, bool(run.results)) for run in read_history([tmp_path]).runs] == [("1", True)]


def test_runs_come_in_the_order_of_time_from_any_depth(put, tmp_path):
    put("b", started="2026-03-02T00:00:00+00:00")
    put("a", started="2026-03-03T00:00:00+00:00")
    put("c", started="2026-03-01T00:00:00+00:00", release="2.32.0")
    assert [run.run_id for run in read_history([tmp_path]).runs] == ["c", "b", "a"]
    assert [run.run_id for run in read_history([tmp_path / "2.33.0" / "cpu"]).runs] == ["b", "a"]


def test_a_run_is_whole_when_it_ended_and_was_not_asked_for_single_checks(put, tmp_path):
    put("1")
    put("2", complete=False)
    put("3", command="trncheck run --check 'losses.*'")
    assert [(run.run_id, run.whole) for run in read_history([tmp_path]).runs] == [
        ("1", True),
        ("2", False),
        ("3", False),
    ]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"seed": 5}, False),
        ({"kit_commit": "abc"}, False),
        ({"kit_version": "0.2.0"}, False),
        ({"release": "2.34.0"}, False),
        ({"pins": []}, False),
        ({"level": "smoke"}, True),
    ],
)
def test_state_is_all_that_matters(put, tmp_path, change, same):
    put("1", kit_commit="c3931d2")
    put("2", **{"kit_commit": "c3931d2"} | change)
    one, two = read_history([tmp_path]).runs
    assert (one.state == two.state) is same
    assert one.state_known


def test_a_package_is_part_of_the_state(put, tmp_path, report):
    packages = report.environment.packages | {"torch": "2.14.0"}
    put("1")
    put("2", environment=report.environment.model_copy(update={"packages": packages}))
    one, two = read_history([tmp_path]).runs
    assert one.state != two.state
    assert not one.state_known, "the sample's checkout is dirty"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b'{"schema_version": "1.0", "run_id', "line 1: not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not a report of trncheck"),
        (b'{"name": "other tool"}', "not a report of trncheck"),
        (b'{"schema_version": "2.0"}', "schema version 2.0"),
        (b'{"schema_version": "1.0"}', "Field required"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_skipped(put, tmp_path, content, words):
    put("1")
    broken = tmp_path / "2.33.0" / "cpu" / "2" / "report.json"
    broken.parent.mkdir()
    broken.write_bytes(content)
    history = read_history([tmp_path])
    assert [run.run_id for run in history.runs] == ["1"]
    (skipped,) = history.skipped
    assert skipped.path == str(broken)
    assert words in skipped.reason
    assert "\n" not in skipped.reason
    assert str(broken) not in skipped.reason


def test_a_damaged_outcome_is_named(put, tmp_path):
    put("1")
    path = put("2")
    data = json.loads(path.read_bytes())
    data["results"][3]["outcome"] = "great"
    path.write_text(json.dumps(data))
    (skipped,) = read_history([tmp_path]).skipped
    assert "results[3].outcome" in skipped.reason


def test_numbers_that_json_cannot_write_are_read(put, tmp_path, report):
    result = report.results[0].model_copy(update={"measurements": [Measurement(name="loss", value=float("nan"))]})
    put("1", results=[result])
    path = put("2", results=[result])
    path.write_text(path.read_text().replace('"NaN"', "NaN"))  # as a plain json.dumps would
    history = read_history([tmp_path])
    assert not history.skipped
    assert all(
        run.results[result.id].numbers[0].value != run.results[result.id].numbers[0].value for run in history.runs
    )


def test_of_several_attempts_the_last_counts(put, tmp_path, report):
    first, second = (report.results[0].model_copy(update={"outcome": o}) for o in (Outcome.FAIL, Outcome.PASS))
    put("1", results=[first, second])
    (run,) = read_history([tmp_path]).runs
    assert run.results[first.id].outcome is Outcome.PASS


def test_a_copy_counts_once(put, tmp_path):
    path = put("1")
    copy = tmp_path / "z" / "report.json"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    history = read_history([tmp_path, path.parent])
    assert len(history.runs) == 1
    assert [skipped.path for skipped in history.skipped] == [str(copy)]


def test_nothing_readable_is_an_error(put, tmp_path):
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(ValueError, match=r"none of 1 can be read, e.g. .*not JSON"):
        read_history([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r": none$"):
        read_history([tmp_path / "empty"])
    with pytest.raises(ValueError, match="no such folder"):
        read_history([tmp_path / "absent"])
