"""A run against a baseline in the format asked for, and as GitHub-flavoured Markdown for pull requests."""

import io

from . import baseline_view as view
from . import gfm, output
from .baseline_check import BaselineComparison, Unmatched
from .diff_view import side_line
from .store import dump_json
from .text import plural

_OUTSIDE = 100
"""Rows of numbers outside; JSON has all."""
_GROUPS = 30


def render(comparison: BaselineComparison, format: str) -> str:
    """``comparison`` as text, markdown or json."""
    if format == "markdown":
        return render_markdown(comparison)
    if format == "json":
        return dump_json(comparison)
    from rich.console import Console

    from .baseline_text import print_comparison

    file = io.StringIO()
    print_comparison(comparison, Console(file=file, width=120))
    return file.getvalue()


def emit(comparison: BaselineComparison, format: str) -> None:
    """Print ``comparison``."""
    from .baseline_text import print_comparison

    show = (lambda: print_comparison(comparison)) if format == "text" else None
    word = view.result_word(comparison)
    output.emit(lambda: render(comparison, format), show, f"{word}: {view.conclusion(comparison)}", None)


def render_markdown(comparison: BaselineComparison) -> str:
    """Everything that comes from outside is shown as plain text or as code."""
    provenance = f"{gfm.code(comparison.path)}, {gfm.text(view.provenance_line(comparison.provenance))}"
    parts = [
        f"## {view.result_word(comparison)}: {view.conclusion(comparison)}",
        f"* BASELINE: {provenance}; reason: {gfm.text(comparison.provenance.reason)}\n"
        f"* RUN: {gfm.text(side_line(comparison.run))}\n"
        f"* {gfm.text(view.how(comparison))}",
        "\n".join(f"* **Warning:** {gfm.text(warning)}" for warning in comparison.warnings),
        _outside(comparison),
        _changed(comparison),
        _unmatched("Missing", comparison.missing),
        _unmatched("New", comparison.new),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _outside(comparison: BaselineComparison) -> str:
    rows = [
        (gfm.code(compared.id), gfm.text(compared.name), *map(gfm.text, view.judged(compared)))
        for compared in comparison.outside[:_OUTSIDE]
    ]
    if not rows:
        return ""
    count = len(comparison.outside)
    left_out = f"\n\nThe first {_OUTSIDE} are shown." if count > _OUTSIDE else ""
    header = ("check", "measured", "value", "expected", "outside")
    return f"### Outside ({count})\n\n{gfm.table(header, rows, right=(2,))}{left_out}"


def _changed(comparison: BaselineComparison) -> str:
    if not comparison.changed:
        return ""
    lines = [
        f"* {gfm.code(check.id)}: {gfm.code(check.baseline)} in the baseline, {gfm.code(check.run or 'not known')} now"
        for check in comparison.changed
    ]
    return f"### Checks of another version, not comparable ({len(lines)})\n\n" + "\n".join(lines)


def _unmatched(head: str, found: list[Unmatched]) -> str:
    if not found:
        return ""
    groups = list(view.by_check(found).items())
    lines = [f"* {gfm.code(id)}: {gfm.text(view.some(n))} ({gfm.text(reason)})" for (id, reason), n in groups[:_GROUPS]]
    if len(groups) > _GROUPS:
        lines.append(f"* and {plural(len(groups) - _GROUPS, 'more check')}")
    return f"### {head} ({len(found)})\n\n" + "\n".join(lines)
