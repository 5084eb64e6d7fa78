"""The documentation of ``report.json``: ``python -m trncheck.reports.schema_docs > docs/report-schema.md``.

Models, fields, types and words are those of ``schema``; since when a field is there tell the published JSON Schemas.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator

from pydantic import BaseModel

from . import schema
from .json_schema import SCHEMA_FILE, report_schema

_JSON = {
    "str": "string",
    "float": "number",
    "int": "integer",
    "bool": "boolean",
    "None": "null",
    "NonNegativeInt": "integer >= 0",
    "list": "list",
    "dict": "object",
}
_HEAD = f"""\
# report.json, schema {schema.SCHEMA_VERSION}

Written by `python -m trncheck.reports.schema_docs > docs/report-schema.md` from `reports/schema.py`.

A run leaves `results/<release>/<target>/<run id>/report.json`, UTF-8, one JSON object of the model
[Report](#report). It is replaced as a whole after every check, so that it can be read at any moment, and
`complete` stays false until the run has ended by itself. The JSON Schema of every version is in
[reports/schema](../reports/schema/). Readers of this version take {", ".join(schema.READABLE_VERSIONS)}: a version
only adds fields that have a default. A number that is not finite is one of the strings `NaN`, `Infinity` and
`-Infinity`. There are no fields but these.
"""


def schema_docs() -> str:
    """Markdown: every model with its fields, the whole report first, then what it consists of."""
    classes = {node.name: node for node in ast.parse(inspect.getsource(schema)).body if isinstance(node, ast.ClassDef)}
    since = _since()
    order = list(dict.fromkeys(["Report", *_reached("Report", classes)]))
    return "\n".join([_HEAD, *(_section(classes[name], classes, since[name]) for name in order)])


def _reached(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """Models and enumerations behind the fields of ``name``, as they come."""
    for field in _fields(classes[name]):
        for word in re.findall(r"\w+", ast.unparse(field.annotation)):
            if word in classes:
                yield word
                yield from _reached(word, classes)


def _fields(model: ast.ClassDef) -> list[ast.AnnAssign]:
    return [node for node in model.body if isinstance(node, ast.AnnAssign)]


def _section(model: ast.ClassDef, classes: dict[str, ast.ClassDef], since: dict[str, str]) -> str:
    doc = inspect.cleandoc(ast.get_docstring(model) or "")
    head = f"## {model.name}\n\n{_plain(doc)}\n"
    if not issubclass(getattr(schema, model.name), BaseModel):
        values = [f"* `{member.value}`" for member in getattr(schema, model.name)]
        return "\n".join([head, f"A string, since {since['']}:\n", *values, ""])
    words = dict(_words(model))
    rows = ["| field | type | default | since | |", "|---|---|---|---|---|"]
    for field in _fields(model):
        name = field.target.id
        default = "required" if field.value is None else f"`{_default(field.value)}`"
        cells = (f"`{name}`", _type(field.annotation, classes), default, since[name], _cell(words.get(name, "")))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([head, *rows, ""])


def _words(model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Field and the string behind it."""
    for field, after in zip(model.body, model.body[1:], strict=False):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and is_text:
            yield field.target.id, inspect.cleandoc(after.value.value)


def _type(node: ast.expr, classes: dict[str, ast.ClassDef]) -> str:
    """As JSON calls it; a model is a link, and what a literal may be is listed."""
    if isinstance(node, ast.BinOp):
        return f"{_type(node.left, classes)} or {_type(node.right, classes)}"
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Literal":
            return " or ".join(f"`{value.value}`" for value in inner)
        return f"{_JSON[node.value.id]} of {_type(inner[-1], classes)}"
    name = ast.unparse(node)
    return f"[{name}](#{name.lower()})" if name in classes else _JSON[name]


def _default(value: ast.expr) -> str:
    text = ast.unparse(value)
    plain = {"None": "null", "False": "false", "True": "true", "Compared()": "{}", "''": '""'}
    return plain.get(text, schema.SCHEMA_VERSION if text == "SCHEMA_VERSION" else text.replace("'", '"'))


def _plain(doc: str) -> str:
    return doc.replace("``", "`")


def _cell(doc: str) -> str:
    return " ".join(_plain(doc).split()).replace("|", "\\|")


def _since() -> dict[str, dict[str, str]]:
    """Model -> field -> the first version whose published schema has it; ``""`` stands for the model itself."""
    found: dict[str, dict[str, str]] = {}
    for version in schema.READABLE_VERSIONS:
        file = SCHEMA_FILE.with_name(f"report-{version}.json")
        current = version == schema.SCHEMA_VERSION
        whole = report_schema() if current else json.loads(file.read_text(encoding="utf-8"))
        for name, model in {"Report": whole, **whole["$defs"]}.items():
            for field in ("", *model.get("properties", {})):
                found.setdefault(name, {}).setdefault(field, version)
    return found


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(schema_docs())
