"""From how a test ended to the outcome of a check, and through pytest's reports to whoever writes them down."""

import json
from pathlib import Path

import pytest

from trncheck.conformance import expected_failures, repro_inputs
from trncheck.conformance.judge import Judge, KnownDefect
from trncheck.conformance.policy import reported
from trncheck.conformance.repro import Kept
from trncheck.conformance.versions import check_version
from trncheck.kernels.blame import author_line, raised_in
from trncheck.reports.schema import CheckResult, Curve, Execution, Expectation, Outcome
from trncheck.reports.text import first_lines, without_surrogates
from trncheck.trainers.errors import RunFailed

JUDGE = pytest.StashKey[Judge]()


class CheckFailed(AssertionError):
    """What a check compared did not agree; the message is for the report."""


class NothingCompared(AssertionError):
    """A check came to its end without comparing anything."""


class Inconclusive(AssertionError):
    """A check came to its end without a failure, and without being able to decide all that it looked at."""


def conclude(item: pytest.Item) -> None:
    """Turn what the check's judge collected into its end: return, CheckFailed, Inconclusive or NothingCompared."""
    demand_no_failure(item)
    judge = item.stash.get(JUDGE, None)
    if judge and judge.open:
        raise Inconclusive("\n".join(judge.open))
    if judge is None or not judge.compared.tensors:
        raise NothingCompared("the check ended without comparing anything, so it says nothing")


def demand_no_failure(item: pytest.Item) -> None:
    """CheckFailed where the check's judge has seen a failure."""
    judge = item.stash.get(JUDGE, None)
    if judge and judge.failures:
        raise CheckFailed("\n".join(judge.failures))


def payload(item: pytest.Item, call: pytest.CallInfo, report: pytest.TestReport) -> str:
    """The result as JSON; shortens pytest's own report to the message where that says it all."""
    from trncheck.conformance.plugin import KNOWN_FAILURES, check_id, level_of

    judge = item.stash.get(JUDGE, None) or Judge()
    outcome, failures = _outcome(call, report, judge)
    message = "\n".join(failures)
    entries = item.config.stash[KNOWN_FAILURES] if report.when == "call" else []
    facts = judge.evidence.values()
    if known := expected_failures.judge(entries, check_id(item), outcome, failures, facts):
        outcome, message = known.outcome, known.message
        judge.evidence |= known.evidence
        _show(report, outcome, message)
    result = CheckResult(
        id=check_id(item),
        subject=check_id(item).split(".")[0],
        title=_title(item),
        outcome=outcome,
        message=without_surrogates(message),
        level=level_of(item),
        target=reported("trn2" if item.get_closest_marker("trn2") else item.config.option.target),
        required=item.get_closest_marker("informative") is None,
        compared=judge.compared,
        measurements=judge.measurements,
        evidence=judge.evidence,
        duration_s=round(report.duration, 3),
        version=check_version(item),
    )
    kept = repro_inputs.keep(item, result)
    return json.dumps(
        {
            "result": result.model_dump_json(),
            "kept": kept and kept.model_dump(),
            "curves": [curve.model_copy(update={"check": result.id}).model_dump_json() for curve in judge.curves],
            "expectations": [expectation.model_dump_json() for expectation in judge.expectations],
            "executions": [
                execution.model_copy(update={"check": result.id}).model_dump_json() for execution in judge.executions
            ],
        }
    )


def crashed(report: pytest.TestReport, option) -> CheckResult:
    """The result of a check under which its process died: nothing is left but the name and xdist's words."""
    file, _, function = report.nodeid.partition("::")
    subject = Path(file).stem.removeprefix("test_")
    name = f"{subject}.{function.removeprefix('test_')}"
    message = f"the process died: {report.longreprtext}"
    return CheckResult(
        id=name,
        subject=subject,
        title=name,
        outcome=Outcome.FAIL,
        message=message,
        level=option.level,
        target=option.target,
    )


def unpack(data: str) -> dict:
    """The inverse of ``payload``: arguments for ``Session.add``."""
    fields = json.loads(data)
    return {
        "result": CheckResult.model_validate_json(fields["result"]),
        "kept": fields["kept"] and Kept.model_validate(fields["kept"]),
        "curves": [Curve.model_validate_json(curve) for curve in fields["curves"]],
        "expectations": [Expectation.model_validate_json(expectation) for expectation in fields["expectations"]],
        "executions": [Execution.model_validate_json(execution) for execution in fields["executions"]],
    }


def _outcome(call: pytest.CallInfo, report: pytest.TestReport, judge: Judge) -> tuple[Outcome, list[str]]:
    """How the check ended by itself, and why, one text per failure."""
    error = call.excinfo.value if call.excinfo else None
    if error is None:
        return Outcome.PASS, []
    if report.skipped:
        return Outcome.NOT_RUN, [str(error.msg)]
    if isinstance(error, KnownDefect):
        _show(report, Outcome.EXPECTED_FAIL, str(error))
        return Outcome.EXPECTED_FAIL, [str(error)]
    if isinstance(error, Inconclusive):
        _show(report, Outcome.INCONCLUSIVE, str(error))
        return Outcome.INCONCLUSIVE, [str(error)]
    if isinstance(error, NothingCompared):
        report.longrepr = str(error)
        return Outcome.NOTHING_COMPARED, [str(error)]
    if isinstance(error, CheckFailed):
        report.longrepr = _brief(str(error))
        return Outcome.FAIL, list(judge.failures)
    # What had failed before the check broke off is the better half of the story.
    failures = [*judge.failures, _told(error, call.excinfo.traceback[-1])]
    if isinstance(error, RunFailed):
        report.longrepr = "\n".join(failures)
    elif _is_of_kernels(error):
        report.longrepr = _brief("\n".join(failures))
    return Outcome.FAIL, failures


def _told(error: BaseException, last) -> str:
    """What an error says and where it comes from: in code of a kernel's author, else at ``last``, pytest's last frame.

    A refusal of the kernels' own says it all itself.
    """
    if _is_of_kernels(error):
        return str(error)
    if isinstance(error, RunFailed):
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}: {error} ({author_line(error) or f'{Path(last.path).name}:{last.lineno + 1}'})"


def _is_of_kernels(error: BaseException) -> bool:
    """An NkiError, or a ValueError of an operator, of the catalogue or of the runtime."""
    return isinstance(error, ValueError) and raised_in(error, "trncheck.kernels")


def _show(report: pytest.TestReport, outcome: Outcome, message: str) -> None:
    """Make pytest's own report say what is neither a pass nor a plain failure."""
    if outcome is Outcome.EXPECTED_FAIL:
        report.outcome, report.wasxfail = "skipped", message
    elif outcome is Outcome.UNEXPECTED_PASS:
        report.outcome, report.longrepr = "failed", message
    elif outcome is Outcome.INCONCLUSIVE:
        file, line, _ = report.location
        report.outcome, report.longrepr = "skipped", (file, (line or 0) + 1, f"inconclusive: {_brief(message)}")


def _brief(message: str) -> str:
    """What pytest prints of a message; the report has all of it."""
    return first_lines(message, 8, 400)


def _title(item: pytest.Item) -> str:
    """The first paragraph of the check's docstring, on one line."""
    return " ".join((item.function.__doc__ or item.name).strip().split("\n\n")[0].split())
