"""The roles of the production guide have exactly the privileges that the guide states."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from tests.store.guide import PASSWORD

import deltasql
from deltasql.api.catalog.connect import open_existing
from deltasql.exceptions import SchemaVersionError, TxnLogStoreError
from deltasql.store.migrations import latest_version

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store.guide import Guide

    from deltasql.api.catalog.catalog import Catalog


def test_each_role_has_the_privileges_of_the_guide(
    guide: Guide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(role: str, **options: Any) -> Catalog:
        return deltasql.connect(guide.uri(role), **options)

    with pytest.raises(TxnLogStoreError, match="permission denied"):
        connect("etl", create=True)  # it may not create tables in the schema
    monkeypatch.setenv("PASSWORD", PASSWORD)
    printed = guide.init(f"{tmp_path}/the lake")
    (root,) = re.findall(r"export DELTASQL_TABLE__DATA_ROOT=(.*)", printed)
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", *shlex.split(root))
    with connect("ops") as catalog:
        assert catalog.health().ok
    with connect("etl") as catalog:
        _use(catalog)
        with (
            catalog.store.session() as session,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            session.script("ALTER TABLE dl_tables ADD COLUMN mine TEXT")
    with connect("analyst") as catalog:
        assert catalog.table("orders").history()
        assert catalog.query("SELECT count(*) AS n FROM orders").read_all().to_pylist() == [
            {"n": 1}
        ]
        assert catalog.inspect.doctor().ok
        with (
            pytest.raises(TxnLogStoreError, match="permission denied"),
            catalog.begin() as tx,
        ):
            tx.write("orders", pa.table({"id": [3]}))
        with pytest.raises(TxnLogStoreError, match="permission denied") as caught:
            catalog.drop("orders")
        assert "the database user may only read" in str(caught.value)
    with connect("ops") as catalog, catalog.begin() as tx:
        tx.write("orders", pa.table({"id": [4]}))
    with open_existing(guide.uri("analyst")) as catalog:
        assert catalog.table("orders").snapshot().totals().num_records == 2


@pytest.mark.parametrize("role", ["etl", "analyst"])
def test_error_of_a_role_that_may_not_upgrade_the_schema_names_the_remedy(
    guide: Guide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setenv("PASSWORD", PASSWORD)
    guide.init(f"{tmp_path}/lake")
    with deltasql.connect(guide.uri("ops")) as catalog, catalog.store.change() as (session, _):
        session.script("DROP TABLE dl_table_locations")
        session.script("DROP TABLE dl_identity_numbers")
        session.script("DROP TABLE dl_audit_log")
        session.script("ALTER TABLE dl_file_stats DROP COLUMN file_bounds")
        session.script("DROP INDEX dl_add_files_outside")
        session.script("DELETE FROM dl_migrations WHERE version >= 4")
    with pytest.raises(SchemaVersionError, match="permission denied") as caught:
        deltasql.connect(guide.uri(role))
    assert (caught.value.found, caught.value.supported) == (3, latest_version())
    assert "`deltasql migrate` as a user who may change the schema" in str(caught.value)
    deltasql.connect(guide.uri("ops")).close()
    with deltasql.connect(guide.uri(role)) as catalog:
        assert catalog.health().ok


def _use(catalog: Catalog) -> None:
    """Do everything that a writer may do, which excludes schema migrations."""
    with catalog.begin() as tx:
        tx.write("orders", pa.table({"id": [1, 2]}))
        tx.write("stock", pa.table({"id": [1]}))
    with catalog.begin() as tx:
        tx.delete("orders", "id = 1")
    catalog.optimize("orders")
    catalog.vacuum("orders", retention_hours=0, enforce_retention_duration=False, dry_run=False)
    catalog.rename("stock", "goods")
    catalog.drop("goods")
    catalog.undrop("goods")
    catalog.mirror.checkpoint("orders")
    assert all(each.ok for each in catalog.mirror.verify())
