"""All runs below some folders, with what a trend needs of each and no more; files that cannot be read are named."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypeAlias

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes the standard one from Python 3.12 on

from .diff_context import selects_checks
from .schema import Outcome, Strict, Target
from .store import REPORT_JSON, load_report
from .text import one_line

_MESSAGE = 240
"""Characters kept of the message of a red check."""

State: TypeAlias = tuple[Any, ...]
"""Release, seed, kit, Python, packages and pins: equal for runs between which nothing of these changed."""


class Number(NamedTuple):
    """A measurement; ``bar`` is None where it is only reported."""

    name: str
    value: float
    bar: float | None
    relation: Literal["<=", ">=", "=="]
    unit: str


class Result(NamedTuple):
    """One check in one run."""

    outcome: Outcome
    required: bool
    level: str
    version: str
    title: str
    message: str
    """In one line, of a red check only."""
    numbers: tuple[Number, ...]


@dataclass(frozen=True, eq=False)
class Run:
    """One run."""

    path: Path
    """Its ``report.json``."""
    run_id: str
    release: str
    release_date: str
    target: str
    level: str
    started: str
    kit_version: str
    kit_commit: str | None
    complete: bool
    whole: bool
    """Whether it came to its end and was not asked for single checks."""
    state: State
    results: dict[str, Result]

    @property
    def state_known(self) -> bool:
        """False for a checkout with changes that no commit holds: two such runs may differ in code."""
        return not (self.kit_commit or "").endswith("+dirty")


class Skipped(Strict):
    """A file that was not read."""

    path: str
    reason: str


@dataclass
class History:
    """What lies below the folders; runs in time order."""

    runs: list[Run] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def read_history(folders: Sequence[Path]) -> History:
    """Every run whose ``report.json`` lies anywhere below ``folders``; a run that lies there twice counts once.

    Raises ValueError, in one line, where not a single one can be read.
    """
    history = History()
    seen: dict[tuple[str, str, str], Path] = {}
    states: dict[State, State] = {}
    for path in _report_files(folders):
        try:
            run = _read(path, states)
        except ValueError as error:
            history.skipped.append(Skipped(path=str(path), reason=str(error).removeprefix(f"{path}: ")))
            continue
        first = seen.setdefault((run.release, run.target, run.run_id), path)
        if first is path:
            history.runs.append(run)
        else:
            history.skipped.append(Skipped(path=str(path), reason=f"a copy of the run in {first}"))
    if not history.runs:
        found = history.skipped
        problem = f"none of {len(found)} can be read, e.g. {found[0].path}: {found[0].reason}" if found else "none"
        raise ValueError(f"reports below {', '.join(map(str, folders))}: {problem}")
    history.runs.sort(key=lambda run: (run.started, run.run_id))
    return history


class _Measurement(TypedDict):
    name: str
    value: float
    bar: NotRequired[float | None]
    relation: NotRequired[Literal["<=", ">=", "=="]]
    unit: NotRequired[str]


class _Check(TypedDict):
    id: str
    title: str
    outcome: Outcome
    level: Literal["smoke", "standard", "full"]
    message: NotRequired[str]
    required: NotRequired[bool]
    version: NotRequired[str]
    measurements: NotRequired[list[_Measurement]]


class _Pin(TypedDict):
    name: str
    expected: str
    found: str | None


class _Environment(TypedDict):
    python: str
    packages: NotRequired[dict[str, str]]


class _File(TypedDict):
    """The part of ``schema.Report`` that is kept: to validate only that takes a third of the time."""

    schema_version: Literal["1.0", "1.1", "1.2", "1.3"]
    run_id: str
    release: str
    release_date: str
    target: Target
    level: Literal["smoke", "standard", "full"]
    command: str
    seed: int
    started: str
    kit_version: str
    environment: _Environment
    kit_commit: NotRequired[str | None]
    complete: NotRequired[bool]
    pins: NotRequired[list[_Pin]]
    results: NotRequired[list[_Check]]


_FILE = TypeAdapter(_File)


def _report_files(folders: Sequence[Path]) -> Iterator[Path]:
    """Files below ``folders``, each once."""
    seen = set()
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder; give one that holds runs, e.g. results")
        for path in sorted(folder.rglob(REPORT_JSON)):
            if (place := path.resolve()) not in seen:
                seen.add(place)
                yield path


def _read(path: Path, states: dict[State, State]) -> Run:
    """The run in ``path``; ``states`` holds one copy of each state. Raises ValueError as ``load_report`` does."""
    try:
        found = _FILE.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        # Slower, but it says what is wrong in words, and takes what only Python's JSON takes.
        found = _FILE.validate_python(load_report(path).model_dump())
    pins = tuple((pin["name"], pin["expected"], pin["found"]) for pin in found.get("pins", ()))
    packages = found["environment"].get("packages", {})
    commit = found.get("kit_commit")
    software = (found["environment"]["python"], tuple(sorted(packages.items())), pins)
    state = (found["release"], found["seed"], found["kit_version"], commit, *software)
    complete = found.get("complete", False)
    return Run(
        path=path,
        run_id=found["run_id"],
        release=found["release"],
        release_date=found["release_date"],
        target=found["target"],
        level=found["level"],
        started=found["started"],
        kit_version=found["kit_version"],
        kit_commit=commit,
        complete=complete,
        whole=complete and not selects_checks(found["command"]),
        state=states.setdefault(state, state),
        results={check["id"]: _result(check) for check in found.get("results", ())},
    )


def _result(check: _Check) -> Result:
    outcome = check["outcome"]
    return Result(
        outcome=outcome,
        required=check.get("required", True),
        level=check["level"],
        version=check.get("version", ""),
        title=check["title"],
        message=one_line(check.get("message", ""), _MESSAGE) if outcome.is_failure else "",
        numbers=tuple(
            Number(m["name"], m["value"], m.get("bar"), m.get("relation", "<="), m.get("unit", ""))
            for m in check.get("measurements", ())
        ),
    )
