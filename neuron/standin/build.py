"""Builds the stand-in's C++ extension into the kit's cache, once per torch, Python, compiler and state of the sources.

About a minute on two cores. Needs a C++20 compiler and Python's headers; torch's wheel brings its own.
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EXTENSION = "_standin"
"""Name of the module, ``torch_neuronx._standin`` in the stand-in environment."""

_HERE = Path(__file__).parent
_SOURCES = ("device.cpp", "operators.cpp", "module.cpp")


def missing() -> str | None:
    """What keeps the extension from being built here, in one line with the remedy; None for nothing."""
    if compiler() is None:
        return "no C++ compiler (g++, c++ or clang++ on PATH, or in CXX); install one, e.g. apt-get install g++"
    if not _python_headers().joinpath("Python.h").exists():
        return f"Python.h is not in {_python_headers()}; install Python's headers, e.g. apt-get install python3-dev"
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "torch is not installed"
    return None


def compiler() -> str | None:
    """Path of the C++ compiler."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def extension() -> Path:
    """The built extension, from the cache where it is there; ValueError where it cannot be built, with the reason."""
    from trncheck.fixtures.cache import cached_folder, source_digest

    if reason := missing():
        raise ValueError(f"the stand-in device cannot be built: {reason}")
    key = {
        "torch": importlib.metadata.version("torch"),
        "python": f"{sys.implementation.cache_tag}-{platform.machine()}",
        "compiler": _output([compiler(), "-dumpfullversion", "-dumpversion"]),
        "sources": source_digest(*(str(_HERE / name) for name in ("standin.h", *_SOURCES)), __file__),
    }
    return cached_folder("standin", key, _build) / f"{EXTENSION}.so"


def _build(folder: Path) -> None:
    print("trncheck: building the stand-in device, once; this takes half a minute", file=sys.stderr, flush=True)
    objects = [folder / Path(name).with_suffix(".o").name for name in _SOURCES]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: _run(_compile(*pair)), zip(_SOURCES, objects, strict=True)))
    target = folder / f"{EXTENSION}.so"
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    _run([compiler(), "-shared", *map(str, objects), "-o", str(target), f"-L{_torch() / 'lib'}", *libraries, "-s"])
    for file in objects:
        file.unlink()


def _compile(source: str, target: Path) -> list[str]:
    include = _torch() / "include"
    folders = [include, include / "torch" / "csrc" / "api" / "include", _python_headers()]
    options = ["-std=c++20", "-O1", "-g0", "-fPIC", "-w", f"-DTORCH_EXTENSION_NAME={EXTENSION}"]
    return [compiler(), *options, *(f"-I{folder}" for folder in folders), "-c", str(_HERE / source), "-o", str(target)]


def _torch() -> Path:
    """Folder of torch's package, found without importing it."""
    return Path(importlib.metadata.distribution("torch").locate_file("torch"))


def _python_headers() -> Path:
    return Path(sysconfig.get_paths()["include"])


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if "error" in line] or ended.stderr.splitlines()[-1:]
        says = errors[0] if errors else f"exit status {ended.returncode}"
        torch = importlib.metadata.version("torch")
        raise ValueError(f"the stand-in device cannot be built with torch {torch}: {says}")
