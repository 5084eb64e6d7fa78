"""A proposed baseline, and a run against a baseline, on a terminal and in a plain log: the conclusion comes last."""

from rich.console import Console

from . import baseline_view as view
from .baseline_changes import Proposal
from .baseline_check import BaselineComparison
from .diff_view import side_line
from .terminal import Printer
from .text import one_line, plural

_GROUPS = 10
"""Checks with numbers that only one side has; JSON has all."""
_STYLE = {"INSIDE": "bold green", "OUTSIDE": "bold red", "NOTHING COMPARED": "bold yellow"}


def print_proposal(proposal: Proposal, console: Console | None = None) -> None:
    """Print every number that moves, with its effect size, what is new and gone, and what is in the file now."""
    out = Printer(console or Console())
    provenance = proposal.baseline.provenance
    if proposal.replaced:
        out.line(f"BEFORE {view.provenance_line(proposal.replaced.provenance)}")
    out.line(f"{'AFTER ' if proposal.replaced else 'FIRST '} {view.provenance_line(provenance)}")
    out.line(f"reason: {one_line(provenance.reason)}")
    _print_warnings(out, proposal.warnings)
    if proposal.moves:
        out.line(f"\nMoved ({len(proposal.moves)})", "bold yellow")
    for move in proposal.moves:
        before, after, effect = view.moved(move)
        out.line(f"  {one_line(move.id)}, {one_line(move.name, 80)}")
        out.line(f"      {before} -> {after}, {effect}")
    if proposal.changed:
        out.line(f"\nChecks of another version, not comparable ({len(proposal.changed)})", "bold yellow")
    for id, versions in proposal.changed.items():
        out.line(f"  {one_line(id)}: {' -> '.join(one_line(version, 40) for version in versions)}")
    for head, groups in (("New", proposal.new), ("Gone", proposal.gone)):
        if groups and proposal.replaced:
            out.line(f"\n{head} ({sum(map(len, groups.values()))})", "bold")
            for id, names in groups.items():
                out.line(f"  {one_line(id)}: {view.some(names, most=len(names))}")
    if proposal.left_out:
        out.line(f"\nLeft out ({len(proposal.left_out)})", "bold")
    for left_out in proposal.left_out:
        out.line(f"  {one_line(left_out.id)}, {one_line(left_out.name, 80)}: {left_out.reason}")
    out.line("")
    out.line(f"WRITTEN: {view.written(proposal)}", "bold green", len("WRITTEN"))
    out.line(str(proposal.path))


def print_comparison(comparison: BaselineComparison, console: Console | None = None) -> None:
    """Print both sides, how they were compared, every number outside, what is not comparable, and the conclusion."""
    out = Printer(console or Console())
    out.line(f"BASELINE {one_line(comparison.path)}: {view.provenance_line(comparison.provenance)}")
    out.line(f"RUN {side_line(comparison.run)}")
    out.line(view.how(comparison))
    _print_warnings(out, comparison.warnings)
    if comparison.outside:
        out.line(f"\nOutside ({len(comparison.outside)})", "bold red")
    for compared in comparison.outside:
        value, expected, off = view.judged(compared)
        out.line(f"  {one_line(compared.id)}, {one_line(compared.name, 80)}")
        out.line(f"      {value}, expected {expected}: {off}")
    if comparison.changed:
        out.line(f"\nChecks of another version, not comparable ({len(comparison.changed)})", "bold yellow")
    for check in comparison.changed:
        version = one_line(check.run, 40) or "not known"
        out.line(f"  {one_line(check.id)}: {one_line(check.baseline, 40)} in the baseline, {version} in the run")
    for head, found in (("Missing", comparison.missing), ("New", comparison.new)):
        groups = view.by_check(found)
        if groups:
            out.line(f"\n{head} ({len(found)})", "bold")
        for (id, reason), names in list(groups.items())[:_GROUPS]:
            out.line(f"  {one_line(id)}: {view.some(names)} ({one_line(reason, 120)})")
        if len(groups) > _GROUPS:
            out.line(f"  and {plural(len(groups) - _GROUPS, 'more check')}", "dim")
    word = view.result_word(comparison)
    out.line("")
    out.line(f"{word}: {view.conclusion(comparison)}", _STYLE[word], len(word))


def _print_warnings(out: Printer, warnings: list[str]) -> None:
    for warning in warnings:
        out.line(f"warning: {one_line(warning)}", "yellow", len("warning:"))
