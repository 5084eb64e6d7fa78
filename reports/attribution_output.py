"""An attribution in the format asked for, on standard output or in a file."""

import io
from pathlib import Path

from . import attribution_view as view
from . import output
from .attribution import Attribution
from .store import dump_json


def render(attribution: Attribution, format: str) -> str:
    """``attribution`` as text, markdown or json."""
    if format == "markdown":
        from .attribution_markdown import render_markdown

        return render_markdown(attribution)
    if format == "json":
        return dump_json(attribution)
    from rich.console import Console

    from .attribution_text import print_attribution

    file = io.StringIO()
    print_attribution(attribution, Console(file=file, width=120))
    return file.getvalue()


def emit(attribution: Attribution, format: str, out: Path | None) -> None:
    """Print ``attribution``, or write it to ``out`` and print the conclusion; ValueError where that cannot be."""
    from .attribution_text import print_attribution

    show = (lambda: print_attribution(attribution)) if format == "text" else None
    conclusion = f"{view.result_word(attribution)}: {view.conclusion(attribution)}"
    output.emit(lambda: render(attribution, format), show, conclusion, out)
