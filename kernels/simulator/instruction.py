"""What makes a function an instruction: it is counted, its name is in errors, its arguments are checked."""

import functools
import inspect
from collections.abc import Callable

from trncheck.kernels.simulator.core import current
from trncheck.kernels.simulator.errors import NkiError


class Handle:
    """What an instruction returns; opaque."""

    __slots__ = ()

    def depends_on(self, *handles) -> None:
        """Ordering hints mean nothing here: instructions execute in program order."""


_HANDLE = Handle()


def instruction(function: Callable) -> Callable:
    """Make ``function`` an instruction of ``nki.isa``; what returns nothing returns a handle."""
    name = f"nisa.{function.__name__}"
    signature = inspect.signature(function)

    @functools.wraps(function)
    def execute(*args, **kwargs):
        core = current()
        core.clock += 1
        core.instruction = name
        core.executed[name] += 1
        try:
            result = function(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as mismatch:
                raise NkiError(f"{mismatch}; the signature is {signature}") from None
            raise
        finally:
            core.instruction = ""
        return _HANDLE if result is None else result

    return execute
