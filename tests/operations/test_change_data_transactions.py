"""The change data of a transaction with several operations on a table covers every changed row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogTransactionError
from tests.operations.dml import changes, make, sorted_rows

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

pytestmark = pytest.mark.two_databases

FEED = {"delta.enableChangeDataFeed": "true"}


def recorded_changes(catalog: Catalog) -> list[tuple[str, Any]]:
    return sorted((row["_change_type"], row["id"]) for row in changes(catalog))


def test_rows_appended_after_a_delete_are_in_the_change_data(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2, 3]}), properties=FEED)
    with catalog.begin() as tx:
        tx.delete("t", "id = 1")
        tx.write("t", pa.table({"id": [4, 5]}))
    assert recorded_changes(catalog) == [("delete", 1), ("insert", 4), ("insert", 5)]


def test_rows_overwritten_after_a_delete_are_in_the_change_data(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2, 3]}), properties=FEED)
    with catalog.begin() as tx:
        tx.delete("t", "id = 1")
        tx.write("t", pa.table({"id": [4]}), mode="overwrite")
    assert recorded_changes(catalog) == [("delete", 1), ("delete", 2), ("delete", 3), ("insert", 4)]


def test_change_data_of_write_merge_and_delete_gives_the_resulting_rows(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2, 3], "v": [0, 0, 0]}), properties=FEED)
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": [4], "v": [0]}))
        source = pa.table({"id": [3, 4, 5], "v": [1, 1, 1]})
        merger = tx.merge("t", source, "target.id = source.id")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
        tx.delete("t", "id >= 4")
        tx.write("t", pa.table({"id": [9], "v": [9]}), mode="overwrite", predicate="id = 9")
    rows = {(1, 0): 1, (2, 0): 1, (3, 0): 1}
    for row in changes(catalog):
        added = row["_change_type"] in ("insert", "update_postimage")
        key = (row["id"], row["v"])
        rows[key] = rows.get(key, 0) + (1 if added else -1)
    left = {key: count for key, count in rows.items() if count}
    assert left == {(1, 0): 1, (2, 0): 1, (3, 1): 1, (9, 9): 1}
    assert {(row["id"], row["v"]) for row in sorted_rows(catalog)} == set(left)


def test_delete_after_optimize_in_one_transaction_is_a_data_change(catalog: Catalog) -> None:
    rows = pa.table({"p": ["a", "b"], "id": [1, 2]})
    properties = {**FEED, "delta.appendOnly": "true"}
    make(catalog, rows, rows, partition_by=["p"], properties=properties)
    with catalog.begin() as tx:
        tx.optimize("t")
        tx.delete("t", "p = 'a'")
        staged = tx.target("t").staged
        assert all(each.data_change for each in (*staged.adds, *staged.removes))
        with pytest.raises(TxnLogTransactionError, match="append"):
            tx.commit()
    assert len(sorted_rows(catalog)) == 4
