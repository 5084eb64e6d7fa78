"""One thread for NumPy's matrix products: a tile is so small that a second one costs several times what it saves."""

import contextlib
import functools

from threadpoolctl import ThreadpoolController


def one_thread() -> contextlib.AbstractContextManager:
    """Limit NumPy's BLAS inside the context; torch's own is left alone."""
    return _numpy_blas().limit(limits=1)


@functools.cache
def _numpy_blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas", internal_api="openblas")
