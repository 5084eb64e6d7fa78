"""``nl.NKIObject``: the base of classes that kernels pass around."""


class NKIObject:
    """Annotated class attributes are fields; those not given take the class default, or None."""

    def __init__(self, *args, **kwargs):
        names = [name for kind in reversed(type(self).__mro__) for name in vars(kind).get("__annotations__", {})]
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} fields, {len(args)} were given")
        given = dict(zip(names, args, strict=False)) | kwargs
        for name in [*names, *(name for name in given if name not in names)]:
            setattr(self, name, given.get(name, getattr(type(self), name, None)))
        if hasattr(self, "__post_init__"):
            self.__post_init__()
