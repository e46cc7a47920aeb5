"""A cursor returns a snapshot, then the changes after it, and resumes at a saved position."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql.api import changes
from deltasql.exceptions import TableChangedError, VersionNotFoundError

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.api.changes import ChangeCursor

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64())])


def write(catalog: Catalog, ids: list[int], mode: str = "append") -> None:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": pa.array(ids, pa.int64())}), mode=mode)


def state(cursor: ChangeCursor, before: Counter[Any] | None = None) -> Counter[Any]:
    """Return the rows of a consumer that applies everything the cursor returns."""
    rows = Counter(before or {})
    for batch in cursor:
        for row in batch.to_pylist():
            rows[row["id"]] += 1 if row["_change_type"] == "insert" else -1
    return +rows


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    catalog.create_table("t", SCHEMA)
    write(catalog, [1, 2])
    write(catalog, [3])
    return catalog


def test_snapshot_and_later_changes_give_the_table(table: Catalog) -> None:
    cursor = table.cursor("t")
    rows = state(cursor)
    assert rows == {1: 1, 2: 1, 3: 1}
    assert state(cursor) == {}
    write(table, [4])
    write(table, [1, 9], mode="overwrite")
    assert state(cursor, rows) == {1: 1, 9: 1}


def test_snapshot_rows_are_inserts_at_the_snapshot_version(table: Catalog) -> None:
    (version,) = {
        version for batch in table.cursor("t") for version in batch["_commit_version"].to_pylist()
    }
    assert version == 2


def test_cursor_from_a_version_returns_no_snapshot(table: Catalog) -> None:
    assert state(table.cursor("t", 2)) == {3: 1}
    assert state(table.cursor("t", 3)) == {}
    cursor = table.cursor("t", 3)
    write(table, [5])
    assert state(cursor) == {5: 1}


def test_cursor_resumes_after_any_position(table: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_PART_BYTES", 1)  # one part per file
    cursor = table.cursor("t")
    write(table, [4])
    write(table, [1, 5], mode="overwrite")
    write(table, [6, 7])
    handed_out = [(batch.to_pylist(), cursor.position) for batch in cursor]
    assert len({position for _, position in handed_out}) == len(handed_out)
    for number, (_, position) in enumerate(handed_out):
        resumed = table.cursor("t", position)
        rest = [row for batch in resumed for row in batch.to_pylist()]
        expected = [row for batch, _ in handed_out[number + 1 :] for row in batch]
        assert Counter(map(_key, rest)) == Counter(map(_key, expected))
        assert resumed.position == handed_out[-1][1]


def test_cursor_stopped_within_a_version_repeats_the_whole_version(
    table: Catalog,
) -> None:
    many = 300_000
    write(table, list(range(many)))
    cursor = table.cursor("t", 3)
    taken = list(islice(iter(cursor), 1))
    assert 0 < taken[0].num_rows < many
    again = sum(batch.num_rows for batch in table.cursor("t", cursor.position))
    assert again == many


def test_position_is_json_and_advances_over_versions_without_rows(table: Catalog) -> None:
    cursor = table.cursor("t")
    assert json.loads(cursor.position)["snapshot_files"] == 0
    state(cursor)
    with table.begin() as tx:
        tx.stage_table("t", [], operation="NOTHING")
    state(cursor)
    assert json.loads(cursor.position) == {"table": table.table("t").row.table_uuid, "version": 3}


def test_columns_and_predicate_apply_to_snapshot_and_changes(table: Catalog) -> None:
    cursor = table.cursor("t", columns=["id"], predicate="id > 1")
    first = [batch.to_pydict() for batch in cursor]
    write(table, [0, 8])
    assert pa.Table.from_batches(list(cursor)).to_pydict() == {"id": [8]}
    assert sorted(number for batch in first for number in batch["id"]) == [2, 3]


def test_position_of_a_replaced_table_is_rejected(table: Catalog) -> None:
    position = table.cursor("t").position
    table.drop("t")
    table.create_table("t", SCHEMA)
    with pytest.raises(TableChangedError, match="an earlier table"):
        table.cursor("t", position)
    with pytest.raises(ValueError, match="'snapshot', a version or the position of a cursor"):
        table.cursor("t", "{}")


def test_snapshot_with_deleted_files_is_rejected(table: Catalog) -> None:
    cursor = table.cursor("t")
    write(table, [9], mode="overwrite")
    live = {Path(table.table("t").location) / path for path in table.table("t").scan().paths()}
    for file in set(Path(table.table("t").location).glob("*.parquet")) - live:
        file.unlink()
    with pytest.raises(VersionNotFoundError, match="start with a snapshot"):
        list(cursor)
    assert state(table.cursor("t")) == {9: 1}


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["id"], row["_change_type"], row["_commit_version"])
