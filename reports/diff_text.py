"""A comparison on a terminal and in a plain log: short, the worst first, the conclusion last."""

from rich.console import Console

from . import diff_view as view
from .diff import Category, CheckDiff, ReportDiff
from .terminal import Printer
from .text import first_lines, one_line, plural

_CHECKS = 10
"""Checks shown per category; the other formats have all."""
_LINES = 2
"""Lines of a failure's message."""
_MOVES = 8
_CHANGES = 12
_WITH_MESSAGE = (Category.BROKEN, Category.NO_LONGER_COVERED)
_STYLE = {
    Category.BROKEN: "bold red",
    Category.NO_LONGER_COVERED: "bold red",
    Category.STILL_BROKEN: "red",
    Category.CHANGED: "yellow",
    Category.NEWLY_COVERED: "cyan",
    Category.FIXED: "green",
    Category.RENAMED: "dim",
}


def print_diff(diff: ReportDiff, console: Console | None = None) -> None:
    """Print both runs, warnings, checks by category, numbers that moved, other changes, and last the conclusion."""
    out = Printer(console or Console())
    out.line(f"OLD {view.side_line(diff.old)}")
    out.line(f"NEW {view.side_line(diff.new)}")
    for warning in diff.warnings:
        out.line(f"warning: {warning}", "yellow", len("warning:"))
    for category, checks in view.sections(diff).items():
        out.line(f"\n{view.heading(category)} ({len(checks)})", _STYLE[category])
        for check in checks[:_CHECKS]:
            _print_check(out, check)
        _print_rest(out, len(checks), _CHECKS, "check")
    for reason, checks in view.excused(diff).items():
        out.line(f"\nNot asked for in both runs ({len(checks)}): {reason}", "dim")
    _print_moves(out, diff)
    _print_changes(out, diff)
    word = view.result_word(diff)
    style = "bold red" if diff.worse else "bold green" if diff.compared else "bold yellow"
    out.line("")
    out.line(f"{word}: {view.conclusion(diff)}", style, len(word))


def _print_check(out: Printer, check: CheckDiff) -> None:
    renamed = f" (was {one_line(check.renamed_from)})" if check.renamed_from else ""
    optional = "" if check.required else ", not required"
    out.line(f"  {one_line(check.id)}{renamed}: {view.outcomes(check)}{optional}")
    if check.category in _WITH_MESSAGE and check.message.strip():
        for row in first_lines(check.message, _LINES, 160).split("\n"):
            out.line(f"      {row}")
    if check.category is Category.BROKEN and check.again:
        out.line(f"      again: {check.again}", "dim")


def _print_moves(out: Printer, diff: ReportDiff) -> None:
    moves = view.moves(diff)
    notable = [(check, drift) for check, drift in moves if drift.notable and check.category is not Category.BROKEN]
    compared = plural(view.measured(diff), "comparable measurement")
    out.line(
        f"\nNumbers: {len(moves)} of {compared} moved; {len(notable)} notably in checks that did not break",
        "bold",
        len("\nNumbers:"),
    )
    for check, drift in notable[:_MOVES]:
        old, new, bar = view.values(drift)
        unit = f" {one_line(drift.unit)}" if drift.unit else ""
        against = f", bar {bar}, {view.budget(drift)}" if bar and drift.of_bar is not None else ""
        out.line(f"  {one_line(check.id)}, {one_line(drift.name, 80)}")
        out.line(f"      {old} -> {new}{unit}{against}, {view.noise(drift)}")
    _print_rest(out, len(notable), _MOVES, "measurement")


def _print_changes(out: Printer, diff: ReportDiff) -> None:
    if diff.changes:
        out.line("\nOther changes", "bold")
    for change in diff.changes[:_CHANGES]:
        old, new = (view.ABSENT if value is None else one_line(value, 80) for value in (change.old, change.new))
        out.line(f"  {change.kind} {one_line(change.name, 80)}: {old} -> {new}")
    _print_rest(out, len(diff.changes), _CHANGES, "change")


def _print_rest(out: Printer, count: int, shown: int, noun: str) -> None:
    if count > shown:
        out.line(f"  and {plural(count - shown, f'more {noun}')}", "dim")
