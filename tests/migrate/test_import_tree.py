"""A folder of tables is imported; an error in one table does not stop the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltasql
from deltasql.exceptions import TxnLogStorageError
from tests.migrate.sources import append, read_ids
from tests.mirror.support import commit_path

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.migrate.importing.report import ImportReport
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Four tables, three of them in subfolders."""
    root = tmp_path / "lake"
    for name in ("events", "crm/customers", "crm/orders", "eu/crm/orders"):
        append(root / name, 1, 2)
        append(root / name, 3)
    (root / "notes.txt").write_text("no table")
    return root


def test_folders_become_namespaces(lake: Path, catalog: Catalog) -> None:
    reports: list[ImportReport] = []
    summary = catalog.import_tables(str(lake), on_table=reports.append)
    assert summary.ok
    assert reports == summary.tables
    names = ["crm.customers", "crm.orders", "eu_crm.orders", "events"]
    assert sorted(each.table or "" for each in summary.tables) == names
    assert sorted(table.full_name for table in catalog.tables()) == names
    assert read_ids(catalog.table("eu_crm.orders").location) == [1, 2, 3]


def test_second_run_imports_only_new_tables_and_commits(lake: Path, catalog: Catalog) -> None:
    catalog.import_tables(str(lake))
    append(lake / "events", 9)
    append(lake / "crm" / "returns", 1)
    states = {each.table: each.state for each in catalog.import_tables(str(lake)).tables}
    assert states == {
        "crm.customers": "up to date",
        "crm.orders": "up to date",
        "crm.returns": "imported",
        "eu_crm.orders": "up to date",
        "events": "continued",
    }


def test_failed_table_does_not_stop_the_import_of_other_tables(
    lake: Path, catalog: Catalog
) -> None:
    commit_path(lake / "crm" / "orders", 1).write_text("{")
    summary = catalog.import_tables(str(lake))
    assert not summary.ok
    (failed,) = [each for each in summary.tables if not each.ok]
    assert failed.source == str(lake / "crm" / "orders")
    assert len(catalog.tables()) == 3
    text = summary.summary()
    assert "4 tables" in text
    assert "1 failed" in text
    assert commit_path(lake, 1).name in text
    plain = json.loads(json.dumps(summary.to_dict()))
    assert not plain["ok"]
    (error,) = [each["error"] for each in plain["tables"] if each["error"]]
    assert (error["type"], error["line"]) == ("LogParseError", 1)


def test_name_clash_in_one_namespace_is_an_error(lake: Path, catalog: Catalog) -> None:
    summary = catalog.import_tables(str(lake), namespace="all")
    (clash,) = [each for each in summary.tables if not each.ok]
    assert type(clash.error).__name__ == "TableExistsError"
    assert len(catalog.tables("all")) == 3


def test_imported_table_keeps_its_name_in_a_recursive_import(lake: Path, catalog: Catalog) -> None:
    catalog.import_table(str(lake / "crm" / "orders"), name="bought", namespace="shop")
    append(lake / "crm" / "orders", 9)
    summary = catalog.import_tables(str(lake))
    assert summary.ok, summary.summary()
    states = {each.table: each.state for each in summary.tables}
    assert states["shop.bought"] == "continued"
    assert "crm.orders" not in states


def test_force_replaces_no_table_of_the_same_tree(lake: Path, catalog: Catalog) -> None:
    append(lake.parent / "elsewhere" / "events", 1)
    catalog.import_table(str(lake.parent / "elsewhere" / "events"), namespace="all")
    for _ in range(2):
        summary = catalog.import_tables(str(lake), namespace="all", force=True)
        (clash,) = [each for each in summary.tables if not each.ok]
        assert type(clash.error).__name__ == "TableExistsError"
        assert "below" in str(clash.error)
        assert catalog.table("all.orders").location == str(lake / "crm" / "orders")
        assert catalog.table("all.events").location == str(lake / "events")


def test_dry_run_of_a_folder_writes_nothing(lake: Path, sqlite_uri: DeltaSqlUri) -> None:
    summary = deltasql.import_tables(str(lake), sqlite_uri, dry_run=True)
    assert {each.state for each in summary.tables} == {"would import"}
    assert not Path(sqlite_uri.database).exists()
    assert deltasql.import_tables(str(lake), sqlite_uri).ok


def test_folder_without_tables_is_an_error(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(TxnLogStorageError, match="no Delta table below"):
        catalog.import_tables(str(tmp_path))
