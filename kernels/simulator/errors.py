"""The simulator's error and its warning: lines that say where in the kernel, which instruction, and what is wrong."""

import os
import sys
from pathlib import Path

import numpy as np

_HERE = str(Path(__file__).parent)
_STARTS = ("_execute", "_run_core")
"""The simulator's functions that call a kernel."""
_NUMPY = str(Path(np.__file__).parent)


class NkiError(ValueError):
    """What Trainium2, the compiler or the API would refuse; ``str`` is ``file:line: instruction: problem``."""

    def __init__(self, problem: str):
        from trncheck.kernels.simulator.core import instruction_name

        name = instruction_name()
        super().__init__(f"{kernel_line()}: {name + ': ' if name else ''}{problem}")

    @classmethod
    def at(cls, line: str, problem: str) -> "NkiError":
        """An error about ``line``, which is not the one being executed."""
        error = cls.__new__(cls)
        ValueError.__init__(error, f"{line}: {problem}")
        return error


class NkiWarning(UserWarning):
    """What works here and is most likely not meant; the text has the form of an ``NkiError``."""


def kernel_line() -> str:
    """``file:line`` of the innermost frame that is not the simulator's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def called_from() -> str:
    """``, called from file:line`` where ``kernel_line`` is in a helper function of the kernel's; else empty."""
    frame, here = sys._getframe(1), kernel_line()
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    while frame is not None:
        frame = frame.f_back
        if frame is None or (frame.f_code.co_filename.startswith(_HERE) and frame.f_code.co_name in _STARTS):
            return ""
        line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        if not frame.f_code.co_filename.startswith(_HERE) and line != here:  # a comprehension is a frame, too
            return f", called from {line}"
    return ""


def location_of(error: BaseException) -> str:
    """``file:line`` of the innermost frame of ``error`` that is neither the simulator's own nor NumPy's."""
    line, traceback = "", error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith((_HERE, _NUMPY)):
            line = f"{Path(file).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line
