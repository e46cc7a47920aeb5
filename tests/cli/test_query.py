"""`deltasql query` and `head` print data in every format, on every backend."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

SQL = "SELECT id, price FROM sales ORDER BY id"


def test_every_format_prints_exact_values(sales: Cli) -> None:
    expected = [{"id": each, "price": each + 0.25} for each in range(4)]
    assert sales.json("query", SQL) == expected
    lines = sales("--format", "ndjson", "query", SQL).stdout.splitlines()
    assert [json.loads(line) for line in lines] == expected
    assert yaml.safe_load(sales("--format", "yaml", "query", SQL).stdout) == expected
    text = sales("--format", "csv", "query", SQL).stdout
    assert [*csv.reader(io.StringIO(text))][:2] == [["id", "price"], ["0", "0.25"]]
    assert "| 3 | 3.25 |" in sales("--format", "markdown", "query", SQL).stdout
    assert sales("query", SQL).stdout.split()[:4] == ["id", "price", "0", "0.25"]


def test_empty_result_is_valid_output(sales: Cli) -> None:
    none = f"SELECT * FROM ({SQL}) WHERE id < 0"
    assert sales.json("query", none) == []
    assert sales("--format", "csv", "query", none).stdout == "id,price\n"
    assert sales("--format", "ndjson", "query", none).stdout == ""


def test_query_reads_sql_from_stdin_or_a_file(sales: Cli, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT count(*) AS n FROM sales@1\n")
    assert sales.json("query", "--file", str(tmp_path / "q.sql")) == [{"n": 2}]
    found = sales("--format", "json", "query", "-", stdin="SELECT count(*) AS n FROM sales")
    assert json.loads(found.stdout) == [{"n": 4}]
    sales("query", exit_code=2)


def test_misspelled_select_is_not_reported_as_a_write(sales_in_sqlite: Cli) -> None:
    assert "Did you mean SELECT?" in sales_in_sqlite("query", "SELEC 1", exit_code=3).stderr
    assert (
        "only queries can be run"
        in sales_in_sqlite("query", "DELETE FROM sales", exit_code=3).stderr
    )


def test_values_without_a_json_type_are_printed_as_strings(sales: Cli) -> None:
    sql = "SELECT 'nan'::DOUBLE AS a, DATE '2024-05-01' AS b, '\\x01'::BLOB AS c, [1.5e0] AS d"
    (row,) = sales.json("query", sql)
    assert row == {"a": "NaN", "b": "2024-05-01", "c": "01", "d": [1.5]}


def test_long_result_is_truncated_with_a_notice(sales: Cli) -> None:
    assert len(sales.json("query", SQL, "--limit", "3")) == 3
    many = "SELECT range AS n FROM range(1500)"
    result = sales("query", many)
    assert len(result.stdout.splitlines()) == 1001
    assert "first 1,000 rows" in result.stderr
    assert len(sales.json("query", many)) == 1500


def test_head_accepts_version_and_columns(sales: Cli) -> None:
    assert len(sales.json("head", "sales", "-n", "3")) == 3
    assert len(sales.json("head", "sales", "--version", "1")) == 2
    assert {*sales.json("head", "sales", "--columns", "price")[0]} == {"price"}
    assert "'price'" in sales("head", "sales", "--columns", "pric", exit_code=2).stderr


def test_table_name_can_contain_quotes(cli: Cli) -> None:
    cli("table", "create", 'my "odd" table', "id:bigint")
    assert cli.json("head", 'my "odd" table') == []


def test_query_errors_are_shown_without_a_traceback(sales: Cli) -> None:
    assert "Did you mean sales?" in sales("query", "SELECT * FROM sale", exit_code=3).stderr
    assert "Help:" in sales("query", "DROP TABLE sales", exit_code=3).stderr
    assert "price" in sales("query", "SELECT prise FROM sales", exit_code=3).stderr
    for statement in ("DESCRIBE HISTORY sales", "desc detail sales"):
        assert "deltasql sql" in sales("query", statement, exit_code=3).stderr


def test_table_with_the_name_of_a_keyword_can_be_described_in_quotes(sales: Cli) -> None:
    sales("table", "rename", "sales", "copy")
    error = sales("query", "DESCRIBE copy", exit_code=3).stderr
    assert 'If copy is a name, put it in double quotes: "copy".' in error
    assert len(sales.json("query", 'DESCRIBE "copy"')) == 3
    assert "double quotes" not in sales("query", "SELECT 1 1", exit_code=3).stderr


def test_escape_sequences_in_values_are_not_printed(sales: Cli) -> None:
    assert "\x1b" not in sales("query", "SELECT chr(27) || '[2J' AS a").stdout


def test_columns_are_chosen_and_printed_one_below_the_other(sales: Cli) -> None:
    (row, *_) = sales.json("query", SQL, "--columns", "price")
    assert row == {"price": 0.25}
    assert "'price'" in sales("query", SQL, "--columns", "prise", exit_code=2).stderr
    lines = sales("query", SQL, "--wide").stdout.splitlines()
    assert lines[:4] == ["-- row 1 --", "id     0", "price  0.25", "-- row 2 --"]


def test_error_names_a_missing_file_and_its_option(sales_in_sqlite: Cli) -> None:
    for command in ("query", "sql"):
        error = sales_in_sqlite(command, "-f", "missing.sql", exit_code=2).stderr
        assert "Invalid value for --file: 'missing.sql' does not exist." in error


def test_verbose_prints_statements_and_times(sales_in_sqlite: Cli) -> None:
    error = sales_in_sqlite("-v", "query", SQL).stderr
    assert "the query took" in error
    assert sales_in_sqlite("query", SQL).stderr == ""
