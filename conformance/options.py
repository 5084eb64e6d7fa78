"""The options of a conformance run, the same for ``pytest`` and ``trncheck run``."""

import os

OPTIONS = {
    "--target": {
        "choices": ("cpu", "trn2", "auto"),
        "default": "auto",
        "help": "where to judge (auto: trn2 where there is a Neuron device)",
    },
    "--release": {
        "metavar": "VERSION",
        "help": "Neuron release, or a manifest file (default: the newest whose versions are all known)",
    },
    "--level": {"choices": ("smoke", "standard", "full"), "default": "standard", "help": "how much to check"},
    "--check": {
        "action": "append",
        "default": [],
        "metavar": "ID",
        "help": "only checks with this id; wildcards, repeatable",
    },
    "--assets": {
        "metavar": "FOLDER",
        "help": "where published models are, in folders under their own names; checks from published weights need it",
    },
    "--require-complete": {"action": "store_true", "help": "fail unless the verdict is conformant"},
    "--results": {
        "default": "results",
        "metavar": "FOLDER",
        "help": "where reports go, written with = (default: %(default)s)",
    },
}
"""Flag -> arguments of ``add_argument``."""
ISOLATED = ("-c", os.devnull, "--rootdir", os.curdir, "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning")
"""pytest's options of the command line: the suite is the same from every folder, whatever its configuration says."""
