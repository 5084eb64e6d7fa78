"""Text helpers of all renderers: harmless strings, and numbers, durations and counts as people read them."""

import math
import re
from datetime import UTC, datetime

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC and other strings: titles, hyperlinks
    r"|\x1b[ -/]*[0-~]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")
# Controls but tab and newline, bidirectional overrides (they reorder what is read), and what XML 1.0 forbids.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


def without_surrogates(text: str) -> str:
    """``text`` with lone surrogates, which UTF-8 cannot carry, as U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def clean(text: str) -> str:
    """``text`` without ANSI escapes and control characters but tab and newline; valid in UTF-8, HTML and XML 1.0."""
    text = _ANSI.sub("", text.replace("\r\n", "\n"))
    return without_surrogates(_FORBIDDEN.sub("", text.replace("\r", "\n")))


def one_line(text: str, limit: int | None = None) -> str:
    """``text`` cleaned and with every run of white space as one space; cut to ``limit`` characters with an ellipsis."""
    line = " ".join(clean(text).split())
    return line if limit is None or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def first_lines(text: str, lines: int, width: int) -> str:
    """The first ``lines`` lines of ``text``, each cut to ``width``, and a last line that says how many are left out."""
    every = clean(text).strip("\n").split("\n")
    shown = [line if len(line) <= width else line[: width - 1] + "…" for line in every[:lines]]
    left_out = len(every) - len(shown)
    return "\n".join(shown + ([f"… {plural(left_out, 'more line')}"] if left_out else []))


def head_and_rest(text: str, most: int = 12, shown: int = 8) -> tuple[str, str, int]:
    """``text`` whole where it has at most ``most`` lines; else its first ``shown``, the others, and their number."""
    lines = clean(text).strip("\n").split("\n")
    cut = len(lines) if len(lines) <= most else shown
    return "\n".join(lines[:cut]), "\n".join(lines[cut:]), len(lines) - cut


def plural(count: int, noun: str, nouns: str = "") -> str:
    """``1 check``, ``1,234 checks``; ``nouns`` where the plural is not ``noun`` and an s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def number(value: float, digits: int = 4) -> str:
    """``value`` with ``digits`` significant digits, integers in full: ``12.43``, ``1.2e-07``, ``151,936``, ``NaN``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 10 ** (digits - 1) <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"


def numbers(*values: float) -> tuple[str, ...]:
    """As ``number``, with as many digits as it takes to tell different ``values`` apart."""
    for digits in range(4, 18):
        texts = tuple(number(value, digits) for value in values)
        if len(set(texts)) == len(set(values)):
            break
    return texts


def share(fraction: float) -> str:
    """A fraction of a budget: ``42 %``, ``0.3 %``, ``× 120`` from ten times the budget on."""
    if fraction >= 10:
        return f"× {number(float(f'{fraction:.2g}'))}"
    percent = 100 * fraction
    if percent < 0.01:
        return "0 %" if percent <= 0 else "< 0.01 %"
    shown = number(percent, 2 if percent < 99 else 3)
    # Never "100 %" for what is just above or below the bar.
    return f"{numbers(percent, 100.0)[0] if shown == '100' else shown} %"


def duration(seconds: float | None) -> str:
    """``0.04 s``, ``12 s``, ``3 min 20 s``, ``1 h 05 min``; a dash where it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds >= 0.005 else "< 0.01 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def moment(iso: str) -> str:
    """An ISO 8601 time as ``2026-03-01 10:00 UTC``; anything else as it is."""
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso
