"""Runs that should not differ from an ordinary one: in poisoned memory, in another process, under another hash seed."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from trncheck.conformance.cases import Case
from trncheck.conformance.runs import RunBook, once
from trncheck.fixtures.tiny import tiny_folder

STEPS = 3
"""Of the runs that are repeated."""
_ONE_STEP = (
    "--training.steps 1 --training.max_norm 1e9 --checkpoint.enable --checkpoint.initial_load_in_hf"
    " --record.poison --record.gradient_steps 1"
)


class Poisoned(NamedTuple):
    """A run in memory of NaN: its record, as far as it came, and the error that ended it."""

    run: object
    error: str


class UnusualRuns:
    """All folders lie below ``root``; launcher and published weights are those of ``book``."""

    def __init__(self, root: Path, book: RunBook):
        self._root, self._book = root, book
        self._count = 0

    @once
    def poisoned(self, case: Case) -> Poisoned:
        """The first step of ``RunBook.published`` where fresh memory holds NaN."""
        from trncheck.trainers import launch
        from trncheck.trainers.errors import RunFailed
        from trncheck.trainers.record import RunRecord

        folder = self._folder(f"{case}-poisoned")
        flags = ["--hf_assets_path", str(self._book.published_weights(case.model)), *_ONE_STEP.split()]
        how = {"dump_folder": folder, "world_size": case.ranks, "launcher": self._book.launcher}
        try:
            return Poisoned(launch.run(case.config, flags=flags, **how), "")
        except RunFailed as failed:
            return Poisoned(RunRecord(folder, case.ranks), str(failed))

    @once
    def here(self, case: Case):
        """A few steps from a random start, and the export."""
        from trncheck.trainers import launch

        how = {"dump_folder": self._folder(str(case)), "world_size": case.ranks, "launcher": self._book.launcher}
        return launch.run(case.config, flags=_from_random(case), **how)

    @once
    def elsewhere(self, cases: Sequence[Case]) -> dict:
        """The same again, of every case, from a fresh process that hashes text by another seed."""
        from trncheck.trainers import launch, repeat

        folders = {case: self._folder(f"{case}-again") for case in cases}
        seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
        with mock.patch.dict(os.environ, {"PYTHONHASHSEED": seed}):
            if self._book.launcher == "fork":
                wanted = [repeat.Wanted(c.config, str(folders[c]), _from_random(c), c.ranks) for c in cases]
                return dict(zip(cases, repeat.in_fresh_process(wanted, self._root / "again.log"), strict=True))
            how = {"launcher": "torchrun"}  # a server has its seed already
            return {
                c: launch.run(c.config, dump_folder=folders[c], flags=_from_random(c), world_size=c.ranks, **how)
                for c in cases
            }

    def _folder(self, name: str) -> Path:
        self._count += 1
        folder = self._root / f"{self._count:03}-{name}"
        folder.mkdir(parents=True)
        return folder


def _from_random(case: Case) -> list[str]:
    source = str(tiny_folder(case.model))
    return ["--hf_assets_path", source, "--training.steps", str(STEPS), "--checkpoint.enable"]
