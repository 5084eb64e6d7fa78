"""A trend on a terminal and in a plain log: short, the worst first, the conclusion last."""

from rich.console import Console

from . import trend_view as view
from .terminal import Printer
from .text import one_line, plural
from .trend_models import Group, Trend

_ITEMS = 10
"""Items per list; the other formats have all."""
_STYLE = {"RED": "bold red", "GREEN": "bold green", "NOTHING KNOWN": "bold yellow"}


def print_trend(trend: Trend, console: Console | None = None) -> None:
    """Print per group what is red, change points and what is flaky, then what did not count, and the conclusion."""
    out = Printer(console or Console())
    for group in trend.groups:
        out.line(view.group_line(group), "bold", len(one_line(group.name)) + 1)
        if group.unversioned:
            checks = plural(group.unversioned, "check")
            out.line(f"warning: the version of {checks} is not known: a change of the check itself would go unseen")
        _print_red(out, group)
        _print_shifts(out, group)
        _print_flaky(out, group)
        out.line("")
    incomplete = [f"{view.run_line(run)} on {run.target}" for run in trend.incomplete]
    _print_list(out, "Incomplete runs, of which nothing counts", incomplete)
    _print_list(out, "Skipped files", [f"{one_line(file.path)}: {one_line(file.reason)}" for file in trend.skipped])
    word = view.result_word(trend)
    out.line(f"{word}: {view.conclusion(trend)}", _STYLE[word], len(word))


def _print_red(out: Printer, group: Group) -> None:
    found = view.red_now(group)
    if found:
        out.line(f"\nRed now ({len(found)})", "bold red")
    for since, checks in view.red_since(found[:_ITEMS]).items():
        out.line(f"  {since}")
        for check in checks:
            optional = "" if check.required else " (not required)"
            out.line(f"    {one_line(check.id)}{optional}: {view.streak_line(check.red)}")
            if check.red.message:
                out.line(f"        {one_line(check.red.message, 160)}", "dim")
    _print_rest(out, len(found))
    gone = [one_line(check.id) for check in view.gone_red(group)]
    if gone:
        out.line(f"\nNo longer there, and red when last seen ({len(gone)})", "yellow")
        for id in gone[:_ITEMS]:
            out.line(f"  {id}")
        _print_rest(out, len(gone))


def _print_shifts(out: Printer, group: Group) -> None:
    found = view.shifts(group)
    if found:
        out.line(f"\nChange points ({len(found)})", "bold")
    for since, items in view.shifts_since(found[:_ITEMS]).items():
        out.line(f"  {since}")
        for check, series, shift in items:
            out.line(f"    {one_line(check.id)}, {one_line(series.name, 80)}: {view.shift_line(series, shift)}")
    _print_rest(out, len(found))


def _print_flaky(out: Printer, group: Group) -> None:
    found = view.flaky(group)
    if found:
        out.line(f"\nFlaky ({len(found)})", "bold yellow")
    for check in found[:_ITEMS]:
        out.line(f"  {one_line(check.id)}: {view.flaky_line(check.flaky)}")
    _print_rest(out, len(found))


def _print_list(out: Printer, heading: str, items: list[str]) -> None:
    if items:
        out.line(f"{heading} ({len(items)})", "yellow")
        for item in items[-_ITEMS:]:
            out.line(f"  {item}")
        _print_rest(out, len(items))
        out.line("")


def _print_rest(out: Printer, count: int) -> None:
    if count > _ITEMS:
        out.line(f"  and {count - _ITEMS:,} more", "dim")
