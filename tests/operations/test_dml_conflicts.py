"""Conflicts of DELETE, UPDATE and MERGE with a concurrent commit, by the rows that were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
)
from tests.operations.dml import handle, make, sorted_rows

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.deltalake_compat.handle.raw_table import RawTable

pytestmark = pytest.mark.every_database

SERIALIZABLE = {"delta.isolationLevel": "Serializable"}
WEAKER = {"delta.isolationLevel": "WriteSerializable"}


def two_files(catalog: Catalog, **options: object) -> RawTable:
    return make(
        catalog,
        pa.table({"id": [1, 2], "v": [0, 0]}),
        pa.table({"id": [11, 12], "v": [0, 0]}),
        **options,
    )


def append(catalog: Catalog, *ids: int) -> None:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": list(ids), "v": [0] * len(ids)}))


def test_deletes_from_one_file_conflict(catalog: Catalog) -> None:
    mine = two_files(catalog)
    theirs = handle(catalog)
    theirs.delete("id = 1")
    with pytest.raises(CommitConflictError):
        mine.delete("id = 2")
    assert {row["id"] for row in sorted_rows(catalog)} == {2, 11, 12}


def test_changes_to_different_files_do_not_conflict(catalog: Catalog) -> None:
    mine, theirs = two_files(catalog), handle(catalog)
    theirs.delete("id < 5")
    mine.update({"v": "1"}, "id > 10")
    assert {(row["id"], row["v"]) for row in sorted_rows(catalog)} == {(11, 1), (12, 1)}


def test_concurrent_delete_of_a_file_that_was_read_conflicts(catalog: Catalog) -> None:
    mine, theirs = two_files(catalog), handle(catalog)
    theirs.delete("id < 10")
    with pytest.raises(ConcurrentDeleteReadError):
        mine.update({"v": "1"}, "id % 11 = 0")


def test_append_matching_the_predicate_conflicts(catalog: Catalog) -> None:
    mine = two_files(catalog, properties=SERIALIZABLE)
    append(catalog, 12)
    with pytest.raises(ConcurrentAppendError):
        mine.delete("id > 11")


def test_append_outside_the_predicate_does_not_conflict(catalog: Catalog) -> None:
    mine = two_files(catalog, properties=SERIALIZABLE)
    append(catalog, 5)
    mine.delete("id > 11")
    assert {row["id"] for row in sorted_rows(catalog)} == {1, 2, 5, 11}


def test_blind_append_does_not_conflict_when_write_serializable(catalog: Catalog) -> None:
    mine = two_files(catalog, properties=WEAKER)
    append(catalog, 12)
    mine.delete("id > 11")
    assert sorted(row["id"] for row in sorted_rows(catalog)) == [1, 2, 11, 12]


@pytest.mark.parametrize(("added", "conflicts"), [(12, True), (30, False)])
def test_merge_conflicts_with_appends_in_the_range_of_its_keys(
    catalog: Catalog, added: int, conflicts: bool
) -> None:
    two_files(catalog, properties=SERIALIZABLE)
    with catalog.begin() as tx:
        source = pa.table({"id": [12, 13], "v": [7, 7]})
        merger = tx.merge("t", source, "target.id = source.id")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
        append(catalog, added)
        if conflicts:
            with pytest.raises(CommitConflictError):
                tx.commit()
        else:
            tx.commit()
    assert len(sorted_rows(catalog)) == (5 if conflicts else 6)


def test_two_merges_that_insert_the_same_key_conflict(catalog: Catalog) -> None:
    two_files(catalog)
    with catalog.begin() as first, catalog.begin() as second:
        for tx in (first, second):
            source = pa.table({"id": [12], "v": [1]})
            merger = tx.merge("t", source, "target.id = source.id")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
        first.commit()
        with pytest.raises(CommitConflictError):
            second.commit()


def test_insert_only_merges_of_the_same_key_conflict(catalog: Catalog) -> None:
    two_files(catalog)
    with catalog.begin() as first, catalog.begin() as second:
        for tx in (first, second):
            merger = tx.merge("t", pa.table({"id": [12, 15], "v": [1, 1]}), "target.id = source.id")
            merger.when_not_matched_insert_all().execute()
        first.commit()
        with pytest.raises(ConcurrentAppendError):
            second.commit()
    assert sorted(row["id"] for row in sorted_rows(catalog)) == [1, 2, 11, 12, 15]


def test_delete_of_everything_conflicts_with_any_change(catalog: Catalog) -> None:
    mine, theirs = two_files(catalog, properties=SERIALIZABLE), handle(catalog)
    theirs.update({"v": "1"}, "id = 1")
    with pytest.raises(CommitConflictError):
        mine.delete()
