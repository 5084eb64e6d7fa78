"""The verb ``baseline``: propose what the numbers of a release are, and hold a run against that."""

import argparse
from pathlib import Path

_RUN = "a report.json, its folder, or a release: its newest whole run in the results"
_FILE = "the baseline (default: baselines/<release>-<target>.json)"


def add_verb(verbs: argparse._SubParsersAction) -> None:
    """Add ``baseline`` with its two verbs to the command line."""
    verb = verbs.add_parser("baseline", help="write down what the numbers of a release are, or hold a run against that")
    actions = verb.add_subparsers(dest="action", required=True, metavar="propose|check")

    action = actions.add_parser(
        "propose",
        help="make a baseline of repeated runs, and show what it changes",
        epilog="Takes at least three finished runs in which nothing failed or was retried, of one release, target, "
        "level, environment and clean commit of the kit. Exit status: 0 when it is written, 2 when it is not.",
    )
    action.add_argument("runs", nargs="+", metavar="RUN", help=_RUN)
    action.add_argument("--reason", default="", metavar="TEXT", help="why these numbers are right; goes into the file")
    _add_common(action)
    action.set_defaults(call=_propose)

    action = actions.add_parser(
        "check",
        help="hold every number of a run against a baseline",
        epilog="Exit status: 0 when every number that both have is inside, 1 when one is outside or there was nothing "
        "to compare, 2 for bad input.",
    )
    action.add_argument("run", metavar="RUN", help=_RUN)
    _add_common(action)
    action.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    action.set_defaults(call=_check)


def _add_common(action: argparse.ArgumentParser) -> None:
    action.add_argument("--baseline", type=Path, metavar="FILE", help=_FILE)
    action.add_argument("--results", type=Path, default="results", metavar="FOLDER", help="where runs of releases are")
    action.add_argument("--target", choices=("cpu", "trn2", "trn2-rehearsal"), help="of releases with runs on both")


def _propose(options, _rest: list[str]) -> int:
    from trncheck.reports.baseline import write_baseline
    from trncheck.reports.baseline_changes import propose
    from trncheck.reports.baseline_text import print_proposal
    from trncheck.reports.lookup import find_report

    reports = [find_report(name, options.results, options.target) for name in options.runs]
    proposal = propose(reports, options.reason, options.baseline)
    write_baseline(proposal.baseline, proposal.path)
    print_proposal(proposal)
    return 0


def _check(options, _rest: list[str]) -> int:
    from trncheck.reports.baseline import default_path, load_baseline
    from trncheck.reports.baseline_check import check_run
    from trncheck.reports.baseline_output import emit
    from trncheck.reports.lookup import find_report

    report = find_report(options.run, options.results, options.target)
    path = options.baseline or default_path(report.release, report.target)
    baseline, _ = load_baseline(path)
    comparison = check_run(report, baseline, str(path))
    emit(comparison, options.format)
    return comparison.exit_status
