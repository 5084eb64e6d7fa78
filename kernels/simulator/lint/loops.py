"""Dynamic loops: what `nl.fori_loop` and `nl.while_loop` ask of their step and body."""

import ast
from collections.abc import Iterator

from trncheck.kernels.simulator.lint.source import Function, Problem, Source, Unit, own_code, parameters

FORI = "nki.language.fori_loop"
WHILE = "nki.language.while_loop"
CREATORS = {f"nki.language.{name}": "sbuf" for name in ("ndarray", "zeros", "ones", "full")}
_WRITERS = {f"nki.isa.{name}" for name in ("register_move", "register_load")}
_ADDERS = ("append", "extend", "insert", "add", "update", "setdefault")


def loop_bodies(source: Source, unit: Unit) -> Iterator[tuple[ast.Call, Function | ast.Lambda]]:
    """The dynamic loops of the unit whose body is a lambda or a function of this file."""
    for call, name in source.calls(unit):
        position = {FORI: 2, WHILE: 1}.get(name)
        if position is None:
            continue
        body = argument(call, position, "body_fun")
        if isinstance(body, ast.Name):
            body = unit.definition(body.id)
        if isinstance(body, ast.FunctionDef | ast.Lambda):
            yield call, body


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """The argument of a call, given by position or keyword; None if it is absent or hidden behind a star."""
    if any(isinstance(value, ast.Starred) for value in call.args):
        return None
    if position < len(call.args):
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def check(source: Source) -> Iterator[Problem]:
    for unit in source.units.values():
        for call, name in source.calls(unit):
            if name == "nki.language.dynamic_range":
                yield "NKI004", call, "nl.dynamic_range no longer works; use nl.fori_loop(lower, upper, body)"
            elif name == FORI:
                yield from _step(call)
        for call, body in loop_bodies(source, unit):
            if isinstance(body, ast.Lambda):
                continue
            if source.dotted(call.func, unit) == FORI:
                yield from _fori_body(source, unit, body)
            elif not any(isinstance(n, ast.Return) and n.value for n in own_code(body)):
                remedy = "return the register or scalar that decides whether to go on"
                yield "NKI008", body, f"`{body.name}` is the body of nl.while_loop and returns no condition; {remedy}"
            yield from _leaks(source, unit, body)


def _step(call: ast.Call) -> Iterator[Problem]:
    step = argument(call, 3, "step")
    try:
        value = ast.literal_eval(step) if step else 1
    except ValueError:
        return
    if type(value) is not int or value <= 0:
        yield "NKI005", step, f"step {value!r} of nl.fori_loop; it must be a positive integer, known at compile time"


def _fori_body(source: Source, unit: Unit, body: Function) -> Iterator[Problem]:
    for node in own_code(body):
        if isinstance(node, ast.Return) and not (
            node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        ):
            remedy = "keep the result in a tensor that was allocated before the loop"
            yield "NKI006", node, f"`{body.name}` is the body of nl.fori_loop and returns a value; {remedy}"
    if not parameters(body):
        return
    variable = parameters(body)[0].arg
    for node in own_code(body):
        written = isinstance(node, ast.Name) and node.id == variable and not isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Call) and source.dotted(node.func, unit) in _WRITERS:
            target = argument(node, 0, "dst")
            written = isinstance(target, ast.Name) and target.id == variable
        if written:
            yield "NKI007", node, f"the loop writes its own variable `{variable}`; it is read-only: use another name"


def _leaks(source: Source, unit: Unit, body: Function) -> Iterator[Problem]:
    remedy = "the body is traced once: keep state in a tensor that was allocated before the loop"
    local = {n.id for n in own_code(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {n.arg for n in ast.walk(body.args) if isinstance(n, ast.arg)}

    def is_creation(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and source.dotted(node.func, unit) in CREATORS

    outer = {name for n in own_code(body) if isinstance(n, ast.Nonlocal | ast.Global) for name in n.names}
    local -= outer
    created = set()
    for node in own_code(body):
        if isinstance(node, ast.Assign) and is_creation(node.value):
            created |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def is_tensor(node: ast.AST) -> bool:
        return is_creation(node) or (isinstance(node, ast.Name) and node.id in created)

    for node in own_code(body):
        match node:
            case ast.Nonlocal(names=names):
                yield "NKI009", node, f"the loop body `{body.name}` rebinds `{', '.join(names)}` outside; {remedy}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method), args=args):
                if name not in local and method in _ADDERS and any(map(is_tensor, args)):
                    yield "NKI009", node, f"a tensor of the loop body leaves it in `{name}`; {remedy}"
            case ast.Assign(targets=targets, value=value) if is_tensor(value):
                for target in targets:
                    root = target.value if isinstance(target, ast.Subscript | ast.Attribute) else None
                    if isinstance(root, ast.Name) and root.id not in local:
                        yield "NKI009", node, f"a tensor of the loop body leaves it in `{root.id}`; {remedy}"
