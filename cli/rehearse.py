"""``trncheck run --rehearse``: the run starts again in the environment of a rehearsal."""

import argparse
import os
import sys
from typing import NoReturn

from trncheck.neuron.standin.variants import PLAIN, VARIANTS

FLAG = "--rehearse"
OPTION = {
    "nargs": "?",
    "const": PLAIN,
    "choices": (PLAIN, *VARIANTS),
    "metavar": "VARIANT",
    "help": "run the code for trn2 on a stand-in that this CPU plays, to see that the kit works (needs a compiler); "
    "a VARIANT has something wrong: " + ", ".join(f"{name} ({variant.title})" for name, variant in VARIANTS.items()),
}


def rehearse(options, arguments: list[str]) -> NoReturn:
    """Replace this process by ``trncheck run`` with ``arguments`` in the environment of the rehearsal.

    Raises:
        ValueError: Another target was asked for, or there can be no rehearsal here.
    """
    if options.target == "cpu":
        raise ValueError(f"{FLAG} is a run of target trn2 on a stand-in; leave out --target cpu")
    from trncheck.neuron import rehearsal

    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(FLAG, **OPTION)
    _, rest = parser.parse_known_args(arguments)
    environment = os.environ | rehearsal.environment(options.rehearse, options.release)
    print(rehearsal.notice(options.rehearse), flush=True)
    again = "import sys; from trncheck.cli import main; sys.exit(main())"
    os.execve(sys.executable, [sys.executable, "-P", "-c", again, "run", *rest, "--target", "trn2"], environment)
