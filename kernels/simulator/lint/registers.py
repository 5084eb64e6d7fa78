"""Registers and scalars where Python would have to know their value: only the device does."""

import ast
from collections.abc import Iterator

from trncheck.kernels.simulator.lint.loops import loop_bodies
from trncheck.kernels.simulator.lint.source import Problem, Source, Unit, parameters

_SOURCES = {"nki.isa.register_alloc": "register", "nki.isa.scalar_load": "scalar"}
_NUMBERS = {"int", "float", "bool", "range", "min", "max", "round", "divmod"}
_RANGES = {f"nki.language.{name}" for name in ("affine_range", "sequential_range", "static_range")}
_TERMINAL = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_REMEDY = "its value exists only on the device: use nl.fori_loop, nl.while_loop, or a predicated instruction"

Kinds = dict[str, str]  # variable -> "register" or "scalar"


def check(source: Source) -> Iterator[Problem]:
    bodies = {body: loop for unit in source.units.values() for loop, body in loop_bodies(source, unit)}
    for unit in source.units.values():
        flow = _Flow(source, unit, bodies)
        flow.function(unit.function, {})
        yield from flow.problems


class _Flow:
    """Follows the variables of one unit that hold registers, statement by statement.

    After a branch a variable counts only if both sides agree, so that doubt never becomes a finding.
    """

    def __init__(self, source: Source, unit: Unit, bodies: dict[ast.AST, ast.Call]):
        self.source = source
        self.unit = unit
        self.problems: list[Problem] = []
        self.bodies = bodies

    # statements

    def function(self, node: ast.FunctionDef | ast.Lambda, kinds: Kinds) -> None:
        kinds = dict(kinds)
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                kinds.pop(argument.arg, None)
        if (loop := self.bodies.get(node)) and (names := parameters(node)):
            kinds[names[0].arg] = self.variable_kind(loop, kinds)
        if isinstance(node, ast.Lambda):
            self.visit(node.body, kinds)
        else:
            self.block(node.body, kinds)

    def variable_kind(self, loop: ast.Call, kinds: Kinds) -> str:
        bounds = [*loop.args[:2], *(k.value for k in loop.keywords if k.arg in ("lower", "upper", "init"))]
        return "register" if any(self.kind(bound, kinds) == "register" for bound in bounds) else "scalar"

    def block(self, body: list[ast.stmt], kinds: Kinds) -> bool:
        """Returns whether the end of the block is never reached."""
        for statement in body:
            self.statement(statement, kinds)
        return bool(body) and isinstance(body[-1], _TERMINAL)

    def statement(self, node: ast.stmt, kinds: Kinds) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self.visit(value, kinds)
                for target in targets:
                    self.assign(target, value, kinds)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.visit(value, kinds)
                self.assign(target, value, kinds)
            case ast.AugAssign(target=target, op=op, value=value):
                self.visit(target, kinds)
                self.visit(value, kinds)
                self.arithmetic(node, op, [self.kind(target, kinds), self.kind(value, kinds)])
            case ast.If(test=test):
                self.decide(test, kinds, "if")
                self.branches([node.body, node.orelse], kinds)
            case ast.While(test=test):
                self.decide(test, kinds, "while")
                self.repeat(node, kinds)
                self.decide(test, kinds, "while")
            case ast.For(target=target, iter=values):
                self.visit(values, kinds)
                self.assign(target, None, kinds)
                self.repeat(node, kinds)
            case ast.Assert(test=test, msg=message):
                self.decide(test, kinds, "assert")
                if message:
                    self.visit(message, kinds)
            case ast.Match(subject=subject, cases=cases):
                self.decide(subject, kinds, "match")
                self.branches([case.body for case in cases] + [[]], kinds)
            case ast.With(items=items, body=body):
                for item in items:
                    self.visit(item.context_expr, kinds)
                    if item.optional_vars:
                        self.assign(item.optional_vars, None, kinds)
                self.block(body, kinds)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                self.branches([body + orelse, *(handler.body for handler in handlers)], kinds)
                self.block(finalbody, kinds)
            case ast.FunctionDef():
                self.function(node, kinds)
            case ast.ClassDef():
                pass
            case _:
                self.visit(node, kinds)

    def branches(self, bodies: list[list[ast.stmt]], kinds: Kinds) -> None:
        ends = []
        for body in bodies:
            end = dict(kinds)
            if not self.block(body, end):
                ends.append(end)
        if ends:
            agreed = set(ends[0].items()).intersection(*(end.items() for end in ends))
            kinds.clear()
            kinds.update(agreed)

    def repeat(self, node: ast.For | ast.While, kinds: Kinds) -> None:
        before = dict(kinds)
        self.block(node.body, kinds)
        self.block(node.body, kinds)
        for name in before.keys() ^ kinds.keys():
            kinds.pop(name, None)
        self.block(node.orelse, kinds)

    def assign(self, target: ast.expr, value: ast.expr | None, kinds: Kinds) -> None:
        if isinstance(target, ast.Name):
            kind = value and self.kind(value, kinds)
            if kind:
                kinds[target.id] = kind
            else:
                kinds.pop(target.id, None)
        elif isinstance(target, ast.Tuple | ast.List):
            known = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for part, item in zip(target.elts, value.elts if known else [None] * len(target.elts), strict=True):
                self.assign(part, item, kinds)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, None, kinds)
        else:
            self.visit(target, kinds)

    # expressions

    def kind(self, node: ast.expr, kinds: Kinds) -> str | None:
        match node:
            case ast.Name(id=name):
                return kinds.get(name)
            case ast.Call(func=func):
                return _SOURCES.get(self.source.dotted(func, self.unit))
            case ast.BinOp(left=left, right=right):
                return self.kind(left, kinds) or self.kind(right, kinds)
            case ast.UnaryOp(op=op, operand=operand) if not isinstance(op, ast.Not):
                return self.kind(operand, kinds)
            case ast.NamedExpr(value=value):
                return self.kind(value, kinds)
            case ast.IfExp(body=body, orelse=orelse):
                return self.kind(body, kinds) and self.kind(orelse, kinds)
            case ast.Compare(left=left, ops=ops, comparators=others) if not self.is_identity(ops, others):
                return next(filter(None, (self.kind(n, kinds) for n in [left, *others])), None)
        return None

    @staticmethod
    def is_identity(ops: list[ast.cmpop], others: list[ast.expr]) -> bool:
        with_none = any(isinstance(n, ast.Constant) and n.value is None for n in others)
        return with_none or any(isinstance(op, ast.Is | ast.IsNot) for op in ops)

    def visit(self, node: ast.AST, kinds: Kinds) -> None:
        """Look for misuse in an expression, and in its parts."""
        match node:
            case ast.Lambda():
                return self.function(node, kinds)
            case ast.IfExp(test=test):
                self.judge(test, kinds, "a conditional expression")
            case ast.BoolOp(op=op, values=values):
                for value in values:
                    self.judge(value, kinds, "and" if isinstance(op, ast.And) else "or")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.judge(operand, kinds, "not")
            case ast.UnaryOp(op=op, operand=operand):
                self.arithmetic(node, op, [self.kind(operand, kinds)])
            case ast.Compare(ops=ops) if len(ops) > 1 or isinstance(ops[0], ast.In | ast.NotIn):
                self.judge(node, kinds, "a chained or membership comparison")
            case ast.BinOp(left=left, op=op, right=right):
                self.arithmetic(node, op, [self.kind(left, kinds), self.kind(right, kinds)])
            case ast.Call():
                self.call(node, kinds)
            case ast.Subscript(slice=index):
                self.index(index, kinds)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                kinds = dict(kinds)
                for generator in node.generators:
                    self.visit(generator.iter, kinds)
                    self.assign(generator.target, None, kinds)
                    for condition in generator.ifs:
                        self.judge(condition, kinds, "a comprehension's if")
            case ast.NamedExpr(target=target, value=value):
                self.visit(value, kinds)
                return self.assign(target, value, kinds)
        for child in ast.iter_child_nodes(node):
            self.visit(child, kinds)
        return None

    def decide(self, test: ast.expr, kinds: Kinds, where: str) -> None:
        self.visit(test, kinds)
        self.judge(test, kinds, where)

    def judge(self, test: ast.expr, kinds: Kinds, where: str) -> None:
        if kind := self.kind(test, kinds):
            self.problems.append(
                ("NKI001", test, f"`{ast.unparse(test)}` depends on a {kind} and decides `{where}`; {_REMEDY}")
            )

    def arithmetic(self, node: ast.AST, op: ast.AST, operands: list[str | None]) -> None:
        # Rebinding in place stays arithmetic: `r += 1` is `r = r + 1`.
        if "register" in operands:
            remedy = "compute in a tensor and nisa.register_load it, or use nisa.scalar_load"
            self.problems.append(("NKI003", node, f"a register has no Python arithmetic; {remedy}"))
        elif "scalar" in operands and not isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.USub):
            remedy = "compute in a tensor and load the result"
            self.problems.append(("NKI003", node, f"a scalar has only + - * and unary minus; {remedy}"))

    def call(self, node: ast.Call, kinds: Kinds) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        builtin = name in _NUMBERS and name not in self.unit.bound and self.unit.definition(name) is None
        if not builtin and self.source.dotted(node.func, self.unit) not in _RANGES:
            return
        for argument in node.args:
            if kind := self.kind(argument, kinds):
                what = f"`{ast.unparse(node.func)}()` needs the value of a {kind}"
                self.problems.append(("NKI002", argument, f"{what}; {_REMEDY}"))

    def index(self, index: ast.expr, kinds: Kinds) -> None:
        for part in index.elts if isinstance(index, ast.Tuple) else [index]:
            ends = [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else [part]
            for end in filter(None, ends):
                if kind := self.kind(end, kinds):
                    remedy = "select with .ap(..., scalar_offset=...) or .select()"
                    self.problems.append(("NKI002", end, f"a {kind} cannot be a Python index; {remedy}"))
