"""The published JSON Schema of ``report.json``. ``python -m trncheck.reports.json_schema`` writes it anew."""

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from .schema import SCHEMA_VERSION, Report

SCHEMA_FILE = Path(__file__).parent / "schema" / f"report-{SCHEMA_VERSION}.json"


class _WithNonFinite(GenerateJsonSchema):
    """A float is a number, or one of the strings that stand for what JSON cannot write as a number."""

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["NaN", "Infinity", "-Infinity"]}]}


def report_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``report.json``."""
    schema = Report.model_json_schema(schema_generator=_WithNonFinite, mode="serialization")
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, "title": f"trncheck report {SCHEMA_VERSION}"}


def schema_text() -> str:
    """The content of ``SCHEMA_FILE``."""
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    print(SCHEMA_FILE)
