"""A comparison as one self-contained page, in the style of ``report.html``."""

from . import diff_view as view
from .diff import Category, ReportDiff
from .html import page_environment


def render_html(diff: ReportDiff) -> str:
    """The page of ``diff``. Raises ValueError where Jinja2 is not installed."""
    try:
        environment = page_environment()
    except ModuleNotFoundError as error:
        raise ValueError(f"an HTML page needs {error.name}: pip install 'trncheck[report]'") from error
    environment.filters |= {
        "heading": view.heading,
        "values": view.values,
        "budget": view.budget,
        "noise": view.noise,
    }
    moves = view.moves(diff)
    return environment.get_template("diff.html.j2").render(
        diff=diff,
        word=view.result_word(diff),
        conclusion=view.conclusion(diff),
        sections=view.sections(diff),
        excused=view.excused(diff),
        same=[check for check in diff.checks if check.category is Category.SAME],
        moves=moves,
        notable=[pair for pair in moves if pair[1].notable],
        slight=[pair for pair in moves if not pair[1].notable],
        measured=view.measured(diff),
    )
