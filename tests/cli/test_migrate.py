"""`deltasql import`, `follow`, `verify`, `cutover`, `rollback` and `export` from end to end."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
import deltalake
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result
from deltalake.exceptions import DeltaError

import deltasql
from deltasql.cli.commands import Commands
from deltasql.cli.main import main
from deltasql.exceptions import ImportMismatchError
from tests.cli.terminal import on_one_terminal, on_terminal, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri


class Run(Protocol):
    """Runs the command line on an empty catalog."""

    def __call__(self, *arguments: str, exit_code: int = 0, stdin: str | None = None) -> Result: ...


def write(location: Path, *numbers: int) -> None:
    rows = pa.table({"id": pa.array(numbers, pa.int64())})
    deltalake.write_deltalake(str(location), rows, mode="append")


def ids(location: Path) -> list[int]:
    # Use `scan`: deltalake's pyarrow dataset cannot read files that a log names by URL.
    found = pa.table(deltalake.DeltaTable(str(location)).scan())
    return sorted(found["id"].to_pylist())


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    """Write a table with three versions with stock deltalake and return its location."""
    location = tmp_path / "lake" / "sales"
    for number in range(3):
        write(location, number)
    return location


@pytest.fixture
def run(catalog_uri: DeltaSqlUri) -> Run:
    return runner(catalog_uri)


@pytest.fixture
def run_sqlite(sqlite_uri: DeltaSqlUri) -> Run:
    return runner(sqlite_uri)


def runner(uri: DeltaSqlUri) -> Run:
    def call(*arguments: str, exit_code: int = 0, stdin: str | None = None) -> Result:
        command = ["--uri", uri.to_string(), *arguments]
        result = CliRunner().invoke(main, command, input=stdin)
        assert result.exit_code == exit_code, result.output
        return result

    return call


def report(run: Run, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run("--format", "json", *arguments, exit_code=exit_code).stdout
    )
    return found


def test_table_moves_to_sql_and_back_without_losing_a_row(
    run: Run, catalog_uri: DeltaSqlUri, sales: Path
) -> None:
    assert report(run, "import", str(sales))["state"] == "imported"
    write(sales, 3)
    caught = report(run, "import", str(sales))
    assert (caught["state"], caught["commits"], caught["last_version"]) == ("continued", 1, 3)
    run("verify", "sales", "--all-versions", "--data", "rows")
    write(sales, 4)
    assert report(run, "cutover", "sales", "--yes")["caught_up"] == 1
    with pytest.raises(DeltaError):
        write(sales, 99)
    with deltasql.begin(catalog_uri) as tx:
        tx.write("sales", pa.table({"id": pa.array([5], pa.int64())}))
    assert ids(sales) == [0, 1, 2, 3, 4, 5]
    assert report(run, "rollback", "sales", "--yes")["state"] == "rolled back"
    write(sales, 6)
    assert ids(sales) == [0, 1, 2, 3, 4, 5, 6]
    with deltasql.connect(catalog_uri) as catalog:
        assert not catalog.exists("sales")


def test_followed_table_is_read_only_until_cutover(
    run: Run, catalog_uri: DeltaSqlUri, sales: Path
) -> None:
    uri = catalog_uri.with_table("mine", "crm").to_string()
    assert report(run, "follow", str(sales), uri)["table"] == "crm.mine"
    write(sales, 3)
    found = report(run, "follow", "crm.mine")
    assert (found["state"], found["commits"]) == ("refreshed", 1)
    with pytest.raises(deltasql.exceptions.TableFollowsError):
        deltasql.write_deltalake(uri, pa.table({"id": [9]}), mode="append")
    run("cutover", uri, "--yes")
    deltasql.write_deltalake(uri, pa.table({"id": pa.array([4], pa.int64())}), mode="append")
    assert ids(sales) == [0, 1, 2, 3, 4]


def test_export_is_an_independent_table(run: Run, sales: Path, tmp_path: Path) -> None:
    run("import", str(sales))
    whole = report(run, "export", "sales", str(tmp_path / "whole"), "--with-data")
    assert (whole["first_version"], whole["last_version"], whole["files"]) == (0, 2, 3)
    assert ids(tmp_path / "whole") == [0, 1, 2]
    run("export", "sales", str(tmp_path / "one"), "--version", "1", "--from-version", "1")
    assert ids(tmp_path / "one") == [0, 1]
    assert "already exists" in run("export", "sales", str(tmp_path / "one"), exit_code=3).output


def test_recursive_import_continues_after_a_damaged_table(
    run: Run, sales: Path, tmp_path: Path
) -> None:
    write(sales.parent / "crm" / "people", 1)
    bad = sales.parent / "crm" / "bad"
    write(bad, 1)
    (bad / "_delta_log" / f"{0:020}.json").write_text('{"protocol"\n')
    result = run("import", "--recursive", str(sales.parent), exit_code=1)
    assert "3 tables" in result.stdout
    assert "00000000000000000000.json" in result.stdout
    listed = run("--format", "csv", "import", "-r", str(sales.parent), exit_code=1).stdout
    states = {line.split(",")[0]: line.split(",")[1] for line in listed.splitlines()[1:]}
    assert states["sales"] == states["crm.people"] == "up to date"
    assert "failed" in states.values()


def test_dry_run_reports_and_changes_nothing(
    run_sqlite: Run, sqlite_uri: DeltaSqlUri, sales: Path
) -> None:
    assert report(run_sqlite, "import", str(sales), "--dry-run")["state"] == "would import"
    assert not Path(sqlite_uri.database).exists()
    run_sqlite("import", str(sales))
    before = sorted(path.name for path in sales.rglob("*"))
    assert report(run_sqlite, "cutover", "sales", "--dry-run")["state"] == "would cut over"
    assert report(run_sqlite, "rollback", "sales", "--dry-run")["state"] == "would roll back"
    assert sorted(path.name for path in sales.rglob("*")) == before
    write(sales, 3)


def test_cutover_can_fence_the_table(run_sqlite: Run, sales: Path) -> None:
    run_sqlite("follow", str(sales))
    text = run_sqlite("cutover", "sales", "--fence", "--yes").stdout
    assert "fenced by version" in text
    assert report(run_sqlite, "cutover", "sales", "--fence", "--yes")["fence"]["state"] == (
        "was fenced"
    )
    assert report(run_sqlite, "rollback", "sales", "--yes")["fence_dropped"]
    write(sales, 3)


def test_import_options_select_versions_and_name(run_sqlite: Run, sales: Path) -> None:
    arguments = ("--name", "late", "--namespace", "crm", "--since", "1", "--batch-size", "1")
    found = report(
        run_sqlite, "import", str(sales), *arguments, "--up-to-version", "1", "--no-verify"
    )
    assert (found["table"], found["first_version"], found["last_version"]) == ("crm.late", 1, 1)
    assert found["verification"] is None
    assert report(run_sqlite, "import", str(sales), "--since", "2")["last_version"] == 2


def test_damaged_log_exits_with_3_and_names_the_line(
    run_sqlite: Run, tmp_path: Path, sales: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert "Help:" in run_sqlite("import", str(tmp_path / "empty"), exit_code=3).stderr
    damaged = sales / "_delta_log" / f"{1:020}.json"
    damaged.write_text('{"commitInfo":{}}\n{"add":')
    result = run_sqlite("import", str(sales), exit_code=3)
    assert damaged.name in result.stderr
    assert "line 2" in result.stderr
    assert result.stdout == ""


def test_dry_run_exits_with_1_if_data_files_are_missing(run_sqlite: Run, sales: Path) -> None:
    next(sales.glob("*.parquet")).unlink()
    found = report(run_sqlite, "import", str(sales), "--dry-run", exit_code=1)
    assert (found["ok"], found["missing"]) == (False, 1)
    assert report(run_sqlite, "import", str(sales), "--dry-run", "--force")["ok"]


@pytest.mark.parametrize(
    ("error", "code"), [(ImportMismatchError(), 1), (FileNotFoundError(2, "gone", "log"), 3)]
)
def test_errors_exit_with_their_code_without_a_traceback(error: Exception, code: int) -> None:
    @click.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(Commands(commands={"fail": fail}), ["fail"])
    assert result.exit_code == code
    assert result.stderr.startswith("Error: ")
    assert "Help:" in result.stderr


def test_verify_finds_damaged_data_files(run_sqlite: Run, sales: Path) -> None:
    run_sqlite("import", str(sales))
    run_sqlite("verify", "--sample", "2", "--data", "files")
    next(sales.glob("*.parquet")).write_bytes(b"PAR1")
    run_sqlite("verify", "sales")
    (found,) = json.loads(
        run_sqlite("--format", "json", "verify", "--data", "files", exit_code=1).stdout
    )
    assert found["ok"] is False
    assert (
        "false"
        in run_sqlite("--format", "markdown", "verify", "--data", "files", exit_code=1).stdout
    )


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_spark_engine_imports_and_verifies(
    run_sqlite: Run, sales: Path, spark: SparkSession
) -> None:
    found = report(run_sqlite, "import", str(sales), "--engine", "spark")
    assert (found["state"], found["commits"], found["files"]) == ("imported", 3, 3)
    run_sqlite("verify", "sales", "--data", "counts", "--engine", "spark")
    assert spark.range(1).count() == 1


def test_commands_change_nothing_before_confirmation(run_sqlite: Run, sales: Path) -> None:
    run_sqlite("import", str(sales))
    for arguments in (["cutover", "sale"], ["rollback", "sale"]):
        output = run_sqlite(*arguments, exit_code=3).stderr
        assert "Did you mean sales?" in output
        assert "[y/N]" not in output
    run_sqlite("cutover", "sales", exit_code=1, stdin="n\n")
    write(sales, 3)
    run_sqlite("cutover", "sales", stdin="y\n")
    run_sqlite("rollback", "sales", exit_code=1, stdin="")
    run_sqlite("table", "drop", "sales", "--yes")
    assert "[y/N]" in run_sqlite("rollback", "sales", exit_code=1, stdin="n\n").stderr
    run_sqlite("table", "undrop", "sales")
    other = sales.parent / "other"
    write(other, 1)
    run_sqlite("import", str(other), "--name", "sales", exit_code=3)
    run_sqlite("import", str(other), "--name", "sales", "--force", exit_code=1, stdin="n\n")
    found = report(run_sqlite, "import", str(other), "--name", "sales", "--force", "--yes")
    assert found["state"] == "replaced"


def test_wrong_usage_exits_with_2(run_sqlite: Run, sales: Path, sqlite_uri: DeltaSqlUri) -> None:
    run_sqlite("import", "-r", str(sales), "--name", "x", exit_code=2)
    run_sqlite("verify", "--all-versions", "--sample", "2", exit_code=2)
    assert (
        "does not name a table"
        in run_sqlite("cutover", sqlite_uri.to_string(), "--yes", exit_code=2).stderr
    )
    uri = sqlite_uri.with_table("t").to_string()
    run_sqlite("follow", str(sales), uri, "--name", "other", exit_code=2)


def test_json_and_yaml_reports_are_equal(run_sqlite: Run, sales: Path) -> None:
    run_sqlite("import", str(sales))
    arguments = ("import", str(sales), "--dry-run")
    in_json = report(run_sqlite, *arguments)
    in_yaml = yaml.safe_load(run_sqlite("--format", "yaml", *arguments).stdout)
    assert in_json.pop("seconds") >= 0
    assert in_yaml.pop("seconds") >= 0
    assert in_yaml == in_json


def test_follow_watch_runs_until_it_is_stopped(sqlite_uri: DeltaSqlUri, sales: Path) -> None:
    arguments = ("--format", "ndjson", "follow", str(sales), "--watch", "0.05")
    with started(sqlite_uri.to_string(), *arguments) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["state"] == "followed"
        write(sales, 3)
        # Refreshes without new commits print nothing.
        assert json.loads(process.stdout.readline())["last_version"] == 3
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 0


def test_follow_watch_ends_if_the_location_cannot_be_read_at_the_start(
    run_sqlite: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # nothing listens there
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    failed = run_sqlite("follow", "s3://bucket/sales", "--watch", "1", exit_code=3).stderr
    assert "Check that the location exists" in failed
    assert "retrying:" not in failed


def test_progress_bars_are_drawn_only_on_a_terminal(
    sqlite_uri: DeltaSqlUri, sales: Path, run_sqlite: Run
) -> None:
    assert run_sqlite("import", str(sales), "--dry-run").stderr == ""
    output, drawn = on_terminal(sqlite_uri.to_string(), "import", str(sales))
    assert "sales: imported" in output
    assert "sales" in drawn
    assert "\x1b[" in drawn


def test_summary_replaces_the_progress_bar(sqlite_uri: DeltaSqlUri, sales: Path) -> None:
    """If stdout and stderr share a terminal, the summary must not follow a bar on the same line."""
    screen = on_one_terminal(sqlite_uri.to_string(), "import", "--recursive", str(sales.parent))
    assert "━" in screen
    assert "━" not in screen[screen.index("table  ") :]
