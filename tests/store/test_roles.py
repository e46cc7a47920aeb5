"""The roles of the guide for production: each may do what the guide says, and no more."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest

import deltasql
from deltasql.api.connect import open_existing
from deltasql.exceptions import TxnLogStoreError
from deltasql.uri import DeltaSqlUri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.api.catalog import Catalog

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "production.md"
NAMES = ("lake_admin", "lake_writer", "lake_reader", "ops", "etl", "analyst", "lake")


@pytest.fixture
def uri_of() -> Iterator[Callable[[str], DeltaSqlUri]]:
    """The catalog's URI for a role of the guide; roles and schema have names of their own here."""
    (block,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    suffix = uuid.uuid4().hex[:12]
    words = "|".join(NAMES)
    script = re.sub(rf"\b({words})\b", rf"\1_{suffix}", block)
    with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as connection:
        connection.execute(script)
        for name in ("ops", "etl", "analyst"):
            connection.execute(f"ALTER ROLE {name}_{suffix} PASSWORD 'hunter2'")
        info = connection.info
        base = DeltaSqlUri(
            backend="postgres",
            database=info.dbname,
            password="hunter2",
            host=info.host,
            port=info.port,
            search_path=f"lake_{suffix}",
        )
        try:
            yield lambda name: replace(base, user=f"{name}_{suffix}")
        finally:
            connection.execute(f"DROP SCHEMA lake_{suffix} CASCADE")
            for name in NAMES[:-1]:
                connection.execute(f"DROP OWNED BY {name}_{suffix}")
            for name in reversed(NAMES[:-1]):
                connection.execute(f"DROP ROLE {name}_{suffix}")


def test_each_role_may_do_what_the_guide_says(
    uri_of: Callable[[str], DeltaSqlUri], tmp_path: Path
) -> None:
    def connect(role: str) -> Catalog:
        return deltasql.connect(uri_of(role), table={"data_root": str(tmp_path)})

    with pytest.raises(TxnLogStoreError, match="permission denied"):
        connect("etl")  # it may not make the tables
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
        with pytest.raises(TxnLogStoreError, match="permission denied"):
            catalog.drop("orders")
    with connect("ops") as catalog, catalog.begin() as tx:
        tx.write("orders", pa.table({"id": [4]}))
    with open_existing(uri_of("analyst")) as catalog:
        assert catalog.table("orders").snapshot().totals().num_records == 2


def _use(catalog: Catalog) -> None:
    """Do what a writer does: everything but changes of the schema."""
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
