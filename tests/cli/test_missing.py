"""Commands that only look never make a catalog, and change none."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

from deltasql.api.catalog import Catalog
from deltasql.api.connect import is_new, pending_migrations
from deltasql.cli.main import main
from deltasql.store.migrations import latest_version

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri
    from tests.cli.conftest import Cli

LOOK = (
    *("table list", "query 'SELECT 1'", "head sales", "stats", "watch --once", "mirror status"),
    *("mirror run --once", "verify", "export sales HERE/copy", "ui --port 0", "shell"),
    *("vacuum sales --dry-run", "undo sales --yes"),
)


def test_a_path_with_one_slash_is_told_to_be_a_relative_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["--uri", "deltasql://sqlite/srv/meta.db", "table", "list"])
    assert result.exit_code == 3
    assert f"below {tmp_path}" in result.stderr
    assert "deltasql://sqlite//srv/meta.db" in result.stderr


def test_spark_without_java_is_told_in_a_line(tmp_path: Path) -> None:
    bare = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "deltasql.cli.main", "verify", "--engine", "spark"],
        env={**bare, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("Error: there is no java on the path")
    assert "docs/troubleshooting.md#spark" in done.stderr


@pytest.mark.parametrize("line", LOOK)
def test_a_wrong_address_is_told_and_nothing_is_made_there(line: str, tmp_path: Path) -> None:
    words = shlex.split(line.replace("HERE", str(tmp_path)))
    uri = f"deltasql://sqlite/{tmp_path}/typo.db"
    result = CliRunner().invoke(main, ["--uri", uri, *words])
    assert result.exit_code == 3, result.output
    assert "there is no catalog yet at" in result.stderr
    assert "`deltasql init` makes one" in result.stderr
    assert [*tmp_path.iterdir()] == []


def test_doctor_finds_that_there_is_none(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/typo.db"
    result = CliRunner().invoke(main, ["--uri", uri, "--format", "csv", "doctor"])
    assert (result.exit_code, "there is no catalog yet" in result.stdout) == (1, True)
    assert [*tmp_path.iterdir()] == []


def test_a_database_without_a_catalog_stays_as_it_is(cli: Cli, catalog_uri: DeltaSqlUri) -> None:
    assert "no catalog yet" in cli("table", "list", wanted=3).stderr
    assert is_new(catalog_uri)
    cli("table", "create", "sales", "id:bigint")
    assert not is_new(catalog_uri)
    assert [each["name"] for each in cli.json("table", "list")] == ["sales"]


def test_pending_migrations_are_applied_only_where_that_is_asked_for(
    cli: Cli, catalog_uri: DeltaSqlUri
) -> None:
    with Catalog(catalog_uri, migrate=False) as catalog:
        catalog.store.migrate(up_to=latest_version() - 1)
    assert "`deltasql migrate`" in cli("table", "list", wanted=3).stderr
    assert len(pending_migrations(catalog_uri)) == 1
    cli("migrate", "--yes")
    assert cli.json("table", "list") == []


@pytest.mark.parametrize("load", ["import LAKE/a", "import -r LAKE", "rebuild LAKE"])
def test_the_shell_loads_tables_into_the_catalog_that_it_holds(load: str, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "lake" / "a"), pa.table({"id": [1]}))
    # Nothing but the connection that is held leads to a database in memory.
    uri = "deltasql://duckdb/:memory:"
    script = f"{load.replace('LAKE', str(tmp_path / 'lake'))}\ntable show a\ndoctor a\n"
    result = CliRunner().invoke(main, ["--uri", uri, "shell"], input=script)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "lake" / "a") in result.stdout
