"""`stats`, `doctor`, `diff`, `files`, `history`, `schema` and `watch` on real catalogs."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import deltasql
from deltasql.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.uri import DeltaSqlUri

    Run = Callable[..., Result]


@pytest.fixture
def run(catalog_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command line on a catalog with two tables."""
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    with deltasql.connect(catalog_uri) as catalog:
        with catalog.begin() as tx:
            tx.write("sales", pa.table({"id": [1, 2], "day": ["mon", "tue"]}), partition_by=["day"])
            tx.write("crm.people", pa.table({"id": [1]}))
        with catalog.begin() as tx:
            tx.write("sales", pa.table({"id": [3], "day": ["mon"]}))
        with catalog.begin() as tx:
            tx.delete("sales", "id = 1")

    def call(*arguments: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["--uri", catalog_uri.to_string(), *arguments])
        assert result.exit_code == exit_code, result.output
        return result

    return call


def json_output(run: Run, *arguments: str) -> Any:
    return json.loads(run("--format", "json", *arguments).stdout)


def test_stats_shows_all_tables_or_one(run: Run) -> None:
    assert [(each["name"], each["files"]) for each in json_output(run, "stats")] == [
        ("crm.people", 1),
        ("sales", 2),
    ]
    one = json_output(run, "stats", "sales")
    assert (one["files"], one["rows"], one["skew"]["partitions"]) == (2, 2, 2)
    assert one["advice"]["optimize"]["small_files"] == 2
    shown = run("stats", "sales").stdout
    assert "day=mon" in shown
    assert "below 64 KiB" in shown
    assert "2 tables, 3 files" in run("stats").stderr


def test_doctor_exits_with_1_if_a_check_fails(run: Run, catalog_uri: DeltaSqlUri) -> None:
    checks = json_output(run, "doctor")
    assert {each["status"] for each in checks} == {"ok"}
    assert run("--format", "json", "doctor", "--problems").stdout == "[]\n"
    with deltasql.connect(catalog_uri) as catalog, catalog.store.session() as session:
        session.begin()
        session.script("UPDATE dl_table_heads SET version = 77")
        session.commit()
    result = run("doctor", "--problems", exit_code=1)
    assert "the head is at version 77" in result.stdout
    assert "2 failed" in result.stderr


def test_doctor_prints_suggestions_in_full_below_the_table(run: Run, tmp_path: Path) -> None:
    (log,) = tmp_path.rglob("sales/_delta_log")
    (log / f"{3:020d}.json").write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    lines = run("doctor", "--problems", exit_code=1).stdout.splitlines()
    assert lines[0].split() == ["status", "name", "table", "detail"]
    assert lines[-1] == (
        "log files of sales: Load the commits of the other program: deltasql mirror adopt sales. "
        "Or move them out of the log: deltasql mirror reject sales."
    )
    header = run("doctor", "--format", "csv", exit_code=1).stdout.splitlines()[0]
    assert header == "status,name,table,detail,suggestion"
    assert "suggestion" in run("doctor", "--wide", exit_code=1).stdout


def test_fast_doctor_checks_only_the_database(run: Run, catalog_uri: DeltaSqlUri) -> None:
    names = [each["name"] for each in json_output(run, "doctor", "--fast")]
    assert names[:6] == [
        "connectivity",
        "database version",
        "library versions",
        "schema",
        "indexes",
        "pool",
    ]
    assert set(names[6:]) <= {"long transactions"}
    with deltasql.connect(catalog_uri) as catalog, catalog.store.change() as (session, _):
        session.script("UPDATE dl_table_heads SET version = 77")
    run("doctor", exit_code=1)
    run("doctor", "--fast")  # a health check of the database does not look at tables
    with deltasql.connect(catalog_uri) as catalog, catalog.store.change() as (session, _):
        session.script("DELETE FROM dl_migrations WHERE version > 1")
    [failed] = json.loads(
        run("doctor", "--fast", "--problems", "--format", "json", exit_code=1).stdout
    )
    assert (failed["name"], failed["status"]) == ("schema", "failure")


def test_doctor_exit_codes_distinguish_a_failed_check_from_checks_that_could_not_run(
    run: Run, tmp_path: Path
) -> None:
    assert "leave out TABLE" in run("doctor", "sales", "--fast", exit_code=2).stderr
    failed = run("doctor", "no_such_table", "--format", "json", exit_code=3)
    assert (failed.stdout, "no_such_table" in failed.stderr) == ("", True)
    for place in (f"sqlite/{tmp_path}/none.db", "postgres/nobody@127.0.0.1:1/none"):
        uri = f"deltasql://{place}"
        result = CliRunner().invoke(main, ["--uri", uri, "doctor", "--fast", "--format", "json"])
        assert result.exit_code == 1, result.output
        [found] = json.loads(result.stdout)
        assert (found["name"], found["status"]) == ("connectivity", "failure")


def test_table_of_the_uri_is_the_default_of_table(run: Run, catalog_uri: DeltaSqlUri) -> None:
    uri = replace(catalog_uri, table="sales").to_string()
    for arguments in (["history"], ["head"], ["table", "show"], ["verify"], ["doctor"]):
        result = CliRunner().invoke(main, [*arguments, "--uri", uri])
        assert result.exit_code == 0, result.output
    found = run("--uri", uri, "--format", "json", "stats")
    assert json.loads(found.stdout)["name"] == "sales"
    assert "crm.people" in run("--uri", uri, "table", "list").stdout
    assert json_output(run, "--uri", uri, "head", "crm.people") == [{"id": 1}]
    run("--uri", uri, "doctor", "--fast")  # these two refuse a TABLE on the command line
    run("--uri", uri, "vacuum", "--uncommitted")
    assert "Missing argument 'TABLE'" in run("history", exit_code=2).stderr


def test_diff_shows_files_and_rows(run: Run) -> None:
    found = json_output(run, "diff", "sales", "0", "2", "--rows")
    assert found["rows"]["inserted"] == [{"id": 3, "day": "mon"}]
    assert found["rows"]["deleted"] == [{"id": 1, "day": "mon"}]
    shown = run("diff", "sales", "0", "2", "--rows")
    assert "row inserted" in shown.stdout
    assert "from version 0 to 2: 1 file" in shown.stderr
    assert "no version 9" in run("diff", "sales", "0", "9", exit_code=3).stderr


def test_files_accepts_predicate_version_and_limit(run: Run) -> None:
    assert len(json_output(run, "files", "sales")) == 2
    assert len(json_output(run, "files", "sales", "--version", "1")) == 3
    assert len(json_output(run, "files", "sales", "--version", "1", "--limit", "1")) == 1
    (only,) = json_output(run, "files", "sales", "--where", "day = 'tue'")
    assert (only["partition"], only["rows"]) == ({"day": "tue"}, 1)
    rows = [*csv.DictReader(io.StringIO(run("--format", "csv", "files", "sales").stdout))]
    assert {row["partition"] for row in rows} == {'{"day": "mon"}', '{"day": "tue"}'}


def test_history_accepts_limit_and_operation(run: Run) -> None:
    assert [each["version"] for each in json_output(run, "history", "sales")] == [2, 1, 0]
    assert [each["version"] for each in json_output(run, "history", "sales", "--limit", "2")] == [
        2,
        1,
    ]
    only = json_output(run, "history", "sales", "--operation", "delete")
    assert [each["version"] for each in only] == [2]
    assert "Did you mean 'DELETE'?" in run("history", "sales", "--operation", "delet").stderr
    assert json_output(run, "history", "sales")[-1]["group_size"] == 2
    assert "txn id" in run("history", "sales", "--transactions").stdout


def test_history_shows_who_changed_how_many_rows_and_files(run: Run) -> None:
    head, delete, append, create = run("history", "sales").stdout.splitlines()
    assert head.split() == ["version", "when", "operation", "who", "rows", "files", "size"]
    assert [*delete.split()[:1], *delete.split()[2:5]] == ["2", "DELETE", "deltasql", "-1"]
    assert append.split()[4:6] == ["+1", "+1"]
    assert append.split()[-1] in ("B", "KiB")
    assert create.split()[4:6] == ["+2", "+2"]
    assert "num_deleted_rows" in run("history", "sales", "--verbose").stdout
    (deleted, *_) = json_output(run, "history", "sales")
    assert deleted["metrics"]["num_deleted_rows"] == 1
    assert (deleted["files_added"], deleted["files_removed"]) == (0, 1)
    assert deleted["bytes_removed"] > 0
    assert deleted["committed_at"].endswith("+00:00")


def test_schema_shows_columns_and_changes(run: Run) -> None:
    assert [(each["name"], each["type"]) for each in json_output(run, "schema", "sales")] == [
        ("id", "long"),
        ("day", "string"),
    ]
    (created,) = json_output(run, "schema", "sales", "--changes")
    assert [each["column"] for each in created["changes"]] == ["id", "day"]
    assert "column added" in run("schema", "sales", "--changes").stdout
    run("schema", "sales", "--changes", "--version", "0", exit_code=2)


@pytest.mark.parametrize("format_", ["table", "json", "ndjson", "csv", "yaml", "markdown"])
def test_every_format_prints_every_command(run: Run, format_: str) -> None:
    for arguments in (
        ("stats",),
        ("stats", "sales"),
        ("doctor",),
        ("diff", "sales", "0", "2"),
        ("files", "sales"),
        ("history", "sales"),
        ("schema", "sales"),
        ("schema", "sales", "--changes"),
        ("watch", "--once"),
    ):
        assert run("--format", format_, *arguments).stdout.strip()


def test_watch_once_shows_the_latest_commits(run: Run) -> None:
    assert "who" in run("watch", "--once").stdout.splitlines()[0]
    found = json_output(run, "watch", "--once", "--limit", "2")
    assert [(each["table"], each["version"]) for each in found] == [("sales", 2), ("sales", 1)]


def test_watch_prints_a_line_per_commit_until_it_is_stopped(
    run: Run, catalog_uri: DeltaSqlUri, backend: str, tmp_path: Path
) -> None:
    if backend == "duckdb":
        pytest.skip("a DuckDB file is opened by one process, so nobody else can commit")
    environment = {**os.environ, "DELTASQL_TABLE__DATA_ROOT": str(tmp_path / "lake")}
    command = [sys.executable, "-m", "deltasql.cli.main", "--uri", catalog_uri.to_string()]
    with subprocess.Popen(
        [*command, "watch", "--every", "0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "watching" in process.stderr.readline()
        with deltasql.connect(catalog_uri) as catalog, catalog.begin() as tx:
            tx.write("sales", pa.table({"id": [5], "day": ["wed"]}))
        line = json.loads(process.stdout.readline())
        assert (line["table"], line["version"], line["operation"]) == ("sales", 3, "WRITE")
        process.send_signal(signal.SIGINT)
        rest, talk = process.communicate()
        assert (process.returncode, rest) == (0, "")
        assert "stopped" in talk
        assert "Traceback" not in talk


def test_watch_draws_on_a_terminal_and_ends_with_ctrl_c(run: Run, catalog_uri: DeltaSqlUri) -> None:
    command = [sys.executable, "-m", "deltasql.cli.main", "--uri", catalog_uri.to_string()]
    leader, follower = os.openpty()
    with subprocess.Popen(
        [*command, "--no-color", "watch", "--every", "0.05"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        # Make it the controlling terminal of the process, so that Ctrl-C arrives.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(follower)
        seen = b""
        while b"everything is published" not in seen:
            seen += os.read(leader, 65536)
        assert b"crm.people" in seen
        os.write(leader, b"\x03")
        while b"stopped" not in seen:
            seen += os.read(leader, 65536)
        assert process.wait() == 0
    os.close(leader)
    assert b"Traceback" not in seen


def test_doctor_in_a_shell_checks_the_open_catalog() -> None:
    # An in-memory catalog can only be reached through the open connection.
    arguments = ["--uri", "deltasql://duckdb/:memory:", "--format", "json", "shell"]
    result = CliRunner().invoke(main, arguments, input="doctor --problems\n")
    assert (result.exit_code, result.stdout) == (0, "[]\n"), result.output


def test_truncated_list_ends_with_a_notice(run: Run) -> None:
    assert (
        "showing the first 1; use --limit for more"
        in run("history", "sales", "--limit", "1").stderr
    )
    assert (
        "showing the first 1; use --limit for more" in run("files", "sales", "--limit", "1").stderr
    )
    assert run("history", "sales", "--limit", "3").stderr == ""
    assert run("files", "sales").stderr == ""
