"""What a run will do, before it does it: its checks, the cores that they need, and about how long they take."""

import contextlib
import io
from dataclasses import dataclass

import pytest

from trncheck.conformance.cores import needed
from trncheck.conformance.options import ISOLATED

BASIS = {
    "cpu": "seconds measured in one run of level standard on 2 cores, December 2026",
    "trn2": "guesses, because nothing has run on hardware: a first step compiles for minutes, and every run of a tiny "
    "model starts torchrun anew",
}
"""What the durations are made of, by target."""

_SECONDS = {
    "environment": (1, 10),
    "pins": (0.1, 1),
    "fidelity": (0.4, 10),
    "kernels": (2, 60),
    "kernel_training": (8, 120),
    "paths": (1, 40),
    "layouts": (3, 60),
    "losses": (1, 30),
    "checkpoint": (0.5, 15),
    "resume": (1, 60),
    "device": (0, 20),
    "walkthrough": (0, 10),
}
"""Mean duration of a check by subject, on a CPU and on trn2, where its marker ``minutes`` says nothing."""
_OTHER = (2, 30)


@dataclass(frozen=True)
class Row:
    """Checks of one name."""

    name: str
    """``subject.name``."""
    checks: int
    cores: int
    """Logical NeuronCores that one of them needs at most; 0 on a CPU."""
    seconds: float
    """Of all of them together, one after another; see ``BASIS``."""
    only_hardware: bool


def plan(target: str, level: str, release: str | None = None) -> list[Row]:
    """What ``trncheck run`` with these options would run, in its order. Nothing is run, and torch is not imported.

    Raises ValueError for options that ``run`` would refuse as well.
    """
    collector = _Collector()
    options = ["--target", target, "--level", level, *(["--release", release] if release else [])]
    arguments = ["--pyargs", "trncheck.conformance", "--collect-only", "-q", *ISOLATED, *options]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main(arguments, plugins=[collector])
    if status != pytest.ExitCode.OK:
        raise ValueError(" ".join(said.getvalue().split()).removeprefix("ERROR: ") or f"pytest ended with {status}")
    return _rows(collector.items, target)


def _rows(items: list[pytest.Item], target: str) -> list[Row]:
    from trncheck.conformance.ids import name_of
    from trncheck.conformance.plugin import check_id

    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(name_of(check_id(item)), []).append(item)
    return [
        Row(
            name=name,
            checks=len(of),
            cores=0 if target == "cpu" else max(map(needed, of)),
            seconds=sum(_seconds(item, name, target) for item in of),
            only_hardware=of[0].get_closest_marker("trn2") is not None,
        )
        for name, of in groups.items()
    ]


def _seconds(item: pytest.Item, name: str, target: str) -> float:
    if target == "cpu":
        return 0.0 if item.get_closest_marker("trn2") else _SECONDS.get(name.split(".")[0], _OTHER)[0]
    mark = item.get_closest_marker("minutes")
    return mark.args[0] * 60 if mark else _SECONDS.get(name.split(".")[0], _OTHER)[1]


class _Collector:
    """Keeps what pytest has collected."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.items = list(items)
