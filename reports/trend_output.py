"""A trend in the format asked for, on standard output or in a file."""

import io
from pathlib import Path

from . import output
from . import trend_view as view
from .store import dump_json
from .trend_models import Trend


def render(trend: Trend, format: str) -> str:
    """``trend`` as text, html or json. Raises ValueError where a package for that is not installed."""
    if format == "html":
        from .trend_html import render_html

        return render_html(trend)
    if format == "json":
        return dump_json(trend)
    from rich.console import Console

    from .trend_text import print_trend

    file = io.StringIO()
    print_trend(trend, Console(file=file, width=120))
    return file.getvalue()


def emit(trend: Trend, format: str, out: Path | None) -> None:
    """Print ``trend``, or write it to ``out`` and print the conclusion. Raises ValueError where that cannot be."""
    from .trend_text import print_trend

    show = (lambda: print_trend(trend)) if format == "text" else None
    output.emit(lambda: render(trend, format), show, f"{view.result_word(trend)}: {view.conclusion(trend)}", out)
