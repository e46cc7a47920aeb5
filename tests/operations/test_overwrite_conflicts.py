"""Conflicts of overwrites with concurrent writers.

Both transactions read the same version; the first commits, then the second tries to commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction

from deltasql.exceptions import CommitConflictError, ConcurrentAppendError
from deltasql.operations.create import record_create, replace_table
from deltasql.operations.external_writes.actions import stage_actions
from tests.operations.dml import sorted_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction

    Stage = Callable[[MultiTableTransaction, str, str], object]

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("by", pa.string())])
LEVELS = ("Serializable", "WriteSerializable")


def rows(by: str, *ids: int, p: str = "a") -> pa.Table:
    return pa.table({"id": ids, "p": [p] * len(ids), "by": [by] * len(ids)}, SCHEMA)


# Each of these changes the row with id 1 in partition "a".


def append(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.write(table, rows(by, 1))


def overwrite(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.write(table, rows(by, 1), mode="overwrite")


def overwrite_with_nothing(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.write(table, rows(by), mode="overwrite")


def overwrite_partition(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.write(table, rows(by, 1), mode="overwrite", predicate="p = 'a'")


def replace_where(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.write(table, rows(by, 1), mode="overwrite", predicate="id >= 1 AND id < 5")


def overwrite_by_actions(tx: MultiTableTransaction, table: str, by: str) -> None:
    stats = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}'
    add = AddAction(f"{by}.parquet", 9, {"p": "a"}, 0, True, stats)
    stage_actions(tx.target(table), [add], mode="overwrite", schema=SCHEMA, partition_by=["p"])


def restore(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.restore(table, 1)


def create_or_replace(tx: MultiTableTransaction, table: str, by: str) -> None:
    replace_table(tx.target(table), SCHEMA, ["p"], {}, description=by)
    record_create(tx.target(table), "Overwrite", replaces=True)


def delete(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.delete(table, "id = 1")


def update(tx: MultiTableTransaction, table: str, by: str) -> None:
    tx.update(table, {"by": f"'{by}'"}, predicate="id = 1")


def merge_insert(tx: MultiTableTransaction, table: str, by: str) -> None:
    on = "target.id = source.id"
    tx.merge(table, rows(by, 1, 4), on).when_not_matched_insert_all().execute()


def upsert(tx: MultiTableTransaction, table: str, by: str) -> None:
    merger = tx.merge(table, rows(by, 1), "target.id = source.id")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


REPLACING_METADATA: tuple[Stage, ...] = (restore, create_or_replace)
OVERWRITES: tuple[Stage, ...] = (
    overwrite,
    overwrite_with_nothing,
    overwrite_partition,
    replace_where,
    overwrite_by_actions,
    *REPLACING_METADATA,
)
INSERTING: tuple[Stage, ...] = (merge_insert, upsert)
CHANGES: tuple[Stage, ...] = (*INSERTING, delete, update)


def empty(catalog: Catalog, name: str, level: str = LEVELS[1]) -> None:
    """Create a table without rows that had one at version 1."""
    properties = {"delta.isolationLevel": level}
    catalog.create_table(name, SCHEMA, partition_by="p", properties=properties)
    for write in (overwrite, overwrite_with_nothing):
        with catalog.begin() as tx:
            write(tx, name, "before")


def filled(catalog: Catalog, name: str, level: str = LEVELS[1]) -> None:
    """Create a table with the rows 1 to 3 in one file that had other rows at version 1."""
    properties = {"delta.isolationLevel": level}
    catalog.create_table(name, SCHEMA, partition_by="p", properties=properties)
    for ids in ((1, 5), (1, 2, 3)):
        with catalog.begin() as tx:
            tx.write(name, rows("before", *ids), mode="overwrite")


def second_conflicts(catalog: Catalog, table: str, first: Stage, second: Stage) -> bool:
    """Stage both on the same version, commit the first, and return whether the second conflicts."""
    with catalog.begin() as early, catalog.begin() as late:
        for tx in (early, late):
            tx.snapshot(table)
        first(early, table, "first")
        second(late, table, "second")
        early.commit()
        before = catalog.table(table).version()
        try:
            late.commit()
        except CommitConflictError:
            assert catalog.table(table).version() == before
            return True
    return False


@pytest.mark.parametrize("start", [empty, filled])
def test_overwrites_and_changes_of_the_same_rows_conflict(
    catalog: Catalog, start: Callable[[Catalog, str], None]
) -> None:
    """Checked at WriteSerializable: what conflicts there also conflicts at Serializable."""
    changes = CHANGES if start is filled else INSERTING
    # An overwrite of no rows with no rows changes nothing that the second could have read.
    effective = tuple(each for each in OVERWRITES if each is not overwrite_with_nothing)
    first_ones = OVERWRITES if start is filled else effective
    pairs = {(a, b): None for a in first_ones for b in (overwrite, replace_where, *changes)}
    pairs |= {(a, b): None for a in (overwrite, replace_where, *changes) for b in OVERWRITES}
    survived = []
    for number, (first, second) in enumerate(pairs):
        start(catalog, f"t{number}")
        if not second_conflicts(catalog, f"t{number}", first, second):
            survived.append(f"{second.__name__} after {first.__name__}")
    assert survived == []


@pytest.mark.two_databases
@pytest.mark.parametrize("level", LEVELS)
def test_two_overwrites_of_an_empty_table_conflict(catalog: Catalog, level: str) -> None:
    empty(catalog, "t", level)
    assert second_conflicts(catalog, "t", overwrite, overwrite)
    assert [row["by"] for row in sorted_rows(catalog)] == ["first"]


@pytest.mark.two_databases
@pytest.mark.parametrize("level", LEVELS)
def test_merge_after_an_overwrite_of_an_empty_table_does_not_duplicate_a_key(
    catalog: Catalog, level: str
) -> None:
    empty(catalog, "t", level)
    assert second_conflicts(catalog, "t", overwrite, merge_insert)
    assert [row["id"] for row in sorted_rows(catalog)] == [1]


@pytest.mark.two_databases
@pytest.mark.parametrize("level", LEVELS)
def test_overwrite_after_an_insert_only_merge_conflicts(catalog: Catalog, level: str) -> None:
    for name, start in (("t", empty), ("u", filled)):
        start(catalog, name, level)
        with catalog.begin() as tx:
            tx.write(name, rows("before", 7, p="b"))
        assert second_conflicts(catalog, name, merge_insert_elsewhere, overwrite)


def merge_insert_elsewhere(tx: MultiTableTransaction, table: str, by: str) -> None:
    merger = tx.merge(table, rows(by, 8), "target.id = source.id")
    merger.when_not_matched_insert_all().execute()


@pytest.mark.two_databases
@pytest.mark.parametrize("start", [empty, filled])
def test_overwrite_after_a_blind_append_conflicts_when_serializable(
    catalog: Catalog, start: Any
) -> None:
    for number, second in enumerate(OVERWRITES):
        start(catalog, f"t{number}", "Serializable")
        assert second_conflicts(catalog, f"t{number}", append, second), second.__name__


@pytest.mark.two_databases
@pytest.mark.parametrize("start", [empty, filled])
def test_blind_append_is_ordered_after_an_overwrite_when_write_serializable(
    catalog: Catalog, start: Any
) -> None:
    for number, second in enumerate(OVERWRITES):
        name = f"t{number}"
        start(catalog, name)
        conflicts = second_conflicts(catalog, name, append, second)
        # The appended file was written for the old metadata.
        assert conflicts == (second in REPLACING_METADATA), second.__name__
        paths = catalog.table(name).snapshot().file_paths()
        assert len(paths) == (2 if second is not overwrite_with_nothing else 1) or conflicts


@pytest.mark.parametrize("level", LEVELS)
def test_append_does_not_conflict_with_concurrent_overwrite(catalog: Catalog, level: str) -> None:
    for number, first in enumerate(OVERWRITES):
        filled(catalog, f"t{number}", level)
        conflicts = second_conflicts(catalog, f"t{number}", first, append)
        assert conflicts == (first in REPLACING_METADATA), first.__name__


@pytest.mark.every_database
def test_overwrite_conflicts_with_append_that_another_commit_read(
    catalog: Catalog,
) -> None:
    """The copy read the append but not the overwrite, so the overwrite cannot precede the append.

    In the order overwrite, append, copy, the copied row would be the overwrite's.
    """
    filled(catalog, "t")
    late = catalog.begin()
    overwrite_partition(late, "t", "late")
    with catalog.begin() as tx:
        append(tx, "t", "appended")
    with catalog.begin() as tx:
        count = len(tx.read("t", predicate="p = 'a'"))
        tx.write("t", rows(f"counted {count}", 50, p="b"))
    with pytest.raises(ConcurrentAppendError):
        late.commit()


@pytest.mark.every_database
def test_overwrite_does_not_conflict_with_append_that_no_commit_read(catalog: Catalog) -> None:
    filled(catalog, "t")
    late, other = catalog.begin(), catalog.begin()
    overwrite_partition(late, "t", "late")
    other.read("t", predicate="p = 'b'")
    other.write("t", rows("other", 50, p="b"))
    with catalog.begin() as tx:
        append(tx, "t", "appended")
    other.commit()
    late.commit()
    assert {row["by"] for row in sorted_rows(catalog)} == {"late", "other", "appended"}


@pytest.mark.parametrize("level", LEVELS)
def test_overwrites_of_different_partitions_do_not_conflict(catalog: Catalog, level: str) -> None:
    filled(catalog, "t", level)
    with catalog.begin() as first, catalog.begin() as second:
        overwrite_partition(first, "t", "first")
        second.write("t", rows("second", 9, p="b"), mode="overwrite", predicate="p = 'b'")
    assert {row["by"] for row in sorted_rows(catalog)} == {"first", "second"}


def test_overwrite_is_never_a_blind_append(catalog: Catalog) -> None:
    for number, stage in enumerate(OVERWRITES):
        empty(catalog, f"t{number}")
        with catalog.begin() as tx:
            stage(tx, f"t{number}", "only")
        [newest] = catalog.table(f"t{number}").history(1)
        assert newest.info.is_blind_append is False, stage.__name__
