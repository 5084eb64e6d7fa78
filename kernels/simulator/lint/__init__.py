"""Finds what the NKI 0.7 compiler refuses in kernel sources, by reading them: nothing is imported or run.

Kernel code is every function decorated with `nki.jit`, or passed to it by name, and the functions and classes of the
same file that it reaches by name. Other code is not judged, launches of the file's kernels excepted.
"""

import ast
import tokenize
import warnings
from pathlib import Path

from trncheck.kernels.simulator.lint import calls, launch, loops, portability, purity, registers
from trncheck.kernels.simulator.lint.codes import CODES, Code, Finding
from trncheck.kernels.simulator.lint.source import Source

__all__ = ["CODES", "Code", "Finding", "UnreadableSource", "lint_file", "lint_source"]

_CHECKS = (registers.check, loops.check, calls.check, launch.check, purity.check, portability.check)


class UnreadableSource(ValueError):
    """The file cannot be read, or is not Python; the message is one line with file, line and remedy."""


def lint_file(path: str | Path) -> list[Finding]:
    """Findings of one file by line; raises UnreadableSource."""
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except OSError as error:
        raise UnreadableSource(f"{path}: {error.strerror}; give the path of a readable Python file") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UnreadableSource(f"{path}:1: {error}; save the file as UTF-8") from error
    return lint_source(text, str(path))


def lint_source(text: str, filename: str) -> list[Finding]:
    """Findings of one source text by line; `filename` is for the findings only. Raises UnreadableSource."""
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:  # null bytes are either, by Python's patch version
        line, reason = getattr(error, "lineno", None) or 1, getattr(error, "msg", error)
        raise UnreadableSource(f"{filename}:{line}: {reason}; correct the syntax first") from error
    source = Source(tree)
    if not source.kernel_names and not source.units:
        return []
    found = {
        Finding(filename, node.lineno, node.col_offset + 1, code, CODES[code].severity, message)
        for check in _CHECKS
        for code, node, message in check(source)
    }
    return sorted(found)
