"""What a run's results mean: which checks belong to a level, the verdict, and the exit status."""

from collections.abc import Collection

from trncheck.neuron.host import rehearsal, variant
from trncheck.reports.schema import CheckResult, Outcome, Target, Verdict, VerdictStatus

LEVELS = ("smoke", "standard", "full")


def reported(target: str) -> Target:
    """The name in a report of ``target``, as ``--target`` takes it."""
    return Target.REHEARSAL if target == "trn2" and rehearsal() else Target(target)


def within(level: str, chosen: str) -> bool:
    """Whether a check of ``level`` runs when ``chosen`` is asked for."""
    return LEVELS.index(level) <= LEVELS.index(chosen)


def verdict(release: str, target: str, results: Collection[CheckResult], unselected: int, finished: bool) -> Verdict:
    """The answer to whether ``release`` can be trusted, as far as ``results`` go.

    Any failure decides against it. Nothing decides for it but every required check passed on the target itself, in a
    run of a whole level that came to its end; ``unselected`` checks of the level were left out by the user.
    """
    gaps = [] if finished else ["The run was stopped before its end."]
    if target == Target.REHEARSAL:
        wrong = f"with variant {name} of the machine, " if (name := variant()) not in ("", "plain") else ""
        gaps.insert(0, f"This was a rehearsal {wrong}on a stand-in: no Neuron device, compiler or runtime took part.")
    if unselected:
        gaps.append(f"{unselected} checks of this level were not selected.")
    failed = [result for result in results if result.outcome.is_failure]
    if failed:
        ran = sum(result.outcome is not Outcome.NOT_RUN for result in results)
        says = (
            f"On the stand-in, which says nothing about Neuron {release}"
            if target == Target.REHEARSAL
            else f"Neuron {release} must not be trusted"
        )
        headline = f"{says}: {len(failed)} of {ran} checks failed."
        return Verdict(status=VerdictStatus.NOT_CONFORMANT, headline=headline, reasons=[*_failures(failed), *gaps])
    reasons = gaps
    if target == "cpu":
        reasons.append("This was a CPU: no Neuron device or compiler took part.")
    for outcome in (Outcome.EXPECTED_FAIL, Outcome.NOT_RUN, Outcome.INCONCLUSIVE):
        if open_checks := [result.id for result in results if result.required and result.outcome is outcome]:
            reasons.append(f"{len(open_checks)} required checks {outcome.value}: {_listed(open_checks)}.")
    if not reasons and results:
        headline = f"Neuron {release} passed every required check on {target}."
        return Verdict(status=VerdictStatus.CONFORMANT, headline=headline)
    known = any(result.required and result.outcome is Outcome.EXPECTED_FAIL for result in results)
    nothing = "Nothing failed that was not expected to" if known else "Nothing failed"
    but = f"but this run alone cannot vouch for Neuron {release}"
    if target == Target.REHEARSAL:
        but = f"which says nothing about Neuron {release}"
    return Verdict(
        status=VerdictStatus.INCOMPLETE,
        headline=f"{nothing}{' on the stand-in' * (target == Target.REHEARSAL)}, {but}.",
        reasons=reasons or ["No check has ended yet."],
    )


def exit_status(outcome: Verdict, *, require_complete: bool) -> int:
    """0 where nothing failed, 1 where something did, and 1 for an incomplete verdict if completeness is required."""
    if outcome.status is VerdictStatus.INCOMPLETE:
        return int(require_complete)
    return int(outcome.status is VerdictStatus.NOT_CONFORMANT)


def _failures(failed: list[CheckResult]) -> list[str]:
    subjects = dict.fromkeys(result.subject for result in failed)
    by_subject = {subject: [result for result in failed if result.subject == subject] for subject in subjects}
    return [
        f"{subject}: {len(of)} failed ({_listed([result.id for result in of])})" for subject, of in by_subject.items()
    ]


def _listed(ids: list[str], limit: int = 3) -> str:
    more = len(ids) - limit
    return ", ".join(ids[:limit]) + (f" and {more} more" if more > 0 else "")
