"""The bundle of a failed check: what it takes to see the failure again, in ``repro/<check>`` beside the report.

Nothing big is copied. Weights are named by their generator and digest; inputs are kept up to a size.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from trncheck.fixtures.cache import file_digest
from trncheck.fixtures.manifest import available_releases
from trncheck.reports.schema import CheckResult, Report, Strict, Target
from trncheck.reports.store import dump_json, first_problem

SUBJECTS = ("paths", "kernels", "kernel_training")
"""Subjects whose failures leave a bundle."""
REPRO_JSON = "repro.json"
_MANIFEST = "release.yaml"
_LONGEST = 100
_README = """\
{check} failed on {target} against Neuron {release}, level {level}.

    trncheck repro {folder}

runs this check again with the same options, and says whether it fails in the same way (exit status 1), in another
way (3), or not (0). repro.json names versions, seeds, weights and what the check said; the other files are inputs.
"""


class Weights(Strict):
    """Weights that a check started from; generated again where they are not cached."""

    generator: str
    model: str
    folder: str
    """Name in the cache, with the digest of what the weights depend on."""
    sha256: dict[str, str]
    """By file."""


class Kept(Strict):
    """What the process that ran a check kept of it."""

    folder: str = ""
    """Where its inputs are; empty for none."""
    note: str = ""
    """What the inputs are, or why there are none."""
    weights: list[Weights] = Field(default_factory=list)


class Bundle(Strict):
    """The content of ``repro.json``."""

    format: Literal["1"] = "1"
    check: str
    release: str
    manifest: str = ""
    """File of the bundle with the release, where that is not one of the kit's own."""
    level: Literal["smoke", "standard", "full"]
    target: Target
    seeds: dict[str, int]
    kit_version: str
    kit_commit: str | None
    python: str
    packages: dict[str, str]
    variables: dict[str, str]
    weights: list[Weights]
    inputs: dict[str, str]
    """SHA-256 by file."""
    inputs_note: str
    result: CheckResult
    """The failure."""

    @property
    def versions(self) -> dict[str, str]:
        """Everything that has a version."""
        kit = {"trncheck": self.kit_version, "commit of trncheck": self.kit_commit or "none"}
        return {"python": self.python} | self.packages | kit


def write_bundle(run: Path, report: Report, result: CheckResult, kept: Kept, manifest: Path | None) -> Path:
    """Write the bundle of ``result``, a failure of ``report``, below the folder of its ``run``; gives its folder.

    ``manifest`` is the release's file where it is none of the kit's. Takes the inputs away from where they were kept.
    """
    folder = run / "repro" / _safe(result.id)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    inputs = {}
    for file in sorted(Path(kept.folder).iterdir()) if kept.folder else ():
        shutil.move(file, folder / file.name)
        inputs[file.name] = file_digest(folder / file.name)
    if kept.folder:
        shutil.rmtree(kept.folder, ignore_errors=True)
    if manifest:
        shutil.copyfile(manifest, folder / _MANIFEST)
    bundle = Bundle(
        check=result.id,
        release=report.release,
        manifest=_MANIFEST if manifest else "",
        level=report.level,
        target=report.target,
        seeds=_seeds(report),
        kit_version=report.kit_version,
        kit_commit=report.kit_commit,
        python=report.environment.python,
        packages=report.environment.packages,
        variables=report.environment.variables,
        weights=kept.weights,
        inputs=inputs,
        inputs_note=kept.note,
        result=result,
    )
    (folder / REPRO_JSON).write_text(dump_json(bundle), encoding="utf-8")
    facts = {"check": result.id, "target": report.target, "release": report.release, "level": report.level}
    (folder / "README.txt").write_text(_README.format(folder=folder, **facts), encoding="utf-8", errors="replace")
    return folder


def load_bundle(folder: Path) -> Bundle:
    """The bundle in ``folder``; ValueError, in one line, where there is none that this version reads."""
    file = folder / REPRO_JSON
    try:
        return Bundle.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ValueError(
            f"{file}: cannot be read ({error.strerror}); give a folder below repro/ of a run's results"
        ) from error
    except ValidationError as error:
        raise ValueError(
            f"{file}: {first_problem(error)}; the file is damaged, was edited, or is of another trncheck than "
            f"{version('trncheck')}"
        ) from error


def own_manifest(release: str | None) -> Path | None:
    """The file that ``--release`` names; None for a release that the kit knows."""
    return None if release is None or release in available_releases() else Path(release)


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One line for each name whose value is another one, or that only one side has."""
    return [
        f"{name}: {then.get(name, 'absent')} in the bundle, {now.get(name, 'absent')} now"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]


def _seeds(report: Report) -> dict[str, int]:
    from trncheck.conformance.kernel_runs import SEED

    return {"training": report.seed, "inputs of kernels": SEED, "upstream gradients of kernels": SEED + 1}


def _safe(check: str) -> str:
    """A name of a folder: ``paths.logits[native-moe-1r]`` -> ``paths.logits-native-moe-1r``."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", check).strip("-.")
    if len(name) <= _LONGEST and re.fullmatch(r"[A-Za-z0-9._-]+(\[[A-Za-z0-9._-]+\])?", check):
        return name
    return f"{name[:_LONGEST]}-{hashlib.sha256(check.encode('utf-8', 'replace')).hexdigest()[:8]}"
