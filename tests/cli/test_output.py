"""Output formats: programs read back exactly what was printed."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pytest
import yaml

from deltasql.cli.output import FORMATS, Output

ROWS = [
    {"name": "a|b", "size": 3, "notes": ["x", "y"], "at": datetime(2024, 1, 1, tzinfo=UTC)},
    {"name": "line\nbreak [bold]", "size": None, "notes": [], "at": None},
]


def printed(format_: str, capsys: pytest.CaptureFixture[str]) -> str:
    Output(format_).rows(ROWS, ("name", "size", "notes"))
    return capsys.readouterr().out


def test_json_yaml_and_ndjson_have_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    expected = [{**row, "at": row["at"] and row["at"].isoformat()} for row in ROWS]
    assert json.loads(printed("json", capsys)) == expected
    assert yaml.safe_load(printed("yaml", capsys)) == expected
    assert [json.loads(line) for line in printed("ndjson", capsys).splitlines()] == expected


def test_csv_has_the_selected_columns(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(csv.DictReader(io.StringIO(printed("csv", capsys))))
    assert found[0] == {"name": "a|b", "size": "3", "notes": "x; y"}
    assert found[1] == {"name": "line\nbreak [bold]", "size": "", "notes": ""}


def test_markdown_escapes_pipes_and_line_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("markdown", capsys).splitlines() == [
        "| name | size | notes |",
        "| --- | --- | --- |",
        "| a\\|b | 3 | x; y |",
        "| line break [bold] |  |  |",
    ]


def test_brackets_in_a_value_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[bold]" in printed("table", capsys)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_prints_one_object(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output(format_).record({"table": "sales", "ok": True})
    assert "sales" in capsys.readouterr().out
