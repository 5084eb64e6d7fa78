"""The verb ``explain``: what a check asserts, why, against which bars, and how to read its failure."""

import argparse
from pathlib import Path


def add_verb(verbs: argparse._SubParsersAction) -> None:
    """Add ``explain`` to the command line."""
    verb = verbs.add_parser(
        "explain",
        help="say what a check asserts, why, what turns it red, and how to read its failure",
        epilog="Exit status: 0, or 2 where an id means no check.",
    )
    verb.add_argument(
        "checks", nargs="*", metavar="CHECK-ID", help="an id, with or without its case; wildcards as for run --check"
    )
    verb.add_argument("--all", action="store_true", help="all checks")
    verb.add_argument("--format", choices=("text", "markdown"), default="text")
    verb.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    verb.set_defaults(call=_explain)


def _explain(options, _rest: list[str]) -> int:
    from trncheck.conformance import explain, explain_text
    from trncheck.reports.output import emit

    if options.all == bool(options.checks):
        raise ValueError("name checks, such as losses.published_start, or give --all")
    found = explain.find(["*"] if options.all else options.checks)
    render = explain_text.as_markdown if options.format == "markdown" else explain_text.as_text
    emit(lambda: render(found), None, f"{len(found)} checks explained", options.out)
    return 0
