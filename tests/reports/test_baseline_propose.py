"""Proposing a baseline: which runs are refused, and what is said of the numbers that move."""

import io
import itertools
import math

import pytest
from rich.console import Console

from trncheck.reports.baseline import dump_baseline, write_baseline
from trncheck.reports.baseline_changes import Proposal, propose
from trncheck.reports.baseline_text import print_proposal
from trncheck.reports.schema import CheckResult, Measurement, Outcome
from trncheck.reports.text import clean

WORST = "gradient, worst in layer {}"


def check(*values: float, id: str = "losses.start", names: str = "abcdef", **changes) -> CheckResult:
    """A green check with these measurements."""
    measurements = [Measurement(name=name, value=v, unit="nat") for name, v in zip(names, values, strict=False)]
    fields = {"outcome": Outcome.PASS, "version": "a" * 12, "measurements": measurements} | changes
    return CheckResult(id=id, subject="losses", title="Training starts.", level="smoke", target="cpu", **fields)


@pytest.fixture
def run(make_report):
    """``run(n, checks)``: the n-th repeat."""

    def run(n: int, *checks: CheckResult, **changes):
        fields = {"run_id": f"run-{n}", "started": f"2026-03-0{n}T10:15:00+00:00", "kit_commit": "c3931d2"} | changes
        return make_report(results=list(checks), **fields)

    return run


@pytest.fixture
def path(tmp_path):
    """Where the baseline goes."""
    return tmp_path / "baseline.json"


def said(proposal: Proposal) -> str:
    file = io.StringIO()
    print_proposal(proposal, Console(file=file, width=200))
    return file.getvalue()


def test_refused_without_a_reason(run, path):
    for reason in ("", "  \n", "\x1b[0m"):
        with pytest.raises(ValueError, match=r"^no reason given; say with --reason"):
            propose([run(n, check(1.0)) for n in (1, 2, 3)], reason, path)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_refused_with_fewer_than_three(run, path, count):
    with pytest.raises(ValueError, match=f"^{count} runs? given, a spread needs at least 3"):
        propose([run(n + 1, check(1.0)) for n in range(count)], "why", path)


def test_refused_where_a_run_counts_twice(run, path):
    with pytest.raises(ValueError, match=r"^run run-1 was given 2 times"):
        propose([run(n, check(1.0)) for n in (1, 2, 1)], "why", path)


RETRIED = "losses.start took more than one attempt; find out why it is flaky"


@pytest.mark.parametrize(
    ("changes", "checks", "words"),
    [
        ({"complete": False}, [check(1.0)], "it did not finish"),
        ({"target": "trn2-rehearsal"}, [check(1.0)], "it was a rehearsal"),
        ({"kit_commit": "c3931d2+dirty"}, [check(1.0)], "changes that no commit holds (c3931d2+dirty)"),
        ({"kit_commit": None}, [check(1.0)], "the commit of the kit is not known"),
        ({}, [check(1.0, outcome=Outcome.FAIL)], "losses.start failed"),
        ({}, [check(1.0, outcome=Outcome.UNEXPECTED_PASS)], "losses.start failed"),
        ({}, [check(1.0, outcome=Outcome.FAIL, required=False)], "losses.start failed"),
        ({}, [check(1.0, attempt=2)], RETRIED),
        ({}, [check(1.0, outcome=Outcome.FAIL), check(1.0)], RETRIED),
        ({}, [check(1.0, id=f"a.b{n}", outcome=Outcome.FAIL) for n in range(3)], "a.b0 and 2 more checks failed"),
        ({"release": "2.32.0"}, [check(1.0)], "release (2.33.0 and 2.32.0)"),
        ({"target": "trn2"}, [check(1.0)], "target (cpu and trn2)"),
        ({"level": "smoke"}, [check(1.0)], "level (standard and smoke)"),
        ({"kit_commit": "bbbbbbb"}, [check(1.0)], "kit commit (c3931d2 and bbbbbbb)"),
        ({"seed": 7}, [check(1.0)], "seed (1234 and 7)"),
        ({}, [check(1.0, version="b" * 12)], "version of check losses.start (aaaaaaaaaaaa and bbbbbbbbbbbb)"),
    ],
)
def test_refused_for_what_a_run_is(run, path, changes, checks, words):
    good = [run(n, check(1.0)) for n in (1, 2, 3)]
    bad = run(4, *checks, **changes)
    for runs in itertools.permutations([*good, bad]):
        with pytest.raises(ValueError, match="run-4") as caught:
            propose(runs, "why", path)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not path.exists()


def test_refused_where_environments_differ(run, path):
    runs = [run(n, check(1.0)) for n in (1, 2, 3)]
    runs[2].environment.packages = runs[2].environment.packages | {"torch": "2.14.0\n"}
    with pytest.raises(ValueError, match=r"differ in environment: package torch \(2.13.0\+cpu and 2.14.0\)"):
        propose(runs, "why", path)


def test_memory_and_log_variables_are_no_difference(run, path):
    runs = [run(n, check(1.0)) for n in (1, 2, 3)]
    runs[1].environment.memory_gib = 1.0
    runs[1].environment.variables = runs[1].environment.variables | {"NEURON_RT_LOG_LEVEL": "INFO"}
    assert propose(runs, "why", path)
    runs[1].environment.variables = runs[1].environment.variables | {"OMP_NUM_THREADS": "9"}
    with pytest.raises(ValueError, match="variable OMP_NUM_THREADS"):
        propose(runs, "why", path)


def test_refused_without_a_number(run, path):
    with pytest.raises(ValueError, match="no number that 3 of them measured"):
        propose([run(n, check()) for n in (1, 2, 3)], "why", path)


def test_a_damaged_file_in_its_place_is_not_overwritten(run, path):
    path.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        propose([run(n, check(1.0)) for n in (1, 2, 3)], "why", path)
    assert path.read_text() == "{"


def test_the_order_of_the_runs_does_not_matter(run, path):
    runs = [run(n, check(0.1 * n, 7.0, -0.0 if n % 2 else 0.0), check(3.0 / n, id="a.b")) for n in (1, 2, 3, 4)]
    files = {dump_baseline(propose(order, "why", path).baseline) for order in itertools.permutations(runs)}
    assert len(files) == 1


def test_golden_where_all_runs_agree_to_the_last_bit(run, path):
    values = [(7.0, 0.1, 0.0), (7.0, 0.1, 0.0), (7.0, math.nextafter(0.1, 1), -0.0)]
    proposal = propose([run(n + 1, check(*values[n])) for n in range(3)], "why", path)
    numbers = proposal.baseline.checks["losses.start"].numbers
    assert [numbers[name].golden for name in "abc"] == [7.0, None, None]
    assert "3 numbers of 1 check, 1 equal in all runs bit for bit" in said(proposal)


def test_a_name_with_the_place_of_the_worst_is_one_number(run, path):
    runs = [run(n, check(0.1 * n, 5.0, names=[WORST.format(n), "loss"])) for n in (1, 2, 3)]
    numbers = propose(runs, "why", path).baseline.checks["losses.start"].numbers
    assert {name: number.n for name, number in numbers.items()} == {WORST.format(1): 3, "loss": 3}


def test_what_cannot_be_part_of_it_is_said(run, path):
    runs = [run(n, check(1.0, math.nan, 1e308 * (-1) ** n), check(2.0, id="a.b", version="")) for n in (1, 2, 3)]
    runs[0].results[0].measurements.append(Measurement(name="once", value=1.0, unit="s"))
    runs[1].results.append(check(1.0, id="c.d"))
    proposal = propose(runs, "why", path)
    assert {(left.id, left.name): left.reason for left in proposal.left_out} == {
        ("a.b", "a"): "the version of the check is not known",
        ("c.d", "a"): "measured in 1 of the runs",
        ("losses.start", "b"): "not a finite number in every run",
        ("losses.start", "c"): "too large for a mean and a band",
        ("losses.start", "once"): "measured in 1 of the runs",
    }
    assert "c.d, a: measured in 1 of the runs" in said(proposal)
    assert list(proposal.baseline.checks["losses.start"].numbers) == ["a"]


def test_the_strictest_bar_counts(run, path):
    runs = [run(n, check(0.1)) for n in (1, 2, 3)]
    for bar, report in zip((3.0, 2.0, math.inf), runs, strict=True):
        report.results[0].measurements[0].bar = bar
    assert propose(runs, "why", path).baseline.checks["losses.start"].numbers["a"].bar == 2.0


@pytest.fixture
def moved(run, path) -> Proposal:
    """From one baseline to another."""
    gone = check(1.0, id="gone.check")
    old = [run(n, check(0.1, 1.0 + n, 5.0, 6.0), check(1.0, id="changed.check"), gone) for n in (1, 2, 3)]
    write_baseline(propose(old, "the first", path).baseline, path)
    changed, fresh = check(2.0, id="changed.check", version="b" * 12), check(1.0, id="new.check")
    new = [run(n, check(0.2, 3.0 + n, 5.0), changed, fresh, kit_commit="ddddddd") for n in (4, 5, 6)]
    return propose(new, "kernels\nchanged", path)


def test_moves_come_with_before_after_and_effect_size(moved):
    assert [(move.name, move.before.mean, move.after.mean) for move in moved.moves] == [("a", 0.1, 0.2), ("b", 3, 8)]
    assert [move.effect for move in moved.moves] == [None, pytest.approx(5.0)]
    text = said(moved)
    assert "0.1 nat (all equal, 3 runs) -> 0.2 nat (all equal, 3 runs), no spread measured" in text
    assert "3 nat (std 1, 3 runs) -> 8 nat (std 1, 3 runs), +5 pooled standard deviations" in text
    assert "reason: kernels changed\n" in text


def test_coverage_is_said(moved):
    assert moved.kept == 1
    assert moved.new == {"new.check": ["a"]}
    assert moved.gone == {"gone.check": ["a"], "losses.start": ["d"]}
    assert moved.changed == {"changed.check": ("a" * 12, "b" * 12)}
    text = said(moved)
    assert "changed.check: aaaaaaaaaaaa -> bbbbbbbbbbbb" in text
    assert "2 moved, 1 as before, 1 new, 2 gone, 1 check of another version." in text


def test_it_names_the_file_that_it_replaces(moved, path):
    import hashlib

    assert moved.replaced is not None
    assert moved.baseline.provenance.previous == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_wider_spread_is_a_move(run, path):
    write_baseline(propose([run(n, check(v)) for n, v in ((1, 2.0), (2, 2.0), (3, 2.0))], "why", path).baseline, path)
    proposal = propose([run(n, check(v)) for n, v in ((4, 1.0), (5, 2.0), (6, 3.0))], "why", path)
    assert [move.effect for move in proposal.moves] == [0.0]


def test_runs_of_selected_checks_are_named(run, path):
    runs = [run(n, check(1.0), command="pytest --pyargs trncheck.conformance --check 'a.*'") for n in (1, 2, 3)]
    assert propose(runs, "why", path).warnings == ["3 runs of selected checks only: the baseline has no others."]


def test_text_from_outside_stays_text(run, path):
    hostile = "\x1b[31m[bold]\u202e\ud800\n</b> [/]"
    runs = [run(n, check(0.1 * n, names=[hostile], id=hostile), check(math.nan, id=f"x{hostile}")) for n in (1, 2, 3)]
    for report in runs:
        report.release = hostile
    text = said(propose(runs, hostile, path))
    assert text == clean(text)
    assert "[bold]" in text
