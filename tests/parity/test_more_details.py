"""Details that programs depend on: names, partition values, error messages, column order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import Field, Schema
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from tests.parity.lakes import Lake, column, rows, sample


def test_merge_fills_in_a_generated_constant(lake: Lake) -> None:
    fixed = Field("y", PrimitiveType("integer"), metadata={"delta.generationExpression": "5"})
    table = lake.DeltaTable.create(lake.uri("t"), Schema([Field("id", "long"), fixed]))
    merger = table.merge(pa.table({"id": [7]}), "s.id = t.id", "s", "t")
    merger.when_not_matched_insert({"id": "s.id"}).execute()
    assert rows(table) == [{"id": 7, "y": 5}]


@pytest.mark.parametrize(
    "filters",
    [[("y", "=", "abc")], [[("y", "=", "2020")], [("y", "in", ["1", "x"])]], [("y", "<", 2020.5)]],
    ids=str,
)
def test_filter_value_of_the_wrong_type_is_rejected(lake: Lake, filters: Any) -> None:
    data = pa.table({"id": [1, 2], "y": [2020, 2021]})
    table = lake.make("t", data, partition_by="y")
    for call in (table.file_uris, table.partitions):
        with pytest.raises(DeltaError, match=r"Failed to parse value '.*' as 'long'"):
            call(file_pruning_predicate=filters)
    with pytest.raises(DeltaError, match="Failed to parse value"):
        table.to_pyarrow_dataset(file_pruning_predicate=filters)


def test_invalid_filter_operator_error_shows_the_filter(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by="p")
    with pytest.raises(DeltaError, match=r'Invalid partition filter found: \("p", "like", "a"\)'):
        table.file_uris(file_pruning_predicate=[("p", "like", "a")])


@pytest.mark.parametrize(
    ("kind", "texts"),
    [(pa.float64(), ["-2", "0.1", "100000000000000000000", "3"]), (pa.float32(), ["0.1", "3"])],
    ids=str,
)
def test_float_partition_values_are_formatted_like_deltalake(
    lake: Lake, kind: pa.DataType, texts: list[str]
) -> None:
    values = pa.array([float(text) for text in texts], kind)
    table = lake.make("t", pa.table({"id": range(len(texts)), "f": values}), partition_by="f")
    assert sorted(each["f"] for each in table.partitions()) == texts
    assert column(table, "f") == sorted(values.to_pylist())
    assert (lake.folder(table) / "f=3").is_dir()


def test_restore_to_a_missing_version_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="LogSegment end version 0 not the same as the specified"):
        table.restore(9)


def test_history_records_create_or_replace(lake: Lake) -> None:
    schema = Schema([Field("id", "long")])
    table = lake.DeltaTable.create(lake.uri("t"), schema, mode="overwrite")
    assert table.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE"


def test_wrong_argument_types_raise_type_error(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        table.vacuum(1.5)
    builder = lake.QueryBuilder()
    with pytest.raises(TypeError, match="not an instance of 'str'"):
        builder.register(5, table)
    found = pa.table(builder.register("t", table).execute("SELECT count(*) AS n FROM t"))
    assert found["n"].to_pylist() == [3]


def test_lists_of_null_type_are_read_back(lake: Lake) -> None:
    lists = pa.array([[None], [], None], pa.list_(pa.null()))
    table = lake.make("t", pa.table({"id": [1, 2, 3], "l": lists}))
    found = pa.table(table.scan()).sort_by("id")
    assert found["l"].type.value_type == pa.null()
    assert found["l"].to_pylist() == table.to_pyarrow_table().sort_by("id")["l"].to_pylist()


_TYPED = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "d": pa.array([1, 18262, None], pa.date32()),
        "s": ["1", "b", "2020-01-01"],
        "l": [[1], [2, 3], None],
    }
)


@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("d = cast(1 as date)", [2, 3]),
        ("cast(d as bigint) = id", [2, 3]),
        ("s = 1", [2, 3]),
        ("s > 5 or s in (1)", [3]),
        ("s ~ '^b'", [1, 3]),
        ("s !~ 'b'", [2]),
        ("s ~* 'B'", [1, 3]),
        ("regexp_match(s, 'b') is not null", [1, 3]),
        ("cardinality(l) = 2", [1, 3]),
        ("arrow_cast(id, 'Utf8') = '3'", [1, 2]),
    ],
)
def test_predicates_accept_datafusion_syntax(lake: Lake, predicate: str, left: list[int]) -> None:
    table = lake.make("t", _TYPED)
    table.delete(predicate)
    assert column(table, "id") == left


def test_map_function_builds_a_map_from_lists(lake: Lake) -> None:
    maps = pa.array([None, None], pa.map_(pa.string(), pa.int64()))
    table = lake.make("t", pa.table({"id": [1, 2], "m": maps}))
    table.update({"m": "map(['a', 'b'], [1, 2])"}, predicate="id = 1")
    assert [row["m"] for row in rows(table)] == [[("a", 1), ("b", 2)], None]


@pytest.mark.parametrize("part", [None, "p"])
def test_non_boolean_column_is_rejected_as_predicate(lake: Lake, part: str | None) -> None:
    table = lake.make("t", sample(), partition_by=part)
    for call in (lambda: table.delete("id"), lambda: table.update({"v": "0"}, predicate="id")):
        with pytest.raises(DeltaError, match="non-boolean"):
            call()
    assert table.version() == 0


@pytest.mark.parametrize(
    ("predicate", "recorded"),
    [
        ("s.id = t.id AND t.p = 'b'", "p = 'b'"),
        ("s.id = t.id AND t.id BETWEEN 1 AND 2 AND s.v > 0", "id >= 1 AND id <= 2"),
        ("s.id = t.id AND t.p IN ('a', 'b')", "p = 'a' OR p = 'b'"),
        ("s.id = t.id AND t.p LIKE 'b%'", None),
        ("s.id = t.id", None),
    ],
)
def test_history_of_a_merge_has_the_predicate_on_the_target(
    lake: Lake, predicate: str, recorded: str | None
) -> None:
    table = lake.make("t", sample())
    merger = table.merge(sample(), predicate, "s", "t").when_matched_update_all()
    merger.when_not_matched_insert_all().execute()
    assert table.history(1)[0]["operationParameters"].get("predicate") == recorded


def test_merge_that_deletes_from_an_append_only_table_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration={"delta.appendOnly": "true"})
    with pytest.raises(DeltaError, match="Remove action with data change but Delta table is"):
        table.merge(sample(), "s.id = t.id", "s", "t").when_matched_delete().execute()


@pytest.mark.parametrize("how", ["address", "handle", "merge"])
def test_schema_evolution_moves_partition_columns_behind_old_columns(lake: Lake, how: str) -> None:
    data = pa.table({"a": ["1"], "x": [1], "b": ["2"], "y": [2]})
    table = lake.make("t", data, partition_by=["b", "a"])
    more = data.append_column("n", pa.array([5]))
    if how == "merge":
        merger = table.merge(more, "s.x = t.y", "s", "t", merge_schema=True)
        merger.when_not_matched_insert_all().execute()
    else:
        place = table if how == "handle" else lake.uri("t")
        lake.write_deltalake(place, more, mode="append", schema_mode="merge")
        table.update_incremental()
    assert [field.name for field in table.schema().fields] == ["x", "y", "b", "a", "n"]
    assert [row["n"] for row in rows(table, "n")] == [5, None]
