"""Mirror status is recorded with relaxed durability, and other writes stay durable."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogStoreError
from deltasql.mirror.publish.status import mark_published, record_published
from deltasql.mirror.publish.targets import OWN

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.store.records import TableRow

SCHEMA = pa.schema([("id", pa.int64())])
FULL, NORMAL = 2, 1


@pytest.fixture
def table(catalog: Catalog) -> TableRow:
    """A table whose versions 0 to 4 are recorded as published."""
    row = catalog.create_table("t", SCHEMA).row
    mark_published(catalog.store, row, 4)
    return row


def published(catalog: Catalog) -> int:
    return catalog.mirror.status("t")[0].published_version


@pytest.mark.parametrize("backend", ["sqlite"])
def test_sqlite_durability_is_restored_after_relaxed_session(catalog: Catalog) -> None:
    def durability(session: Any) -> int:
        return int(session._connection.execute("PRAGMA synchronous").fetchone()[0])

    with catalog.store.relaxed() as session:
        assert durability(session) == NORMAL
    with pytest.raises(RuntimeError), catalog.store.relaxed():
        raise RuntimeError
    with pytest.raises(TxnLogStoreError), catalog.store.relaxed():
        raise sqlite3.OperationalError("disk I/O error")
    assert catalog.store.dialect.usage()["idle"] == 1, "the same connection is lent again"
    with catalog.store.session() as session:
        assert durability(session) == FULL


@pytest.mark.parametrize("backend", ["postgres"])
def test_postgres_durability_is_restored_after_relaxed_session(
    catalog: Catalog, table: TableRow
) -> None:
    def durability(session: Any) -> str:
        return str(session._connection.execute("SHOW synchronous_commit").fetchone()[0])

    with catalog.store.relaxed() as session:
        assert durability(session) == "off"
    with catalog.store.session() as session:
        session.begin()
        session.query(
            "record_published",
            table_id=table.table_id,
            target=OWN,
            after=4,
            first=5,
            last=5,
            now_ms=1,
        )
        assert durability(session) == "off"
        session.rollback()
        assert durability(session) == "on"


def test_published_version_only_advances_without_gaps(catalog: Catalog, table: TableRow) -> None:
    store, table_id = catalog.store, table.table_id
    assert record_published(store, table_id, OWN, after=5, first=6, last=6) is None, "a gap"
    assert record_published(store, table_id, OWN, after=2, first=3, last=4) is None, "an old story"
    assert published(catalog) == 4
    with store.relaxed() as session:
        recorded = session.execute("delete_mirror_statuses", table_id=table_id, target=OWN, first=5)
    assert recorded == 0
    assert record_published(store, table_id, OWN, after=2, first=3, last=6) == 0
    assert published(catalog) == 6
