"""Opens a page in headless Chromium and asks it questions; for tests and ``benchmarks/report.py``, without a driver."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Waits for the page, then runs the question; what it hands to done() goes where --dump-dom shows it.
_ASK = """
addEventListener("load", () => setTimeout(() => {
  const page = performance.getEntriesByType("navigation")[0];
  const timing = { load_ms: page.loadEventEnd, dom_ms: page.domContentLoadedEventEnd,
                   nodes: document.querySelectorAll("*").length };
  const done = (answer) => {
    const slot = document.createElement("template");
    slot.setAttribute("data-answer", JSON.stringify({ ...timing, ...answer }));
    document.body.append(slot);
  };
  try {
    %s
  } catch (error) { done({ error: String(error) }); }
}));
"""


def find_chromium() -> str | None:
    """The browser on the path, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@dataclass(frozen=True)
class Opened:
    """What a page answered, and what it wrote to the console."""

    result: dict[str, Any]
    """``load_ms``, ``dom_ms``, ``nodes``, and what the question gave to ``done``."""
    console: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Browser:
    """A browser that works in ``folder``."""

    path: str
    folder: Path

    def run(self, page: Path, question: str, *flags: str, print_to: Path | None = None) -> Opened:
        """Run ``question``, statements that end in ``done({...})``, in a copy of ``page``.

        The copy's policy lets this one script run beside the page's own; nothing else is changed.
        """
        copy = self.folder / f"asked-{page.name}"
        copy.write_text(with_script(page.read_text(encoding="utf-8"), _ASK % question), encoding="utf-8")
        ended = self._start("--dump-dom", *flags, copy.as_uri())
        answer = re.search(r'<template data-answer="([^"]*)"', ended.stdout)
        if not answer:
            raise RuntimeError(f"the page did not answer: {ended.stderr[-2000:]}")
        # "[pid:...:INFO:CONSOLE:12] "text", source: ... (12)"
        console = re.findall(r'CONSOLE[:(]\d+\)?\] "(.*?)", source:', ended.stderr, re.DOTALL)
        return Opened(json.loads(html.unescape(answer[1])), console)

    def pdf(self, page: Path) -> bytes:
        """``page`` as it prints."""
        out = self.folder / "printed.pdf"
        self._start(f"--print-to-pdf={out}", page.as_uri())
        return out.read_bytes()

    def _start(self, *arguments: str) -> subprocess.CompletedProcess:
        profile = self.folder / "profile"
        quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr", "--v=0")
        limits = ("--disable-dev-shm-usage", "--virtual-time-budget=10000", f"--user-data-dir={profile}")
        command = [self.path, *quiet, *limits, *arguments]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)


def with_script(page: str, script: str) -> str:
    """``page`` with ``script`` at its end, allowed by a nonce; the page's own script keeps its hash."""
    allowed = page.replace("script-src 'sha256-", "script-src 'nonce-asked' 'sha256-", 1)
    assert allowed != page, "the page has no policy for scripts"
    end = allowed.rindex("</body>")
    return f'{allowed[:end]}<script nonce="asked">{script}</script>{allowed[end:]}'
