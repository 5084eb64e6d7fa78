"""The published JSON Schema is that of the models, and what is written satisfies it."""

import json
import math

import jsonschema
import pytest

from trncheck.reports.json_schema import SCHEMA_FILE, report_schema, schema_text
from trncheck.reports.schema import Measurement
from trncheck.reports.schema_docs import schema_docs
from trncheck.reports.store import RunFolder


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    cls = jsonschema.validators.validator_for(schema)
    cls.check_schema(schema)
    return cls(schema)


def test_published_file_is_up_to_date():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "run python -m trncheck.reports.json_schema"


def test_a_written_report_is_valid(tmp_path, report, validator):
    report.results[0].measurements = [Measurement(name="n", value=v) for v in (math.nan, math.inf, -math.inf, 1.5, 0)]
    path = RunFolder.create(tmp_path, report).path / "report.json"
    validator.validate(json.loads(path.read_text()))


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": "2.0"},
        {"verdict": {"status": "fine", "headline": "x"}},
        {"unknown": 1},
        {"results": [{"id": "a"}]},
        {"duration_s": "soon"},
    ],
)
def test_what_the_models_refuse_is_not_valid(report, validator, change):
    data = report.model_dump(mode="json") | change
    assert not validator.is_valid(data)


def test_documentation_is_up_to_date():
    written = SCHEMA_FILE.parents[2] / "docs" / "report-schema.md"
    command = "python -m trncheck.reports.schema_docs > docs/report-schema.md"
    assert written.read_text(encoding="utf-8") == schema_docs(), f"run {command}"


def test_documentation_has_every_field_and_says_since_when():
    text = schema_docs()
    for name, model in {"Report": report_schema(), **report_schema()["$defs"]}.items():
        assert f"## {name}\n" in text
        section = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert all(f"| `{field}` |" in section for field in model.get("properties", {}))
    assert "| `executions` | list of [Execution](#execution) | `[]` | 1.1 |" in text
    assert "| `evidence` | object of string |" in text
    assert "| `kind` | `distribution` or `git` or `system` | required | 1.0 |" in text
