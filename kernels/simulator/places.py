"""Where in a kernel the simulator is: the line being executed, and the one that called it."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

HERE = str(Path(__file__).parent)
_STARTS = ("_execute", "_run_core")
"""The simulator's functions that call a kernel."""

_own: dict[str, bool] = {}
"""By file name, whether the file is the simulator's."""


class Place(NamedTuple):
    """A line of a kernel, as code and number, which become text only where somebody reads them."""

    file: str
    number: int
    caller: tuple[str, int] | None
    """The nearest other line up the stack, still within the kernel."""

    @property
    def line(self) -> str:
        """``file:line``."""
        return f"{os.path.basename(self.file)}:{self.number}"

    @property
    def called_from(self) -> str:
        """``, called from file:line`` where the line is in a helper function of the kernel's; else empty."""
        return f", called from {os.path.basename(self.caller[0])}:{self.caller[1]}" if self.caller else ""


def place() -> Place:
    """The innermost line that is not the simulator's own."""
    frame = sys._getframe(1)
    code = frame.f_code
    while (above := frame.f_back) is not None and is_own(code.co_filename):
        frame, code = above, above.f_code
    file, number = code.co_filename, frame.f_lineno
    while (frame := frame.f_back) is not None:
        code = frame.f_code
        if is_own(code.co_filename):
            if code.co_name in _STARTS:
                break
        elif frame.f_lineno != number or code.co_filename != file:  # a comprehension is a frame, too
            return Place(file, number, (code.co_filename, frame.f_lineno))
    return Place(file, number, None)


def is_own(file: str) -> bool:
    """Whether ``file`` is the simulator's."""
    own = _own.get(file)
    if own is None:
        own = _own[file] = file.startswith(HERE)
    return own
