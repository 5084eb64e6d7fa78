"""Between the caller's arrays (NumPy or torch) and HBM tensors."""

import sys

import ml_dtypes
import numpy as np

from trncheck.kernels.simulator import dtypes
from trncheck.kernels.simulator.storage import Buffer, Storage
from trncheck.kernels.simulator.tensor import NkiTensor


def is_array(value) -> bool:
    return (isinstance(value, np.ndarray) and value.ndim > 0) or _is_torch(value)


def _is_torch(value) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.dim() > 0


def to_numpy(array) -> np.ndarray:
    """The values of a NumPy array or a torch CPU tensor, shared where the memory is contiguous."""
    if isinstance(array, np.ndarray):
        return array
    torch = sys.modules["torch"]
    tensor = array.detach()
    if tensor.device.type != "cpu":
        raise ValueError(f"the simulator takes CPU tensors, this one is on {tensor.device}")
    if tensor.dtype is torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        return (
            tensor.contiguous().view(torch.uint8).numpy().view(getattr(ml_dtypes, str(tensor.dtype)[len("torch.") :]))
        )
    return tensor.contiguous().numpy()


def to_tensor(values: np.ndarray, name: str, degree: int) -> NkiTensor:
    """An HBM tensor with a copy of ``values``."""
    dtype = dtypes.dtype_name(values.dtype)
    data = values.astype(dtypes.stored(dtype)).reshape(-1)
    buffer = Buffer.shared_hbm if degree == 2 else Buffer.hbm
    strides = [1] * values.ndim
    for dim in range(values.ndim - 2, -1, -1):
        strides[dim] = strides[dim + 1] * values.shape[dim + 1]
    return NkiTensor(Storage(values.shape, dtype, buffer, name, data), values.shape, strides, 0, dtype)


def values_of(tensor: NkiTensor) -> np.ndarray:
    """The values of an HBM tensor in its own dtype."""
    storage = tensor.storage
    size = storage.data.itemsize
    view = np.ndarray(
        tensor.shape,
        storage.data.dtype,
        storage.bytes,
        tensor.offset * size,
        tuple(stride * size for stride in tensor.strides),
    )
    return view.astype(dtypes.stored(tensor.dtype) if dtypes.precise() else _hardware(tensor.dtype), order="C")


def _hardware(name: str) -> np.dtype:
    return np.dtype("float32" if name == "tfloat32" else "bool" if name == "bool" else getattr(ml_dtypes, name, name))


def like_caller(values: np.ndarray, as_torch: bool):
    """``values`` as the kind of array that the caller uses."""
    if not as_torch:
        return values
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
        array[...] = values
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        array.copy_(like_caller(values, as_torch=True).reshape(array.shape))
