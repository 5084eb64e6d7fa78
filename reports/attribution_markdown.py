"""An attribution as GitHub-flavoured Markdown, for issues and pull requests."""

from . import attribution_view as view
from . import gfm
from .attribution import Attribution, Finding
from .attribution_effects import Cause
from .text import plural

_ROWS = 50
"""Rows of the table; JSON has all."""
_OTHERS = 20
_HEADER = ("moved by", "check", "measured", *view.CELLS, "bar", "kit", "stack", "interaction", "against the limit")


def render_markdown(attribution: Attribution) -> str:
    """Everything that comes from outside is shown as plain text or as code."""
    facts = view.sides(attribution) | {"RUNS": view.runs(attribution)}
    parts = [
        f"## {view.result_word(attribution)}: {view.conclusion(attribution)}",
        "\n".join(f"* {name}: {gfm.text(text)}" for name, text in facts.items()),
        "\n".join(f"* **Warning:** {gfm.text(warning)}" for warning in attribution.warnings),
        _table(attribution),
        _others(attribution),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(attribution: Attribution) -> str:
    moved = [finding for finding in attribution.findings if finding.cause.is_move]
    if not moved:
        return ""
    table = gfm.table(_HEADER, [_row(finding) for finding in moved[:_ROWS]], right=(3, 4, 5, 6, 7, 8, 9, 10))
    left_out = f"\n\nand {plural(len(moved) - _ROWS, 'more row')}" if len(moved) > _ROWS else ""
    return table + left_out


def _row(finding: Finding) -> tuple[str, ...]:
    texts = (*view.values(finding), view.bar(finding), *view.effects(finding), view.size(finding))
    head = (f"**{finding.cause.value}**", gfm.code(finding.check), gfm.text(view.measured(finding)))
    return head + tuple(gfm.text(text) or "–" for text in texts)


def _others(attribution: Attribution) -> str:
    others = [finding for finding in attribution.findings if finding.cause in (Cause.CHANGED, Cause.NOT_COMPARED)]
    lines = [f"* {of.cause.value}: {gfm.code(of.check)}: {of.note}" for of in others[:_OTHERS]]
    if len(others) > _OTHERS:
        lines.append(f"* and {len(others) - _OTHERS} more")
    return "### Not told\n\n" + "\n".join(lines) if lines else ""
