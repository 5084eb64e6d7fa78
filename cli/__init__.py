"""The command line: thin verbs, each of which calls one room. Nothing heavy is imported before a verb needs it."""

import argparse
import os
import sys
from pathlib import Path

from trncheck.cli import baseline, doctor, explain, plan, rehearse, repro
from trncheck.conformance.options import ISOLATED, OPTIONS

USAGE_ERROR = 2
_PYTEST_USAGE_ERROR = 4


def main(arguments: list[str] | None = None) -> int:
    """Entry point of ``trncheck``: 0 when nothing failed, 1 when something did, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="trncheck",
        description="Can this AWS Neuron release be trusted to train Qwen3 on Trainium2 with torchtitan?",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    verb = verbs.add_parser("run", help="judge a release and write a report", epilog="Takes pytest's options as well.")
    for flag, how in OPTIONS.items():
        verb.add_argument(flag, **how)
    verb.add_argument(rehearse.FLAG, **rehearse.OPTION)
    verb.set_defaults(call=_run)

    verb = verbs.add_parser("train", help="train one configuration through torchrun")
    verb.add_argument("config", help="a configuration, e.g. qwen3_native_tiny")
    verb.add_argument("--ranks", type=int, default=1, help="processes on this machine (default: %(default)s)")
    verb.add_argument("--nodes", type=int, help="machines of the job, which share the dump folder (default: one)")
    verb.add_argument("--node-rank", type=int, metavar="N", help="which of them this one is, from 0")
    verb.add_argument("--rendezvous", metavar="HOST:PORT", help="of the first of them")
    verb.set_defaults(call=_train)

    verb = verbs.add_parser("report", help="write the pages of a finished or killed run again")
    verb.add_argument("path", type=Path, help="a report.json or its folder")
    verb.add_argument("--baseline", type=Path, metavar="FILE", help="draw its bands around the loss curves")
    verb.set_defaults(call=_report)

    verb = verbs.add_parser(
        "diff",
        help="compare two runs: what broke, what is fixed, what moved",
        epilog="Exit status: 0 when nothing got worse, 1 when a required check broke or is no longer covered, or when "
        "there was nothing to compare, 2 for bad input.",
    )
    run = "a report.json, its folder, or a release: its newest whole run in the results"
    verb.add_argument("old", metavar="OLD", help=run)
    verb.add_argument("new", metavar="NEW", help="the same for the other run")
    verb.add_argument("--results", type=Path, default="results", metavar="FOLDER", help="where runs of releases are")
    verb.add_argument("--target", choices=("cpu", "trn2", "trn2-rehearsal"), help="of releases with runs on both")
    verb.add_argument(
        "--noise", type=Path, metavar="FOLDER", help="where repeats of OLD are, for the noise (default: the results)"
    )
    verb.add_argument("--format", choices=("text", "markdown", "html", "json"), default="text")
    verb.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    verb.set_defaults(call=_diff)

    verb = verbs.add_parser(
        "attribute",
        help="say which side moved a number, the kit or the stack, from four runs; or how to make these",
        epilog="Without runs, prints a shell script that makes the four. Exit status: 0 when nothing moved, 1 when "
        "something did, or when there was nothing to compare, 2 for bad input.",
    )
    four = "OLD_OLD NEWKIT_OLDSTACK OLDKIT_NEWSTACK NEW_NEW, each as for diff or a folder: its newest finished run"
    verb.add_argument("runs", nargs="*", metavar="RUN", help=four)
    for flag in ("--old-kit", "--new-kit"):
        verb.add_argument(flag, metavar="REF_OR_FOLDER", help="a git ref of this checkout, or another checkout")
    for flag in ("--old-stack", "--new-stack"):
        verb.add_argument(flag, metavar="PYTHON", help="the Python that has the stack")
    verb.add_argument(
        "--work", type=Path, metavar="FOLDER", help="where the script works (default: outputs/attribution)"
    )
    for flag in ("--level", "--check", "--release"):
        verb.add_argument(flag, **OPTIONS[flag] | {"default": None})
    verb.add_argument("--target", choices=("cpu", "trn2", "trn2-rehearsal"), help="of the runs")
    verb.add_argument("--results", type=Path, default="results", metavar="FOLDER", help="where runs of releases are")
    verb.add_argument(
        "--noise", type=Path, metavar="FOLDER", help="where repeats are (default: the results and the folders given)"
    )
    verb.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="of the attribution")
    verb.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    verb.set_defaults(call=_attribute)

    verb = verbs.add_parser(
        "trend",
        help="many runs together: what is red and since when, flaky checks, numbers that changed level",
        epilog="Exit status: 0 also where checks are red, 2 for bad input, or when no report can be read.",
    )
    verb.add_argument(
        "folders",
        nargs="*",
        type=Path,
        default=[Path("results")],
        metavar="FOLDER",
        help="where runs are, at any depth",
    )
    verb.add_argument(
        "--group",
        choices=("target", "release"),
        default="target",
        help="follow a target across releases, or each alone",
    )
    verb.add_argument(
        "--last", type=int, default=60, metavar="N", help="runs per group to look at (default: %(default)s)"
    )
    verb.add_argument("--format", choices=("text", "html", "json"), default="text")
    verb.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    verb.set_defaults(call=_trend)

    baseline.add_verb(verbs)
    repro.add_verb(verbs)
    explain.add_verb(verbs)
    doctor.add_verb(verbs)
    plan.add_verb(verbs)

    verb = verbs.add_parser("releases", help="list the Neuron releases that the kit knows")
    verb.set_defaults(call=_releases)

    arguments = sys.argv[1:] if arguments is None else arguments
    options, rest = parser.parse_known_args(arguments)
    if options.call is _run:
        rest = arguments[1:]
    elif rest and options.call is not _train:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        status = options.call(options, rest)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        print(f"trncheck {options.verb}: {error}", file=sys.stderr)
        return USAGE_ERROR


def _run(options, rest: list[str]) -> int:
    if options.rehearse:
        rehearse.rehearse(options, rest)
    import pytest

    status = int(pytest.main(["--pyargs", "trncheck.conformance", "-v", *ISOLATED, *rest]))
    return USAGE_ERROR if status == _PYTEST_USAGE_ERROR else status


def _train(options, rest: list[str]) -> int:
    import logging
    import subprocess

    from trncheck.trainers import job, launch, torchrun

    if options.ranks < 1:
        raise ValueError(f"--ranks {options.ranks}: a job has one rank or more on each machine")
    given = {"nodes": options.nodes, "node_rank": options.node_rank, "endpoint": options.rendezvous}
    meeting = torchrun.rendezvous(os.environ, **given)
    # What is wrong with the input is said here once, in one line, and not by every rank; warnings are theirs.
    logging.disable(logging.WARNING)
    flags = ["--config", options.config, *rest]
    environment = launch.environment_of_ranks(Path(job.parse(flags).dump_folder))
    with torchrun.with_cores(environment, options.ranks, _tell) as environment:
        return subprocess.run(torchrun.command(options.ranks, flags, meeting), env=environment, check=False).returncode


def _tell(text: str) -> None:
    print(f"trncheck train: waiting: {text}", file=sys.stderr)


def _report(options, _rest: list[str]) -> int:
    from trncheck.reports.baseline import load_baseline
    from trncheck.reports.store import RunFolder, load_report

    known = load_baseline(options.baseline)[0] if options.baseline else None
    folder = RunFolder(options.path if options.path.is_dir() else options.path.parent)
    folder.finish(load_report(options.path), known)
    print(folder.page)
    return 0


def _diff(options, _rest: list[str]) -> int:
    from trncheck.reports.diff import diff_reports
    from trncheck.reports.diff_output import emit
    from trncheck.reports.lookup import find_repeats, find_report

    old, new = (find_report(name, options.results, options.target) for name in (options.old, options.new))
    if options.noise and not options.noise.exists():
        raise ValueError(f"--noise {options.noise}: no such folder")
    difference = diff_reports(old, new, find_repeats(old, options.noise or options.results))
    emit(difference, options.format, options.out)
    return difference.exit_status


def _attribute(options, _rest: list[str]) -> int:
    planning = ("old_kit", "new_kit", "old_stack", "new_stack", "work", "level", "check", "release")
    given = [f"--{name.replace('_', '-')}" for name in planning if getattr(options, name) is not None]
    if not options.runs:
        return _plan_attribution(options)
    if given:
        raise ValueError(f"{given[0]} is for the script that makes the runs: give it, or runs, not both")
    from trncheck.reports.attribution import attribute
    from trncheck.reports.attribution_cells import find_cell_repeats, find_cells
    from trncheck.reports.attribution_output import emit

    cells = find_cells(options.runs, options.results, options.target)
    if options.noise and not options.noise.exists():
        raise ValueError(f"--noise {options.noise}: no such folder")
    folders = [options.noise] if options.noise else [options.results, *map(Path, options.runs)]
    attribution = attribute(cells, [find_cell_repeats(cell, folders) for cell in cells])
    emit(attribution, options.format, options.out)
    return attribution.exit_status


def _plan_attribution(options) -> int:
    from trncheck.reports.attribution_plan import plan
    from trncheck.reports.output import emit

    named = [("--level", options.level), *(("--check", id) for id in options.check or ())]
    named += [("--release", options.release), ("--target", options.target)]
    flags = [word for flag, value in named if value is not None for word in (flag, value)]
    kits, stacks = (options.old_kit, options.new_kit), (options.old_stack, options.new_stack)
    script = plan(kits, stacks, flags, options.work or Path("outputs", "attribution"))
    emit(lambda: script, None, "Run it with sh:", options.out)
    return 0


def _trend(options, _rest: list[str]) -> int:
    from trncheck.reports.history import read_history
    from trncheck.reports.trend import trend
    from trncheck.reports.trend_output import emit

    emit(trend(read_history(options.folders), options.last, options.group), options.format, options.out)
    return 0


def _releases(_options, _rest: list[str]) -> int:
    from trncheck.fixtures.manifest import available_releases, default_release, load_release

    default = default_release()
    for version in available_releases():
        release = load_release(version)
        print(f"{release.version}  {release.date}  {release.title}{' (default)' if version == default else ''}")
        if release.note:
            print(f"        {release.note}")
    return 0
