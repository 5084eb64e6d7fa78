"""One way to make a torch operator of a function that launches a kernel; for this kit's operators and for others."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensor

from trncheck.neuron import device as neuron


def define(
    name: str,
    function: Callable,
    *,
    fake: Callable,
    backward: Callable | None = None,
    setup_context: Callable | None = None,
):
    """Register ``function`` as the operator ``name`` and return it, callable and with ``torch.library``'s methods.

    Args:
        name: ``namespace::operator``, as in ``torch.ops``.
        function: What the operator does, for tensors of any device. Every parameter and the result are annotated:
            the schema comes from there, and it is functional. So the function changes no argument, allocates what it
            returns, and returns no argument nor a view of one.
        fake: Takes the same arguments and returns tensors of the same shapes, strides, dtypes and devices without
            computing; it is called for fake and meta tensors.
        backward, setup_context: As for ``torch.library.register_autograd``. Call an operator of its own in
            ``backward``, defined before, so that the backward pass can be traced, too.

    Raises:
        ValueError: The name has no namespace or is taken, or the function's annotations give no schema; in one line
            that starts with the function's ``file:line``.

    With ``torch_neuronx`` that has ``nki_op`` the operator is registered through that, else through
    ``torch.library.custom_op``. ``nki_op`` is not called with a fake: it takes the function itself for one. So the
    function that is registered calls ``fake`` when it is given fake tensors. The functional tensors of a graph capture
    are not fake ones: with them the function goes on to the kernel, which a compiler must find in the graph.

    Never run on a device: registration through ``nki_op`` (tests use a stand-in that does what is known of it), and
    graph capture of such an operator.
    """
    place = _place(function)
    _check_free(name, place)

    @functools.wraps(function)
    def body(*args, **kwargs):
        return (fake if _has_fake((*args, *kwargs.values())) else function)(*args, **kwargs)

    nki_op = neuron.nki_op()
    try:
        if nki_op:
            operator = nki_op(name, body, mutates_args={})
        else:
            operator = torch.library.custom_op(name, body, mutates_args=())
    except ValueError as error:  # of infer_schema, which goes on with the signature or with all types
        text = str(error).removeprefix("infer_schema(func): ").partition(" Got func with")[0]
        text = text.partition(" The valid types are")[0]
        raise ValueError(f"{place}: operator {name!r}: {' '.join(text.split())}") from error
    if not nki_op:
        operator.register_fake(body)
    if backward:
        operator.register_autograd(backward, setup_context=setup_context)
    _PLACES[name] = place
    return operator


_PLACES: dict[str, str] = {}
"""Operators that were defined here, and where."""


def _place(function: Callable) -> str:
    """``file:line`` of a function, or what it is where it has no code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)


def _check_free(name: str, place: str) -> None:
    namespace, separator, operator = name.partition("::")
    if not (separator and namespace.isidentifier() and operator.isidentifier()):
        raise ValueError(f"{place}: operator {name!r} needs a name of the form namespace::operator")
    if hasattr(getattr(torch.ops, namespace), operator):
        by = f" by {_PLACES[name]}" if name in _PLACES else ""
        raise ValueError(f"{place}: operator {name!r} is registered already{by}; choose another name")


def _has_fake(args: tuple) -> bool:
    return any(isinstance(arg, torch.Tensor) and (isinstance(arg, FakeTensor) or arg.is_meta) for arg in args)
