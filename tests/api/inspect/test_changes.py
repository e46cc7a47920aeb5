"""Changes between versions (columns, properties, files and rows), and published versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import TxnLogMirrorError, VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})


def write(catalog: Catalog, rows: pa.Table, **options: Any) -> int:
    with catalog.begin() as tx:
        tx.write("sales", rows, **options)
    return tx.versions["sales"]


@pytest.fixture
def mirrored(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that publishes, with a table `sales` of one version."""
    with deltasql.connect(catalog_uri, table={"data_root": str(tmp_path / "lake")}) as opened:
        write(opened, ROWS)
        yield opened


def by_id(rows: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_schema_changes_lists_columns_properties_and_protocol(catalog: Catalog) -> None:
    write(catalog, ROWS)
    with catalog.begin() as tx:
        tx.set_table_properties("sales", {"delta.columnMapping.mode": "name"})
    with catalog.begin() as tx:
        tx.rename_column("sales", "name", "title")
    with catalog.begin() as tx:
        tx.add_columns("sales", pa.schema([("price", pa.float64())]))
    with catalog.begin() as tx:
        tx.drop_columns("sales", ["title"])
    found = {each.version: each for each in catalog.inspect.schema_changes("sales").items}
    assert sorted(found) == [0, 1, 2, 3, 4]
    reported = {
        version: [
            (c.kind, c.column, c.before, c.after) for c in each.changes if c.kind != "metadata"
        ]
        for version, each in found.items()
    }
    assert reported[0] == [("added", "id", None, "long"), ("added", "name", None, "string")]
    assert reported[1] == []
    assert reported[2] == [("renamed", "title", "name", "title")]
    assert reported[3] == [("added", "price", None, "double")]
    assert reported[4] == [("dropped", "title", "string", None)]
    keys = {each.key: each.after for each in found[1].properties}
    assert keys["delta.columnMapping.mode"] == "name"
    assert "minReaderVersion" in {each.key for each in found[1].protocol}
    assert [each.name for each in catalog.inspect.schema("sales")] == ["id", "price"]
    assert [each.name for each in catalog.inspect.schema("sales", version=0)] == ["id", "name"]


def test_schema_changes_are_paged(catalog: Catalog) -> None:
    write(catalog, ROWS)
    for number in range(3):
        with catalog.begin() as tx:
            tx.set_table_properties("sales", {"delta.checkpointInterval": str(number + 1)})
    versions, cursor = [], None
    while True:
        page = catalog.inspect.schema_changes("sales", limit=1, cursor=cursor)
        versions += [each.version for each in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert versions == [3, 2, 1, 0]
    (change,) = catalog.inspect.schema_changes("sales", limit=1).items[0].properties
    assert (change.key, change.before, change.after) == ("delta.checkpointInterval", "2", "3")


def test_diff_reports_files_and_rows_in_both_directions(catalog: Catalog) -> None:
    write(catalog, ROWS)
    write(catalog, pa.table({"id": pa.array([4], pa.int64()), "name": ["d"]}))
    with catalog.begin() as tx:
        tx.delete("sales", "id = 2")
    forth = catalog.inspect.diff("sales", 0, 2, rows=True)
    assert (forth.commits, forth.added.files, forth.removed.files) == (2, 2, 1)
    assert (forth.added.rows, forth.removed.rows) == (3, 3)
    assert {each.version for each in forth.added_files} == {1, 2}
    assert [each.version for each in forth.removed_files] == [2]
    assert forth.rows is not None
    # Rows 1 and 3 were written again, which changes nothing.
    assert by_id(forth.rows.inserted) == [{"id": 4, "name": "d"}]
    assert by_id(forth.rows.deleted) == [{"id": 2, "name": "b"}]
    back = catalog.inspect.diff("sales", 2, 0, rows=True)
    assert (back.added, back.removed) == (forth.removed, forth.added)
    assert back.rows is not None
    assert (back.rows.inserted, back.rows.deleted) == (forth.rows.deleted, forth.rows.inserted)
    same = catalog.inspect.diff("sales", 1, 1, rows=True)
    assert (same.added.files, same.removed.files) == (0, 0)
    assert same.rows is not None
    assert same.rows.inserted == same.rows.deleted == ()


def test_diff_counts_equal_rows_and_stops_at_its_limits(catalog: Catalog) -> None:
    write(catalog, ROWS)
    write(catalog, ROWS)
    write(catalog, ROWS)
    found = catalog.inspect.diff("sales", 0, 2, files_limit=1, rows=True, rows_limit=4)
    assert (len(found.added_files), found.more_files, found.added.files) == (1, True, 2)
    assert found.rows is not None
    assert (len(found.rows.inserted), found.rows.more) == (4, True)
    whole = catalog.inspect.diff("sales", 0, 2, rows=True).rows
    assert whole is not None
    assert [row["id"] for row in by_id(whole.inserted)] == [1, 1, 2, 2, 3, 3]
    assert not whole.more


def test_diff_of_different_schemas_compares_common_columns(catalog: Catalog) -> None:
    write(catalog, ROWS)
    more = pa.table({"id": pa.array([9], pa.int64()), "name": ["z"], "price": [1.5]})
    write(catalog, more, schema_mode="merge")
    found = catalog.inspect.diff("sales", 0, 1, rows=True)
    assert [(each.kind, each.column) for each in found.schema] == [("added", "price")]
    assert found.rows is not None
    assert found.rows.columns == ("id", "name")
    assert found.rows.inserted == ({"id": 9, "name": "z"},)
    assert catalog.inspect.diff("sales", 1, 0).schema[0].kind == "dropped"
    with pytest.raises(VersionNotFoundError):
        catalog.inspect.diff("sales", 0, 7)


def test_mirror_versions_lists_failed_versions_first(mirrored: Catalog, tmp_path: Path) -> None:
    write(mirrored, ROWS)
    log = next((tmp_path / "lake").rglob("_delta_log"))
    (log / f"{2:020d}.json").write_text('{"commitInfo":{"operation":"FOREIGN"}}')
    write(mirrored, ROWS)
    with deltasql.connect(mirrored.uri, mirror={"mode": "off"}) as silent:
        write(silent, ROWS)
    inspect = mirrored.inspect
    found, cursor = [], None
    while True:
        page = inspect.mirror_versions("sales", limit=1, cursor=cursor)
        found += [(each.version, each.status) for each in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert found == [(2, "FAILED"), (3, "PENDING"), (1, "COMPLETE"), (0, "COMPLETE")]
    assert [each.version for each in inspect.mirror_versions("sales", only="FAILED").items] == [2]
    assert [each.version for each in inspect.mirror_versions("sales", only="PENDING").items] == [3]
    done = inspect.mirror_versions("sales", only="COMPLETE").items
    assert [each.version for each in done] == [1, 0]
    assert inspect.mirror_versions("sales", only="IN_FLIGHT").items == ()
    assert inspect.table("sales").mirror_state == "QUARANTINED"
    with pytest.raises(TxnLogMirrorError):
        inspect.retry("sales")
    (log / f"{2:020d}.json").unlink()
    assert inspect.retry("sales") == 2
    assert inspect.table("sales").pending == 0
    assert inspect.mirror_versions("sales", only="FAILED").items == ()


def test_advice_predicts_the_files_that_optimize_and_vacuum_change(catalog: Catalog) -> None:
    for _ in range(12):
        write(catalog, ROWS)
    found = catalog.inspect.advice("sales")
    assert (found.optimize.small_files, found.optimize.rewritten_files) == (12, 12)
    assert (found.optimize.new_files, found.optimize.worthwhile) == (1, True)
    assert (found.vacuum.files, found.vacuum.last_vacuum, found.vacuum.overdue) == (0, None, False)
    assert len(found.suggestions) == 1
    metrics = catalog.optimize("sales")
    assert metrics["numFilesRemoved"] == found.optimize.rewritten_files
    assert metrics["numFilesAdded"] == found.optimize.new_files
    with catalog.begin() as tx:
        tx.set_table_properties(
            "sales", {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
        )
    after = catalog.inspect.advice("sales")
    assert not after.optimize.worthwhile
    assert (after.vacuum.files, after.vacuum.overdue) == (12, True)
    assert sorted(catalog.vacuum("sales", retention_hours=0, dry_run=True)) != []
    assert len(catalog.vacuum("sales", retention_hours=0, dry_run=False)) == after.vacuum.files
    done = catalog.inspect.advice("sales").vacuum
    assert (done.files, done.overdue) == (0, False)
    assert done.last_vacuum is not None


def test_retry_publishes_to_the_chosen_target_only(mirrored: Catalog, tmp_path: Path) -> None:
    write(mirrored, ROWS)
    mirrored.mirror.add_target("sales", "second", str(tmp_path / "second"))
    with deltasql.connect(mirrored.uri, mirror={"mode": "off"}) as silent:
        write(silent, ROWS)
    reported: list[tuple[int, int]] = []
    behind = {each.target: each.pending for each in mirrored.inspect.mirror("sales")}
    assert behind["table"] == 1
    published = mirrored.inspect.retry(
        "sales", target="second", on_progress=lambda each: reported.append((each.done, each.total))
    )
    assert published == behind["second"] > 0
    assert reported[-1] == (published, published)
    left = {each.target: each.pending for each in mirrored.inspect.mirror("sales")}
    assert left == {"table": 1, "second": 0}
