"""The baseline file and the rule behind its bands: what is written, what loads, and what is refused in one line."""

import json
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trncheck.reports.baseline import Baseline, default_path, dump_baseline, load_baseline, write_baseline
from trncheck.reports.baseline_band import RULE, band, spread_factor
from trncheck.reports.baseline_changes import propose
from trncheck.reports.schema import CheckResult, Measurement, Outcome

ID = "losses.start"
HOSTILE = "\x1b[31m\u202e\ud800 | `</script>`\n.."


def named(make_report, names=("gap",)) -> list:
    """Three repeats with one check."""
    runs = []
    for n in range(3):
        check = CheckResult(
            id=ID,
            subject="losses",
            title="Training starts where it must.",
            outcome=Outcome.PASS,
            level="smoke",
            target="cpu",
            version="a" * 12,
            measurements=[Measurement(name=name, value=0.1 + 0.1 * n, bar=1.0, unit="nat") for name in names],
        )
        started = f"2026-03-0{n + 1}T10:15:00+00:00"
        runs.append(make_report(run_id=f"run-{n}", started=started, kit_commit="c3931d2", results=[check]))
    return runs


@pytest.fixture
def baseline(make_report, tmp_path) -> Baseline:
    """Of three runs with the values 0.1, 0.2 and 0.3."""
    return propose(named(make_report), "the first", tmp_path / "absent.json").baseline


def test_it_says_what_was_measured_and_where(baseline):
    number = baseline.checks[ID].numbers["gap"]
    assert (number.n, number.mean, number.min, number.max) == (3, pytest.approx(0.2), 0.1, pytest.approx(0.3))
    assert number.std == pytest.approx(0.1)
    assert number.golden is None
    assert number.high == pytest.approx(0.2 + 0.1 * 31.599 * math.sqrt(4 / 3))
    of = baseline.provenance
    assert [run.run_id for run in of.runs] == ["run-0", "run-1", "run-2"]
    assert of.runs[0].started == "2026-03-01T10:15:00+00:00"
    assert (of.release, of.target, of.level, of.kit_commit) == ("2.33.0", "cpu", "standard", "c3931d2")
    assert (of.reason, of.previous) == ("the first", None)
    assert of.environment["package torch"] == "2.13.0+cpu"
    assert baseline.rule == RULE


def test_it_reads_back_as_it_was(baseline, tmp_path):
    path = tmp_path / "new" / "baseline.json"
    write_baseline(baseline, path)
    assert load_baseline(path)[0] == baseline
    assert [file.name for file in path.parent.iterdir()] == ["baseline.json"]


def test_the_file_is_for_people_who_read_differences(baseline):
    text = dump_baseline(baseline)
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert max(len(line) for line in text.split("\n") if '"rule"' not in line) < 120
    one = json.loads(text)
    one["checks"][ID]["numbers"]["gap"]["unit"] = "bit"
    changed = dump_baseline(Baseline.model_validate(one))
    assert sum(a != b for a, b in zip(text.split("\n"), changed.split("\n"), strict=True)) == 1


def test_hostile_names_survive_and_stay_visible(make_report, tmp_path):
    runs = named(make_report, (HOSTILE, "x", "x", "x (2)"))
    baseline = propose(runs, f"why {HOSTILE}", tmp_path / "b.json").baseline
    write_baseline(baseline, tmp_path / "b.json")
    assert load_baseline(tmp_path / "b.json")[0] == baseline
    assert set(baseline.checks[ID].numbers) == {HOSTILE, "x", "x (2)", "x (2) (2)"}
    assert not {"\x1b", "\u202e"} & set((tmp_path / "b.json").read_text())
    assert "\n" not in baseline.provenance.reason


def lacking(*keys: str):
    """A change that takes away the field at ``keys``."""

    def change(data: dict) -> None:
        for key in keys[:-1]:
            data = data[key]
        del data[keys[-1]]

    return change


def having(value: object, *keys: str):
    """A change that puts ``value`` at ``keys``."""

    def change(data: dict) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


GAP = ("checks", ID, "numbers", "gap")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lacking("provenance"), "field provenance: Field required"),
        *(
            (lacking("provenance", field), f"field provenance.{field}: Field required")
            for field in (
                *("release", "target", "level", "kit_version", "kit_commit", "seed", "runs", "environment"),
                *("fingerprint", "reason", "previous"),
            )
        ),
        *(
            (lacking(*GAP, field), f"field checks.{ID}.numbers.gap.{field}: Field required")
            for field in ("n", "mean", "std", "min", "max", "low", "high", "golden", "bar", "unit")
        ),
        (lacking("checks", ID, "version"), f"field checks.{ID}.version: Field required"),
        (lacking("rule"), "field rule: Field required"),
        (lacking("baseline_version"), "no baseline_version"),
        (having("9.0", "baseline_version"), "baseline version 9.0, this trncheck reads 1.0"),
        (having(" ", "provenance", "reason"), "field provenance.reason"),
        (having(None, "provenance", "kit_commit"), "field provenance.kit_commit"),
        (having("c3931d2+dirty", "provenance", "kit_commit"), "not of a clean checkout"),
        (having("yesterday", "provenance", "previous"), "field provenance.previous"),
        (having([], "provenance", "runs"), "field provenance.runs"),
        (having("12.9", "provenance", "environment", "Python"), "fingerprint is not that of the environment"),
        (having(2, *GAP, "n"), f"field checks.{ID}.numbers.gap.n"),
        (having("0.2", *GAP, "mean"), "field checks.losses.start.numbers.gap.mean"),
        (having(0.9, *GAP, "mean"), "not between min and max"),
        (having(9.9, *GAP, "high"), "not what the rule gives"),
        (having(0.2, *GAP, "golden"), "a golden value where min and max are others"),
        (having(float("nan"), *GAP, "std"), "field checks.losses.start.numbers.gap.std"),
        (having({}, "checks", ID, "numbers"), f"field checks.{ID}.numbers"),
        (having(1, "checks", ID, "extra"), "Extra inputs are not permitted"),
    ],
)
def test_a_number_without_provenance_does_not_load(baseline, tmp_path, change, words):
    path = tmp_path / "baseline.json"
    data = json.loads(dump_baseline(baseline))
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="baseline") as caught:
        load_baseline(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert words in message
    assert "trncheck baseline propose" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "line 1: not JSON"),
        (b"[]", "no baseline_version"),
        (b"\xff", "not JSON (UnicodeDecodeError)"),
        (b"[" * 100_000, "not JSON (RecursionError)"),
        (b'{"checks": 1,\n"checks": 2}', "key 'checks' is there twice"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_baseline_is_one_line(tmp_path, content, words):
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="baseline") as caught:
        load_baseline(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unwritable_file_is_one_line(baseline, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot be written \(.*\); choose another file"):
        write_baseline(baseline, tmp_path / "file" / "baseline.json")


def test_the_default_path_stays_where_it_belongs():
    assert str(default_path("2.33.0", "trn2")) == "baselines/2.33.0-trn2.json"
    for release in ("../x", "a/b", "", ".", "a\nb", "\x1b[0m"):
        with pytest.raises(ValueError, match="cannot name a file"):
            default_path(release, "cpu")


@pytest.mark.parametrize("n", [3, 4, 5, 7, 11, 12, 30, 61, 200])
def test_the_factor_covers_999_of_1000_more_runs(n):
    """Student's density, integrated; entries between the table's are wider than needed, never narrower."""
    quantile, degrees = spread_factor(n) / math.sqrt(1 + 1 / n), n - 1
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    steps = 4000
    width = quantile / steps
    inner = sum((1 + ((k + 0.5) * width) ** 2 / degrees) ** (-(degrees + 1) / 2) for k in range(steps))
    assert 0.99895 <= 2 * scale * inner * width <= 0.9996


def test_the_band_of_runs_that_do_not_vary():
    def half(mean: float, bar: float | None, relation: str = "<=") -> float:
        low, high = band(n=3, mean=mean, std=0.0, least=mean, most=mean, bar=bar, relation=relation)
        assert mean - low == pytest.approx(high - mean)
        return high - mean

    assert half(0.5, bar=1.0) == pytest.approx(0.1)
    assert half(7.0, bar=2.0, relation=">=") == pytest.approx(0.2)
    assert half(12.4, bar=None) == pytest.approx(12.4 * 64 * 2**-23)
    assert half(24, bar=24, relation="==") < 1, "a count has no slack"
    assert half(0.5, bar=math.inf) < 1e-4
    assert half(0.0, bar=None) == 0


@given(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=200), st.none() | st.floats(allow_nan=False))
def test_the_band_holds_the_runs_behind_it(values, bar):
    try:
        mean, std = statistics.mean(values), statistics.stdev(values)
    except OverflowError:
        return
    low, high = band(n=len(values), mean=mean, std=std, least=min(values), most=max(values), bar=bar, relation="<=")
    assert low <= min(values) <= max(values) <= high


def test_false_alarms_are_as_rare_as_promised():
    draw, alarms, times = random.Random(1), 0, 4000
    for _ in range(times):
        values = [draw.gauss(0, 1) for _ in range(5)]
        mean, std = statistics.fmean(values), statistics.stdev(values)
        low, high = band(n=5, mean=mean, std=std, least=min(values), most=max(values), bar=None, relation="<=")
        alarms += not low <= draw.gauss(0, 1) <= high
    assert alarms / times < 0.003
