"""``ci/nightly.sh`` with a ``trncheck`` that only pretends: what it calls, keeps, moves, and how it ends."""

import fcntl
import signal
import sys

import pytest

REAL = """
import json, sys
from pathlib import Path
from trncheck.cli import main
from trncheck.reports.schema import CheckResult, Environment, Outcome, Report, Verdict, VerdictStatus
from trncheck.reports.store import RunFolder

if sys.argv[1] != "run":
    sys.exit(main())
plan = json.loads((Path(__file__).parent / "plan.json").read_text())
results = [
    CheckResult(
        id=id, subject=id.split(".")[0], title="A claim.", outcome=Outcome.PASS, level="smoke", target="cpu",
        version="a" * 12,
    )
    for id in plan["checks"]
]
report = Report(
    run_id=plan["run_id"], kit_version="0.1.0", kit_commit="c3931d2", release="2.33.0", release_date="2026-02-20",
    target="cpu", level="smoke", command="trncheck run", seed=42, started="2026-03-01T10:15:00+00:00", complete=True,
    verdict=Verdict(status=VerdictStatus.INCOMPLETE, headline="Nothing failed."), results=results,
    environment=Environment(
        python="3.11.7", os="Linux", machine="x86_64", cpu="Xeon", cores=2, memory_gib=15.6, accelerator="none"
    ),
)
root = next(word for word in sys.argv if word.startswith("--results=")).removeprefix("--results=")
RunFolder.create(Path(root), report).finish(report)
"""

BUSY, OWN_FAILURE, BAD_INPUT = 75, 3, 2


def test_the_first_night_compares_with_nothing_and_becomes_the_last_good_one(host):
    night = host.run()
    assert night.status == 0, night.err
    assert host.last_good() == night.name
    assert host.called("diff") == []
    assert "GREEN" in host.summary()
    assert "no last good run to compare with" in host.summary()
    assert "the report of the run" in host.summary()
    assert "the output of the run" in night.out
    assert (night.folder / "nightly.log").read_text() == "the output of the run\n"
    assert (host.results / "trend.html").read_text() == "trend as html\n"


def test_a_green_night_moves_last_good_and_says_what_it_was_compared_with(host):
    first, second = host.run(), host.run()
    assert second.status == 0, second.err
    assert host.last_good() == second.name
    assert [call[:2] for call in host.called("diff")] == [[str(first.folder), str(second.folder)]] * 2
    assert (second.folder / "diff.txt").read_text() == "diff as text\n"
    assert (second.folder / "diff.md").read_text() == "diff as markdown\n"
    assert f"| last good run until now | `{first.name}` |" in host.summary()
    assert "| last good run from now on | this one |" in host.summary()
    assert "diff as markdown" in host.summary()


def test_a_red_night_is_compared_and_leaves_last_good_where_it_was(host):
    first, second = host.run(), host.run(run=1, diff=1)
    assert second.status == 1
    assert host.last_good() == first.name
    assert (second.folder / "diff.txt").exists()
    assert "RED" in host.summary()
    assert "| 1 (trncheck run) |" in host.summary()


def test_the_first_night_may_be_red(host):
    night = host.run(run=1)
    assert (night.status, host.last_good()) == (1, None)
    assert "the report of the run" in host.summary()


def test_a_diff_that_says_worse_is_the_status_and_leaves_last_good_where_it_was(host):
    first, second = host.run(), host.run(diff=1)
    assert second.status == 1
    assert "diff as text" in second.out
    assert host.last_good() == first.name
    assert "| 1 (trncheck diff) |" in host.summary()


@pytest.mark.parametrize("how", [(["--accept"], None), ([], {"NIGHTLY_ACCEPT": "1"})], ids=["option", "environment"])
def test_a_worse_run_without_failures_can_be_accepted(host, how):
    options, environment = how
    host.run()
    night = host.run(*options, environment=environment, diff=1)
    assert (night.status, host.last_good()) == (0, night.name)


def test_a_run_with_failures_cannot_be_accepted(host):
    first, night = host.run(), host.run("--accept", run=1)
    assert (night.status, host.last_good()) == (1, first.name)


def test_the_status_of_the_run_wins_over_that_of_the_diff(host):
    host.run()
    assert host.run(run=1, diff=2).status == 1


def test_a_last_good_run_that_cannot_be_read_is_red_until_accepted(host):
    first, night = host.run(), host.run(diff=2)
    assert (night.status, host.last_good()) == (BAD_INPUT, first.name)
    assert "it went wrong" in night.err
    assert "--accept" in host.summary()
    night = host.run("--accept", diff=2)
    assert (night.status, host.last_good()) == (0, night.name)


def test_a_trend_that_crashes_loses_nothing(host):
    first = host.run()
    page = (host.results / "trend.html").read_text()
    night = host.run(trend=139)
    assert night.status == 0
    assert host.last_good() == night.name != first.name
    assert (night.folder / "diff.md").exists()
    assert (host.results / "trend.html").read_text() == page
    assert "trncheck trend ended with status 139" in host.summary()
    assert "diff as markdown" in host.summary()


def test_a_diff_that_crashes_loses_nothing(host):
    first, night = host.run(), host.run(diff=139)
    assert (night.status, host.last_good()) == (139, first.name)
    assert (night.folder / "nightly.log").exists()
    assert (host.results / "trend.html").exists()
    assert "No diff" in host.summary()


def test_a_run_without_a_report_shows_the_end_of_its_log(host):
    first, night = host.run(), host.run(run=2, writes=False)
    assert (night.status, host.last_good()) == (2, first.name)
    assert "    the output of the run" in host.summary()
    assert (host.results / "nightly-cpu-smoke.log").exists()


def test_a_run_that_ends_well_without_a_report_is_not_green(host):
    assert host.run(writes=False).status == OWN_FAILURE
    assert host.last_good() is None


def test_an_incomplete_report_is_not_compared_gets_its_pages_and_moves_nothing(host):
    first, night = host.run(), host.run(run=3, complete=False)
    assert (night.status, host.last_good()) == (3, first.name)
    assert host.called("report") == [[str(night.folder)]]
    assert host.called("diff") == []
    assert host.run(complete=False).status == OWN_FAILURE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_stopped_night_ends_the_run_in_good_order_and_keeps_what_it_found(host, number):
    process = host.start(hang=True, complete=False)
    assert any(line == "hanging\n" for line in process.stdout)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert (host.root / "bin" / "interrupted").exists()
    assert "(stopped)" in host.summary()
    assert (host.results / "trend.html").exists()
    assert host.run().status == 0  # the lease is free again


def test_a_busy_lease_is_one_line_that_names_the_holder_and_runs_nothing(host):
    host.run()
    before = host.summary()
    with open(host.root / "a lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        night = host.run()
    assert (night.status, night.out) == (BUSY, "")
    assert len(night.err.splitlines()) == 1
    assert "is held by pid " in night.err
    assert "(cpu, smoke)" in night.err
    assert len(host.called("run")) == 1
    assert host.summary() == before


def test_a_lease_without_a_name_in_it_is_busy_all_the_same(host):
    with open(host.root / "a lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "held by an unknown process" in host.run().err


def test_options_beat_the_environment(host):
    elsewhere = host.root / "elsewhere"
    environment = {"NIGHTLY_RELEASE": "2.32.0", "NIGHTLY_LINK": "https://ci.example/1"}
    options = ["--target", "trn2", "--level=full", "--release", "my release.yaml", "--results", str(elsewhere)]
    night = host.run(*options, environment=environment)
    assert night.status == 0, night.err
    assert host.called("run") == [
        ["--target", "trn2", "--level", "full", f"--results={elsewhere}", "--release=my release.yaml"]
    ]
    assert not host.results.exists()
    assert (elsewhere / "last-good-trn2-full").exists()
    assert "<https://ci.example/1>" in (elsewhere / "summary-trn2-full.md").read_text()


def test_the_environment_beats_the_defaults_and_nothing_is_asked_for_that_was_not_given(host):
    host.run()
    assert host.called("run") == [["--target", "cpu", "--level", "smoke", f"--results={host.results}"]]
    environment = dict.fromkeys(("NIGHTLY_TARGET", "NIGHTLY_LEVEL", "NIGHTLY_RESULTS"), "")
    assert host.run(environment=environment).status == 0
    assert host.called("run")[1] == ["--target", "trn2", "--level", "standard", f"--results={host.root / 'results'}"]


def test_the_summary_goes_where_it_was_asked_for(host):
    place = host.root / "my summary.md"
    assert host.run("--summary", str(place)).status == 0
    assert "GREEN" in place.read_text()
    assert host.run("--summary", str(host.root / "missing" / "summary.md")).status == OWN_FAILURE


def test_targets_and_levels_have_a_last_good_run_each(host):
    first, second = host.run(), host.run("--level", "full")
    assert (host.last_good(), host.last_good(level="full")) == (first.name, second.name)
    assert host.called("diff") == []


def test_what_a_report_says_is_text_in_the_summary(host):
    host.run(headline="<b>@everyone</b> | `x`\n# big")
    assert "&lt;b&gt;@\u2060everyone&lt;/b&gt; \\| \\`x\\` \\# big" in host.summary()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fast"], "unknown option --fast: see ci/nightly.sh --help"),
        (["trn2"], "unknown option trn2"),
        (["--target"], "--target needs a value"),
        (["--target="], "--target needs a value"),
        (["--target", "gpu"], "--target gpu: choose one of: cpu trn2"),
        (["--level", "deep"], "--level deep: choose one of: smoke standard full"),
        (["--wait", "1h"], "--wait 1h: give whole seconds"),
        (["--results", "/dev/null/x"], "--results /dev/null/x: cannot be made"),
        (["--lock", "/dev/null/x"], "--lock /dev/null/x: cannot be made"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_with_status_2(host, options, says):
    night = host.run(*options)
    assert (night.status, night.out) == (BAD_INPUT, "")
    assert len(night.err.splitlines()) == 1
    assert says in night.err
    assert host.calls == []


def test_a_missing_trncheck_is_one_line_with_status_2(host):
    (host.root / "bin" / "trncheck").unlink()
    night = host.run(environment={"PATH": "/usr/bin:/bin"})
    assert (night.status, len(night.err.splitlines())) == (BAD_INPUT, 1)
    assert "trncheck is not on PATH" in night.err


def test_help_names_every_status(host):
    night = host.run("--help")
    assert night.status == 0
    assert "75   the lease is busy" in night.out


def test_the_real_diff_and_trend_read_what_a_night_leaves(host):
    """``run`` alone is pretended: it stores reports of which the second lost a check."""
    (host.root / "bin" / "trncheck").write_text(f"#!{sys.executable}\n{REAL}")
    first = host.run(checks=["losses.start", "paths.batch"])
    assert first.status == 0, first.err
    worse = host.run(checks=["losses.start"])
    assert (worse.status, host.last_good()) == (1, first.name)
    assert "No longer covered (1)" in host.summary()
    assert "`paths.batch`" in host.summary()
    assert "<html" in (host.results / "trend.html").read_text()
