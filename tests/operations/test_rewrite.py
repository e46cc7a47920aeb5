"""DML statements rewrite only files with changes, and keep rows, constraints and types."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.engine.parquet import file_shape
from deltasql.exceptions import TxnLogError, TxnLogSchemaError
from tests.operations.dml import handle, make, paths, sorted_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.catalog import Catalog

GROUP = 4


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_shape, "_ROW_GROUP", GROUP)


def numbers(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return pa.table({"id": ids, "v": [i / 2 for i in ids], "s": [f"n{i}" for i in ids]})


def row_groups(catalog: Catalog) -> dict[str, list[int]]:
    """Return the number of rows of each row group, by file."""
    location = catalog.resolve("t").location
    footers = {path: pq.read_metadata(Path(location) / path) for path in paths(catalog)}
    return {
        path: [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        for path, footer in footers.items()
    }


def test_delete_rewrites_only_files_with_matches(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10), numbers(10, 20), numbers(20, 30))
    before = row_groups(catalog)
    metrics = json.loads(table.delete("id = 11 OR id = 25"))
    assert metrics["num_removed_files"] == 2
    after = row_groups(catalog)
    assert len(before.keys() & after.keys()) == 1
    new = [groups for path, groups in after.items() if path not in before]
    assert sum(map(sum, new)) == metrics["num_copied_rows"] == 18
    assert {row["id"] for row in sorted_rows(catalog)} == set(range(30)) - {11, 25}


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("id = 3"),
        lambda table: table.update({"name": "'other'"}, "id = 3"),
        lambda table: table.update({"id": "id + 100"}, "id = 3"),
    ],
    ids=["delete", "update text", "update key"],
)
def test_rewritten_rows_keep_order_types_and_values(
    catalog: Catalog, change: Callable[[Any], object]
) -> None:
    rows = pa.table(
        {
            "name": pa.array([f"n{n}" if n % 4 else None for n in range(10)], pa.string()),
            "id": pa.array(range(10), pa.int64()),
            "small": pa.array(range(10), pa.int16()),
            "x": pa.array([math.nan, -0.0, None, *map(float, range(7))], pa.float64()),
            "price": pa.array([Decimal(n) / 100 for n in range(10)], pa.decimal128(12, 2)),
            "day": pa.array([date(2026, 1, n + 1) for n in range(10)], pa.date32()),
            "at": pa.array(
                [datetime(2026, 1, 1, n, 0, 0, 1, UTC) for n in range(10)],
                pa.timestamp("us", "UTC"),
            ),
            "plain": pa.array(
                [datetime(2026, 1, 1, n, 0, 0, 1) for n in range(10)], pa.timestamp("us")
            ),
            "flag": pa.array([None if n == 2 else n % 3 == 0 for n in range(10)], pa.bool_()),
            "raw": pa.array([bytes([n]) for n in range(10)], pa.binary()),
            "deep": pa.array(
                [None if n == 5 else {"n": n, "tags": ["a"] * n} for n in range(10)],
                pa.struct([("n", pa.int32()), ("tags", pa.list_(pa.string()))]),
            ),
        }
    )
    make(catalog, rows)
    location = Path(catalog.resolve("t").location)
    (old,) = paths(catalog)
    change(handle(catalog))
    (new,) = paths(catalog)
    before, after = (pq.ParquetFile(location / path).read() for path in (old, new))
    assert after.schema == before.schema
    kept = [repr(row) for row in before.to_pylist() if row["id"] != 3]
    assert [repr(row) for row in after.to_pylist() if row["id"] not in (3, 103)] == kept


def test_statistics_of_rewritten_file_match_its_rows(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10))
    table.delete("id < 5")
    table = handle(catalog)
    table.update({"v": "v + 100"}, "id = 9")
    stats = json.loads(handle(catalog).snapshot.scan().arrow["stats"][0].as_py())
    assert stats["numRecords"] == 5
    assert stats["minValues"] == {"id": 5, "v": 2.5, "s": "n5"}
    assert stats["maxValues"] == {"id": 9, "v": 104.5, "s": "n9"}


def test_merge_updates_deletes_and_inserts_in_one_commit(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10), numbers(10, 20))
    source = pa.table({"id": [3, 12, 99], "v": [-1.0, -2.0, -3.0], "s": ["a", "b", "c"]})
    with catalog.begin() as tx:
        merger = tx.merge("t", source, "t.id = s.id", "s", "t")
        merger.when_matched_delete("s.id = 12").when_matched_update({"v": "t.v + s.v"})
        metrics = merger.when_not_matched_insert_all().execute()
    assert metrics["num_target_files_added"] == len(paths(catalog))
    assert metrics["num_target_files_removed"] == 2
    assert (metrics["num_target_rows_updated"], metrics["num_target_rows_deleted"]) == (1, 1)
    assert (metrics["num_target_rows_copied"], metrics["num_target_rows_inserted"]) == (18, 1)
    rows = {row["id"]: row for row in sorted_rows(catalog)}
    assert rows[3] == {"id": 3, "v": 0.5, "s": "n3"}
    assert rows[99] == {"id": 99, "v": -3.0, "s": "c"}
    assert rows.keys() == {*range(20), 99} - {12}
    assert table.snapshot.version < handle(catalog).snapshot.version


def test_constraints_apply_to_new_values(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10), properties={"delta.constraints.low": "v < 10"})
    before = paths(catalog)
    with pytest.raises(TxnLogError, match="Invalid data found"):
        handle(catalog).update({"v": "v * 100"}, "id = 3")
    source = pa.table({"id": [3], "v": [99.0], "s": ["a"]})
    with pytest.raises(TxnLogError, match="Invalid data found"), catalog.begin() as tx:
        tx.merge("t", source, "t.id = s.id", "s", "t").when_matched_update_all().execute()
    assert paths(catalog) == before
    handle(catalog).update({"v": "v + 1"}, "id = 3")
    assert {"id": 3, "v": 2.5, "s": "n3"} in sorted_rows(catalog)


def test_random_values_are_checked_as_written(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10), properties={"delta.constraints.low": "v < 10"})
    flip = "random() * 20.0 + 0.5"  # about half of the values satisfy the constraint
    source = pa.table({"id": [0]})
    for _ in range(12):
        with suppress(TxnLogError):
            handle(catalog).update({"v": flip}, "id = 0")
        with suppress(TxnLogError), catalog.begin() as tx:
            merger = tx.merge("t", source, "t.id = s.id", "s", "t")
            merger.when_matched_update({"v": flip}).execute()
        assert all(row["v"] < 10 for row in sorted_rows(catalog))
    assert {"id": 0, "v": 0.0, "s": "n0"} not in sorted_rows(catalog)


def test_merge_does_not_check_constraints_of_deleted_rows(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10), properties={"delta.constraints.low": "v < 10"})
    source = pa.table({"id": [3, 4, 5], "v": [1.0, 99.0, 2.0]})
    with catalog.begin() as tx:
        merger = tx.merge("t", source, "t.id = s.id", "s", "t")
        merger.when_matched_delete("s.id = 4").when_matched_update({"v": "s.v"}).execute()
    rows = {row["id"]: row for row in sorted_rows(catalog)}
    assert rows.keys() == set(range(10)) - {4}
    assert [rows[3], rows[5], rows[6]] == [
        {"id": 3, "v": 1.0, "s": "n3"},
        {"id": 5, "v": 2.0, "s": "n5"},
        {"id": 6, "v": 3.0, "s": "n6"},
    ]


def test_error_names_value_that_cannot_be_cast(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10))
    with pytest.raises(TxnLogSchemaError, match="Cannot cast string 'n3' to value of Float64"):
        table.update({"v": "s"}, "id = 3")


def test_rewritten_file_of_older_schema_gets_new_column(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10))
    wide = numbers(10, 20).append_column("w", pa.array([1] * 10, pa.int64()))
    with catalog.begin() as tx:
        tx.write("t", wide, schema_mode="merge")
    table = handle(catalog)
    metrics = json.loads(table.update({"w": "7"}, "id % 10 = 3"))
    assert metrics["num_updated_rows"] == 2
    rows = {row["id"]: row["w"] for row in sorted_rows(catalog)}
    assert (rows[3], rows[13], rows[4], rows[14]) == (7, 7, None, 1)
    assert json.loads(handle(catalog).delete("id = 4 OR id = 14"))["num_deleted_rows"] == 2
    assert len(sorted_rows(catalog)) == 18


def test_rewrite_writes_change_data(catalog: Catalog) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    make(catalog, numbers(0, 10), properties=feed)
    handle(catalog).delete("id = 3")
    handle(catalog).update({"v": "0"}, "id = 4")
    location = catalog.resolve("t").location
    catalog.mirror.publish()
    feed_rows = pa.table(deltalake.DeltaTable(location).load_cdf(1).read_all()).to_pylist()
    found = sorted((row["_change_type"], row["id"], row["v"]) for row in feed_rows)
    assert found == [
        ("delete", 3, 1.5),
        ("update_postimage", 4, 0.0),
        ("update_preimage", 4, 2.0),
    ]


def test_nan_in_a_merge_source_is_greater_than_any_number(catalog: Catalog) -> None:
    make(catalog, numbers(0, 6))
    source = pa.table({"id": [1, 2, 3, 9], "v": [0.5, math.nan, 7.0, math.nan], "s": ["n"] * 4})
    with catalog.begin() as tx:
        merger = tx.merge(
            "t", source.to_reader(), "t.id = s.id", source_alias="s", target_alias="t"
        )
        merger.when_matched_update_all(predicate="s.v > 1")
        merger.when_not_matched_insert_all(predicate="s.v > 1").execute()
    changed = {row["id"]: row["v"] for row in sorted_rows(catalog) if row["s"] == "n"}
    assert sorted(changed) == [2, 3, 9]
    assert changed[3] == 7.0
    assert math.isnan(changed[2])
