"""An attribution on a terminal and in a plain log: what moved, the largest first, and last the conclusion."""

from rich.console import Console

from . import attribution_view as view
from .attribution import Attribution, Finding
from .attribution_effects import Cause
from .terminal import Printer
from .text import one_line, plural

_MOVED = 30
_OTHERS = 8
_LISTED = (Cause.CHANGED, Cause.NOT_COMPARED)
_STYLE = {Cause.KIT: "bold magenta", Cause.STACK: "bold cyan", Cause.BOTH: "bold red", Cause.INTERACTION: "bold yellow"}
_INDENT = " " * 13


def print_attribution(attribution: Attribution, console: Console | None = None) -> None:
    """Print both sides, warnings, what moved and by which side, what cannot be told, and last the conclusion."""
    out = Printer(console or Console())
    for name, changed in view.sides(attribution).items():
        out.line(f"{name:5} {changed}", "bold", len(name))
    out.line(f"RUNS  {view.runs(attribution)}", "bold", len("RUNS"))
    for warning in attribution.warnings:
        out.line(f"warning: {warning}", "yellow", len("warning:"))
    if any(finding.cause is not Cause.NOISE for finding in attribution.findings):
        out.line("")
    moved = [finding for finding in attribution.findings if finding.cause.is_move]
    for finding in moved[:_MOVED]:
        _print_move(out, finding)
    _print_rest(out, len(moved), _MOVED, "moved outcome or number", "moved outcomes and numbers")
    for cause in _LISTED:
        others = [finding for finding in attribution.findings if finding.cause is cause]
        for finding in others[:_OTHERS]:
            out.line(f"{cause.value}: {one_line(finding.check)}: {finding.note}", "dim", len(cause.value))
        _print_rest(out, len(others), _OTHERS, cause.value, cause.value)
    word = view.result_word(attribution)
    style = "bold yellow" if attribution.exit_status else "bold green"
    out.line(f"\n{word}: {view.conclusion(attribution)}", style, len(word) + 1)


def _print_move(out: Printer, finding: Finding) -> None:
    word = finding.cause.value
    optional = "" if finding.required else ", not required"
    out.line(
        f"{word:{len(_INDENT)}}{one_line(finding.check)}, {view.measured(finding)}{optional}",
        _STYLE[finding.cause],
        len(word),
    )
    cells = ", ".join(f"{cell} {value}" for cell, value in zip(view.CELLS, view.values(finding), strict=True))
    bar = f"; bar {view.bar(finding)}" if view.bar(finding) else ""
    out.line(f"{_INDENT}{cells}{bar}")
    if finding.effects:
        kit, stack, interaction = view.effects(finding)
        out.line(f"{_INDENT}kit {kit}, stack {stack}, interaction {interaction}; {view.size(finding)}", "dim")


def _print_rest(out: Printer, count: int, shown: int, noun: str, nouns: str) -> None:
    if count > shown:
        out.line(f"and {plural(count - shown, f'more {noun}', f'more {nouns}')}", "dim")
