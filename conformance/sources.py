"""The source of checks, as text: what a module defines, and what of it the code of a check uses."""

import ast
import re
from collections.abc import Mapping

SHARED = ("bars", "compare", "kernel_compare", "parity", "runs")
"""Modules of this package whose definitions are part of the checks of a module that imports them."""
_WORD = re.compile(r"\w+")


def plain(source: str) -> str:
    """``source`` with the same line endings everywhere and without white space that nobody sees."""
    return "\n".join(line.rstrip() for line in source.splitlines()).strip() + "\n"


def without_docstrings(source: str) -> str:
    """``source`` without the lines of its docstrings, and the blank ones behind them."""
    lines = source.splitlines()
    skipped = _documentation(ast.parse(source), lines)
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in skipped) + "\n"


def definitions(source: str) -> dict[str, str]:
    """Source of everything that a module defines at its top level, by name, without docstrings."""
    lines = source.splitlines()
    tree = ast.parse(source)
    skipped = _documentation(tree, lines)
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = {node.name}
        else:
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        kept = [lines[n - 1] for n in range(first, node.end_lineno + 1) if n not in skipped]
        found |= {name: found.get(name, "") + plain("\n".join(kept)) for name in names}
    return found


def used(source: str, pool: Mapping[str, str]) -> dict[str, str]:
    """Those definitions of ``pool`` that ``source`` uses, directly or not.

    By word, not by meaning: a word too many makes a version change once too often, which costs one comparison.
    """
    found: dict[str, str] = {}
    waiting = [source]
    while waiting:
        new = set(_WORD.findall(waiting.pop())) & pool.keys() - found.keys()
        found |= {name: pool[name] for name in new}
        waiting += [pool[name] for name in new]
    return found


def imported(source: str) -> set[str]:
    """Modules of this package that a module imports from, at its top."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trncheck.conformance"):
            stem = node.module.removeprefix("trncheck.conformance").removeprefix(".")
            found |= {stem} if stem else {alias.name for alias in node.names}
    return found


def _documentation(tree: ast.AST, lines: list[str]) -> set[int]:
    """Numbers, from 1, of the lines that docstrings stand on alone, and of the blank ones behind them."""
    found: set[int] = set()
    for node in ast.walk(tree):
        for statement in node.body if isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
            text = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and statement.lineno > node.lineno:
                end = statement.end_lineno
                while end < len(lines) and not lines[end].strip():
                    end += 1
                found |= {*range(statement.lineno, end + 1)}
    return found
