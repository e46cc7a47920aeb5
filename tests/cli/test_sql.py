"""`deltasql sql` runs statements from the command line, from a file and from stdin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

COUNT = "SELECT count(*) AS n FROM sales"


def test_statement_changes_a_table_and_prints_its_rows(sales: Cli) -> None:
    found = sales.json("sql", "DELETE FROM sales WHERE id >= :low", "--param", "low=2")
    assert found == [{"num_affected_rows": 2}]
    assert sales.json("sql", COUNT) == [{"n": 2}]
    assert sales("sql", "CREATE TABLE empty (id INT)").stdout == ""
    assert "id,int" in sales("--format", "csv", "sql", "DESCRIBE empty").stdout


def test_statement_without_a_result_reports_what_it_did(sales: Cli) -> None:
    done = {
        "CREATE TABLE copy AS SELECT * FROM sales": "CREATE TABLE AS SELECT: copy is at version 0, "
        "4 rows inserted",
        "ALTER TABLE copy ADD COLUMN note STRING": "ADD COLUMN: copy is at version 1",
        "CREATE TABLE IF NOT EXISTS copy (id INT)": "CREATE TABLE: nothing was changed",
        "DROP TABLE copy": "DROP TABLE: done",
    }
    for statement, expected in done.items():
        assert sales("sql", statement).stderr == f"{expected}\n"
    assert sales("sql", "CREATE TABLE a (id INT)", "--dry-run").stderr == "nothing was changed\n"


def test_parameters_are_json_values_or_text(sales: Cli) -> None:
    text = "SELECT :a AS a, :b AS b, :c AS c, :d AS d"
    given = ("--param", "a=5", "--param", "b=it's", "--param", 'c="5"', "--param", "d=null")
    assert sales.json("sql", text, *given) == [{"a": 5, "b": "it's", "c": "5", "d": None}]
    failed = sales("sql", text, "--param", "a", exit_code=2)
    assert "--param NAME=VALUE" in failed.stderr


def test_file_with_a_transaction_is_one_commit_per_table(sales: Cli, tmp_path: Path) -> None:
    script = tmp_path / "job.sql"
    script.write_text(
        "CREATE TABLE log (n BIGINT); -- one;two\n"
        "BEGIN;\nINSERT INTO log SELECT count(*) FROM sales;\nDELETE FROM sales;\nCOMMIT;\n"
    )
    assert '"version": 1' in sales("--format", "json", "sql", "-f", str(script)).stdout
    assert sales.json("sql", "SELECT n FROM log") == [{"n": 4}]
    assert sales.json("sql", COUNT) == [{"n": 0}]


def test_script_that_fails_or_has_no_commit_changes_nothing(sales: Cli, tmp_path: Path) -> None:
    script = tmp_path / "job.sql"
    script.write_text("BEGIN; DELETE FROM sales;")
    assert "without COMMIT" in sales("sql", "-f", str(script), exit_code=1).stderr
    script.write_text("BEGIN; DELETE FROM sales; DELETE FROM nowhere; COMMIT")
    assert "nowhere does not exist" in sales("sql", "-f", str(script), exit_code=3).stderr
    assert sales.json("sql", COUNT) == [{"n": 4}]
    assert "is not supported" in sales("sql", "GRANT x", exit_code=3).stderr


def test_dry_run_changes_nothing(sales: Cli) -> None:
    text = "BEGIN; DELETE FROM sales; COMMIT; SELECT count(*) AS n FROM sales; VACUUM sales"
    found = sales("sql", f"{text}; DROP TABLE sales", "--dry-run", "--format", "ndjson")
    assert '{"num_affected_rows": 4}\n{"n": 0}' in found.stdout
    assert "VACUUM sales would delete these files" in found.stderr
    assert "DROP TABLE was not run" in found.stderr
    assert found.stderr.endswith("nothing was changed\n")
    assert sales.json("sql", COUNT) == [{"n": 4}]
