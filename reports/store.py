"""The folder of one run, ``<root>/<release>/<target>/<run-id>/``: written after each check, read by path."""

import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from .schema import READABLE_VERSIONS, SCHEMA_VERSION, Report, Strict
from .text import one_line, without_surrogates

if TYPE_CHECKING:
    from .baseline import Baseline

REPORT_JSON = "report.json"
_DAMAGED = "the file is damaged or was edited, restore it or run again"


def new_run_id() -> str:
    """UTC time and a random suffix, e.g. ``20260301T101500-3fa9c1``; ids sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


@dataclass(frozen=True)
class RunFolder:
    """The files of one run. What is on disk is valid at any moment, also when the process is killed."""

    path: Path

    @classmethod
    def create(cls, root: Path, report: Report) -> "RunFolder":
        """Make the folder of ``report`` under ``root`` and write ``report.json``.

        Raises ValueError, in one line, where that is not possible.
        """
        parts = (report.release, report.target, report.run_id)
        for part in parts:
            if part in ("", ".", "..") or one_line(part) != part or any(c in part for c in '/\\:*?"<>|'):
                raise ValueError(f"{part!r} cannot name a results folder: use letters, digits, dots and dashes")
        folder = cls(Path(root, *parts))
        try:
            folder.path.mkdir(parents=True)
        except OSError as error:
            raise _unwritable(folder.path, error) from error
        folder.write(report)
        return folder

    @property
    def page(self) -> Path:
        """The HTML page, there once the run is finished."""
        return self.path / "report.html"

    def write(self, report: Report) -> None:
        """Replace ``report.json``. Raises ValueError where the folder cannot be written."""
        self._replace(REPORT_JSON, dump_json(report))

    def finish(self, report: Report, baseline: "Baseline | None" = None) -> None:
        """Write ``report.json``, then ``report.md``, ``junit.xml`` and ``report.html``, with the bands of ``baseline``.

        Raises ValueError where the folder cannot be written or, with the other three in place, where the page needs
        a package that is not installed.
        """
        from .html import render_html
        from .junit import render_junit
        from .markdown import render_markdown

        self.write(report)
        self._replace("report.md", render_markdown(report))
        self._replace("junit.xml", render_junit(report))
        self._replace(self.page.name, render_html(report, baseline))

    def _replace(self, name: str, text: str) -> None:
        # One fixed name for the temporary file: what a killed run leaves is at most one, and the next write takes it.
        part = self.path / f".{name}.part"
        try:
            part.write_text(text, encoding="utf-8", newline="\n")
            os.replace(part, self.path / name)
        except OSError as error:
            raise _unwritable(self.path / name, error) from error


def load_report(path: Path) -> Report:
    """The report in ``path``, a ``report.json`` or its folder.

    One of an older schema comes as one of today's, with defaults for what it could not say. Raises ValueError, in one
    line with file, problem and line or field, where there is none that this version reads.
    """
    path = Path(path)
    if path.is_dir():
        path = path / REPORT_JSON
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); give a report.json or its folder") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: line {error.lineno}: not JSON ({error.msg}); {_DAMAGED}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({type(error).__name__}); {_DAMAGED}") from error
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ValueError(f"{path}: no schema_version, so this is not a report of trncheck; give its report.json")
    if data["schema_version"] not in READABLE_VERSIONS:
        version, readable = one_line(str(data["schema_version"]), 40), " and ".join(READABLE_VERSIONS)
        raise ValueError(f"{path}: schema version {version}, this trncheck reads {readable}; use the one it is from")
    try:
        return Report.model_validate(data | {"schema_version": SCHEMA_VERSION})
    except ValidationError as error:
        raise ValueError(f"{path}: {first_problem(error)}; {_DAMAGED}") from error


def dump_json(model: Strict) -> str:
    """``model`` as JSON that every reader takes."""
    try:
        return model.model_dump_json(indent=1) + "\n"
    except PydanticSerializationError:
        # Names of files that are not UTF-8 hold lone surrogates; JSON has no room for them.
        return type(model).model_validate(_without_surrogates(model.model_dump())).model_dump_json(indent=1) + "\n"


def first_problem(error: ValidationError) -> str:
    """Field and problem of the first error, e.g. ``results[3].outcome: Input should be ...``."""
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"]).lstrip(".")
    more = f" (and {len(others)} more)" if others else ""
    return one_line(f"field {field}: {first['msg']}{more}", 300)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return without_surrogates(value) if isinstance(value, str) else value


def _unwritable(path: Path, error: OSError) -> ValueError:
    return ValueError(f"{path}: cannot be written ({error.strerror or error}); choose another results folder")
