"""Runs the check of a bundle again, and says whether it fails as it did."""

import math
import multiprocessing
import re
import tempfile
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from trncheck.conformance import environment
from trncheck.conformance.options import ISOLATED
from trncheck.conformance.repro import REPRO_JSON, Bundle, changes, load_bundle
from trncheck.reports.schema import CheckResult, Measurement, Outcome
from trncheck.reports.store import load_report
from trncheck.reports.text import one_line

CLOSE = 0.1
"""Relative difference up to which a measurement fails in the same way."""
DIED = "the process died"
"""Starts the message of a check under which its process died, also in ``outcomes.crashed``."""
_USAGE_ERROR = 4
_PATH = re.compile(r"(/[^\s/:()]+){2,}")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


class Status(IntEnum):
    """How the check ended this time; the exit status of ``trncheck repro``."""

    PASSES = 0
    SAME = 1
    OTHERWISE = 3


def run_again(folder: Path, tell: Callable[[str], None]) -> Status:
    """Run the check of the bundle in ``folder`` with its options, in a child process; the report is temporary.

    ``tell`` is given what differs from the bundle, one line each, and last what came out. Raises ValueError for a
    bundle that cannot be read and for a check that cannot be run here.
    """
    bundle = load_bundle(folder)
    now = environment.describe_environment()
    kit = {"trncheck": now.packages.get("trncheck", "absent"), "commit of trncheck": environment.kit_commit() or "none"}
    for line in changes(bundle.versions, {"python": now.python} | now.packages | kit):
        tell(f"warning: {line}")
    for line in changes(bundle.variables, now.variables):
        tell(f"warning: variable {line}")
    # Left there, because what the suite prints names its report. Among the results it would count as a run.
    scratch = Path(tempfile.mkdtemp(prefix="trncheck-repro-"))
    result, code = _run(bundle, folder, scratch)
    for line in _other_inputs(bundle, scratch):
        tell(f"warning: {line}")
    if result is None:
        result = bundle.result.model_copy(
            update={"outcome": Outcome.FAIL, "message": f"{DIED} with status {code}", "measurements": []}
        )
    status, text = compare(bundle.result, result)
    tell(f"{bundle.check} {text}")
    return status


def compare(then: CheckResult, now: CheckResult) -> tuple[Status, str]:
    """Whether ``now`` is the failure ``then``, and why: by the first measurement that failed, else by the message."""
    if not now.outcome.is_failure:
        if now.outcome in (Outcome.NOT_RUN, Outcome.INCONCLUSIVE):
            return Status.OTHERWISE, f"gave no answer: {now.outcome.value}, {one_line(now.message, 300)}"
        return Status.PASSES, f"does not fail: {now.outcome.value}"
    before, after = _first_failed(then), _first_failed(now)
    if before and after:
        same = before.name == after.name and _close(before.value, after.value)
        values = f"{_said(after)}, it was {before.value:.6g}" if same else f"{_said(after)}; it was {_said(before)}"
    else:
        same = before is after and _comparable(then) == _comparable(now)
        values = _first_line(now) if same else f"{_first_line(now)}; it was {_first_line(then)}"
    return (Status.SAME if same else Status.OTHERWISE), f"fails in {'the same' if same else 'another'} way: {values}"


def _run(bundle: Bundle, folder: Path, scratch: Path) -> tuple[CheckResult | None, int]:
    """The result, None where the process died before there was one, and the process' exit code."""
    release = str((folder / bundle.manifest).resolve()) if bundle.manifest else bundle.release
    options = ["--check", bundle.check, "--level", bundle.level, "--target", bundle.target, "--release", release]
    arguments = ["--pyargs", "trncheck.conformance", "-v", *ISOLATED, *options, f"--results={scratch / 'results'}"]
    child = multiprocessing.get_context("fork").Process(target=_pytest, args=(arguments,))
    child.start()
    child.join()
    if child.exitcode == _USAGE_ERROR:
        raise ValueError(f"{folder}: {bundle.check} cannot be run here, for the reason above")
    for file in scratch.glob("results/*/*/*/report.json"):
        for result in load_report(file).results:
            if result.id == bundle.check:
                return result, child.exitcode
    return None, child.exitcode


def _pytest(arguments: list[str]) -> None:
    import pytest

    raise SystemExit(int(pytest.main(arguments)))


def _other_inputs(bundle: Bundle, scratch: Path) -> list[str]:
    """What the generators made otherwise this time, as far as the check failed again and says so."""
    lines = []
    for file in scratch.glob(f"results/*/*/*/repro/*/{REPRO_JSON}"):
        again = load_bundle(file.parent)
        lines += [f"{line.split(':')[0]}: not the bundle's" for line in changes(bundle.inputs, again.inputs)]
        then = {of.model: str(of.sha256) for of in bundle.weights}
        other = changes(then, {of.model: str(of.sha256) for of in again.weights})
        lines += [f"weights of {line.split(':')[0]}: not the bundle's" for line in other]
    return lines


def _first_failed(result: CheckResult) -> Measurement | None:
    return next((measurement for measurement in result.measurements if not measurement.ok), None)


def _close(then: float, now: float) -> bool:
    if not math.isfinite(then):
        return then == now or (math.isnan(then) and math.isnan(now))
    return abs(now - then) <= CLOSE * abs(then)


def _said(measurement: Measurement) -> str:
    return f"{measurement.name}: {measurement.value:.6g}"


def _first_line(result: CheckResult) -> str:
    return one_line(result.message.split("\n")[0], 300) or result.outcome.value


def _comparable(result: CheckResult) -> str:
    """The message without paths and addresses, and without where it starts, whose numbers are rounding."""
    if result.message.startswith(DIED):
        return DIED
    place = result.evidence.get("starts at")
    lines = [line for line in result.message.split("\n") if line != place]
    return _ADDRESS.sub("0x", _PATH.sub("/", "\n".join(lines)))
