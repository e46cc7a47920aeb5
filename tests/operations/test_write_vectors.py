"""DELETE, UPDATE and MERGE with `delta.enableDeletionVectors`: data files stay, vectors change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import CommitConflictError, VersionNotFoundError
from deltasql.model.deletion_vector import vector_file
from deltasql.operations import deletion_vectors
from deltasql.store.records import load_dv
from tests.operations.dml import changes, handle, make, ordered, sorted_rows
from tests.oracles.readers import DuckDb

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.deltalake_compat.handle.raw_table import RawTable
    from deltasql.model.actions import DeletionVector
    from deltasql.uri import DeltaSqlUri

ON = {"delta.enableDeletionVectors": "true"}
ROWS = 1000


def table_of(count: int = ROWS, first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + count), "v": pa.array([0] * count, pa.int64())})


@pytest.fixture
def table(catalog: Catalog) -> RawTable:
    """A table with two files of 1,000 rows."""
    return make(catalog, table_of(), table_of(first=ROWS), properties=ON)


def live(catalog: Catalog) -> dict[str, DeletionVector | None]:
    """Return the vectors of the live files by path."""
    found = handle(catalog).snapshot.scan().arrow
    vectors = map(load_dv, found["deletion_vector"].to_pylist())
    return dict(zip(found["path"].to_pylist(), vectors, strict=True))


def stats(catalog: Catalog, path: str) -> dict[str, Any]:
    found = handle(catalog).snapshot.scan().arrow.to_pylist()
    (text,) = (row["stats"] for row in found if row["path"] == path)
    return json.loads(text)


def place(catalog: Catalog) -> Path:
    return Path(catalog.resolve("t").location)


def vector_files(catalog: Catalog) -> set[str]:
    return {path.name for path in place(catalog).rglob("*.bin")}


def ids(catalog: Catalog) -> list[int]:
    return sorted(row["id"] for row in sorted_rows(catalog))


def test_delete_keeps_the_file_and_adds_a_vector(catalog: Catalog, table: RawTable) -> None:
    before, content = live(catalog), {p.name for p in place(catalog).glob("*.parquet")}
    metrics = json.loads(table.delete("id % 10 = 3 AND id < 1000"))
    after = live(catalog)
    assert after.keys() == before.keys()
    assert {p.name for p in place(catalog).glob("*.parquet")} == content
    (marked,) = (path for path, vector in after.items() if vector)
    assert after[marked].cardinality == 100
    assert stats(catalog, marked)["tightBounds"] is False
    assert stats(catalog, marked)["numRecords"] == ROWS
    assert (metrics["num_deleted_rows"], metrics["num_copied_rows"]) == (100, 0)
    assert (metrics["num_added_files"], metrics["num_removed_files"]) == (0, 0)
    assert metrics["num_deletion_vectors_added"] == 1
    assert ids(catalog) == [n for n in range(2 * ROWS) if n % 10 != 3 or n >= ROWS]


def test_small_vectors_are_inline_and_large_ones_are_in_one_file(
    catalog: Catalog, table: RawTable
) -> None:
    table.delete("id IN (1, 5)")
    assert vector_files(catalog) == set()
    handle(catalog).delete("id % 3 = 0")
    vectors = [vector for vector in live(catalog).values() if vector]
    assert {vector_file(vector) for vector in vectors} == vector_files(catalog)
    assert len(vectors) == 2
    assert len(vector_files(catalog)) == 1


def test_row_counts_omit_deleted_rows(
    catalog: Catalog, catalog_uri: DeltaSqlUri, table: RawTable
) -> None:
    table.delete("id IN (1, 2) OR id % 50 = 9")
    assert catalog.table("t").describe()["num_records"] == 2 * ROWS - 42
    opened = deltasql.DeltaTable(catalog_uri.with_table("t").to_string())
    assert opened.count() == 2 * ROWS - 42


def test_many_vectors_are_divided_into_several_files(
    catalog: Catalog, table: RawTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_vectors, "_BYTES_PER_FILE", 1000)
    for _ in range(3):
        with catalog.begin() as tx:
            tx.write("t", table_of())
    handle(catalog).delete("id % 3 = 0")
    assert len(vector_files(catalog)) == 3  # two vectors of 700 bytes fill a file
    assert len(ids(catalog)) == 4 * 666 + 667


def test_second_delete_merges_the_vectors(catalog: Catalog, table: RawTable) -> None:
    table.delete("id < 200")
    table = handle(catalog)
    table.delete("id BETWEEN 150 AND 299")
    (vector,) = (vector for vector in live(catalog).values() if vector)
    assert vector.cardinality == 300
    assert ids(catalog) == list(range(300, 2 * ROWS))


def test_file_with_more_than_half_deleted_is_rewritten(catalog: Catalog, table: RawTable) -> None:
    table.delete("id < 500")
    assert sorted(map(bool, live(catalog).values())) == [False, True]
    metrics = json.loads(handle(catalog).delete("id = 500"))
    assert (metrics["num_added_files"], metrics["num_copied_rows"]) == (1, 499)
    assert not any(live(catalog).values())
    assert ids(catalog) == list(range(501, 2 * ROWS))


def test_file_without_remaining_rows_is_removed(catalog: Catalog, table: RawTable) -> None:
    table.delete("id < 500")
    metrics = json.loads(handle(catalog).delete("id < 1000"))
    assert (metrics["num_added_files"], metrics["num_removed_files"]) == (0, 1)
    assert len(live(catalog)) == 1
    assert ids(catalog) == list(range(ROWS, 2 * ROWS))


def test_update_writes_only_the_updated_rows(catalog: Catalog, table: RawTable) -> None:
    before = live(catalog)
    metrics = json.loads(table.update({"v": "id"}, "id % 100 = 1"))
    after = live(catalog)
    assert before.keys() < after.keys()
    (new,) = after.keys() - before.keys()
    assert stats(catalog, new)["numRecords"] == 20
    assert (metrics["num_updated_rows"], metrics["num_copied_rows"]) == (20, 0)
    assert (metrics["num_added_files"], metrics["num_removed_files"]) == (1, 0)
    expected = [{"id": n, "v": n if n % 100 == 1 else 0} for n in range(2 * ROWS)]
    assert sorted_rows(catalog) == ordered(expected)


def test_update_adds_a_vector_to_one_file_and_rewrites_another(
    catalog: Catalog, table: RawTable
) -> None:
    before = live(catalog)
    metrics = json.loads(table.update({"v": "1"}, "id < 700 OR id = 1500"))
    assert (metrics["num_updated_rows"], metrics["num_copied_rows"]) == (701, 300)
    assert metrics["num_removed_files"] == metrics["num_deletion_vectors_added"] == 1
    assert len(before.keys() & live(catalog).keys()) == 1
    expected = [{"id": n, "v": int(n < 700 or n == 1500)} for n in range(2 * ROWS)]
    assert sorted_rows(catalog) == ordered(expected)


def test_merge_adds_updated_and_deleted_rows_to_vectors(catalog: Catalog, table: RawTable) -> None:
    before = live(catalog)
    source = pa.table({"id": [5, 6, 1500, 9000], "v": [1, -1, 2, 3]})
    with catalog.begin() as tx:
        merger = tx.merge("t", source, "target.id = source.id")
        merger.when_matched_delete("source.v < 0").when_matched_update_all()
        metrics = merger.when_not_matched_insert_all().execute()
    assert before.keys() < live(catalog).keys()
    assert metrics["num_target_files_removed"] == metrics["num_target_rows_copied"] == 0
    assert metrics["num_output_rows"] == 3
    counts = [metrics[f"num_target_rows_{name}"] for name in ("updated", "deleted", "inserted")]
    assert counts == [2, 1, 1]
    assert metrics["num_deletion_vectors_added"] == 2
    expected = {n: 0 for n in range(2 * ROWS) if n != 6} | {5: 1, 1500: 2, 9000: 3}
    assert sorted_rows(catalog) == ordered([{"id": n, "v": v} for n, v in expected.items()])


def test_merge_that_only_deletes_is_committed(catalog: Catalog, table: RawTable) -> None:
    version = table.snapshot.version
    with catalog.begin() as tx:
        tx.merge(
            "t", pa.table({"id": [7]}), "target.id = source.id"
        ).when_matched_delete().execute()
    assert handle(catalog).snapshot.version == version + 1
    assert 7 not in ids(catalog)


def test_merge_adds_rows_without_a_source_row_to_vectors(catalog: Catalog, table: RawTable) -> None:
    before = live(catalog)
    with catalog.begin() as tx:
        merger = tx.merge("t", table_of(1700), "target.id = source.id")
        merger.when_not_matched_by_source_update({"v": "1"}, "target.id < 1900")
        merger.when_not_matched_by_source_delete().when_matched_update({"v": "2"}, "target.id = 4")
        merger.execute()
    assert before.keys() < live(catalog).keys()
    expected = [{"id": n, "v": 2 if n == 4 else int(n >= 1700)} for n in range(1900)]
    assert sorted_rows(catalog) == ordered(expected)


def test_random_condition_loses_no_row(catalog: Catalog, table: RawTable) -> None:
    table.update({"v": "v + 1"}, "random() < 0.3")
    assert ids(catalog) == list(range(2 * ROWS))
    assert any(live(catalog).values())


def test_delete_rewrites_files_if_the_property_is_not_set(catalog: Catalog) -> None:
    table = make(catalog, table_of())
    table.delete("id = 1")
    assert not any(live(catalog).values())
    feature = {"delta.feature.deletionVectors": "supported"}
    catalog.create_table("u", table_of().schema, properties=feature)
    with catalog.begin() as tx:
        tx.write("u", table_of())
        tx.delete("u", "id = 1")
        assert not any(tx.target("u").files()["deletion_vector"].to_pylist())


def test_property_can_be_changed_on_an_existing_table(catalog: Catalog) -> None:
    make(catalog, table_of())
    with catalog.begin() as tx:
        tx.set_table_properties("t", ON)
        tx.delete("t", "id = 1")
    (before,) = live(catalog).items()
    assert before[1]
    catalog.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    handle(catalog).delete("id = 2")
    (after,) = live(catalog).items()
    assert after[0] != before[0]
    assert after[1] is None
    assert ids(catalog) == [0, *range(3, ROWS)]


def test_file_without_row_count_is_rewritten(catalog: Catalog) -> None:
    no_stats = {**ON, "delta.dataSkippingNumIndexedCols": "0"}
    table = make(catalog, table_of(), properties=no_stats)
    table.delete("id = 1")
    assert any(live(catalog).values())  # files always have numRecords
    (path,) = live(catalog)
    with catalog.begin() as tx:
        target = tx.target("t")
        (row,) = target.files().to_pylist()
        add = {k: row[k] for k in ("path", "size", "modification_time")}
        target.remove(target.files())
        tx.stage_table("t", [{"add": _without_stats(add)}])
    handle(catalog).delete("id = 2")
    assert path not in live(catalog)
    assert not any(live(catalog).values())


def _without_stats(add: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": add["path"],
        "size": add["size"],
        "modificationTime": add["modification_time"],
        "partitionValues": {},
        "dataChange": True,
    }


def test_other_readers_see_the_remaining_rows(catalog: Catalog, table: RawTable) -> None:
    duckdb = DuckDb()
    for condition in ("id % 7 = 0", "id < 20", "id % 2 = 0 AND id > 1200", "id = 1999"):
        handle(catalog).delete(condition)
        handle(catalog).update({"v": "v + id"}, condition.replace("id", "(id + 3)"))
        catalog.mirror.publish()
        version = handle(catalog).snapshot.version
        here = catalog.resolve("t").location
        ours = [(row["id"], row["v"]) for row in sorted_rows(catalog)]
        assert sorted(ours) == sorted(
            duckdb.query(
                "SELECT id, v FROM delta_scan($place, version = $version)",
                place=here,
                version=version,
            )
        )
        theirs = pa.table(deltalake.DeltaTable(here).scan())
        assert sorted(ours) == sorted(zip(*theirs.to_pydict().values(), strict=True))


def test_statements_of_one_transaction_write_one_vector_per_file(
    catalog: Catalog, table: RawTable
) -> None:
    before = live(catalog)
    with catalog.begin() as tx:
        tx.delete("t", "id % 3 = 0 AND id < 1000")
        tx.delete("t", "id % 7 = 0 AND id < 1000")
        tx.update("t", {"v": "5"}, predicate="id = 1")
        tx.write("t", table_of(10, first=5000))
        tx.delete("t", "id = 5001")
    assert before.keys() < live(catalog).keys()
    files = {vector_file(vector) for vector in live(catalog).values() if vector}
    assert vector_files(catalog) == files - {None}
    expected = [n for n in range(ROWS) if n % 3 and n % 7] + [*range(ROWS, 2 * ROWS)]
    assert ids(catalog) == [*expected, 5000, *range(5002, 5010)]
    handle(catalog).delete("id < 10")
    catalog.vacuum("t", dry_run=False, retention_hours=0, enforce_retention_duration=False)
    assert ids(catalog) == [n for n in [*expected, 5000, *range(5002, 5010)] if n >= 10]


def test_rollback_deletes_the_file_of_vectors(catalog: Catalog, table: RawTable) -> None:
    tx = catalog.begin()
    tx.delete("t", "id % 3 = 0")
    assert len(vector_files(catalog)) == 1
    tx.rollback()
    assert vector_files(catalog) == set()
    assert len(ids(catalog)) == 2 * ROWS


def test_deletes_of_different_rows_of_a_file_conflict(catalog: Catalog, table: RawTable) -> None:
    theirs = handle(catalog)
    theirs.delete("id = 1")
    with pytest.raises(CommitConflictError):
        table.delete("id = 2")
    assert ids(catalog) == [0, *range(2, 2 * ROWS)]


@pytest.mark.parametrize("merges", [False, True])
def test_change_data_has_the_rows_that_vectors_delete(catalog: Catalog, merges: bool) -> None:
    properties = {**ON, "delta.enableChangeDataFeed": "true"}
    table = make(catalog, table_of(100), properties=properties)
    if merges:
        with catalog.begin() as tx:
            merger = tx.merge("t", pa.table({"id": [4], "v": [9]}), "target.id = source.id")
            merger.when_matched_update_all().execute()
    else:
        table.update({"v": "9"}, "id = 4")
    found = {(row["_change_type"], row["id"], row["v"]) for row in changes(catalog)}
    assert found == {("update_preimage", 4, 0), ("update_postimage", 4, 9)}
    handle(catalog).delete("id IN (4, 5)")
    found = {(row["_change_type"], row["id"], row["v"]) for row in changes(catalog)}
    assert found == {("delete", 4, 9), ("delete", 5, 0)}


def test_changes_of_a_table_without_change_data_list_only_the_deleted_rows(
    catalog: Catalog, table: RawTable
) -> None:
    table.delete("id IN (3, 1003)")
    version = handle(catalog).snapshot.version
    rows = catalog.changes("t", version).read_all().to_pylist()
    assert {(row["_change_type"], row["id"]) for row in rows} == {("delete", 3), ("delete", 1003)}


def test_changes_fail_if_a_vacuum_deleted_their_vectors(catalog: Catalog, table: RawTable) -> None:
    for condition in ("id % 3 = 0", "id % 3 = 1 AND id < 100", "id % 3 = 2 AND id < 100"):
        handle(catalog).delete(condition)
    version = handle(catalog).snapshot.version
    catalog.vacuum("t", dry_run=False, retention_hours=0, enforce_retention_duration=False)
    with pytest.raises(VersionNotFoundError, match="can no longer be read"):
        catalog.changes("t", version - 1).read_all()


def test_restore_brings_back_rows_deleted_by_vectors(catalog: Catalog, table: RawTable) -> None:
    version = table.snapshot.version
    table.delete("id % 3 = 0")
    handle(catalog).delete("id < 100")
    with catalog.begin() as tx:
        tx.restore("t", version + 1)
    assert ids(catalog) == [n for n in range(2 * ROWS) if n % 3]
    with catalog.begin() as tx:
        tx.restore("t", version)
    assert ids(catalog) == list(range(2 * ROWS))


def test_vacuum_keeps_a_vector_file_that_another_live_file_uses(
    catalog: Catalog, table: RawTable
) -> None:
    table.delete("id % 3 = 0")
    (shared,) = vector_files(catalog)
    handle(catalog).delete("id < 900")  # rewrites the first file
    deleted = catalog.vacuum(
        "t", dry_run=False, retention_hours=0, enforce_retention_duration=False, full=True
    )
    assert shared in vector_files(catalog)
    assert shared not in deleted
    handle(catalog).delete("id < 1800")  # rewrites the second file
    catalog.vacuum("t", dry_run=False, retention_hours=0, enforce_retention_duration=False)
    assert vector_files(catalog) == set()
    assert ids(catalog) == [n for n in range(1800, 2 * ROWS) if n % 3]


def test_purge_rewrites_only_files_with_vectors(catalog: Catalog, table: RawTable) -> None:
    before = live(catalog)
    table.delete("id = 1")
    assert catalog.purge("t", dry_run=True)["numFilesRemoved"] == 1
    metrics = catalog.purge("t")
    assert (metrics["numFilesRemoved"], metrics["numFilesAdded"]) == (1, 1)
    assert not any(live(catalog).values())
    assert len(before.keys() & live(catalog).keys()) == 1
    assert ids(catalog) == [0, *range(2, 2 * ROWS)]
    assert catalog.purge("t")["numFilesRemoved"] == 0


def test_optimize_rewrites_large_files_only_if_many_rows_are_deleted(
    catalog: Catalog, table: RawTable
) -> None:
    table.delete("id IN (1, 2, 3) OR id BETWEEN 1000 AND 1100")
    before = live(catalog)
    metrics = catalog.optimize("t", target_size=1000)
    assert metrics["numFilesRemoved"] == 1
    (kept,) = before.keys() & live(catalog).keys()
    assert before[kept].cardinality == 3
    assert ids(catalog) == [0, *range(4, ROWS), *range(1101, 2 * ROWS)]


def test_full_vacuum_deletes_unreferenced_vector_files(catalog: Catalog, table: RawTable) -> None:
    table.delete("id % 3 = 0")
    stray = place(catalog) / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    stray.write_bytes(b"\x01")
    os.utime(stray, (1, 1))
    kept = vector_files(catalog) - {stray.name}
    catalog.vacuum("t", dry_run=False, full=True)
    assert vector_files(catalog) == kept
