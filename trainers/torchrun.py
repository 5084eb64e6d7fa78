"""How torchrun is called: ranks of this machine alone or of several, each with a NeuronCore where there are any."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from trncheck.neuron import leases

_NAMES = {"nodes": "PET_NNODES", "node_rank": "PET_NODE_RANK", "endpoint": "PET_RDZV_ENDPOINT"}
"""The variables that torchrun itself reads in place of its flags."""


@dataclass(frozen=True)
class Rendezvous:
    """Where the machines of one job meet."""

    nodes: int
    node_rank: int
    endpoint: str
    """``HOST:PORT`` of the first machine, the same on all."""

    def __post_init__(self):
        if self.nodes < 1 or not 0 <= self.node_rank < self.nodes:
            raise ValueError(f"node rank {self.node_rank} of {self.nodes} nodes; use 0 to {max(self.nodes - 1, 0)}")
        if not re.fullmatch(r".+:[0-9]+", self.endpoint):
            raise ValueError(f"the rendezvous {self.endpoint!r} is not HOST:PORT of node 0, such as trn-a:29400")

    @property
    def flags(self) -> list[str]:
        return [
            *("--nnodes", str(self.nodes), "--node_rank", str(self.node_rank)),
            *("--rdzv_backend", "c10d", "--rdzv_endpoint", self.endpoint),
        ]


def rendezvous(
    environ: Mapping[str, str], *, nodes: int | None = None, node_rank: int | None = None, endpoint: str | None = None
) -> Rendezvous | None:
    """What the arguments say or, where they do not, torchrun's own variables PET_*; None for a job of one machine.

    Raises ValueError where only a part of it is given.
    """
    given = {"nodes": nodes, "node_rank": node_rank, "endpoint": endpoint}
    found = {name: environ.get(_NAMES[name]) if value is None else value for name, value in given.items()}
    if found["nodes"] is None:
        if node_rank is not None or endpoint is not None:
            raise ValueError(f"a job of several nodes needs their number; give --nodes, or {_NAMES['nodes']}")
        return None
    count = _number("nodes", str(found["nodes"]).partition(":")[0])
    if count == 1:
        return None
    if count < 1:
        raise ValueError(f"a job of {count} nodes; give --nodes 1 or more")
    for name, flag in (("node_rank", "--node-rank"), ("endpoint", "--rendezvous")):
        if found[name] is None:
            raise ValueError(f"a job of {count} nodes needs {flag} as well, or {_NAMES[name]}")
    return Rendezvous(count, _number("node_rank", found["node_rank"]), found["endpoint"])


def command(ranks: int, flags: list[str], meeting: Rendezvous | None = None) -> list[str]:
    """Train with ``flags`` on ``ranks`` processes of this machine."""
    where = meeting.flags if meeting else ["--standalone"]
    launcher = [sys.executable, "-m", "torch.distributed.run", *where, "--nproc_per_node", str(ranks)]
    return [*launcher, "-m", "trncheck.trainers", *flags]


@contextmanager
def with_cores(
    environ: Mapping[str, str], ranks: int, tell: Callable[[str], None] = lambda text: None
) -> Iterator[dict[str, str]]:
    """``environ`` for ``ranks`` ranks with a core each, held until the block ends; unchanged without Neuron devices.

    Waits for cores; ``tell`` is told for whom. Raises ValueError where this process may not use that many.
    """
    if not leases.on_device(environ):
        yield dict(environ)
        return
    allowed, lnc = leases.usable(environ)
    with leases.lease(ranks, allowed=allowed, lnc=lnc, tell=tell) as held:
        yield held.environ(environ)


def _number(name: str, text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{_NAMES[name]}={text!r} is not a number of {name.replace('_', ' ')}") from None
