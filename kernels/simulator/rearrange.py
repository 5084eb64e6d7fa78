"""``tensor.rearrange``: dimensions by name, split, reordered and merged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trncheck.kernels.simulator.errors import NkiError

if TYPE_CHECKING:
    from trncheck.kernels.simulator.tensor import NkiTensor


def rearrange(tensor: NkiTensor, source, target, sizes=None) -> NkiTensor:
    """The view whose dimensions are ``target``; a tuple of names in ``source`` splits one, in ``target`` it merges.

    ``sizes`` gives the sizes of names within a split; one name of each split may be left out.
    """
    source, target = [_names(part) for part in source], [_names(part) for part in target]
    if len(source) != tensor.ndim:
        raise NkiError(f"rearrange names {len(source)} dimensions of {list(tensor.shape)}")
    names = [name for group in source for name in group]
    wanted = [name for group in target for name in group]
    if sorted(names) != sorted(wanted) or len(set(names)) != len(names):
        raise NkiError(f"rearrange of {source} to {target}: both must hold the same names, each once")
    shape = [size for dim, group in enumerate(source) for size in _split(tensor.shape[dim], group, sizes or {})]
    split = tensor.reshape(shape).permute([names.index(name) for name in wanted])
    merged, at = [], 0
    for group in target:
        merged.append(math.prod(split.shape[at : at + len(group)]))
        at += len(group)
    return split.reshape(merged)


def _names(part) -> tuple[str, ...]:
    return (part,) if isinstance(part, str) else tuple(part)


def _split(size: int, group: tuple[str, ...], sizes: dict[str, int]) -> list[int]:
    given = [sizes.get(name, -1) for name in group]
    known = math.prod(count for count in given if count != -1)
    if given.count(-1) > 1 or size % known or (-1 not in given and known != size):
        raise NkiError(f"rearrange cannot split a dimension of {size} into {group} with sizes {sizes}")
    return [size // known if count == -1 else count for count in given]
