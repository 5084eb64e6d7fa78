"""A comparison in the format asked for, on standard output or in a file."""

import io
from pathlib import Path

from . import diff_view as view
from . import output
from .diff import ReportDiff
from .store import dump_json


def render(diff: ReportDiff, format: str) -> str:
    """``diff`` as text, markdown, html or json. Raises ValueError where a package for that is not installed."""
    if format == "markdown":
        from .diff_markdown import render_markdown

        return render_markdown(diff)
    if format == "html":
        from .diff_html import render_html

        return render_html(diff)
    if format == "json":
        return dump_json(diff)
    from rich.console import Console

    from .diff_text import print_diff

    file = io.StringIO()
    print_diff(diff, Console(file=file, width=120))
    return file.getvalue()


def emit(diff: ReportDiff, format: str, out: Path | None) -> None:
    """Print ``diff``, or write it to ``out`` and print the conclusion. Raises ValueError where that cannot be."""
    from .diff_text import print_diff

    show = (lambda: print_diff(diff)) if format == "text" else None
    output.emit(lambda: render(diff, format), show, f"{view.result_word(diff)}: {view.conclusion(diff)}", out)
