"""Changes to files that are revised: the same rows, rules and errors as when all is written."""

from __future__ import annotations

import json
import math
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.engine import changes, parquet_options, revisable, spool
from deltasql.exceptions import TxnLogError, TxnLogSchemaError
from tests.conftest import new_catalog_uri
from tests.operations.dml import handle, held, make, paths
from tests.operations.test_dml_model import ROWS, SCHEMA, STEP, append, stored, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog import Catalog
    from tests.operations.model import Row

GROUP = 4


@pytest.fixture(autouse=True, scope="module")
def _small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revisable, "_LEAST_BYTES", 0)
        patch.setattr(parquet_options, "_ROW_GROUP", GROUP)
        yield


def numbers(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return pa.table({"id": ids, "v": [i / 2 for i in ids], "s": [f"n{i}" for i in ids]})


def groups(catalog: Catalog) -> dict[str, list[tuple[int, list[int]]]]:
    """Return the rows and the bytes of the columns of each row group, by file."""
    location = catalog.resolve("t").location
    found = {}
    for path in paths(catalog):
        footer = pq.read_metadata(Path(location) / path)
        each = [footer.row_group(number) for number in range(footer.num_row_groups)]
        found[path] = [
            (g.num_rows, [g.column(n).total_compressed_size for n in range(footer.num_columns)])
            for g in each
        ]
    return found


@pytest.mark.parametrize("few_bytes", [changes._FEW_BYTES, -1])  # in memory, or kept by DuckDB
@given(first=ROWS, steps=st.lists(STEP, min_size=1, max_size=5), parts=st.sampled_from([[], ["g"]]))
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_changes_leave_what_the_model_holds(
    few_bytes: int, first: list[Row], steps: list[Any], parts: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(changes, "_FEW_BYTES", few_bytes)
        patch.setattr(spool, "_FIRST_BYTES", few_bytes)
        for uri in new_catalog_uri("sqlite", Path(folder)):
            data_root = {"data_root": f"{folder}/lake"}
            with deltasql.connect(uri, mirror={"mode": "sync"}, table=data_root) as catalog:
                catalog.create_table("t", SCHEMA, partition_by=parts)
                rows = list(first)
                append(catalog, first)
                for step in steps:
                    rows = take(catalog, rows, step)
                    assert stored(catalog) == sorted(rows, key=repr), step


def test_files_are_revised_one_by_one(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10), numbers(10, 20), numbers(20, 30))
    before = groups(catalog)
    metrics = json.loads(table.delete("id = 11 OR id = 25"))
    assert (metrics["num_removed_files"], metrics["num_added_files"]) == (2, 2)
    new = {path: each for path, each in groups(catalog).items() if path not in before}
    assert sorted([rows for rows, _ in each] for each in new.values()) == [[3, 4, 2], [4, 3, 2]]
    assert {row["id"] for row in held(catalog)} == set(range(30)) - {11, 25}


def test_statistics_are_those_of_the_rows_that_are_left(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10))
    table.delete("id < 5")
    table = handle(catalog)
    table.update({"v": "v + 100"}, "id = 9")
    stats = json.loads(handle(catalog).snapshot.scan().arrow["stats"][0].as_py())
    assert stats["numRecords"] == 5
    assert stats["minValues"] == {"id": 5, "v": 2.5, "s": "n5"}
    assert stats["maxValues"] == {"id": 9, "v": 104.5, "s": "n9"}


def test_merge_puts_new_rows_beside_revised_files(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10), numbers(10, 20))
    source = pa.table({"id": [3, 12, 99], "v": [-1.0, -2.0, -3.0], "s": ["a", "b", "c"]})
    with catalog.begin() as tx:
        merger = tx.merge("t", source, "t.id = s.id", "s", "t")
        merger.when_matched_delete("s.id = 12").when_matched_update({"v": "t.v + s.v"})
        metrics = merger.when_not_matched_insert_all().execute()
    assert metrics["num_target_files_added"] == 3
    assert metrics["num_target_files_removed"] == 2
    assert (metrics["num_target_rows_updated"], metrics["num_target_rows_deleted"]) == (1, 1)
    assert (metrics["num_target_rows_copied"], metrics["num_target_rows_inserted"]) == (18, 1)
    rows = {row["id"]: row for row in held(catalog)}
    assert rows[3] == {"id": 3, "v": 0.5, "s": "n3"}
    assert rows[99] == {"id": 99, "v": -3.0, "s": "c"}
    assert rows.keys() == {*range(20), 99} - {12}
    assert len(paths(catalog)) == 3
    assert table.snapshot.version < handle(catalog).snapshot.version


def test_rules_hold_for_new_values(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10), properties={"delta.constraints.low": "v < 10"})
    before = paths(catalog)
    with pytest.raises(TxnLogError, match="Invalid data found"):
        handle(catalog).update({"v": "v * 100"}, "id = 3")
    source = pa.table({"id": [3], "v": [99.0], "s": ["a"]})
    with pytest.raises(TxnLogError, match="Invalid data found"), catalog.begin() as tx:
        tx.merge("t", source, "t.id = s.id", "s", "t").when_matched_update_all().execute()
    assert paths(catalog) == before
    handle(catalog).update({"v": "v + 1"}, "id = 3")
    assert {"id": 3, "v": 2.5, "s": "n3"} in held(catalog)


def test_values_that_are_checked_are_those_that_are_written(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10), properties={"delta.constraints.low": "v < 10"})
    flip = "random() * 20.0 + 0.5"  # about half of all keep the rule
    source = pa.table({"id": [0]})
    for _ in range(12):
        with suppress(TxnLogError):
            handle(catalog).update({"v": flip}, "id = 0")
        with suppress(TxnLogError), catalog.begin() as tx:
            merger = tx.merge("t", source, "t.id = s.id", "s", "t")
            merger.when_matched_update({"v": flip}).execute()
        assert all(row["v"] < 10 for row in held(catalog))
    assert {"id": 0, "v": 0.0, "s": "n0"} not in held(catalog)


def test_merge_that_drops_and_changes_keeps_the_rules(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10), properties={"delta.constraints.low": "v < 10"})
    source = pa.table({"id": [3, 4, 5], "v": [1.0, 99.0, 2.0]})
    with catalog.begin() as tx:
        merger = tx.merge("t", source, "t.id = s.id", "s", "t")
        merger.when_matched_delete("s.id = 4").when_matched_update({"v": "s.v"}).execute()
    rows = {row["id"]: row for row in held(catalog)}
    assert rows.keys() == set(range(10)) - {4}
    assert [rows[3], rows[5], rows[6]] == [
        {"id": 3, "v": 1.0, "s": "n3"},
        {"id": 5, "v": 2.0, "s": "n5"},
        {"id": 6, "v": 3.0, "s": "n6"},
    ]


def test_value_that_does_not_fit_is_named(catalog: Catalog) -> None:
    table = make(catalog, numbers(0, 10))
    with pytest.raises(TxnLogSchemaError, match="Cannot cast string 'n3' to value of Float64"):
        table.update({"v": "s"}, "id = 3")


def test_files_of_an_older_schema_are_written_anew_beside_revised_ones(catalog: Catalog) -> None:
    make(catalog, numbers(0, 10))
    wide = numbers(10, 20).append_column("w", pa.array([1] * 10, pa.int64()))
    with catalog.begin() as tx:
        tx.write("t", wide, schema_mode="merge")
    table = handle(catalog)
    metrics = json.loads(table.update({"w": "7"}, "id % 10 = 3"))
    assert (metrics["num_added_files"], metrics["num_updated_rows"]) == (2, 2)
    rows = {row["id"]: row["w"] for row in held(catalog)}
    assert (rows[3], rows[13], rows[4], rows[14]) == (7, 7, None, 1)
    assert json.loads(handle(catalog).delete("id = 4 OR id = 14"))["num_deleted_rows"] == 2
    assert len(held(catalog)) == 18


def test_change_data_is_written_beside_revised_files(catalog: Catalog) -> None:
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


@pytest.mark.parametrize("most", [spool._FIRST_BYTES, -1])  # looked up, or joined by DuckDB
def test_a_source_with_nan_is_compared_as_everywhere(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(spool, "_FIRST_BYTES", most)
    make(catalog, numbers(0, 6))
    source = pa.table({"id": [1, 2, 3, 9], "v": [0.5, math.nan, 7.0, math.nan], "s": ["n"] * 4})
    with catalog.begin() as tx:
        merger = tx.merge(
            "t", source.to_reader(), "t.id = s.id", source_alias="s", target_alias="t"
        )
        merger.when_matched_update_all(predicate="s.v > 1")
        merger.when_not_matched_insert_all(predicate="s.v > 1").execute()
    changed = {row["id"]: row["v"] for row in held(catalog) if row["s"] == "n"}
    assert sorted(changed) == [2, 3, 9]
    assert changed[3] == 7.0
    assert math.isnan(changed[2])
