"""The simulator's error and its warning: lines that say where in the kernel, which instruction, and what is wrong."""

from pathlib import Path

import numpy as np

from trncheck.kernels.simulator.places import HERE, place

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
    return place().line


def called_from() -> str:
    """``, called from file:line`` where ``kernel_line`` is in a helper function of the kernel's; else empty."""
    return place().called_from


def location_of(error: BaseException) -> str:
    """``file:line`` of the innermost frame of ``error`` that is neither the simulator's own nor NumPy's."""
    line, traceback = "", error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith((HERE, _NUMPY)):
            line = f"{Path(file).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line
