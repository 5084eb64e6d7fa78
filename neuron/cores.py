"""Lists of logical NeuronCores as the runtime's variables spell them, and which cores a process may use.

A core number is a logical core's at the process's NEURON_LOGICAL_NC_CONFIG: a trn2.48xlarge has 0-63 at 2, 0-127 at 1.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby

VISIBLE = "NEURON_RT_VISIBLE_CORES"
NUMBER = "NEURON_RT_NUM_CORES"
LNC = "NEURON_LOGICAL_NC_CONFIG"

_PART = re.compile(r"([0-9]{1,4})(?:\s*-\s*([0-9]{1,4}))?")  # four digits: a list is written out in memory


def parse(text: str, name: str = VISIBLE) -> tuple[int, ...]:
    """The cores of a list such as `1,3`, `4-7` (inclusive) or `0-3,8,10-11`, in the order written.

    Raises ValueError, one line, for anything else; `name` is the variable or flag the text comes from.
    """
    cores: list[int] = []
    for part in text.split(","):
        matched = _PART.fullmatch(part.strip())
        if not matched:
            wrong = f"{part.strip()!r} is neither a core nor a range" if text.strip() else "it lists no core"
            raise _refused(name, text, wrong)
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if last < first:
            raise _refused(name, text, f"the range {part.strip()} runs backwards")
        cores.extend(range(first, last + 1))
    twice = sorted(core for core in set(cores) if cores.count(core) > 1) if len(set(cores)) < len(cores) else []
    if twice:
        raise _refused(name, text, f"core {twice[0]} is there twice")
    return tuple(cores)


def show(cores: Iterable[int]) -> str:
    """The canonical text of a set of cores: ascending, neighbours as ranges, as in `0-3,8`."""
    runs = groupby(enumerate(sorted(cores)), key=lambda pair: pair[1] - pair[0])
    spans = [[core for _, core in run] for _, run in runs]
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def lnc(environ: Mapping[str, str]) -> int:
    """Physical cores per logical core: NEURON_LOGICAL_NC_CONFIG, 1 or 2, by default 2 (the default on Trn2)."""
    text = environ.get(LNC, "2").strip()
    if text not in ("1", "2"):
        raise ValueError(f"{LNC}={text!r} is not 1 or 2; unset it for 2, the default on Trn2")
    return int(text)


def inherited(environ: Mapping[str, str]) -> str | None:
    """How the environment limits the cores, as `NAME=value` for messages; None where it does not."""
    if VISIBLE in environ:
        return f"{VISIBLE}={environ[VISIBLE]}"
    return f"{NUMBER}={environ[NUMBER]}" if _number(environ) else None


def allowed(environ: Mapping[str, str], logical_cores: int) -> tuple[int, ...]:
    """The cores this process may use, of the machine's `logical_cores` at this process's LNC.

    NEURON_RT_VISIBLE_CORES, or the first NEURON_RT_NUM_CORES (0: all), or all. Raises ValueError, one line, for a list
    or number that is malformed, reaches beyond the machine, or where the two disagree.
    """
    machine = f"this machine has {logical_cores} logical cores" + (f", 0-{logical_cores - 1}" if logical_cores else "")
    number = _number(environ)
    if VISIBLE not in environ:
        if number > logical_cores:
            raise ValueError(f"{NUMBER}={number}, but {machine} (at {LNC}={lnc(environ)})")
        return tuple(range(number or logical_cores))
    cores = parse(environ[VISIBLE])
    beyond = [core for core in cores if core >= logical_cores]
    if beyond:
        raise ValueError(
            f"{VISIBLE}={environ[VISIBLE]} names core {show(beyond)}, but {machine} (at {LNC}={lnc(environ)})"
        )
    if number and number != len(cores):
        raise ValueError(
            f"{VISIBLE}={environ[VISIBLE]} lists {len(cores)} cores, but {NUMBER}={number}; unset one of the two"
        )
    return cores


def own(environ: Mapping[str, str]) -> int | None:
    """The core of a rank of torchrun: the LOCAL_RANK-th of those its environment lists; None for any other process.

    Raises ValueError where the list has fewer cores than this machine has ranks.
    """
    if "LOCAL_RANK" not in environ:
        return None
    rank, ranks = int(environ["LOCAL_RANK"]), int(environ.get("LOCAL_WORLD_SIZE", 1))
    number = _number(environ) or max(ranks, rank + 1)
    listed = parse(environ[VISIBLE]) if VISIBLE in environ else tuple(range(number))
    if len(listed) < max(ranks, rank + 1):
        raise ValueError(
            f"{ranks} ranks need a core each, but {inherited(environ)} allows {len(listed)}; "
            f"start torchrun with --nproc_per_node {len(listed)}, or allow more"
        )
    return listed[rank]


def _number(environ: Mapping[str, str]) -> int:
    text = environ.get(NUMBER, "0").strip()
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise ValueError(f"{NUMBER}={environ[NUMBER]!r} is not a number of cores; write, for example, {NUMBER}=4")
    return int(text)


def _refused(name: str, text: str, wrong: str) -> ValueError:
    return ValueError(f"{name}={text!r}: {wrong}; write, for example, {name}=0-3,8")
