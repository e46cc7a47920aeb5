"""DELETE: which files it reads, rewrites and removes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogSchemaError, TxnLogTransactionError
from tests.operations.dml import changes, handle, make, opened, paths, read, sorted_rows

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

FEED = {"delta.enableChangeDataFeed": "true"}


def numbers(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return pa.table({"id": ids, "even": [i % 2 == 0 for i in ids]})


def test_only_files_with_matching_rows_change(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10), numbers(10, 20), numbers(20, 30))
    before = paths(catalog)
    metrics = json.loads(table.delete("id = 11"))
    assert len(before & paths(catalog)) == 2
    assert metrics["num_removed_files"] == metrics["num_added_files"] == 1
    assert (metrics["num_deleted_rows"], metrics["num_copied_rows"]) == (1, 9)
    assert {row["id"] for row in sorted_rows(catalog)} == set(range(30)) - {11}


def test_file_whose_rows_all_match_is_not_rewritten(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10), numbers(10, 20))
    metrics = json.loads(table.delete("id >= 10"))
    assert (metrics["num_removed_files"], metrics["num_added_files"]) == (1, 0)
    assert (metrics["num_deleted_rows"], metrics["num_copied_rows"]) == (10, 0)


def test_delete_by_partition_reads_no_file(catalog: Catalog) -> None:
    rows = pa.table({"p": ["a", "a", "b", None], "x": [1, 2, 3, 4]})
    table = make(catalog, rows, partition_by=["p"])
    with opened(catalog) as target:
        for path in target.files()["path"].to_pylist():
            target.storage.delete(path)
    metrics = json.loads(table.delete("upper(p) = 'A'"))
    assert (metrics["num_removed_files"], metrics["num_deleted_rows"]) == (1, 2)
    assert len(paths(catalog)) == 2


def test_row_with_null_condition_is_not_deleted(catalog: Catalog) -> None:
    table = make(catalog, pa.table({"id": [1, None, 3]}))
    table.delete("id > 0")
    assert sorted_rows(catalog) == [{"id": None}]


@pytest.mark.parametrize("condition", ["null", "even = null"])
def test_comparison_with_null_deletes_no_partition(catalog: Catalog, condition: str) -> None:
    table = make(catalog, numbers(0, 10), partition_by=["even"])
    assert json.loads(table.delete(condition))["num_removed_files"] == 0
    assert len(sorted_rows(catalog)) == 10


def test_delete_without_matches_commits_nothing(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 3))
    metrics = json.loads(table.delete("id = 99"))
    assert metrics["num_deleted_rows"] == metrics["num_removed_files"] == 0
    assert handle(catalog).snapshot.version == table.snapshot.version


def test_delete_without_condition_empties_the_table(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 3), numbers(3, 5))
    metrics = json.loads(table.delete())
    assert (metrics["num_removed_files"], metrics["num_deleted_rows"]) == (2, 5)
    assert sorted_rows(catalog) == []
    assert json.loads(table.delete())["num_removed_files"] == 0


def test_error_names_unknown_column(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 3))
    with pytest.raises(TxnLogSchemaError, match="idd"):
        table.delete("idd = 1")


def test_delete_from_append_only_table_is_rejected(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 3), properties={"delta.appendOnly": "true"})
    with pytest.raises(TxnLogTransactionError, match="append-only"):
        table.delete("id = 1")
    assert len(sorted_rows(catalog)) == 3


def test_delete_sees_earlier_deletes_of_its_transaction(catalog: Catalog) -> None:
    make(catalog, numbers(0, 6))
    with catalog.begin() as tx:
        assert tx.delete("t", "id < 2")["num_deleted_rows"] == 2
        assert tx.delete("t", "id < 3")["num_deleted_rows"] == 1
        assert [row["id"] for row in read(tx.target("t"))] == [3, 4, 5]
    assert [row["id"] for row in sorted_rows(catalog)] == [3, 4, 5]
    assert len(paths(catalog)) == 1


def test_change_data_has_every_deleted_row(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 2), numbers(2, 5), properties=FEED)
    table.delete("id < 3")
    assert changes(catalog) == [
        {"id": i, "even": i % 2 == 0, "_change_type": "delete"} for i in (0, 1, 2)
    ]


def test_delete_of_whole_files_writes_no_change_data(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 2), numbers(2, 5), properties=FEED)
    table.delete("id >= 2")
    assert changes(catalog) == []


def test_change_data_has_all_operations_of_a_transaction(catalog: Catalog) -> None:
    make(catalog, numbers(0, 3), properties=FEED)
    with catalog.begin() as tx:
        tx.write("t", numbers(10, 11))
        tx.delete("t", "id = 1")
    assert [(row["id"], row["_change_type"]) for row in changes(catalog)] == [
        (1, "delete"),
        (10, "insert"),
    ]
