"""Commands that do not create a catalog fail if it is missing, and create nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import is_new, pending_migrations
from deltasql.cli.main import main
from deltasql.store.migrations import latest_version
from tests.each import check_each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri
    from tests.cli.conftest import Cli

# Every command that needs a catalog, with arguments.
LOOK = (
    *("checkpoint sales", "cutover sales --yes", "diff sales 0 1", "export sales HERE/copy"),
    *(
        "expire sales --dry-run",
        "files sales",
        "head sales",
        "history sales",
        "migrate --yes",
        "mirror adopt sales --yes",
    ),
    *("mirror checkpoint sales", "mirror duckdb HERE/views.duckdb", "mirror publish sales"),
    *("mirror reject sales --yes", "mirror repair sales", "mirror run --once", "mirror status"),
    *("mirror targets add sales copy HERE/copy", "mirror targets list sales"),
    *("mirror targets remove sales copy", "optimize sales", "query 'SELECT 1'"),
    *("restore sales 0 --yes", "rollback sales --yes", "schema sales", "serve", "shell", "stats"),
    *("sql 'SELECT 1'", "table clone sales copy", "table drop sales --yes", "table fence sales"),
    *("table list", "table rename sales sold", "table unfence sales"),
    *("table set sales delta.appendOnly=true", "table show sales", "table undrop sales"),
    *("ui --port 0", "undo sales --yes", "vacuum sales --dry-run", "verify", "watch --once"),
)
# `doctor` and `config check` report a missing catalog as a finding.
REPORT = {"doctor", "config check"}
CREATE = {"follow", "import", "init", "rebuild", "table create"}
NEED_NONE = {"completion", "config show", "docs"}


def test_error_explains_that_a_path_with_one_slash_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["--uri", "deltasql://sqlite/srv/meta.db", "table", "list"])
    assert result.exit_code == 3
    assert f"relative to {tmp_path}" in result.stderr
    assert "deltasql://sqlite//srv/meta.db" in result.stderr


def test_spark_without_java_is_a_short_error(tmp_path: Path) -> None:
    bare = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "deltasql.cli.main", "verify", "--engine", "spark"],
        env={**bare, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("Error: java was not found on the PATH")
    assert "deltasql docs troubleshooting" in done.stderr


def test_every_command_has_a_case_in_this_file() -> None:
    looking = {
        name for name in commands(main) if any(f"{line} ".startswith(f"{name} ") for line in LOOK)
    }
    assert {*commands(main)} == looking | REPORT | CREATE | NEED_NONE
    assert len(looking) == len(LOOK)


def commands(group: click.Group, above: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}"


def test_command_on_a_missing_catalog_fails_and_creates_nothing(tmp_path: Path) -> None:
    check_each(LOOK, lambda line: check_wrong_address(line, tmp_path))


def check_wrong_address(line: str, folder: Path) -> None:
    arguments = shlex.split(line.replace("HERE", str(folder)))
    uri = f"deltasql://sqlite/{folder}/typo.db"
    result = CliRunner().invoke(main, ["--uri", uri, *arguments])
    assert result.exit_code == 3, result.output
    assert "there is no catalog yet at" in result.stderr
    assert "`deltasql init` creates one" in result.stderr
    assert [*folder.iterdir()] == []


def test_dry_run_and_rejected_command_create_no_catalog(tmp_path: Path) -> None:
    lake, uri = tmp_path / "lake", f"deltasql://sqlite/{tmp_path}/typo.db"
    deltalake.write_deltalake(str(lake / "a"), pa.table({"id": [1]}))
    codes = {
        f"import {lake}/a --dry-run": 0,
        f"import -r {lake} --dry-run": 0,
        f"rebuild {lake} --dry-run": 0,
        f"import {lake}/typo": 3,
        f"follow {lake}/typo": 3,
        "follow sales": 3,
    }
    for line, code in codes.items():
        result = CliRunner().invoke(main, ["--uri", uri, *line.split()])
        assert result.exit_code == code, (line, result.output)
        assert [*tmp_path.iterdir()] == [lake], line


def test_doctor_reports_a_missing_catalog(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/typo.db"
    result = CliRunner().invoke(main, ["--uri", uri, "--format", "csv", "doctor"])
    assert (result.exit_code, "there is no catalog yet" in result.stdout) == (1, True)
    assert [*tmp_path.iterdir()] == []


def test_database_without_a_catalog_is_not_changed(cli: Cli, catalog_uri: DeltaSqlUri) -> None:
    assert "no catalog yet" in cli("table", "list", exit_code=3).stderr
    assert is_new(catalog_uri)
    cli("table", "create", "sales", "id:bigint")
    assert not is_new(catalog_uri)
    assert [each["name"] for each in cli.json("table", "list")] == ["sales"]


def test_only_migrate_applies_pending_migrations(cli: Cli, catalog_uri: DeltaSqlUri) -> None:
    with Catalog(catalog_uri, migrate=False) as catalog:
        catalog.store.migrate(up_to=latest_version() - 1)
    assert "`deltasql migrate`" in cli("table", "list", exit_code=3).stderr
    assert len(pending_migrations(catalog_uri)) == 1
    cli("migrate", "--yes")
    assert cli.json("table", "list") == []


def test_migrate_records_the_location_of_a_table_that_an_older_release_created(
    sales: Cli, catalog_uri: DeltaSqlUri
) -> None:
    with Catalog(catalog_uri) as catalog, catalog.store.change() as (session, _):
        session.script("DELETE FROM dl_table_locations")
    found = "\nthe folders of 1 table that an older release changed"
    assert f"{found} would be recorded" in sales("migrate", "--dry-run").stderr
    assert f"{found} were recorded" in sales("migrate").stderr
    assert "recorded" not in sales("migrate").stderr


@pytest.mark.parametrize("load", ["import LAKE/a", "import -r LAKE", "rebuild LAKE"])
def test_shell_imports_into_its_open_catalog(load: str, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "lake" / "a"), pa.table({"id": [1]}))
    # An in-memory catalog can only be reached through the open connection.
    uri = "deltasql://duckdb/:memory:"
    script = f"{load.replace('LAKE', str(tmp_path / 'lake'))}\ntable show a\ndoctor a\n"
    result = CliRunner().invoke(main, ["--uri", uri, "shell"], input=script)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "lake" / "a") in result.stdout


def test_error_names_a_misspelled_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    monkeypatch.setenv("DELTASQL_URL", "deltasql://sqlite/meta.db")
    result = CliRunner().invoke(main, ["table", "list"])
    assert result.exit_code == 2
    assert "DELTASQL_URL is set, but it is not a variable of deltasql" in result.stderr
    empty = CliRunner().invoke(main, ["--uri", "", "table", "list"])
    assert "The URI of the catalog is empty" in empty.stderr
