"""Between the caller's arrays (NumPy or torch) and HBM tensors."""

import functools
import sys
from collections.abc import Iterable

import ml_dtypes
import numpy as np

from trncheck.kernels.simulator import dtypes
from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.storage import Buffer, Storage
from trncheck.kernels.simulator.tensor import NkiTensor


def is_array(value) -> bool:
    return (isinstance(value, np.ndarray) and value.ndim > 0) or _is_torch(value)


def overlap(inputs: Iterable[np.ndarray]) -> bool:
    """Whether two of the arrays may share memory."""
    bases = [id(values if values.base is None else values.base) for values in inputs]
    return len({*bases}) < len(bases)


def _is_torch(value) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.dim() > 0


def to_numpy(array) -> np.ndarray:
    """A NumPy array itself, or a copy of the values of a torch CPU tensor.

    A copy, because the storage of a torch tensor that NumPy has seen can no longer be resized, which FSDP does.
    """
    if isinstance(array, np.ndarray):
        return array
    torch = sys.modules["torch"]
    if array.device.type != "cpu":
        raise ValueError(f"the simulator takes CPU tensors, this one is on {array.device}")
    tensor = array.detach().clone(memory_format=torch.contiguous_format)
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        return tensor.view(torch.uint8).numpy().view(getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch.")))
    return tensor.numpy()


def to_tensor(values: np.ndarray, name: str, degree: int, keep: bool) -> NkiTensor:
    """An HBM tensor in the memory of ``values``; if these are to be kept, only until it is written."""
    dtype = _name_of(values.dtype)
    if dtype not in dtypes.NAMES:
        raise NkiError(f"argument {name!r} is {dtype}, which Trainium does not have; convert it first")
    data = np.ascontiguousarray(values.astype(dtypes.stored(dtype), copy=False))
    buffer = Buffer.shared_hbm if degree == 2 else Buffer.hbm
    storage = Storage(values.shape, dtype, buffer, name, data, borrowed=keep or not data.flags.writeable)
    return NkiTensor(storage, storage.shape, storage.strides, 0, dtype)


@functools.cache
def _name_of(dtype: np.dtype) -> str:
    return dtype.name


def values_of(tensor: NkiTensor, copy: bool = True) -> np.ndarray:
    """The values of an HBM tensor in its own dtype; without ``copy`` its own memory where that holds them."""
    storage = tensor.storage
    size = storage.whole.itemsize
    view = np.ndarray(
        tensor.shape,
        storage.whole.dtype,
        storage.bytes,
        tensor.offset * size,
        tuple(stride * size for stride in tensor.strides),
    )
    dtype = dtypes.stored(tensor.dtype) if dtypes.precise() else _hardware(tensor.dtype)
    return view.astype(dtype, order="C", copy=copy)


def _hardware(name: str) -> np.dtype:
    return np.dtype("float32" if name == "tfloat32" else "bool" if name == "bool" else getattr(ml_dtypes, name, name))


def like_caller(values: np.ndarray, as_torch: bool):
    """``values`` as the kind of array that the caller uses; torch owns its memory, which FSDP resizes."""
    return _as_torch(values).clone() if as_torch else values


def _as_torch(values: np.ndarray):
    torch = sys.modules["torch"]
    values = np.ascontiguousarray(values)
    if values.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    if values.dtype.kind == "V" or values.dtype.name.startswith("float8"):
        return torch.from_numpy(values.view(np.uint8)).view(getattr(torch, values.dtype.name))
    return torch.from_numpy(values)


def update(array, values: np.ndarray) -> None:
    """Write ``values`` into the caller's array."""
    if isinstance(array, np.ndarray):
        if not np.may_share_memory(array, values):  # else the kernel has written there
            array[...] = values
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        array.copy_(_as_torch(values).reshape(array.shape))
