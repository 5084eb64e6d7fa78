"""What a kernel source contains: its imports by alias, its kernels, and the functions and classes that they reach."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
Problem = tuple[str, ast.AST, str]  # code, place, message

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEGACY = "neuronxcc."
_NOT_RUN = ("annotation", "returns", "decorator_list", "type_params")


@dataclass
class Unit:
    """One function that runs as kernel code; `entry` if it is a kernel itself."""

    function: Function
    entry: bool
    scopes: list[dict[str, ast.AST]]  # definitions visible to it, innermost last
    bound: set[str] = field(init=False)
    nested: dict[str, Function] = field(init=False)
    code: tuple[ast.AST, ...] = field(init=False)  # what runs in it, in source order

    def __post_init__(self) -> None:
        self.bound = bound_names(self.function)
        inner = (n for n in ast.walk(self.function) if isinstance(n, _FUNCTIONS) and n is not self.function)
        self.nested = {n.name: n for n in inner}
        self.code = tuple(code_of(self.function))

    def definition(self, name: str) -> ast.AST | None:
        """The function or class of this file that `name` means in the unit; None for anything else."""
        if name in self.nested:
            return self.nested[name]
        if name in self.bound:
            return None
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)


def code_of(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what runs below it, in source order: no annotations and no decorators."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        below = []
        for name, value in ast.iter_fields(node):
            if name not in _NOT_RUN:
                below += [n for n in (value if isinstance(value, list) else [value]) if isinstance(n, ast.AST)]
        stack += reversed(below)


def own_code(function: Function | ast.Lambda) -> Iterator[ast.AST]:
    """What runs in the function itself, not in functions and lambdas inside it."""
    stack = list(reversed(function.body)) if isinstance(function.body, list) else [function.body]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def parameters(function: Function | ast.Lambda) -> list[ast.arg]:
    """All named parameters, without *args and **kwargs."""
    args = function.args
    return [*args.posonlyargs, *args.args, *args.kwonlyargs]


def bound_names(function: Function | ast.Lambda) -> set[str]:
    """Names that the function, or a function inside it, binds as parameter or variable."""
    names = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    return names | {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def definitions(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Functions and classes that the statements define, also under `if`, `try` and `with`."""
    found: dict[str, ast.AST] = {}
    for statement in body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            found[statement.name] = statement
            continue
        for part in ("body", "orelse", "finalbody"):
            found |= definitions(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            found |= definitions(handler.body)
    return found


class Source:
    """A parsed file. `units` is empty if the file has no kernel."""

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.aliases: dict[str, str] = {}
        self.legacy: list[tuple[ast.stmt, set[str]]] = []
        self._read_imports()
        self.kernel_names: set[str] = set()
        self.units: dict[ast.AST, Unit] = {}
        self._find_kernels()
        self.classes = {n.name: n for n in definitions(tree.body).values() if isinstance(n, ast.ClassDef)}

    def dotted(self, node: ast.AST, unit: Unit | None = None) -> str | None:
        """The full name behind `node`, such as "nki.isa.dma_copy"; None if it is no imported name."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases or (unit and node.id in unit.bound):
            return None
        return ".".join([self.aliases[node.id], *reversed(parts)]).removeprefix(_LEGACY)

    def calls(self, unit: Unit) -> Iterator[tuple[ast.Call, str]]:
        """Calls of imported functions in the unit, with their full names."""
        for node in unit.code:
            if isinstance(node, ast.Call) and (name := self.dotted(node.func, unit)):
                yield node, name

    def mentions(self, unit: Unit) -> Iterator[ast.Name | ast.Attribute]:
        """Every name of the unit that may be an imported one, dotted or not."""
        yield from (n for n in unit.code if isinstance(n, ast.Name | ast.Attribute))

    def _read_imports(self) -> None:
        current = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                bound = {a.asname: a.name for a in node.names if a.asname}
                bound |= {root: root for a in node.names if not a.asname for root in [a.name.split(".")[0]]}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                bound = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
            else:
                continue
            old = {name for name, path in bound.items() if f"{path}.".startswith(_LEGACY)}
            if old:
                self.legacy.append((node, old))
            current |= bound.keys() - old
            self.aliases |= bound
        self.legacy = [(node, names - current) for node, names in self.legacy]

    def _find_kernels(self) -> None:
        self._descend(self.tree.body, [definitions(self.tree.body)])

    def _descend(self, body: list[ast.stmt], scopes: list[dict[str, ast.AST]]) -> None:
        for statement in body:
            for node in _shallow(statement):
                if isinstance(node, _FUNCTIONS):
                    if any(self._is_jit(d) for d in node.decorator_list):
                        self.kernel_names.add(node.name)
                        self._reach(node, scopes, entry=True)
                    self._descend(node.body, [*scopes, definitions(node.body)])
                elif isinstance(node, ast.ClassDef):
                    self._descend(node.body, scopes)
                elif isinstance(node, ast.Call) and self._is_jit(node) and node.args:
                    self._jit_of(node, scopes)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self._is_jit(node.value):
                    self.kernel_names |= {t.id for t in node.targets if isinstance(t, ast.Name)}

    def _is_jit(self, node: ast.AST) -> bool:
        return self.dotted(node.func if isinstance(node, ast.Call) else node) == "nki.jit"

    def _jit_of(self, call: ast.Call, scopes: list[dict[str, ast.AST]]) -> None:
        if isinstance(call.args[0], ast.Name):
            target = next((s[call.args[0].id] for s in reversed(scopes) if call.args[0].id in s), None)
            if isinstance(target, _FUNCTIONS):
                self._reach(target, scopes, entry=True)

    def _reach(self, function: Function, scopes: list[dict[str, ast.AST]], entry: bool) -> None:
        if function in self.units:
            self.units[function].entry |= entry
            return
        unit = Unit(function, entry, scopes)
        self.units[function] = unit
        for node in unit.code:
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)) or node.id in unit.nested:
                continue
            target = unit.definition(node.id)
            if isinstance(target, ast.ClassDef):
                for method in definitions(target.body).values():
                    if isinstance(method, _FUNCTIONS):
                        self._reach(method, scopes, entry=False)
            elif target is not None:
                self._reach(target, scopes, entry=False)


def _shallow(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and its parts, without entering functions and classes."""
    yield statement
    if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        for child in ast.iter_child_nodes(statement):
            yield from _shallow(child)
