"""What a run prints at its end, on a terminal and in a plain log."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .schema import CheckResult, Outcome, Report, VerdictStatus
from .summary import (
    NOT_FINISHED,
    counts_line,
    failures,
    from_bundle,
    group_by,
    message_alone,
    not_run_by_reason,
    reproduce,
    status,
    status_word,
    verdict_line,
)
from .text import clean, first_lines, one_line, plural

_LINES = 8
"""Lines of a failure's message; the page has all."""
_WIDTH = 400
"""Characters of such a line: enough for a number, its bar and where the bar comes from."""
_STYLE = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.UNEXPECTED_PASS: "bold red",
    Outcome.NOTHING_COMPARED: "bold red",
    Outcome.EXPECTED_FAIL: "cyan",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_RUN: "dim",
}
_VERDICT_STYLE = {
    VerdictStatus.CONFORMANT: "bold green",
    VerdictStatus.NOT_CONFORMANT: "bold red",
    VerdictStatus.INCOMPLETE: "bold yellow",
}


def print_summary(report: Report, path: Path, console: Console | None = None) -> None:
    """Print counts, failures, what did not run, and last the verdict and ``path``, the page to open."""
    out = Printer(console or Console())
    out.console.print(out.counts(report))
    for result in failures(report):
        out.failure(result, reproduce(report, result))
    out.not_run(report)
    if not report.complete:
        out.line(f"\nThe run did not finish. {NOT_FINISHED}", "bold yellow")
    out.line(f"\n{counts_line(report)}")
    for reason in report.verdict.reasons:
        out.line(f"  - {one_line(reason)}")
    out.line(verdict_line(report), _VERDICT_STYLE[status(report)], len(status_word(report)))
    out.line(str(path))


class Printer:
    """Prints text from outside as it is."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def text(self, text: str, style: str = "") -> Text:
        """``text`` as it is, without markup, in what the console can encode."""
        encoding = self.console.encoding
        return Text(clean(text).encode(encoding, "replace").decode(encoding), style=style)

    def line(self, text: str, style: str = "", styled: int | None = None) -> None:
        """One paragraph that the terminal may wrap but no newline breaks; only ``styled`` characters in ``style``."""
        shown = self.text(text)
        shown.stylize(style, 0, styled)
        self.console.print(shown, soft_wrap=True)

    def counts(self, report: Report) -> Table:
        """Results per subject and outcome; an outcome without a result has no column."""
        seen = [outcome for outcome in Outcome if any(r.outcome is outcome for r in report.results)]
        table = Table(box=None, pad_edge=False, title=None)
        table.add_column("subject")
        for outcome in seen:
            table.add_column(outcome.value, justify="right")
        for subject, results in group_by(report.results, lambda r: r.subject).items():
            counts = [(outcome, sum(r.outcome is outcome for r in results)) for outcome in seen]
            cells = [self.text(str(n), _STYLE[o]) if n else self.text(".", "dim") for o, n in counts]
            table.add_row(self.text(one_line(subject, 40)), *cells)
        return table

    def failure(self, result: CheckResult, command: str) -> None:
        """Outcome and id, the claim, the first lines of the message, and the command that runs it again."""
        word = result.outcome.value.upper()
        optional = "" if result.required else " (not required)"
        self.line(f"\n{word} {one_line(result.id)}{optional}", _STYLE[result.outcome], len(word) + 1)
        self.line(f"  {one_line(result.title)}")
        if result.message.strip():
            for row in first_lines(message_alone(result), _LINES, _WIDTH).split("\n"):
                self.line(f"    {row}")
        self.line(f"  again: {command}", "dim")
        if bundle := from_bundle(result):
            self.line(f"     or: {bundle}", "dim")

    def not_run(self, report: Report) -> None:
        """Number of checks per reason, with their subjects."""
        groups = not_run_by_reason(report)
        if groups:
            self.line("\nNot run:", "bold")
        for reason, results in groups.items():
            subjects = ", ".join(group_by(results, lambda r: one_line(r.subject, 40)))
            self.line(f"  {plural(len(results), 'check')} ({subjects}): {one_line(reason, 160)}")
