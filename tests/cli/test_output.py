"""Output formats: a program that parses the output gets back exactly the printed values."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
import yaml

from deltasql.cli.output import FORMATS, Output
from deltasql.cli.text_table import as_columns, one_below_the_other

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


DATA = pa.table({"id": [1, 2], "name": ["", None], "ok": [True, None]})


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("csv", ['1,"",true', "2,,"]),
        ("markdown", ["| 1 |  | true |", "| 2 | NULL | NULL |"]),
        ("table", [" 1        true", " 2  NULL  NULL"]),
        ("ndjson", ['{"id": 1, "name": "", "ok": true}', '{"id": 2, "name": null, "ok": null}']),
    ],
)
def test_null_and_the_empty_string_differ_in_every_format(
    format_: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Output(format_).query_result(DATA.to_reader(), None)
    assert capsys.readouterr().out.splitlines()[-2:] == expected


def test_every_format_prints_booleans_in_lower_case(capsys: pytest.CaptureFixture[str]) -> None:
    for format_ in ("table", "csv", "markdown", "json"):
        Output(format_).rows([{"ok": True}], ["ok"])
        found = capsys.readouterr().out
        assert "true" in found
        assert "True" not in found


@pytest.mark.parametrize("count", [20, 60, 300])
def test_middle_columns_are_left_out_if_a_row_is_too_wide(count: int) -> None:
    titles = [f"column_{number}" for number in range(count)]
    found = as_columns(titles, [["1.5"] * count], right=[True] * count, width=80)
    head, row = found.lines
    assert max(map(len, found.lines)) <= 80
    shown = head.split()
    assert shown[0] == "column_0"
    assert shown[-1] == f"column_{count - 1}"
    assert "…" in shown
    assert len(row.split()) == len(shown)
    assert found.hidden_columns == count - len(shown) + 1
    assert f"{len(shown) - 1} of {count} columns are shown; --wide" in found.hint(count)


def test_long_values_are_shortened_before_columns_are_left_out() -> None:
    found = as_columns(["id", "text"], [["1", "x" * 300]], right=[True, False], width=40)
    assert [*map(len, found.lines)] == [8, 40]
    assert found.lines[1].endswith("x…")
    assert found.hidden_columns == 0
    assert "--wide shows them whole" in found.hint(2)
    whole = one_below_the_other(["id", "text"], [["1", "x" * 300]])
    assert whole.lines[2] == "text  " + "x" * 300


def test_empty_columns_are_left_out_first_then_the_last_columns() -> None:
    titles, row = ["name", "damage", "state", "size"], ["sales", "", "ACTIVE", "19.5 KiB"]
    sides = [False] * 4
    found = as_columns(titles, [row], right=sides, width=24, leave_out="last")
    assert found.lines == ["name   state   size", "sales  ACTIVE  19.5 KiB"]
    assert found.hidden_columns == 1
    found = as_columns(titles, [row], right=sides, width=16, leave_out="last")
    assert found.lines == ["name   state   …", "sales  ACTIVE  …"]
    assert found.hidden_columns == 2
    found = as_columns(titles, [row], right=sides, width=80, leave_out="last")
    assert found.lines[0].split() == titles


def test_first_columns_of_a_wide_history_are_shown_at_80_columns() -> None:
    row = {"version": "0", "timestamp": "2026-11-19T23:30:27.212000+00:00", "userId": "NULL"}
    row |= {"userName": "NULL", "operation": "CREATE TABLE AS SELECT"}
    row |= {f"column_{number}": "x" * 16 for number in range(10)}
    found = as_columns([*row], [[*row.values()]], right=[False] * len(row), width=80)
    assert found.lines[0].split()[:3] == ["version", "timestamp", "operation"]
    assert "2026-11-19T23:30" in found.lines[1]
    assert max(map(len, found.lines)) <= 80
    assert found.hidden_columns == len(row) - 4


def test_wide_record_has_one_line_per_key(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table", wide=True).record({"name": "sales", "size": "18 KiB"})
    assert capsys.readouterr().out == "name  sales\nsize  18 KiB\n"


def test_only_tables_and_markdown_print_sizes_with_units(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"bytesRemoved": 2295, "live_bytes": 780, "rows": 2295}
    for format_ in ("table", "markdown"):
        Output(format_).rows([row], [*row])
        found = capsys.readouterr().out
        assert "2.2 KiB" in found
        assert "780 B" in found
        assert "2295" in found
    Output("csv").rows([row], [*row])
    assert capsys.readouterr().out.splitlines()[1] == "2295,780,2295"
    Output("table", exact=True).rows([row], [*row])
    assert "KiB" not in capsys.readouterr().out


def test_tables_have_titles_for_people_and_other_formats_the_names_of_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"size_bytes": 1536, "lag_s": 0.25, "is_following": False}
    Output("table").rows([row], [*row])
    assert capsys.readouterr().out.splitlines() == [
        "size     lag    following",
        "1.5 KiB  0.2 s  false",
    ]
    Output("table").record(row)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "size       1.5 KiB",
        "lag        0.2 s",
        "following  false",
    ]
    Output("csv").rows([row], [*row])
    assert capsys.readouterr().out == "size_bytes,lag_s,is_following\n1536,0.2,false\n"
    Output("json").record(row)
    assert json.loads(capsys.readouterr().out) == row


def test_wide_characters_are_aligned() -> None:
    rows = [["ペン", "1"], ["ink", "2"]]
    found = as_columns(["name", "n"], rows, right=[False, True], width=80)
    assert found.lines == ["name  n", "ペン  1", "ink   2"]
