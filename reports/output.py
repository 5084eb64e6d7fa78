"""A finished page or text, on standard output or in a file."""

import sys
from collections.abc import Callable
from pathlib import Path


def emit(render: Callable[[], str], show: Callable[[], None] | None, conclusion: str, out: Path | None) -> None:
    """Write what ``render`` gives to ``out`` and print ``conclusion``; without ``out``, print it.

    ``show`` prints it in its place where the form has one for terminals. Raises ValueError where ``out`` cannot be
    written.
    """
    if out is not None:
        text = render()
        try:
            out.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise ValueError(f"{out}: cannot be written ({error.strerror or error}); choose another file") from error
        print(f"{conclusion}\n{out}")
    elif show is not None:
        show()
    else:
        # A page says that it is UTF-8, whatever the terminal is.
        sys.stdout.reconfigure(encoding="utf-8")
        sys.stdout.write(render())
