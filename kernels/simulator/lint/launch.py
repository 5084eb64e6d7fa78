"""How kernels are declared and launched, where their names come from, and what they return."""

import ast
from collections import Counter
from collections.abc import Iterator

from trncheck.kernels.simulator.lint.loops import CREATORS
from trncheck.kernels.simulator.lint.source import Problem, Source, Unit, bound_names, own_code

_SHARED = "nki.language.shared_hbm"
_BUFFERS = {f"nki.language.{name}" for name in ("sbuf", "psum", "hbm", "private_hbm")}


def check(source: Source) -> Iterator[Problem]:
    yield from _legacy_imports(source)
    yield from _jit_arguments(source)
    yield from _launches(source, source.tree, set())
    called = {name for unit in source.units.values() for name in _called_names(unit)}
    for unit in source.units.values():
        # A kernel that another kernel calls runs inline, and may hand it an on-chip tensor.
        if unit.entry and unit.function.name not in called:
            yield from _results(source, unit)


def _called_names(unit: Unit) -> set[str]:
    calls = (n.func for n in ast.walk(unit.function) if isinstance(n, ast.Call))
    return {f.id for f in calls if isinstance(f, ast.Name)} - {unit.function.name}


def _legacy_imports(source: Source) -> Iterator[Problem]:
    functions = [unit.function for unit in source.units.values()]
    used = {n.id for function in functions for n in ast.walk(function) if isinstance(n, ast.Name)}
    inside = {node for function in functions for node in ast.walk(function)}
    for statement, names in source.legacy:
        if guilty := sorted(names if statement in inside else names & used):
            remedy = "import nki, nki.isa or nki.language"
            yield "NKI020", statement, f"kernels use {', '.join(guilty)} from neuronxcc, which is gone; {remedy}"


def _jit_arguments(source: Source) -> Iterator[Problem]:
    for call in ast.walk(source.tree):
        if not (isinstance(call, ast.Call) and source.dotted(call.func) == "nki.jit" and source.units):
            continue
        for keyword in call.keywords:
            if keyword.arg == "platform_target":
                remedy = "set NEURON_PLATFORM_TARGET_OVERRIDE instead"
                yield "NKI021", keyword, f"nki.jit does not accept platform_target=; {remedy}"
            elif keyword.arg == "mode":
                yield "NKI110", keyword, "nki.jit ignores mode=; remove it"


def _launches(source: Source, node: ast.AST, hidden: set[str]) -> Iterator[Problem]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        hidden = hidden | (bound_names(node) - _jitted(source, node))
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        name = node.value.id
        if name in source.kernel_names - hidden and isinstance(node.ctx, ast.Load):
            yield from _grid(node.slice, name)
    for child in ast.iter_child_nodes(node):
        yield from _launches(source, child, hidden)


def _jitted(source: Source, function: ast.AST) -> set[str]:
    assigns = (n for n in ast.walk(function) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
    jitted = (n for n in assigns if source.dotted(n.value.func) == "nki.jit")
    return {target.id for n in jitted for target in n.targets if isinstance(target, ast.Name)}


def _grid(index: ast.expr, name: str) -> Iterator[Problem]:
    remedy = f"launch as {name}[1] or {name}[2], the number of logical cores"
    if isinstance(index, ast.Tuple) and len(index.elts) > 1:
        yield "NKI022", index, f"{name} is launched with {len(index.elts)} grid numbers; {remedy}"
        return
    try:
        value = ast.literal_eval(index)
    except ValueError:
        return
    if type(value) is not tuple and (type(value) is not int or value not in (1, 2)):
        yield "NKI022", index, f"{name} is launched with {value!r}; {remedy}"


def _results(source: Source, unit: Unit) -> Iterator[Problem]:
    wrong = _outside_shared_hbm(source, unit)
    for node in own_code(unit.function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        values = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else [node.value]
        for value in values:
            buffer = wrong.get(value.id) if isinstance(value, ast.Name) else _buffer(source, unit, value)
            if buffer and buffer != _SHARED:
                what = f"{unit.function.name} returns `{ast.unparse(value)}`, which is in {_short(buffer)}"
                yield "NKI023", value, f"{what}; allocate it with buffer=nl.shared_hbm, or leave a helper undecorated"


def _short(name: str) -> str:
    return name.replace("nki.language.", "nl.")


def _outside_shared_hbm(source: Source, unit: Unit) -> dict[str, str]:
    """Variables that are only ever assigned new tensors outside shared HBM, with one of those buffers."""
    plain: dict[str, list[str | None]] = {}
    stores: Counter[str] = Counter()
    for node in ast.walk(unit.function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            plain.setdefault(node.targets[0].id, []).append(_buffer(source, unit, node.value))
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stores[node.id] += 1
    return {
        name: str(buffers[0])
        for name, buffers in plain.items()
        if len(buffers) == stores[name] and not {None, _SHARED} & set(buffers)
    }


def _buffer(source: Source, unit: Unit, node: ast.AST) -> str | None:
    """The buffer of the tensor that the expression creates; None if it creates none, or nobody can tell where."""
    if not isinstance(node, ast.Call) or (name := source.dotted(node.func, unit)) not in CREATORS:
        return None
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return None
    given = [k.value for k in node.keywords if k.arg == "buffer"]
    positional = node.args[2:] if name.endswith((".ndarray", ".zeros", ".ones")) else node.args[3:]
    given += positional[:1]
    if not given:
        return "nki.language.sbuf"
    buffer = source.dotted(given[0], unit)
    return buffer if buffer in _BUFFERS or buffer == _SHARED else None
