"""Are the foreign names that the kit relies on there, with the parameters and fields that it uses?

``probe`` asks in a process of its own, ``python -m trncheck.neuron.surface``: importing frameworks would decide there
which device they take, a broken one may end the process, and whoever asks first must not pay for it later. It imports
everything and computes nothing, so no NeuronCore is claimed. What the names are for is in ``surface_table``.
"""

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trncheck.neuron import surface_table
from trncheck.neuron.surface_part import Part, Use, parse

_OPTIONAL = {
    "nkilib": "nkilib is not installed: the kit's own kernels run",
    "torch_neuronx": "torch-neuronx is not installed: none of its names was probed",
}
"""Packages without which the rest of the kit works; what it means that one is not there."""
_SIMULATED = "the official nki is not installed: its names were probed on trncheck's simulator"


@dataclass(frozen=True)
class Miss:
    """A name that is not as the kit uses it."""

    name: str
    problem: str
    breaks: str
    """What does not work because of it."""
    instead: str = ""
    """What is used in its place, or what is not known then; such a miss breaks nothing."""

    @property
    def line(self) -> str:
        return f"{self.name} {self.problem}; {self.instead or f'breaks {self.breaks}'}"


@dataclass
class Survey:
    """What a probe has found."""

    misses: list[Miss] = field(default_factory=list)
    replaced: list[Miss] = field(default_factory=list)
    """Names that are missing and have something in their place."""
    notes: list[str] = field(default_factory=list)
    """What was not probed, or not on the real thing."""
    probed: int = 0
    """Number of names."""


def probe() -> list[Miss]:
    """Names that are missing or changed, and break something; empty where all is well. Takes some 10 s."""
    return survey().misses


def survey(timeout: float = 600) -> Survey:
    """The same with all that was found. A probe that crashes, or takes longer than ``timeout`` seconds, is a miss."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__]
    # In a checkout the working folder's `kernels` would shadow the package that Transformers imports.
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)
        output, ending = ended.stdout, _ending(ended.returncode, ended.stderr)
    except subprocess.TimeoutExpired as late:
        output, ending = (late.stdout or b"").decode(errors="replace"), f"has not ended after {timeout:g} s"
    return _read(output.splitlines(), ending)


def _read(lines: Iterable[str], ending: str) -> Survey:
    """The survey in the child's output; where that breaks off, a miss for what it was importing."""
    importing = "the probe of names"
    for line in lines:
        entry = json.loads(line)
        if "importing" in entry:
            importing = entry["importing"]
        else:
            misses, replaced = ([Miss(**miss) for miss in entry.pop(key)] for key in ("misses", "replaced"))
            return Survey(misses, replaced, **entry)
    return Survey([Miss(importing, f"cannot be imported: the process {ending}", "all that uses it")])


def _ending(status: int, errors: str) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    last = [line for line in errors.splitlines() if line.strip()][-1:]
    return f"ended with status {status}: {''.join(last)}"


def main() -> None:
    """Probe everything here; writes JSON lines: each module before it is imported, then the survey."""
    here = Path.cwd()
    sys.path[:] = [entry for entry in sys.path if Path(entry or here) != here]
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what frameworks print

    def tell(entry: dict) -> None:
        print(json.dumps(entry), file=answer)

    tell(asdict(survey_here(surface_table.TABLE, lambda module: tell({"importing": module}))))


def survey_here(table: Iterable[Part], before_import=lambda module: None) -> Survey:
    """Probe ``table`` in this process, which imports what is in it."""
    found = Survey()
    for package, parts in _by_package(table):
        simulated = package == "nki" and not _has_official_nki()
        if not simulated and importlib.util.find_spec(package) is None:
            if package in _OPTIONAL:
                found.notes.append(_OPTIONAL[package])
            else:
                found.misses.append(Miss(package, "is not installed", _all_of(part.breaks for part in parts)))
            continue
        if simulated:
            found.notes.append(_SIMULATED)
        with _nki() if package in ("nki", "nkilib") else contextlib.nullcontext():
            for module, of_module in _grouped(parts, lambda part: part.module):
                before_import(module)
                _probe_module(module, of_module, found)
    return found


def _by_package(table: Iterable[Part]) -> Iterator[tuple[str, list[Part]]]:
    # torch.neuron is there where torch_neuronx is.
    on_device = {id(part) for part in surface_table.TORCH_NEURONX}
    return _grouped(table, lambda p: "torch_neuronx" if id(p) in on_device else p.module.partition(".")[0])


def _grouped(parts: Iterable[Part], key) -> Iterator[tuple[str, list[Part]]]:
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(key(part), []).append(part)
    yield from groups.items()


def _probe_module(module: str, parts: list[Part], found: Survey) -> None:
    try:
        owner = importlib.import_module(module)
    except BaseException as error:  # SystemExit, and what C++ makes of its errors, included
        if isinstance(error, KeyboardInterrupt):
            raise
        needed = [parse(entry)[0].name for part in parts for entry in part.entries]
        instead = parts[0].instead if isinstance(error, ModuleNotFoundError) else ""
        gone = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        problem = "is missing" if gone else f"cannot be imported: {_one_line(error)}"
        names = ", ".join(dict.fromkeys(name.partition(".")[0] for name in needed))
        miss = Miss(module, f"({names}) {problem}", _all_of(part.breaks for part in parts), instead)
        (found.replaced if instead else found.misses).append(miss)
        return
    for part in parts:
        for entry in part.entries:
            found.probed += 1
            _probe_entry(owner, part, parse(entry), found)


def _probe_entry(owner, part: Part, uses: list[Use], found: Survey) -> None:
    """The first of the names that is there is the one that the kit takes, so that is the one to check."""
    gone = []
    for use in uses:
        thing, missing = _member(owner, use.name)
        if missing:
            gone.append(f"{part.module}.{missing}")
        elif problem := _problem(thing, use):
            found.misses.append(Miss(f"{part.module}.{use.name}", problem, part.breaks))
            return
        else:
            return
    problem = "is missing" if len(uses) == 1 else "are both missing"
    miss = Miss(" and ".join(gone), problem, part.breaks, part.instead)
    misses = found.replaced if part.instead else found.misses
    if not any(other.name == miss.name and other.problem == problem for other in misses):
        misses.append(miss)


def _member(owner, name: str) -> tuple[object, str]:
    """What ``name`` is in ``owner``, and nothing; or how much of it is missing: ``a.b`` of ``a.b.c``."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        if not hasattr(owner, part) and inspect.ismodule(owner):
            with contextlib.suppress(ModuleNotFoundError):  # a submodule that nobody has imported yet
                importlib.import_module(f"{owner.__name__}.{part}")
        if not hasattr(owner, part):
            return None, ".".join(parts[: i + 1])
        owner = getattr(owner, part)
    return owner, ""


# --- one name


def _problem(thing, use: Use) -> str:
    """What of ``use`` does not fit ``thing``; empty where it fits, or where its signature cannot be seen."""
    if gone := [member for member in use.members if not _has(thing, member)]:
        return f"has no {', '.join(gone)}"
    if not use.called:
        return ""
    if not callable(thing):
        return "cannot be called"
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    kinds = {p.kind for p in parameters}
    unknown = [] if inspect.Parameter.VAR_KEYWORD in kinds else [name for name in use.passed if name not in by_name]
    if unknown:
        return f"takes no {', '.join(f'{name}=' for name in unknown)}"
    if len(by_place) < use.positional and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return f"takes {len(by_place)} arguments in their order, not {use.positional}"
    given = {p.name for p in by_place[: use.positional]} | set(use.passed)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if use.more:
        return ""
    demanded = [p.name for p in parameters if p.default is p.empty and p.kind not in variadic and p.name not in given]
    return f"now demands {', '.join(demanded)}" if demanded else ""


def _has(thing, member: str) -> bool:
    """Whether it has the attribute, or its instances have a declared one of this name."""
    kinds = thing.__mro__ if inspect.isclass(thing) else ()
    return hasattr(thing, member) or any(member in vars(kind).get("__annotations__", {}) for kind in kinds)


def _has_official_nki() -> bool:
    from trncheck.kernels.simulator.modules import official_nki

    return official_nki()


def _nki() -> contextlib.AbstractContextManager:
    from trncheck.kernels.runtime import importing

    return importing()


def _all_of(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


if __name__ == "__main__":
    main()
