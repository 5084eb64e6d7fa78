"""The one error of the simulator: a line that says where in the kernel, which instruction, and what is refused."""

import os
import sys
from pathlib import Path

import numpy as np

_HERE = str(Path(__file__).parent)
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


def kernel_line() -> str:
    """``file:line`` of the innermost frame that is not the simulator's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def location_of(error: BaseException) -> str:
    """``file:line`` of the innermost frame of ``error`` that is neither the simulator's own nor NumPy's."""
    line, traceback = "", error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith((_HERE, _NUMPY)):
            line = f"{Path(file).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line
