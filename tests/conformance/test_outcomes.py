"""From how a check ends to its outcome in the report, its message, and the status of the run."""

import math

import pytest

# Checks that end in every possible way, put into a module of the suite.
PLANTED = '''
import numpy as np
import pytest

from trncheck.conformance import test_pins
from trncheck.kernels import catalogue
from trncheck.kernels.simulator import isa
from trncheck.reports import text
from trncheck.conformance.bars import Bar
from trncheck.conformance.judge import KnownDefect

BAR = Bar(0.5, "half of what was seen")
GENERATED = compile("raise OSError('no space left')", "<generated>", "exec")


def without_destination(x):
    isa.dma_copy(None, x)


def planted(function):
    function.__module__ = test_pins.__name__
    setattr(test_pins, function.__name__, function)


@planted
def test_planted_pass(judge):
    """The claim, in a sentence
    of two lines.

    Why it matters is no part of the title.
    """
    judge.at_most("gap", 0.25, BAR, unit="nat", elements=512)
    judge.equal("count", 3, 3, elements=2)
    judge.note("kernel", "rope, 4 calls")
    judge.executed("tiny, 20 steps, 1 rank", {"trncheck::rope forward float32 simulator": 40})


@planted
def test_planted_nothing(judge):
    """Nothing is compared."""
    judge.report("loss", 6.54)


@planted
def test_planted_without_a_judge():
    """Nobody is asked."""


@planted
def test_planted_skip(judge):
    """Skipped."""
    judge.equal("count", 3, 3)
    pytest.skip("needs 64 cores")


@planted
@pytest.mark.informative
def test_planted_known(judge):
    """The stock backend is right."""
    judge.equal("count", 3, 3)
    raise KnownDefect("stock torchtitan leaves inv_freq uninitialised")


@planted
def test_planted_bug(judge):
    """A check that breaks."""
    {}["inv_freq"]


@planted
def test_planted_generated(judge):
    """A check that breaks in code without a file."""
    exec(GENERATED)


@planted
def test_planted_author(judge):
    """A function of the kit that breaks on what somebody else hands to it."""
    text.number(None)


@planted
def test_planted_refused(judge):
    """The simulator refuses a kernel."""
    from trncheck.kernels.simulator.launch import run

    run(without_destination, (np.zeros((2, 2), np.float32),))


@planted
def test_planted_unknown(judge):
    """The catalogue refuses a name."""
    catalogue.load("no such kernel")


@planted
def test_planted_bytes(judge):
    """A check whose message holds a file name that is not UTF-8."""
    raise OSError("cannot read \\udcff.safetensors")


@planted
def test_planted_setup(judge, no_such_fixture):
    """A check that does not start."""


@planted
def test_planted_miss(judge):
    """One number misses its bar."""
    judge.at_most("gap", 0.75, BAR, unit="nat", elements=512)
    judge.at_least("fall", 1.5, BAR)


@planted
def test_planted_several(judge):
    """Several things are wrong, [red]and all[/red] are said."""
    judge.at_least("fall", 0.25, BAR)
    judge.equal("dtype", "F16", "F32")
    judge.same_names("tensors", ["a"], ["b"])
    judge.fail("and more")


@planted
def test_planted_many(judge):
    """Much is wrong."""
    for n in range(30):
        judge.equal(f"tensor {n}", n, -1)


@planted
def test_planted_nan(judge):
    """A NaN is never good."""
    judge.at_most("gap", float("nan"), BAR)
    judge.at_least("fall", float("nan"), BAR)


@planted
def test_planted_skip_too_late(judge):
    """Skipped after a failure."""
    judge.fail("seen before")
    pytest.skip("needs 64 cores")


@planted
def test_planted_known_and_more(judge):
    """A known defect and another."""
    judge.fail("seen before")
    raise KnownDefect("stock torchtitan leaves inv_freq uninitialised")


@planted
def test_planted_bug_too_late(judge):
    """A failure, and then the check breaks."""
    judge.fail("seen before")
    {}["inv_freq"]


@planted
@pytest.mark.trn2
def test_planted_hardware(judge):
    """Only hardware can tell."""
    pytest.skip("needs a trn2")
'''


@pytest.fixture(scope="module")
def ended(inner_of_module):
    inner_of_module.plant(planted=PLANTED)
    return inner_of_module.run("-p", "planted", "--check", "pins.planted_*")


@pytest.fixture
def result(ended):
    return lambda name: ended.results[f"pins.planted_{name}"]


@pytest.fixture
def run_only(inner):
    """A run of ``pins.stack``, which passes, and of one planted check."""
    inner.plant(planted=PLANTED)
    return lambda name: inner.run("-p", "planted", "--check", "pins.stack", "--check", f"pins.planted_{name}")


def test_every_end_gives_one_result(ended):
    assert len(ended.results) == PLANTED.count("@planted\n")
    assert ended.report.complete
    assert ended.report.verdict.status == "not-conformant"
    assert ended.status == 1


def test_pass_says_what_was_compared(result):
    good = result("pass")
    assert (good.outcome, good.message) == ("pass", "")
    assert (good.compared.tensors, good.compared.elements) == (2, 514)
    assert good.evidence == {"kernel": "rope, 4 calls"}
    (gap,) = good.measurements
    assert (gap.name, gap.value, gap.bar, gap.relation, gap.unit) == ("gap", 0.25, 0.5, "<=", "nat")
    assert (gap.source, gap.ok) == ("half of what was seen", True)


def test_title_is_the_first_paragraph_of_the_docstring(result):
    assert result("pass").title == "The claim, in a sentence of two lines."


@pytest.mark.parametrize("name", ["nothing", "without_a_judge"])
def test_check_that_compares_nothing_has_not_passed(result, name):
    assert result(name).outcome == "nothing-compared"
    assert "without comparing anything" in result(name).message


def test_check_that_compares_nothing_fails_the_run(run_only):
    ended = run_only("nothing")
    assert ended.report.verdict.status == "not-conformant"
    assert ended.status == 1
    assert "NOTHING-COMPARED pins.planted_nothing" in ended.out


def test_skip_is_not_run_with_its_reason(result):
    assert (result("skip").outcome, result("skip").message) == ("not-run", "needs 64 cores")


def test_known_defect_is_expected_and_does_not_fail_the_run(run_only):
    ended = run_only("known")
    known = ended.results["pins.planted_known"]
    assert known.outcome == "expected-fail"
    assert known.message == "stock torchtitan leaves inv_freq uninitialised"
    assert not known.required
    assert ended.report.verdict.status == "incomplete"
    assert ended.status == 0


def test_unexpected_exception_fails_with_type_and_place(result):
    line = PLANTED.splitlines().index('    {}["inv_freq"]') + 1
    assert result("bug").outcome == "fail"
    assert result("bug").message == f"KeyError: 'inv_freq' (planted.py:{line})"


def test_exception_in_code_without_a_file_fails_like_any_other(result):
    assert result("generated").outcome == "fail"
    assert result("generated").message == "OSError: no space left (<generated>:1)"


def place_of(text):
    return f"planted.py:{PLANTED.splitlines().index(text) + 1}"


def test_error_behind_somebody_else_s_code_is_placed_there(result):
    assert result("author").message.endswith(f" ({place_of('    text.number(None)')})")


def test_refusal_of_the_simulator_is_its_line_alone(result, ended):
    line = place_of("    isa.dma_copy(None, x)")
    message = result("refused").message
    assert message == f"{line}: nisa.dma_copy: dst must be a tensor, not None"
    assert f"\n{message}\n" in ended.out
    assert "dma.py" not in ended.out
    assert "instruction.py" not in ended.out


def test_refusal_of_the_kit_s_own_is_its_line_alone(result, ended):
    assert result("unknown").message.startswith("no kernel is named 'no such kernel'; known kernels: ")
    assert "catalogue.py" not in ended.out


def test_message_that_utf8_cannot_carry_fails_like_any_other(result):
    assert result("bytes").outcome == "fail"
    assert "cannot read \ufffd.safetensors" in result("bytes").message


@pytest.mark.parametrize("name", ["skip_too_late", "known_and_more", "bug_too_late"])
def test_failure_counts_however_the_check_ends_after_it(result, name):
    assert result(name).outcome == "fail"
    assert result(name).message.startswith("seen before")


def test_check_whose_setup_breaks_has_failed(result):
    assert result("setup").outcome == "fail"
    assert "no_such_fixture" in result("setup").message


def test_message_of_a_miss_has_value_bar_and_source_and_nothing_else(result, ended):
    assert result("miss").message == "gap: 0.75 nat, allowed at most 0.5 nat; bar: half of what was seen"
    assert [measurement.ok for measurement in result("miss").measurements] == [False, True]
    assert f"    {result('miss').message}\n" in ended.out


def test_message_holds_all_failures(result, ended):
    lines = [
        "fall: 0.25, allowed at least 0.5; bar: half of what was seen",
        "dtype: expected 'F32', found 'F16'",
        "tensors: 1 missing: b",
        "tensors: 1 unexpected: a",
        "and more",
    ]
    assert result("several").message.splitlines() == lines
    assert "Several things are wrong, [red]and all[/red] are said." in ended.out


def test_executions_are_in_the_report_with_their_check(ended):
    (execution,) = ended.report.executions
    assert execution.check == "pins.planted_pass"
    assert (execution.operator, execution.direction) == ("trncheck::rope", "forward")
    assert (execution.dtype, execution.backend, execution.count) == ("float32", "simulator", 40)
    assert execution.where == "tiny, 20 steps, 1 rank"


def test_terminal_shows_the_first_of_many_failures_and_says_how_many_are_left(result, ended):
    assert len(result("many").message.splitlines()) == 30
    assert ended.out.count("tensor 7: expected -1, found 7\n") == 2, "once by pytest, once in the summary"
    assert "tensor 8:" not in ended.out
    assert ended.out.count("… 22 more lines") == 2


def test_nan_misses_every_bar(result):
    assert result("nan").outcome == "fail"
    assert len(result("nan").message.splitlines()) == 2
    assert all(math.isnan(measurement.value) and not measurement.ok for measurement in result("nan").measurements)


def test_failures_of_the_judge_are_told_without_a_stack(ended):
    assert "planted.py" in ended.out
    assert "judge.py" not in ended.out


def test_check_for_hardware_names_its_target(result):
    assert (result("hardware").target, result("pass").target) == ("trn2", "cpu")
