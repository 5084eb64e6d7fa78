"""What a compiled kernel may not depend on: it is cached by shapes, dtypes and compile-time values alone."""

import ast
from collections.abc import Iterator

from trncheck.kernels.simulator.lint.source import Function, Problem, Source, Unit

_IMPURE = (
    "time.",
    "random.",
    "secrets.",
    "uuid.",
    "os.environ",
    "os.getenv",
    "os.urandom",
    "numpy.random.",
    "torch.rand",
    "torch.manual_seed",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "datetime.date.today",
)
_BUILTINS = ("open", "input")
_MUTABLE_CALLS = ("list", "dict", "set", "bytearray", "defaultdict", "OrderedDict", "deque", "Counter")
_MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_ADDERS = {"add", "append", "extend", "insert", "setdefault", "update"}
_MUTATORS = _ADDERS | {"clear", "discard", "pop", "popitem", "remove", "reverse", "sort"}


def check(source: Source) -> Iterator[Problem]:
    containers = {name for statement in source.tree.body for name in _containers(statement)}
    for unit in source.units.values():
        yield from _outside_world(source, unit)
        yield from _module_state(unit, containers - unit.bound)
        for node in ast.walk(unit.function):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from _defaults(node)


def is_impure(name: str) -> bool:
    return f"{name}.".startswith(_IMPURE) and name not in ("time", "random")


def _outside_world(source: Source, unit: Unit) -> Iterator[Problem]:
    remedy = "compute it outside and pass it as an argument"
    inner = set()  # `os` and `os.environ` in `os.environ.get`
    for node in source.mentions(unit):
        if node in inner:
            inner.add(getattr(node, "value", None))
            continue
        if isinstance(node, ast.Attribute):
            inner.add(node.value)
        name = source.dotted(node, unit)
        if name and is_impure(name):
            yield "NKI030", node, f"{name} in kernel code, which is compiled once and cached; {remedy}"
    for node in unit.code:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
            name = node.func.id
            if name not in unit.bound and unit.definition(name) is None and name not in source.aliases:
                yield "NKI030", node, f"{name}() in kernel code, which is compiled once and cached; {remedy}"


def _containers(statement: ast.stmt) -> Iterator[str]:
    """Module variables that hold something mutable."""
    if isinstance(statement, ast.Assign | ast.AnnAssign) and _is_mutable(statement.value):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _is_mutable(node: ast.AST | None) -> bool:
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        return name in _MUTABLE_CALLS
    return isinstance(node, _MUTABLE)


def _module_state(unit: Unit, containers: set[str]) -> Iterator[Problem]:
    remedy = "pass values in and return them"
    for node in unit.code:
        match node:
            case ast.Global(names=names):
                yield "NKI031", node, f"kernel code rebinds the global {', '.join(names)}; {remedy}"
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in containers:
                yield "NKI031", node, f"kernel code changes the module's `{name}`; {remedy}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _MUTATORS:
                if name in containers:
                    yield "NKI031", node, f"kernel code changes the module's `{name}`; {remedy}"


def _defaults(function: Function | ast.Lambda) -> Iterator[Problem]:
    for default in [*function.args.defaults, *filter(None, function.args.kw_defaults)]:
        if _is_mutable(default):
            what = f"default `{ast.unparse(default)}` is shared by all calls"
            yield "NKI032", default, f"{what}; use None or a tuple"
