"""What the parser frontend of NKI 0.2 to 0.6 does not read, and what 0.7 has deprecated."""

import ast
from collections.abc import Iterator

from trncheck.kernels.simulator.lint.loops import loop_bodies
from trncheck.kernels.simulator.lint.purity import is_impure
from trncheck.kernels.simulator.lint.source import Function, Problem, Source, Unit, parameters

_RANGES = {f"nki.language.{name}" for name in ("affine_range", "sequential_range", "static_range")}
_ENGINES = {f"nki.isa.{name}_engine": name for name in ("tensor", "vector", "scalar", "gpsimd", "unknown")}
_TILE_SIZES = {
    "nki.language.tile_size.psum_fmax": "psum_bank_fmax",
    "nki.language.tile_size.total_available_sbuf_size": "sbuf_fmax_bytes",
}
_ENUMS = ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")
_ARRAYS = ("numpy.", "torch.")
_OUTSIDE: dict[type[ast.AST], tuple[str, str]] = {
    ast.Yield: ("yield", "return a tuple"),
    ast.YieldFrom: ("yield from", "return a tuple"),
    ast.GeneratorExp: ("a generator expression", "use a list comprehension"),
    ast.AsyncFunctionDef: ("async", "use a plain function"),
    ast.AsyncFor: ("async", "use a plain loop"),
    ast.AsyncWith: ("async", "use a plain with"),
    ast.Await: ("await", "call the function"),
    ast.Try: ("try", "test the condition beforehand"),
    ast.TryStar: ("try", "test the condition beforehand"),
    ast.Nonlocal: ("nonlocal", "return the value"),
}


def check(source: Source) -> Iterator[Problem]:
    if not source.units:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield "NKI106", node, f"star import of {node.module}; import the names that are used"
    yield from _classes(source)
    for unit in source.units.values():
        yield from _deprecated(source, unit)
        yield from _constructs(source, unit)
        yield from _calls(source, unit)
        for node in ast.walk(unit.function):
            if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs and not node.args.vararg:
                yield "NKI102", node, f"{node.name} has a bare * in its signature; make the parameters positional"
        if unit.entry:
            yield from _list_parameters(unit.function)


def _deprecated(source: Source, unit: Unit) -> Iterator[Problem]:
    for node in source.mentions(unit):
        name = source.dotted(node, unit)
        if name in _RANGES:
            yield "NKI111", node, f"{name.replace('nki.language', 'nl')} is deprecated; use range"
        elif name in _ENGINES:
            member = f"nisa.engine.{_ENGINES[name]}"
            yield "NKI112", node, f"{name.replace('nki.isa', 'nisa')} is deprecated; use {member}"
        elif name in _TILE_SIZES:
            remedy = f"use nl.tile_size.{_TILE_SIZES[name]}"
            yield "NKI113", node, f"{name.replace('nki.language', 'nl')} is deprecated; {remedy}"


def _constructs(source: Source, unit: Unit) -> Iterator[Problem]:
    bodies = {body for _, body in loop_bodies(source, unit)}
    state = {n for body in bodies for n in ast.walk(body) if isinstance(n, ast.Nonlocal)}  # an error elsewhere
    for node in unit.code:
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            yield "NKI101", node, f"`{ast.unparse(node)}` compares identities; use == or !="
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant) and not isinstance(key.value, str):
                    yield "NKI107", key, f"dict key {key.value!r} is not a string; use string keys"
        elif type(node) in _OUTSIDE and node not in state:
            what, remedy = _OUTSIDE[type(node)]
            yield "NKI105", node, f"{what} in kernel code; {remedy}"


def _calls(source: Source, unit: Unit) -> Iterator[Problem]:
    constants = set()  # what nl.shared_constant is given has to be a NumPy array
    for call in (n for n in unit.code if isinstance(n, ast.Call)):
        name = source.dotted(call.func, unit)
        if name == "nki.language.shared_constant":
            constants |= set(ast.walk(call))
        elif name and name.startswith(_ARRAYS) and call not in constants and not is_impure(name):
            yield "NKI108", call, f"{name}() in kernel code; use nl and nisa functions, or compute it in the caller"
        elif isinstance(call.func, ast.Name):
            target = unit.definition(call.func.id)
            if call.func.id in ("eval", "exec") and target is None:
                yield "NKI105", call, f"{call.func.id} in kernel code; write the code out"
            if target is not unit.function and target in source.units and source.units[target].entry:
                remedy = "decorate at the call site, nki.jit(f), and leave f plain"
                yield "NKI109", call, f"{call.func.id} is decorated with nki.jit and called by a kernel; {remedy}"


def _list_parameters(function: Function) -> Iterator[Problem]:
    for parameter in parameters(function):
        names = {
            getattr(node, "id", getattr(node, "attr", None))
            for node in (ast.walk(parameter.annotation) if parameter.annotation else ())
        }
        if names & {"list", "List"}:
            yield "NKI103", parameter, f"kernel argument {parameter.arg} is a list; pass a tuple"


def _classes(source: Source) -> Iterator[Problem]:
    for unit in source.units.values():
        used = [n.func for n in unit.code if isinstance(n, ast.Call)]
        used += [p.annotation for p in parameters(unit.function)]
        for name in (n.id for n in used if isinstance(n, ast.Name)):
            target = unit.definition(name)
            if isinstance(target, ast.ClassDef):
                yield from _class(source, target)


def _class(source: Source, node: ast.ClassDef) -> Iterator[Problem]:
    bases = [getattr(base, "attr", getattr(base, "id", "")) for base in node.bases]
    remedy = "inherit from nl.NKIObject alone"
    if len(bases) > 1:
        yield "NKI104", node, f"class {node.name} inherits from {', '.join(bases)}; {remedy}"
    elif not bases or bases[0] in ("object", "NamedTuple", "ABC"):
        yield "NKI104", node, f"class {node.name} is used in kernel code and is no NKIObject; {remedy}"
    elif bases[0] in source.classes and bases[0] not in _ENUMS:
        yield from _class(source, source.classes[bases[0]])
