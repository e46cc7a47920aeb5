"""A read set conflicts with added and removed files by partition values and statistics."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltasql import AddFile, Catalog, ReadSet
from deltasql.exceptions import ConcurrentAppendError, ConcurrentDeleteReadError
from tests.commit.support import audit, commit, file, removal, serializable

A, B = file("a", 0, 9), file("b", 10, 19)


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    """A catalog with table `t`: files a (id 0..9) and b (id 10..19) at version 1."""
    catalog.create_table("t", pa.schema([("id", pa.int64())]))
    commit(catalog, [A, B])
    return catalog


@pytest.fixture
def days(catalog: Catalog) -> Catalog:
    """A catalog with table `t`, partitioned by day, empty at version 0."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    catalog.create_table("t", schema, partition_by=["day"])
    return catalog


def on(day: str | None, path: str, low: int = 0, high: int = 9) -> AddFile:
    return file(path, low, high, partition_values={"day": day})


def reading(catalog: Catalog, predicate: str) -> ReadSet:
    return ReadSet(predicates=(catalog.table("t").snapshot().predicate(predicate),))


@pytest.mark.parametrize(
    ("predicate", "conflicts"),
    [
        ("id > 30", True),
        ("id BETWEEN 45 AND 60", True),
        ("id = 40 OR id = 1000", True),
        ("id IS NULL", False),
        ("id < 40", False),
        ("id > 49", False),
        ("id IN (1, 2, 60)", False),
    ],
)
def test_append_conflicts_when_its_statistics_can_match_the_read(
    table: Catalog, predicate: str, conflicts: bool
) -> None:
    serializable(table)
    reads = reading(table, predicate)
    commit(table, file("theirs", 40, 49))
    check(table, reads, read_version=2, conflicts=conflicts)


def test_append_without_statistics_can_match_any_read(table: Catalog) -> None:
    serializable(table)
    reads = reading(table, "id = 7")
    commit(table, file("theirs", stats=None))
    check(table, reads, read_version=2, conflicts=True)


@pytest.mark.parametrize(
    ("predicate", "conflicts"),
    [
        ("day = 'mon'", True),
        ("day IN ('sun', 'mon') AND id < 5", True),
        ("day IS NOT NULL", True),
        ("day = 'tue'", False),
        ("day = 'mon' AND id > 100", False),
        ("day IS NULL", False),
    ],
)
def test_append_conflicts_when_its_partition_can_match_the_read(
    days: Catalog, predicate: str, conflicts: bool
) -> None:
    serializable(days)
    reads = reading(days, predicate)
    commit(days, on("mon", "theirs"))
    check(days, reads, read_version=1, conflicts=conflicts, add=on("tue", "ours"))


def test_append_to_the_null_partition_conflicts_with_a_read_of_nulls(days: Catalog) -> None:
    serializable(days)
    reads = reading(days, "day IS NULL")
    commit(days, on(None, "theirs"))
    check(days, reads, read_version=1, conflicts=True, add=on(None, "ours"))


def check(
    catalog: Catalog,
    reads: ReadSet,
    *,
    read_version: int,
    conflicts: bool,
    add: AddFile | None = None,
) -> None:
    """Commit an append with this read set and check whether it conflicts."""
    ours = add or file("ours", 1000, 1009)
    if conflicts:
        with pytest.raises(ConcurrentAppendError):
            commit(catalog, ours, reads=reads, read_version=read_version)
    else:
        assert commit(catalog, ours, reads=reads, read_version=read_version) == read_version + 2
    audit(catalog)


@pytest.mark.parametrize(("predicate", "conflicts"), [("id < 5", True), ("id > 12", False)])
def test_delete_conflicts_when_its_file_can_match_the_read(
    table: Catalog, predicate: str, conflicts: bool
) -> None:
    reads = reading(table, predicate)
    commit(table, removal(A))
    if conflicts:
        with pytest.raises(ConcurrentDeleteReadError):
            commit(table, file("derived"), read_version=1, reads=reads)
    else:
        commit(table, file("derived"), read_version=1, reads=reads)
