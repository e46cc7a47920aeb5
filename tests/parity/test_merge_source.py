"""`merge`: aliases, expressions, kinds of sources, and schemas that differ."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from deltalake.schema import Field, StructType

from tests.parity.lakes import Lake, column, numbers, rows, sample
from tests.parity.test_merge import merge, source, values


def upsert(builder: Any) -> Any:
    return builder.when_matched_update_all().when_not_matched_insert_all().execute()


def test_aliases_can_be_any_name(lake: Lake) -> None:
    table = lake.make("t", sample())
    builder = table.merge(source(), "new.id = old.id", source_alias="new", target_alias="old")
    builder.when_matched_update({"old.v": "new.v", "p": "old.p || new.p"}).execute()
    assert values(table) == [(1, "a", 1.5), (2, "bx", 20.0), (3, "ay", 30.0)]


def test_ambiguous_column_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match=r"(?i)ambiguous"):
        merge(table, source(), "id = id").when_matched_delete().execute()


def test_missing_columns_are_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="zz"):
        merge(table, source(), "s.id = t.zz").when_matched_delete().execute()
    with pytest.raises(DeltaError, match="zz"):
        merge(table, source()).when_matched_update({"v": "s.zz"}).execute()
    assert table.version() == 0


def test_values_can_be_sql_expressions(lake: Lake) -> None:
    table = lake.make("t", sample())
    (
        merge(table, source())
        .when_matched_update({"v": "case when s.v > 25 then t.id * 100 else coalesce(t.v, -1) end"})
        .when_not_matched_insert({"id": "s.id * 10", "p": "upper(s.p)", "v": "null"})
        .execute()
    )
    assert values(table) == [(1, "a", 1.5), (2, "b", -1.0), (3, "a", 300.0), (40, "Z", None)]


def test_value_of_the_wrong_type_is_rejected_unless_allowed(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(Exception, match=r"(?i)cast|convert"):
        merge(table, source()).when_matched_update({"v": "'abc'"}).execute()
    assert lake.DeltaTable(lake.uri("t")).version() == 0
    lenient = merge(table, source(), error_on_type_mismatch=False)
    lenient.when_matched_update({"v": "'abc'"}).execute()
    assert values(table) == [(1, "a", 1.5), (2, "b", None), (3, "a", None)]


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "pandas", "polars"])
def test_every_kind_of_source_is_accepted(lake: Lake, kind: str) -> None:
    data = source()
    given: Any = {
        "table": lambda: data,
        "batch": lambda: data.to_batches()[0],
        "reader": data.to_reader,
        "pandas": lambda: pa.Table.from_pandas(pd.DataFrame(data.to_pydict())),
        "polars": lambda: pl.from_arrow(data),
    }[kind]()
    table = lake.make("t", sample())
    upsert(merge(table, given))
    assert values(table) == [(1, "a", 1.5), (2, "x", 20.0), (3, "y", 30.0), (4, "z", 40.0)]


def test_table_can_be_its_own_source(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 4))
    data = table.to_pyarrow_table()
    merge(table, data).when_matched_update({"v": "t.v + s.v"}).execute()
    assert column(table, "v") == [0, 20, 40, 60]


def test_merge_without_streaming_gives_the_same_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    upsert(merge(table, source(), streamed_exec=False))
    assert column(table, "id") == [1, 2, 3, 4]


def test_merge_accepts_spill_limits(lake: Lake) -> None:
    table = lake.make("t", sample())
    upsert(merge(table, source(), max_spill_size=1 << 30, max_temp_directory_size=1 << 30))
    assert column(table, "id") == [1, 2, 3, 4]


def test_narrower_source_types_are_cast(lake: Lake) -> None:
    table = lake.make("t", sample())
    data = pa.table(
        {
            "id": pa.array([3, 4], pa.int32()),
            "p": pa.array(["y", "z"]).dictionary_encode(),
            "v": pa.array([30.0, 40.0], pa.float32()),
        }
    )
    upsert(merge(table, data))
    assert values(table) == [(1, "a", 1.5), (2, "b", None), (3, "y", 30.0), (4, "z", 40.0)]
    assert table.to_pyarrow_table().schema == sample().schema


def test_missing_source_columns_keep_or_insert_null(lake: Lake) -> None:
    table = lake.make("t", sample())
    upsert(merge(table, pa.table({"id": [3, 4], "v": [30.0, 40.0]})))
    assert values(table) == [(1, "a", 1.5), (2, "b", None), (3, "a", 30.0), (4, None, 40.0)]


def test_new_source_columns_are_ignored_by_default(lake: Lake) -> None:
    table = lake.make("t", sample())
    upsert(merge(table, source(w=[1, 2, 3])))
    assert table.to_pyarrow_table().column_names == ["id", "p", "v"]
    assert column(table, "id") == [1, 2, 3, 4]


def test_merge_schema_adds_new_columns(lake: Lake) -> None:
    table = lake.make("t", sample())
    upsert(merge(table, source(w=[1, 2, 3]), merge_schema=True))
    assert [field.name for field in table.schema().fields] == ["id", "p", "v", "w"]
    assert values(table) == [
        (1, "a", 1.5, None),
        (2, "x", 20.0, 1),
        (3, "y", 30.0, 2),
        (4, "z", 40.0, 3),
    ]


def test_merge_schema_adds_only_source_columns_that_a_clause_uses(lake: Lake) -> None:
    table = lake.make("t", sample())
    builder = merge(table, source(w=[1, 2, 3], x=["a", "b", "c"]), merge_schema=True)
    builder.when_not_matched_insert({"id": "s.id", "w": "s.w"}).execute()
    assert "w" in [field.name for field in table.schema().fields]
    assert rows(table)[3]["w"] == 3
    assert rows(table)[3]["v"] is None


def test_merge_schema_extends_structs(lake: Lake) -> None:
    table = lake.make("t", pa.table({"id": [1, 2], "s": [{"a": 1}, {"a": 2}]}))
    data = pa.table({"id": [2, 3], "s": [{"a": 20, "b": "x"}, {"a": 30, "b": "y"}]})
    upsert(table.merge(data, "n.id = o.id", "n", "o", merge_schema=True))
    assert table.schema().fields[1].type == StructType([Field("a", "long"), Field("b", "string")])
    # Stock loses the struct of a row that is only copied, so the first row is not compared.
    assert [row["s"] for row in rows(table)][1:] == [{"a": 20, "b": "x"}, {"a": 30, "b": "y"}]


def test_merge_into_an_empty_table_inserts_all_rows(lake: Lake) -> None:
    table = lake.DeltaTable.create(lake.uri("t"), sample().schema)
    result = upsert(merge(table, source()))
    assert result["num_target_rows_inserted"] == 3
    assert column(table, "id") == [2, 3, 4]


def test_column_names_can_have_spaces_and_capitals(lake: Lake) -> None:
    table = lake.make("t", pa.table({"Key": [1, 2], "the value": ["a", "b"]}))
    data = pa.table({"Key": [2, 3], "the value": ["x", "y"]})
    upsert(merge(table, data, 's."Key" = t."Key"'))
    assert rows(table) == [
        {"Key": 1, "the value": "a"},
        {"Key": 2, "the value": "x"},
        {"Key": 3, "the value": "y"},
    ]


def test_key_can_have_two_columns(lake: Lake) -> None:
    table = lake.make("t", pa.table({"a": [1, 1, 2], "b": [1, 2, 1], "v": [0, 0, 0]}))
    data = pa.table({"a": [1, 2], "b": [2, 2], "v": [5, 6]})
    upsert(merge(table, data, "s.a = t.a and s.b = t.b"))
    assert [tuple(row.values()) for row in rows(table, "a", "b")] == [
        (1, 1, 0),
        (1, 2, 5),
        (2, 1, 0),
        (2, 2, 6),
    ]


def test_predicate_can_be_an_inequality(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 6))
    data = pa.table({"low": [4]})
    merge(table, data, "t.id >= s.low").when_matched_delete().execute()
    assert column(table, "id") == [0, 1, 2, 3]


def test_false_predicate_inserts_all_rows(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 2))
    merge(table, numbers(0, 2), "false").when_not_matched_insert_all().execute()
    assert column(table, "id") == [0, 0, 1, 1]
