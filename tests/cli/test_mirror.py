"""`deltasql mirror`, `verify` and `rebuild` on real catalogs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import deltasql
from deltasql.cli.main import main
from tests.cli.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.uri import DeltaSqlUri
    from tests.cli.conftest import Cli

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def run(
    catalog_uri: DeltaSqlUri, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Return a function that runs the command line on a catalog with three versions of `sales`."""
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(lake))
    with deltasql.connect(catalog_uri, mirror={"mode": "off"}) as catalog:
        catalog.create_table("sales", ROWS.schema)
        for _ in range(2):
            with catalog.begin() as transaction:
                transaction.write("sales", ROWS)

    def call(*arguments: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["--uri", catalog_uri.to_string(), *arguments])
        assert result.exit_code == exit_code, result.output
        return result

    return call


@pytest.fixture
def table_uri(catalog_uri: DeltaSqlUri) -> str:
    return replace(catalog_uri, table="sales").to_string()


def status(run: Callable[..., Result]) -> dict[str, Any]:
    (only,) = json.loads(run("--format", "json", "mirror", "status", "sales").stdout)
    return dict(only)


def log_of(lake: Path) -> Path:
    return next(lake.rglob("_delta_log"))


def test_status_counts_pending_versions_and_run_once_publishes_them(
    run: Callable[..., Result], lake: Path
) -> None:
    assert status(run)["pending"] == 3
    assert "3 versions published" in run("mirror", "run", "--once").stderr
    assert (status(run)["pending"], status(run)["state"]) == (0, "ACTIVE")
    assert len([*log_of(lake).glob("*.json")]) == 3
    run("mirror", "status", "--check")


def test_verify_exits_with_1_for_a_damaged_log_until_it_is_repaired(
    run: Callable[..., Result], lake: Path
) -> None:
    run("mirror", "publish")
    run("verify", "sales", "--all-versions")
    (log_of(lake) / f"{1:020d}.json").unlink()
    run("verify", exit_code=1)
    run("mirror", "repair", "sales")
    run("verify", "--all-versions")


def test_repair_and_reject_ask_for_confirmation(run: Callable[..., Result], lake: Path) -> None:
    run("mirror", "publish")
    first, foreign = (log_of(lake) / f"{number:020d}.json" for number in (1, 3))
    first.unlink()
    tried = run("mirror", "repair", "sales", "--dry-run").stdout
    assert "1 commit to publish\n  nothing was changed\n" in tried
    assert "missing" in tried
    assert not first.exists()
    run("mirror", "repair", "sales", "--force", exit_code=1)  # without confirmation
    assert not first.exists()
    run("mirror", "repair", "sales", "--force", "--yes")
    foreign.write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    output = run("mirror", "reject", "sales", "--dry-run").stdout
    assert "version 3 of the log would be rejected" in output
    assert foreign.exists()
    run("mirror", "reject", "sales", "--yes")
    assert not foreign.exists()


def test_repair_dry_run_changes_nothing(run: Callable[..., Result], lake: Path) -> None:
    run("mirror", "publish")
    log = log_of(lake)
    (log / f"{1:020d}.json").unlink()
    (log / f"{3:020d}.json").write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    before = {each.name: each.read_bytes() for each in log.rglob("*") if each.is_file()}
    found = run("--format", "json", "mirror", "repair", "sales", "--dry-run", "--force").stdout
    output = json.loads(found)
    assert (output["dry_run"], output["published"]) == (True, [1])
    assert output["backups"] == [f"_delta_log/{3:020d}.json"]
    assert not output["after"]["ok"]
    # Unlike verify, a dry run does not quarantine the target; it only reports the damage.
    assert status(run)["state"] == "DAMAGED"
    assert {each.name: each.read_bytes() for each in log.rglob("*") if each.is_file()} == before
    output = run("mirror", "repair", "sales", exit_code=1).stdout  # foreign files stay
    assert "--force" in output
    assert "nothing to repair" not in output
    run("mirror", "repair", "sales", "--force", "--yes")
    run("verify", "sales")


def test_repair_dry_run_names_each_unreadable_file_once(
    run: Callable[..., Result], lake: Path
) -> None:
    run("mirror", "publish")
    log = log_of(lake)
    (log / f"{1:020d}.json").write_text('{"com\n')
    (log / "_last_checkpoint").write_text("x")
    lines = run("mirror", "repair", "sales", "--dry-run").stdout.splitlines()
    assert f"    unreadable (json): version 1, _delta_log/{1:020d}.json, line 1, column 5: EOF" in (
        line.partition(" while")[0] for line in lines
    )
    (hint,) = (line for line in lines if "_last_checkpoint" in line)
    assert hint.startswith("    unreadable (checkpoint): _delta_log/_last_checkpoint is not JSON: ")
    damage = run("doctor", "sales", exit_code=1).stdout
    assert damage.count("_last_checkpoint") == 1


def test_unknown_names_are_reported_before_confirmation(run: Callable[..., Result]) -> None:
    for arguments in (["repair", "sale", "--force"], ["adopt", "sale"], ["reject", "sale"]):
        output = run("mirror", *arguments, exit_code=3).stderr
        assert "Did you mean sales?" in output
        assert "[y/N]" not in output
    output = run("mirror", "targets", "remove", "sales", "tabel", exit_code=2).stderr
    assert "Did you mean 'table'?" in output
    assert "[y/N]" not in output


def test_table_argument_can_be_a_uri(run: Callable[..., Result], table_uri: str) -> None:
    assert "3 versions published" in run("mirror", "publish", table_uri).stderr
    (found,) = json.loads(run("--format", "json", "mirror", "status", table_uri).stdout)
    assert found["published_version"] == 2


def test_progress_bars_show_publishing_and_repair(
    sales_in_sqlite: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = sales_in_sqlite.uri
    monkeypatch.setenv("DELTASQL_MIRROR__MODE", "off")
    rows = deltasql.DeltaTable(f"{uri}?table=sales").to_pyarrow_table()
    for arguments in (["publish"], ["run", "--once"]):
        with deltasql.connect(uri) as catalog:
            for number in range(3):
                with catalog.begin() as transaction:
                    transaction.write("sales", rows.slice(number, 1))
        _, drawn = on_terminal(uri, "mirror", *arguments)
        assert "3 of 3" in drawn
    (log_of(tmp_path / "lake") / f"{1:020d}.json").unlink()
    output, drawn = on_terminal(uri, "mirror", "repair", "sales")
    assert "1 commit published" in output
    assert "comparing" in drawn
    assert sales_in_sqlite("mirror", "publish").stderr == "0 versions published\n"


def test_checkpoint_updates_last_checkpoint(run: Callable[..., Result], lake: Path) -> None:
    result = run("--format", "json", "mirror", "checkpoint", "sales")
    assert json.loads(result.stdout)["version"] == 2
    assert json.loads((log_of(lake) / "_last_checkpoint").read_text())["version"] == 2


def test_targets_are_added_listed_and_removed(run: Callable[..., Result], tmp_path: Path) -> None:
    run("mirror", "publish")
    run("mirror", "targets", "add", "sales", "backup", str(tmp_path / "backup"))
    listed = json.loads(run("--format", "json", "mirror", "targets", "list", "sales").stdout)
    assert [(each["name"], each["published_version"]) for each in listed] == [
        ("table", 2),
        ("backup", 2),
    ]
    output = run("mirror", "targets", "remove", "sales", "backup", "--dry-run").stderr
    assert str(tmp_path / "backup") in output
    assert (
        "Did you mean 'backup'"
        in run("mirror", "targets", "remove", "sales", "bakup", "--dry-run", exit_code=2).stderr
    )
    run("mirror", "targets", "remove", "sales", "backup", exit_code=1)  # without confirmation
    assert "backup" in run("--format", "csv", "mirror", "targets", "list", "sales").stdout
    run("mirror", "targets", "remove", "sales", "backup", "--yes")
    text = run("--format", "csv", "mirror", "targets", "list", "sales").stdout
    assert "backup" not in text


def test_foreign_commits_are_adopted_after_confirmation(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    place = str(tmp_path / "shared")
    deltalake.write_deltalake(place, ROWS)
    run("import", place)
    deltalake.write_deltalake(place, ROWS, mode="append")
    seen = json.loads(run("--format", "json", "mirror", "adopt", "shared", "--dry-run").stdout)
    assert seen == {"table": "shared", "foreign_versions": [1]}
    for command, done in (("adopt", "adopted"), ("reject", "rejected")):
        assert run("mirror", command, "shared", "--dry-run").stdout == (
            f"shared: 1 foreign commit\n  version 1 of the log would be {done}\n"
        )
    run("mirror", "adopt", "shared", exit_code=1)  # without confirmation
    history = ("--format", "json", "history", "shared")
    assert len(json.loads(run(*history).stdout)) == 1
    run("mirror", "adopt", "shared", "--yes")
    assert len(json.loads(run(*history).stdout)) == 2


def test_write_to_a_quarantined_table_warns_that_it_is_not_published(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    place = str(tmp_path / "shared")
    deltalake.write_deltalake(place, ROWS)
    run("import", place)
    deltalake.write_deltalake(place, ROWS, mode="append")
    for version in (1, 2):  # the first write finds the foreign commit
        assert run("sql", "INSERT INTO shared VALUES (4)").stderr.endswith(
            f"Warning: version {version} of shared is in the database, but it is not published; "
            "see `deltasql mirror status shared`\n"
        )
    assert "version 3 of shared" in run("optimize", "shared").stderr
    lines = run("mirror", "status", "shared").stdout.splitlines()
    assert len(lines) == 2
    assert "Help:" not in lines[1]
    assert "Help:" in run("mirror", "status", "shared", "--wide").stdout
    assert "nothing would be repaired" in run("mirror", "repair", "shared", "--dry-run").stdout
    run("mirror", "reject", "shared", "--yes")
    assert "Warning" not in run("sql", "INSERT INTO shared VALUES (4)").stderr


def test_rebuild_creates_a_catalog_from_published_logs(
    run: Callable[..., Result], lake: Path, tmp_path: Path
) -> None:
    run("mirror", "publish")
    new = f"deltasql://sqlite/{tmp_path}/new.db"
    result = CliRunner().invoke(main, ["--uri", new, "--format", "json", "rebuild", str(lake)])
    assert result.exit_code == 0, result.output
    (only,) = json.loads(result.stdout)
    assert only["last_version"] == 2
    assert CliRunner().invoke(main, ["--uri", new, "verify", "--all-versions"]).exit_code == 0
    missing = CliRunner().invoke(main, ["--uri", new, "rebuild", str(tmp_path / "nothing")])
    assert missing.exit_code == 1
    assert f"no Delta table was found below {tmp_path / 'nothing'}" in missing.stderr


def test_duckdb_file_shows_the_tables(run: Callable[..., Result], tmp_path: Path) -> None:
    import duckdb

    run("mirror", "duckdb", str(tmp_path / "catalog.duckdb"))
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as connection:
        assert connection.sql("SELECT count(*) FROM sales").fetchone() == (6,)


def test_run_stops_cleanly_on_sigterm(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    deltasql.connect(sqlite_uri, create=True).close()
    environment = os.environ | {"DELTASQL_TABLE__DATA_ROOT": str(tmp_path / "lake")}
    command = [sys.executable, "-m", "deltasql.cli.main", "--uri", sqlite_uri.to_string()]
    with subprocess.Popen(
        [*command, "mirror", "run"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "reconciling" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert "stopped" in process.stderr.read()
    assert process.returncode == 0
