"""What the NKI compiler or the device says about a kernel, in one line; the whole of it goes to a file.

No exception class of the compiler is documented, so what an error is is read off its text. Imports no torch.
"""

import os
import re
import tempfile
import traceback
from pathlib import Path

FOLDER = "TORCH_NEURONX_DEBUG_DIR"
"""Variable with the folder that the whole text goes to; a run sets it to one below its own."""

_LONGEST = 300
_COMPILER_WORDS = re.compile(r"compil|neuronx-cc|\bNCC_|\bMLIR\b|^nki\.", re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(r"\bNCC_\w+")
"""What neuronx-cc numbers its errors by."""
_SAYS_ERROR = re.compile(r"\berror\b|\bassert", re.IGNORECASE)
_PYTHON_ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Failure)\b: *\S")
_NOISE = re.compile(
    r"""^(?:
        Traceback\ \(most\ recent\ call\ last\)
      | \s*File\ ".*",\ line\ \d+
      | \s+                                        # the code below such a line, and pointers into it
      | [\^~*=\s-]+$
      | An\ Internal\ Compiler\ Error\ has\ occurred
      | Error\ class:|Command\ line:|Internal\ details:
      | (?:During\ handling\ of|The\ above\ exception\ was)
      | (?:Exception\ raised\ from|C\+\+\ CapturedTraceback|Stack\ (?:dump|trace)|\[?\bbacktrace)
      | \#?\d+:?\ +(?:0x|\w+::|.*\(\+?0x)            # frames of a C++ stack
      | frame\ \#\d+
      | (?:.*/)?[\w.+-]+\.so[\w.]*\(
      | .*\b(?:returned\ non-zero\ exit\ status|exited\ with\ (?:code|status))
      | (?:For\ more\ information|Please\ (?:open|file|report)|See\ the\ log)
    )""",
    re.VERBOSE,
)
_STAMP = re.compile(
    r"^(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\]?\s+)?(?:(?:\d+|\[?(?:USER|INFO|DEBUG|WARNING|ERROR|FATAL)\]?:?)\s+){0,2}"
    r"(?:\[[\w/.-]+\]:\s*)?(?:Error message:\s*)?"
)
"""Before what a line says: ``2026-11-30T10:00:02Z ERROR 4711 [neuronx-cc]: Error message:``."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PATH = re.compile(r"(?:/[\w.+@-]+)+/(?=[\w.+@-])")


class KernelFailed(RuntimeError):
    """A kernel could not be executed on the device; ``str`` is one line."""


class KernelDidNotCompile(KernelFailed):
    """The compiler has refused a kernel."""


def explain(error: BaseException) -> tuple[str, str]:
    """The first line of ``error`` that says what is wrong, without paths, and everything there is to say.

    The second has the traceback, chained errors, and the output of a process that failed.
    """
    texts = [_text(link) for link in _chain(error)]
    whole = "".join(traceback.format_exception(error))
    said = [line for text in texts for line in _lines(text)]
    candidates = (
        next((line for line in said if _CODE.search(line)), None),
        next((line for line in said if _SAYS_ERROR.search(line) and not _PYTHON_ERROR.match(line)), None),
        next((line for line in said if _PYTHON_ERROR.match(line)), None),
        next(iter(said), None),
    )
    line = next(filter(None, candidates), type(error).__name__)
    return _PATH.sub("", line)[:_LONGEST], "\n".join([whole, *(text for text in texts if text not in whole)])


def failure(error: BaseException, kernel: str, folder: Path | None = None) -> KernelFailed:
    """The error to raise for ``error``, which a launch of ``kernel`` on the device has raised; writes the whole text.

    ``folder``: where to, instead of where ``FOLDER`` says, or the system's folder for temporary files.
    """
    line, whole = explain(error)
    said = "\n".join(f"{type(link).__module__}.{type(link).__name__} {_text(link)}" for link in _chain(error))
    compiled = _COMPILER_WORDS.search(said)
    what, kind = ("NKI compile error", KernelDidNotCompile) if compiled else ("failed on the device", KernelFailed)
    return kind(f"kernel {kernel}: {what}: {line} ({_write(whole, kernel, folder)})")


def is_ours(error: BaseException) -> bool:
    """Whether it says what is wrong in one line already: an error of this kit, its simulator included."""
    return type(error).__module__.partition(".")[0] == "trncheck"


def is_of_capture(error: BaseException) -> bool:
    """Whether it is how torch's graph capture talks to itself, and no failure."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._subclasses", "torch.fx", "torch._guards"))


def _chain(error: BaseException) -> list[BaseException]:
    """``error``, then what it was raised from."""
    links = []
    while error is not None and error not in links:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links


def _text(error: BaseException) -> str:
    """Message of an error, and what the process that it is about has written."""
    parts = [getattr(error, name, None) for name in ("stderr", "stdout")]
    written = [part.decode(errors="replace") if isinstance(part, bytes) else part for part in parts]
    return "\n".join([str(error), *(part for part in written if isinstance(part, str) and part)])


def _lines(text: str) -> list[str]:
    lines = [_ANSI.sub("", line).rstrip() for line in text.splitlines()]
    lines = [_STAMP.sub("", line).strip() for line in lines if line.strip() and not _NOISE.match(line)]
    return [line for line in lines if line and not _NOISE.match(line)]


def _write(whole: str, kernel: str, folder: Path | None) -> str:
    """Write the text to a new file; what to say about where it is."""
    folder = folder or Path(os.environ.get(FOLDER) or tempfile.gettempdir())
    name = re.sub(r"\W+", "-", kernel)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(prefix=f"kernel-{name}-", suffix=".log", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(whole)
    except OSError as refused:
        return f"the whole log could not be written: {refused}"
    return f"whole log: {path}"
