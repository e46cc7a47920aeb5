"""A handle on an older version or on a dropped table changes no other version or table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction

from deltasql.api.deltalake_compat.handle.raw_table import RawTable
from deltasql.exceptions import CommitConflictError, TableChangedError
from deltasql.operations.create import replace_table
from tests.operations.dml import make, sorted_rows

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

pytestmark = pytest.mark.two_databases

APPLICATION = CommitProperties(app_transactions=[Transaction("app", 7)])


def raw(catalog: Catalog) -> RawTable:
    return RawTable(catalog, catalog.resolve("t"))


def test_handle_of_a_dropped_table_does_not_change_its_successor(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2]}))
    stale = raw(catalog)
    catalog.drop("t")
    make(catalog, pa.table({"id": ["a"], "x": [1.5]}), pa.table({"id": ["b"], "x": [2.5]}))
    for change in (
        lambda: stale.write(pa.table({"id": [3]}), mode="append"),
        lambda: stale.write(pa.table({"id": [3]}), mode="overwrite"),
        lambda: stale.delete("id = 1"),
        lambda: stale.delete(),
    ):
        with pytest.raises(TableChangedError):
            change()
    assert [row["id"] for row in sorted_rows(catalog)] == ["a", "b"]


def test_schema_overwrite_conflicts_with_concurrent_append(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2], "v": [1, 2]}))
    mine, theirs = raw(catalog), raw(catalog)
    theirs.write(pa.table({"id": [3], "v": [3]}), mode="append")
    with pytest.raises(CommitConflictError):
        mine.write(pa.table({"id": ["a"]}), mode="overwrite", schema_mode="overwrite")
    assert [row["id"] for row in sorted_rows(catalog)] == [1, 2, 3]


def test_table_replacement_conflicts_with_concurrent_append(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2]}))
    with catalog.begin() as tx:
        replace_table(tx.target("t"), pa.schema([("id", pa.string())]), None, {})
        with catalog.begin() as other:
            other.write("t", pa.table({"id": [3]}))
        with pytest.raises(CommitConflictError):
            tx.commit()


def test_dml_without_effect_records_no_application_transaction(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2]}))
    table = raw(catalog)
    table.delete("id = 9", commit_properties=APPLICATION)
    table.update({"id": "7"}, "id = 9", commit_properties=APPLICATION)
    assert (table.version(), table.transaction_version("app")) == (0, None)
    nothing = pa.table({"id": pa.array([], pa.int64())})
    table.write(nothing, mode="append", commit_properties=APPLICATION)
    assert (table.version(), table.transaction_version("app")) == (1, 7)
