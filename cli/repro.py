"""The verb ``repro``: run a failed check again from its bundle."""

import argparse
from pathlib import Path


def add_verb(verbs: argparse._SubParsersAction) -> None:
    """Add ``repro`` to the command line."""
    verb = verbs.add_parser(
        "repro",
        help="run a failed check again from its bundle, and say whether it fails in the same way",
        epilog="Exit status: 1 when it fails in the same way, 0 when it passes, 3 when it fails in another way or "
        "gives no answer, 2 for a bundle that cannot be run.",
    )
    verb.add_argument("folder", type=Path, metavar="FOLDER", help="a folder below repro/ of a run's results")
    verb.set_defaults(call=_repro)


def _repro(options, _rest: list[str]) -> int:
    from trncheck.conformance.repro_again import run_again

    return int(run_again(options.folder, lambda line: print(line, flush=True)))
