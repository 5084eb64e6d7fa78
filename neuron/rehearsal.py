"""The environment of a rehearsal: a stand-in for a trn2.48xlarge, built into the cache. Imports no torch."""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

from trncheck.neuron import host, machine
from trncheck.neuron.standin import build
from trncheck.neuron.standin import folder as standin_folder
from trncheck.neuron.standin.variants import PLAIN, VARIANTS


def environment(variant: str | None = None, release: str | None = None) -> dict[str, str]:
    """Variables that make a process, and those that it starts, take part in the rehearsal of ``variant``.

    Builds what is not in the cache, the first time for half a minute. ``release`` is as for
    ``--release``; as there, the newest whose versions are all known unless given.

    Raises:
        ValueError: In one line: an unknown variant, no compiler here, a release without a device to rehearse with, or
            a machine that has Neuron devices or software itself.
    """
    folder = _folder(variant or PLAIN, release)
    return {
        host.REHEARSAL: str(folder),
        "PYTHONPATH": _first(folder / "site", "PYTHONPATH"),
        "PATH": _first(folder / "bin", "PATH"),
    }


def notice(variant: str | None = None) -> str:
    """One line about what a rehearsal is, and what is wrong in this one."""
    wrong = f" Variant {variant}: {VARIANTS[variant].title}." if variant in VARIANTS else ""
    return (
        "Rehearsal: device, driver, tools and Neuron packages are trncheck's stand-ins, and this CPU does the work; it "
        f"shows that the kit runs, and nothing about Trainium.{wrong}"
    )


def refusal() -> str | None:
    """Why there can be no rehearsal on this machine, in one line; None where there can."""
    if host.rehearsal():
        return None
    found = machine.inspect()
    if found.is_neuron:
        return f"this machine has Neuron itself ({found}); run without --rehearse"
    if (spec := importlib.util.find_spec("torch_neuronx")) is not None:
        return f"torch-neuronx is installed here ({spec.origin}), which the stand-in never takes the place of"
    return None


def _folder(variant: str, release: str | None) -> Path:
    from trncheck.fixtures.cache import cached_folder, source_digest
    from trncheck.fixtures.manifest import default_release, load_release

    if variant not in (PLAIN, *VARIANTS):
        raise ValueError(f"there is no variant {variant!r} of the rehearsal; choose {PLAIN}, {', '.join(VARIANTS)}")
    if reason := refusal():
        raise ValueError(reason)
    manifest = load_release(release or default_release())
    extension = build.extension()

    def write(folder: Path) -> None:
        standin_folder.write(folder, manifest, extension)
        if variant != PLAIN:
            VARIANTS[variant].change(folder)
        standin_folder.seal(folder / "site")

    sources = [path for path in Path(standin_folder.__file__).parent.rglob("*") if path.suffix in (".py", ".txt")]
    key = {
        "variant": variant,
        "release": manifest.model_dump_json(),
        "torch": importlib.metadata.version("torch"),
        "python": sys.implementation.cache_tag,
        "extension": str(extension),
        "sources": source_digest(*map(str, sorted(sources))),
    }
    return cached_folder(f"rehearsal-{variant}", key, write)


def _first(folder: Path, variable: str) -> str:
    """The value of a search path with ``folder`` in front, and none of another rehearsal's behind it."""
    old = host.rehearsal()
    paths = os.environ.get(variable, "").split(os.pathsep)
    return os.pathsep.join([str(folder), *(path for path in paths if path and old not in Path(path).parents)])
