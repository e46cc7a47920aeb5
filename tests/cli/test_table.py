"""`deltasql init`, `migrate`, `config` and `table` on every database."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

import deltasql
from deltasql.api.catalog.catalog import Catalog
from deltasql.cli.main import main
from deltasql.store.migrations import latest_version

if TYPE_CHECKING:
    from deltasql.uri import DeltaSqlUri
    from tests.cli.conftest import Cli

WRITE = """
import os, deltasql, pyarrow
with deltasql.begin(os.environ["DELTASQL_URI"]) as tx:
    tx.write("orders", pyarrow.table({"id": [1]}))
"""
SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}],
}


def test_init_creates_a_catalog_once(cli: Cli) -> None:
    first = cli("--format", "json", "init")
    assert json.loads(first.stdout)["created"] is True
    assert "next steps" in first.stderr
    assert cli.json("init")["created"] is False
    assert cli.json("init")["schema_version"] >= 3


def test_init_never_shows_a_password(postgres_uri: DeltaSqlUri) -> None:
    # With trust authentication the server accepts any password.
    uri = replace(postgres_uri, password=postgres_uri.password or "hunter2")
    result = CliRunner().invoke(main, ["init", uri.to_string()])
    assert result.exit_code == 0
    assert f":{uri.password}@" not in result.output
    # The printed steps work: PostgreSQL's library reads the password from this variable.
    password, uri_line = result.stderr.partition("next steps:\n")[2].splitlines()[:2]
    assert password.endswith("export PGPASSWORD")
    assert "***" not in uri_line
    steps = f"PGPASSWORD=x; {uri_line}; {sys.executable} -m deltasql.cli.main table list"
    assert subprocess.run(["bash", "-ec", steps], check=False).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="", marks=pytest.mark.everything("the same steps in another folder")),
        pytest.param(("--data-root", "the lake"), id="--data-root"),
    ],
)
def test_next_steps_printed_by_init_work_on_postgres(
    postgres_uri: DeltaSqlUri,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTASQL_TABLE__DATA_ROOT", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    result = CliRunner().invoke(main, ["init", postgres_uri.to_string(), *arguments])
    assert result.exit_code == 0, result.output
    steps = result.stderr.partition("next steps:\n")[2].splitlines()
    assert steps[-1].split() == ["deltasql", "shell"]
    steps.pop()
    steps.append(f"python -c {shlex.quote(WRITE)}")  # the user's first write
    done = subprocess.run(
        ["bash", "-ec", "\n".join(steps)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with deltasql.connect(postgres_uri) as catalog:
        places = [Path(catalog.table(name).location) for name in ("sales", "orders")]
    root = tmp_path / (arguments[-1] if arguments else "lake") / "default"
    assert places == [root / "sales", root / "orders"]


def test_init_prints_the_uri_with_its_environment_variable(
    postgres_uri: DeltaSqlUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "hunter2")
    uri = replace(postgres_uri, password="PLACE").to_string().replace("PLACE", "${LAKE_PASSWORD}")
    result = CliRunner().invoke(main, ["init", uri])
    assert result.exit_code == 0, result.output
    assert f"export DELTASQL_URI='{uri}'\n" in result.stderr


@pytest.fixture
def old_catalog(catalog_uri: DeltaSqlUri) -> None:
    """Create a catalog with only the first migration applied."""
    with Catalog(catalog_uri, migrate=False) as catalog:
        catalog.store.migrate(up_to=1)


@pytest.mark.usefixtures("old_catalog")
def test_migrate_lists_and_applies_pending_migrations(cli: Cli) -> None:
    pending = cli.json("migrate", "--dry-run")
    assert [each["migration"] for each in pending] == list(range(2, latest_version() + 1))
    assert cli.json("migrate", "--dry-run") == pending
    applied = cli.json("migrate", "--yes")
    assert {each["state"] for each in applied} == {"applied"}
    assert cli.json("migrate", "--dry-run") == []
    assert "up to date" in cli("migrate").stderr


@pytest.mark.usefixtures("old_catalog")
def test_migrate_asks_for_confirmation(cli: Cli) -> None:
    cli("migrate", stdin="n\n", exit_code=1)
    assert cli.json("migrate", "--dry-run") != []


def test_table_show_and_list_print_the_created_table(cli: Cli) -> None:
    cli(
        *("table", "create", "crm.orders", "id:bigint not null", "day:date", "tags:array<string>"),
        *("at:struct<city:string, codes:map<string,int>>", "amount:decimal(10,2)"),
        *(
            "--partition-by",
            "day",
            "--property",
            "delta.appendOnly=true",
            "--description",
            "Orders",
        ),
    )
    found = cli.json("table", "show", "crm.orders")
    types = {each["name"]: each["type"] for each in found["schema"]}
    assert types["id"] == "long"
    assert types["amount"] == "decimal(10,2)"
    assert types["tags"]["elementType"] == "string"
    assert types["at"]["fields"][1]["type"]["valueType"] == "integer"
    assert [each["nullable"] for each in found["schema"]][:2] == [False, True]
    assert found["partition_columns"] == ["day"]
    assert found["properties"]["delta.appendOnly"] == "true"
    assert found["description"] == "Orders"
    assert [each["name"] for each in cli.json("table", "list")] == ["crm.orders"]
    assert cli.json("table", "list", "--namespace", "default") == []
    assert deltalake.DeltaTable(found["location"]).version() == 0
    text = cli("table", "show", "crm.orders").stdout
    assert "id long not null; day date; tags array<string>;" in text


def test_create_reads_a_schema_from_argument_file_and_stdin(cli: Cli, tmp_path: Path) -> None:
    text = json.dumps(SCHEMA)
    (tmp_path / "schema.json").write_text(text)
    cli("table", "create", "a", "--schema", text)
    cli("table", "create", "b", "--schema", str(tmp_path / "schema.json"))
    cli("table", "create", "c", "--schema", "-", stdin=text)
    for name in "abc":
        assert cli.json("table", "show", name)["schema"] == SCHEMA["fields"]
    cli("table", "create", "d", "--schema", "[]", exit_code=2)


def test_creating_an_existing_table_is_rejected_unless_allowed(sales: Cli) -> None:
    assert "exists" in sales("table", "create", "sales", "id:int", exit_code=3).stderr
    sales("table", "create", "sales", "id:int", "--if-not-exists")
    assert sales.json("table", "show", "sales")["version"] == 2


def test_rename_drop_and_undrop_work_by_name(sales: Cli) -> None:
    sales("table", "rename", "sales", "crm.sold")
    assert [each["name"] for each in sales.json("table", "list")] == ["crm.sold"]
    sales("table", "drop", "crm.sold", "--dry-run")
    sales("table", "drop", "crm.sold", stdin="n\n", exit_code=1)
    assert len(sales.json("table", "list")) == 1
    sales("table", "drop", "crm.sold", "--yes")
    assert sales.json("table", "list") == []
    assert [each["name"] for each in sales.json("table", "list", "--dropped")] == ["crm.sold"]
    assert "'crm.sold'" in sales("table", "undrop", "crm.sld", exit_code=2).stderr
    sales("table", "undrop", "crm.sold")
    assert sales.json("head", "crm.sold", "-n", "9") != []


def test_dropped_table_is_listed_by_its_undrop_name(sales: Cli) -> None:
    sales("table", "drop", "sales", "--yes")
    (dropped,) = sales.json("table", "list", "--dropped")
    name = dropped["name"]
    sales("table", "undrop", name)
    assert [each["name"] for each in sales.json("table", "list")] == [name] == ["sales"]


def test_table_is_cloned(sales: Cli) -> None:
    text = sales("table", "clone", "sales", "copy").stdout
    assert "deep clone of sales at version 2" in text
    made = sales.json(
        *("table", "clone", "sales", "link", "--shallow", "--at", "1", "--property", "k=v")
    )
    assert (made["source_version"], made["is_shallow"], made["copied_files"]) == (1, True, 0)
    assert len(sales.json("head", "copy", "-n", "9")) == 4
    assert len(sales.json("head", "link", "-n", "9")) == 2
    sales("table", "clone", "sales", "link", exit_code=3)
    sales("table", "clone", "sales", "link", "--replace", "--at", "2999-01-01", exit_code=0)
    assert sales.json("table", "show", "link")["version"] == 1
    sales("table", "clone", "sales", "other", "--at", "soon", exit_code=2)


def test_table_is_fenced_and_unfenced(sales: Cli) -> None:
    assert "fenced by version 3" in sales("table", "fence", "sales").stdout
    assert sales.json("table", "fence", "sales")["state"] == "was fenced"
    features = sales.json("table", "show", "sales")["protocol"]["writerFeatures"]
    assert "deltasqlAuthority" in features
    found = sales.json("table", "unfence", "sales")
    assert (found["state"], found["version"], found["is_published"]) == ("unfenced", 4, True)


def test_set_changes_properties_in_one_commit(sales: Cli) -> None:
    sales("table", "set", "sales", "delta.appendOnly=true", "--description", "x", "--dry-run")
    assert sales.json("table", "show", "sales")["version"] == 2
    sales("table", "set", "sales", "delta.appendOnly=true", "--description", "x")
    found = sales.json("table", "show", "sales")
    assert (found["version"], found["description"]) == (3, "x")
    assert found["properties"]["delta.appendOnly"] == "true"
    sales("table", "set", "sales", "oops", exit_code=2)


def test_unknown_table_suggests_a_similar_name(sales: Cli) -> None:
    assert "Did you mean sales?" in sales("table", "show", "sale", exit_code=3).stderr


def test_unknown_namespace_suggests_a_similar_name(sales: Cli) -> None:
    sales("table", "create", "crm.sold", "id:bigint")
    assert [each["name"] for each in sales.json("table", "list", "--namespace", "crm")] == [
        "crm.sold"
    ]
    assert "Did you mean 'crm'?" in sales("table", "list", "--namespace", "cmr", exit_code=2).stderr


def test_config_show_names_the_source_and_hides_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTASQL_POOL__MAX_SIZE", "4")
    Path("deltasql.toml").write_text(
        "[catalogs]\nprod = 'deltasql://postgres/ann:hunter2@db/lake'\n"
        "[storage.options]\naws_secret_access_key = 'hunter2'\n"
    )
    result = CliRunner().invoke(main, ["--format", "json", "config", "show"])
    rows = {each["key"]: each for each in json.loads(result.stdout)}
    assert rows["pool.max_size"]["value"] == "4"
    assert "DELTASQL_POOL__MAX_SIZE" in rows["pool.max_size"]["source"]
    assert rows["catalogs.prod"]["source"] == "deltasql.toml"
    assert rows["mirror.mode"]["source"] == "default"
    assert "hunter2" not in result.output
    mirror = CliRunner().invoke(main, ["config", "show", "mirror", "--changed"])
    assert mirror.output == "no setting of mirror is changed: all have their default values\n"
    changed = CliRunner().invoke(main, ["--format", "json", "config", "show", "--changed"])
    assert "mirror.mode" not in changed.stdout


def test_config_check_connects_to_every_catalog(cli: Cli, tmp_path: Path) -> None:
    (row,) = json.loads(cli("--format", "json", "config", "check", exit_code=1).stdout)
    assert "deltasql init" in row["problem"]
    cli("init")
    (row,) = cli.json("config", "check")
    assert (row["ok"], row["tables"]) == (True, 0)


def test_config_check_reports_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    Path("deltasql.toml").write_text("[catalogs]\ndev = 'deltasql://sqlite/dev.db'\n")
    result = CliRunner().invoke(main, ["config", "check"])
    assert result.exit_code == 1
    assert not Path("dev.db").exists()  # config check creates nothing
    Path("deltasql.toml").write_text("[pool]\nmax_sise = 4\n")
    result = CliRunner().invoke(main, ["config", "check"])
    assert result.exit_code == 3
    assert "Did you mean pool.max_size" in result.output


def test_catalog_is_selected_by_option_uri_or_variable(
    sales: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deltasql.toml").write_text(f"[catalogs]\ndev = {json.dumps(sales.uri)}\n")
    for arguments, env in (
        (["--catalog", "dev", "table", "list"], {}),
        (["table", "list", "--catalog", "dev"], {}),
        (["table", "list", "--uri", sales.uri], {}),
        (["table", "list"], {"DELTASQL_URI": sales.uri}),
    ):
        result = CliRunner().invoke(main, [*arguments, "--format", "ndjson"], env=env)
        assert json.loads(result.stdout)["name"] == "sales"
    assert deltasql.connect("dev").exists("sales")


def test_option_allows_nested_locations(cli: Cli, tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    cli("table", "create", "outer", "id:bigint", "--location", str(outer))
    refused = cli("table", "create", "inner", "id:bigint", "--location", str(inner), exit_code=3)
    assert "--allow-nested-location" in refused.output
    arguments = ("--location", str(inner), "--allow-nested-location")
    cli("table", "create", "inner", "id:bigint", *arguments)
    deltalake.write_deltalake(outer / "third", pa.table({"id": [1]}))
    refused = cli("import", str(outer / "third"), exit_code=3)
    assert "--allow-nested-location" in refused.output
    cli("import", str(outer / "third"), "--allow-nested-location")
