"""Where in the code of a kernel's author an error comes from, behind the frames of the kit and of its dependencies."""

import dis
import sys
from pathlib import Path
from types import TracebackType

_OTHERS = {"trncheck", "torch", "torchtitan", "transformers", "numpy", "ml_dtypes", "pluggy"}
_RUNNERS = ("pytest", "_pytest", "_hypothesis", "xdist")
"""How the names of what calls checks start."""


def author_line(error: BaseException) -> str:
    """``file:line`` of the innermost frame of ``error`` in code of the author's, or of its syntax error; else empty."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    line, traceback = "", error.__traceback__
    while traceback is not None:
        if _is_author_s(traceback):
            line = f"{Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line


def raised_in(error: BaseException, package: str) -> bool:
    """Whether a raise statement of ``package`` raised ``error``, and no function that it called."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return False
    frame = traceback.tb_frame
    is_raise = frame.f_code.co_code[traceback.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return is_raise and f"{frame.f_globals.get('__name__', '')}.".startswith(f"{package}.")


def one_line(error: BaseException) -> str:
    """``Type: text`` on one line, cut to 300 characters."""
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return f"{type(error).__name__}: {text}"[:300]


def _is_author_s(traceback: TracebackType) -> bool:
    package = traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    if package in _OTHERS or package.startswith(_RUNNERS):
        return False
    return package == "__main__" or package not in sys.stdlib_module_names
