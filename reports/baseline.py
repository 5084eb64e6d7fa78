"""The baseline file: what the numbers of a release on a target were in repeated runs, and where that was measured.

Nothing in it has a default: a number without provenance does not load.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from .baseline_band import band
from .baseline_fingerprint import digest
from .schema import Strict
from .store import first_problem
from .text import one_line

BASELINE_VERSION = "1.0"
MIN_RUNS = 3
"""Repeats from which a standard deviation says something."""
DIRTY = "+dirty"
_ANEW = "write it anew with trncheck baseline propose"
# What an editor or a terminal would not show as it is; controls below space are escaped by JSON itself.
_UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("nothing is said")
    return text


# A pattern would do, but pydantic's take no lone surrogates, which names of files may hold.
Said = Annotated[str, AfterValidator(_says_something)]


class _Exact(Strict):
    # No lax conversion, and no NaN: a baseline holds finite numbers.
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class BaselineNumber(_Exact):
    """One measurement over ``n`` runs. Values are in ``unit``."""

    place: Annotated[int, Field(ge=0)]
    """Position among the measurements of its check: names may end in where the worst was found, and so may vary."""
    unit: str
    bar: float | None
    """The strictest of the runs; a bar may depend on what was measured."""
    relation: Literal["<=", ">=", "=="]
    n: Annotated[int, Field(ge=MIN_RUNS)]
    mean: float
    std: Annotated[float, Field(ge=0)]
    """Of the sample, with n - 1."""
    min: float
    max: float
    low: float
    """Lower end of the band, by ``baseline_band.RULE``."""
    high: float
    golden: float | None
    """The value of every run, where all agreed bit for bit."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if not self.min <= self.mean <= self.max:
            raise ValueError("the mean is not between min and max")
        if self.golden is not None and not self.min == self.golden == self.max:
            raise ValueError("a golden value where min and max are others")
        derived = band(
            n=self.n,
            mean=self.mean,
            std=self.std,
            least=self.min,
            most=self.max,
            bar=self.bar,
            relation=self.relation,
        )
        if (self.low, self.high) != derived:
            raise ValueError("low and high are not what the rule gives for these runs")
        return self


class BaselineCheck(_Exact):
    """The numbers of one check, by name; a name that is there again carries its count."""

    version: Said
    """Hash of the check's code and data; numbers of another version are not comparable."""
    numbers: Annotated[dict[str, BaselineNumber], Field(min_length=1)]


class SourceRun(_Exact):
    """A run behind the numbers."""

    run_id: Said
    started: Said
    """ISO 8601, UTC."""


class Provenance(_Exact):
    """Where all numbers of a file come from."""

    release: Said
    target: Literal["cpu", "trn2"]
    level: Literal["smoke", "standard", "full"]
    kit_version: Said
    kit_commit: Said
    seed: int
    runs: Annotated[list[SourceRun], Field(min_length=MIN_RUNS)]
    """The oldest first."""
    environment: Annotated[dict[str, str], Field(min_length=1)]
    """What makes bit-exact agreement plausible, see ``baseline_fingerprint.environment_of``."""
    fingerprint: str
    """Hash of ``environment``."""
    reason: Said
    """Why the author proposed these numbers."""
    previous: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None
    """SHA-256 of the file that this one replaced; null for the first."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if self.kit_commit.endswith(DIRTY):
            raise ValueError("kit_commit is not of a clean checkout")
        if len({run.run_id for run in self.runs}) < len(self.runs):
            raise ValueError("a run is there twice")
        if self.fingerprint != digest(self.environment):
            raise ValueError("the fingerprint is not that of the environment")
        return self


class Baseline(_Exact):
    """A whole file."""

    baseline_version: Literal["1.0"]
    rule: Said
    """How a band follows from the runs, and why so."""
    provenance: Provenance
    checks: dict[str, BaselineCheck]
    """By id."""


def default_path(release: str, target: str) -> Path:
    """``baselines/<release>-<target>.json``. Raises ValueError where the release cannot name a file."""
    if one_line(release) != release or release[:1] in ("", ".") or any(c in release for c in '/\\:*?"<>|'):
        raise ValueError(f"release {one_line(release, 40)!r} cannot name a file: give one with --baseline")
    return Path("baselines", f"{release}-{target}.json")


def load_baseline(path: Path) -> tuple[Baseline, str]:
    """The baseline in ``path`` and the SHA-256 of the file.

    Raises ValueError, in one line with file, problem and field, where it is none that this version takes.
    """
    try:
        content = path.read_bytes()
        data = json.loads(content, object_pairs_hook=_no_key_twice)
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror}); propose a baseline, or give one with --baseline"
        ) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: line {error.lineno}: not JSON ({error.msg}); restore it or {_ANEW}") from error
    except (ValueError, RecursionError) as error:
        problem = one_line(str(error), 120) if type(error) is ValueError else type(error).__name__
        raise ValueError(f"{path}: not JSON ({problem}); restore it or {_ANEW}") from error
    if not isinstance(data, dict) or "baseline_version" not in data:
        raise ValueError(f"{path}: no baseline_version, so this is no baseline of trncheck; {_ANEW}")
    if data["baseline_version"] != BASELINE_VERSION:
        version = one_line(str(data["baseline_version"]), 40)
        raise ValueError(f"{path}: baseline version {version}, this trncheck reads {BASELINE_VERSION}; {_ANEW}")
    try:
        return Baseline.model_validate(data), hashlib.sha256(content).hexdigest()
    except ValidationError as error:
        raise ValueError(f"{path}: {first_problem(error)}; restore it or {_ANEW}") from error


def dump_baseline(baseline: Baseline) -> str:
    """``baseline`` for people who read differences: keys sorted, one value per line, nothing invisible."""
    text = json.dumps(baseline.model_dump(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text) + "\n"


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Replace ``path``, as a whole or not at all. Raises ValueError where it cannot be written."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(dump_baseline(baseline), encoding="utf-8", newline="\n")
        os.replace(part, path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error}); choose another file") from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {one_line(twice, 60)!r} is there twice")
    return data
