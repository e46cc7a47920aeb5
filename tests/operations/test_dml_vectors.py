"""DML without `delta.enableDeletionVectors`, on files that have vectors of another writer.

Deleted rows stay deleted, and rewritten files have no vector.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.store.records import add_from_row
from tests.operations.dml import handle, make, opened, sorted_rows
from tests.oracles.deletion_vectors import inline_vector

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.deltalake_compat.handle.raw_table import RawTable


@pytest.fixture
def table(catalog: Catalog) -> RawTable:
    """A table with rows 0 to 5 in one file; the rows 0 and 3 are deleted by a deletion vector."""
    rows = pa.table({"id": list(range(6)), "v": [0] * 6})
    first = make(catalog, rows, properties={"delta.feature.deletionVectors": "supported"})
    (add,) = (
        add_from_row(row)
        for row in catalog.store.query(
            "adds_between", table_id=first.row.table_id, first_file_id=0, next_file_id=1 << 40
        )
    )
    with catalog.begin() as tx:
        target = tx.target("t")
        target.remove(target.files())
        target.add([replace(add, deletion_vector=inline_vector([0, 3]))])
    return handle(catalog)


def vectors(catalog: Catalog) -> int:
    with opened(catalog) as target:
        return sum(bool(text) for text in target.files()["deletion_vector"].to_pylist())


def test_delete_counts_and_copies_live_rows_only(catalog: Catalog, table: RawTable) -> None:
    metrics = json.loads(table.delete("id <= 1"))
    assert (metrics["num_deleted_rows"], metrics["num_copied_rows"]) == (1, 3)
    assert [row["id"] for row in sorted_rows(catalog)] == [2, 4, 5]
    assert vectors(catalog) == 0


def test_file_whose_live_rows_all_match_is_removed(catalog: Catalog, table: RawTable) -> None:
    metrics = json.loads(table.delete("id >= 0"))
    assert (metrics["num_deleted_rows"], metrics["num_added_files"]) == (4, 0)
    assert sorted_rows(catalog) == []


def test_update_does_not_restore_deleted_rows(catalog: Catalog, table: RawTable) -> None:
    metrics = json.loads(table.update({"v": "1"}, "id < 4"))
    assert (metrics["num_updated_rows"], metrics["num_copied_rows"]) == (2, 2)
    assert [(row["id"], row["v"]) for row in sorted_rows(catalog)] == [
        (1, 1),
        (2, 1),
        (4, 0),
        (5, 0),
    ]


def test_merge_inserts_rows_that_a_deletion_vector_deleted(
    catalog: Catalog, table: RawTable
) -> None:
    with catalog.begin() as tx:
        merger = tx.merge("t", pa.table({"id": [3, 4], "v": [9, 9]}), "target.id = source.id")
        metrics = merger.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (metrics["num_target_rows_updated"], metrics["num_target_rows_inserted"]) == (1, 1)
    assert [row["id"] for row in sorted_rows(catalog)] == [1, 2, 3, 4, 5]
    assert vectors(catalog) == 0
