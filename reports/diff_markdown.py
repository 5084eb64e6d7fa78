"""A comparison as GitHub-flavoured Markdown, for pull requests and chat."""

from . import diff_view as view
from . import gfm
from .diff import Category, CheckDiff, ReportDiff
from .text import first_lines, one_line, plural

_CHECKS = 30
"""Checks shown per category; JSON and HTML have all."""
_MOVES = 20
_WITH_MESSAGE = 10
"""Broken checks shown with their message."""


def render_markdown(diff: ReportDiff) -> str:
    """Everything that comes from outside is shown as plain text or as code."""
    parts = [
        f"## {view.result_word(diff)}: {view.conclusion(diff)}",
        "\n".join(
            f"* {name}: {gfm.text(view.side_line(side))}" for name, side in (("OLD", diff.old), ("NEW", diff.new))
        ),
        "\n".join(f"* **Warning:** {gfm.text(warning)}" for warning in diff.warnings),
        *(_section(category, checks) for category, checks in view.sections(diff).items()),
        "\n".join(
            f"* {plural(len(checks), 'check')} not asked for in both runs: {gfm.text(reason)}"
            for reason, checks in view.excused(diff).items()
        ),
        _numbers(diff),
        _changes(diff),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(category: Category, checks: list[CheckDiff]) -> str:
    parts = [f"### {view.heading(category)} ({len(checks)})"]
    lines = [_line(check) for check in checks[:_CHECKS]]
    if len(checks) > _CHECKS:
        lines.append(f"* and {plural(len(checks) - _CHECKS, 'more check')}")
    parts.append("\n".join(lines))
    if category is Category.BROKEN:
        for check in checks[:_WITH_MESSAGE]:
            parts.append(f"**{gfm.text(check.title)}** {gfm.code(check.id)}")
            if check.message.strip():
                parts.append(gfm.fenced(first_lines(check.message, lines=12, width=200)))
            if check.again:
                parts.append(f"Again: {gfm.code(check.again)}")
    return "\n\n".join(parts)


def _line(check: CheckDiff) -> str:
    renamed = f" (was {gfm.code(check.renamed_from)})" if check.renamed_from else ""
    optional = "" if check.required else ", not required"
    reason = one_line(check.message, 160) if check.category is Category.NO_LONGER_COVERED else ""
    why = f"; {gfm.text(reason)}" if reason else ""
    return f"* {gfm.code(check.id)}{renamed}: {gfm.text(view.outcomes(check))}{optional}{why}"


def _numbers(diff: ReportDiff) -> str:
    moves = view.moves(diff)
    if not moves:
        return ""
    rows = []
    for check, drift in moves[:_MOVES]:
        old, new, bar = view.values(drift)
        name = gfm.text(drift.name) + (f" ({gfm.text(drift.unit)})" if drift.unit else "")
        move = gfm.text(view.budget(drift) or "–")
        rows.append((gfm.code(check.id), name, old, new, bar or "–", f"**{move}**" if drift.notable else move))
        rows[-1] += (gfm.text(view.noise(drift)),)
    head = f"### Numbers\n\n{len(moves)} of {plural(view.measured(diff), 'comparable measurement')} moved"
    left_out = f"; the first {_MOVES} are shown" if len(moves) > _MOVES else ""
    header = ("check", "measured", "old", "new", "bar", "move", "beside the noise")
    return f"{head}{left_out}. Notable moves are bold.\n\n{gfm.table(header, rows, right=(2, 3, 4, 5))}"


def _changes(diff: ReportDiff) -> str:
    rows = [
        (change.kind, gfm.code(change.name), *(gfm.text(value or view.ABSENT) for value in (change.old, change.new)))
        for change in diff.changes
    ]
    return "### Other changes\n\n" + gfm.table(("kind", "name", "old", "new"), rows) if rows else ""
