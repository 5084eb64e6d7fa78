"""``nl.NKIObject``: the base of classes that kernels pass around."""

from typing import Any


class NKIObject:
    """Class attributes are fields, annotated or not; those not given take the class default, or None."""

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        # dataclass, which comes after this, takes for fields what is annotated, and demands those without a default.
        known = vars(cls).get("__annotations__", {})
        plain = {name: Any for name, value in vars(cls).items() if name not in known and _is_field(name, value)}
        for name in known:
            if not hasattr(cls, name):
                setattr(cls, name, None)
        cls.__annotations__ = known | plain

    def __init__(self, *args, **kwargs):
        names = [name for kind in reversed(type(self).__mro__) for name in vars(kind).get("__annotations__", {})]
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} fields, {len(args)} were given")
        given = dict(zip(names, args, strict=False)) | kwargs
        for name in [*names, *(name for name in given if name not in names)]:
            setattr(self, name, given.get(name, getattr(type(self), name, None)))
        if hasattr(self, "__post_init__"):
            self.__post_init__()


def _is_field(name: str, value) -> bool:
    return not (name.startswith("_") or callable(value) or hasattr(type(value), "__get__"))
