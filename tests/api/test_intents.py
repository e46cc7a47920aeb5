"""Intents identify data files without a commit; no listing is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentDeleteDeleteError,
    MetadataChangedError,
    StoreUnavailableError,
)
from deltasql.phases import hooked

if TYPE_CHECKING:
    from deltasql import Catalog

pytestmark = pytest.mark.two_databases

ROWS = pa.table({"id": [1, 2, 3]})
FUTURE_MS = 2**60


def parquet_files(catalog: Catalog) -> list[Path]:
    return sorted(Path(catalog.table("t").location).rglob("*.parquet"))


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    catalog.create_table("t", ROWS.schema)
    return catalog


def test_commit_deletes_the_intents_of_its_files(table: Catalog) -> None:
    tx = table.begin()
    tx.write("t", ROWS)
    (intent,) = table.store.intents_before(FUTURE_MS)
    assert intent[0] == tx.txn_id
    assert [Path(intent[2])] == parquet_files(table)
    tx.commit()
    assert table.store.intents_before(FUTURE_MS) == []
    assert len(parquet_files(table)) == 1


def test_repeated_appends_delete_their_intents(table: Catalog) -> None:
    for _ in range(3):  # the first append reads the table state, the others reuse it
        with table.begin() as tx:
            tx.write("t", ROWS)
    assert table.store.intents_before(FUTURE_MS) == []
    assert len(parquet_files(table)) == 3
    versions = table.table("t").history()
    assert [each.info.read_version for each in versions] == [2, 1, 0, None]


def test_append_after_a_schema_change_is_a_conflict(table: Catalog) -> None:
    with table.begin() as tx:
        tx.write("t", ROWS)
    late = table.begin()
    late.write("t", ROWS)
    with table.begin() as tx:
        tx.write("t", ROWS.append_column("more", [[1, 2, 3]]), schema_mode="merge")
    with table.begin() as tx:
        tx.write("t", ROWS, schema_mode="merge")
    with pytest.raises(MetadataChangedError):
        late.commit()
    assert table.store.intents_before(FUTURE_MS) == []


def test_rollback_deletes_files_and_intents(table: Catalog) -> None:
    with pytest.raises(RuntimeError, match="no"), table.begin() as tx:
        tx.write("t", ROWS)
        raise RuntimeError("no")
    assert parquet_files(table) == []
    assert table.store.intents_before(FUTURE_MS) == []


def test_conflict_deletes_only_the_files_of_the_failed_transaction(table: Catalog) -> None:
    with table.begin() as tx:
        tx.write("t", ROWS)
    first, second = table.begin(), table.begin()
    first.write("t", ROWS, mode="overwrite")
    second.write("t", ROWS, mode="overwrite")
    first.commit()
    before = parquet_files(table)
    with pytest.raises(CommitConflictError) as caught:
        second.commit()
    assert isinstance(caught.value, ConcurrentDeleteDeleteError)
    assert len(before) - len(parquet_files(table)) == 1
    live = table.table("t").snapshot().scan().paths()
    assert len(live) == 1
    assert (Path(table.table("t").location) / live[0]).exists()


def test_failed_commit_deletes_its_files_without_intents(table: Catalog) -> None:
    """The failed commit deletes its files, because without intents a vacuum would not find them."""

    def gone(point: str) -> None:
        if point == "locked":
            raise StoreUnavailableError("the database is gone")

    tx = table.begin()
    tx.write("t", ROWS)
    table.store.clear_intents(tx.txn_id)
    with hooked(gone), pytest.raises(StoreUnavailableError):
        tx.commit()
    assert parquet_files(table) == []
    assert table.table("t").version() == 0
