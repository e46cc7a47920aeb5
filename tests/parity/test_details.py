"""Details that programs depend on: recorded predicates, error messages, argument types."""

from __future__ import annotations

import math
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType

from tests.parity.lakes import Lake, column, sample

_TYPED = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "k": pa.array([1, 2, 3], pa.int64()),
        "v": [1.5, 1.7, None],
        "p": ["a", "b", "a"],
        "b": [True, False, None],
        "Full Name": ["x", "y", "z"],
    }
)


@pytest.mark.parametrize(
    ("predicate", "recorded"),
    [
        ("1 < id", "id > 1"),
        ("id = k", "k = id"),
        ("id in (1, 2) and p = 'a'", "(id = 1 OR id = 2) AND p = 'a'"),
        ("id not in (7, 8)", "id != 7 AND id != 8"),
        ("id not in (7, 8, 9, 10)", "id NOT IN (7, 8, 9, 10)"),
        ("id between 1 and 2 or p = 'a'", "id >= 1 AND id <= 2 OR p = 'a'"),
        ("id not between 5 and 6", "id < 5 OR id > 6"),
        ("not (p = 'z' and id <> 9)", "p != 'z' OR id = 9"),
        ("not p like 'z%'", "p NOT LIKE 'z%'"),
        ("not v is null", "v IS NOT NULL"),
        ("b = true and id = 1 and true", "b AND id = 1"),
        ("b is not true", "b IS NOT TRUE"),
        ("UPPER(p) = 'A'", "upper(p) = 'A'"),
        ("`Full Name` = 'x'", "\"Full Name\" = 'x'"),
        ("(id + 1) * 2 = 4", "(id + 1) * 2 = 4"),
    ],
)
def test_history_normalizes_predicates(lake: Lake, predicate: str, recorded: str) -> None:
    table = lake.make("t", _TYPED)
    table.update({"k": "k"}, predicate=predicate)
    assert table.history(1)[0]["operationParameters"] == {"predicate": recorded}


def test_history_of_a_merge_normalizes_predicates(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.merge(sample(), "s.id = t.id", "s", "t").when_matched_delete("1 < s.id").execute()
    parameters = table.history(1)[0]["operationParameters"]
    assert parameters["mergePredicate"] == "t.id = s.id"
    assert parameters["matchedPredicates"] == '[{"actionType":"delete","predicate":"s.id > 1"}]'


def test_cast_to_integer_truncates(lake: Lake) -> None:
    table = lake.make("t", _TYPED)
    assert table.update({"k": "0"}, predicate="cast(v as bigint) = 1")["num_updated_rows"] == 2


def test_constraint_must_be_boolean(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(deltalake.exceptions.DeltaError, match="must return boolean values"):
        table.alter.add_constraint({"c": "id + 1"})
    assert table.version() == 0


def test_overwrite_can_create_an_append_only_table(lake: Lake) -> None:
    settings = {"mode": "overwrite", "configuration": {"delta.appendOnly": "true"}}
    table = lake.make("t", sample(), **settings)
    assert table.count() == 3
    with pytest.raises(deltalake.exceptions.CommitFailedError, match="append-only"):
        lake.write_deltalake(table, sample(), mode="overwrite")


def test_nan_has_its_own_partition(lake: Lake) -> None:
    data = pa.table({"id": [1, 2, 3], "f": [1.5, math.nan, None]})
    table = lake.make("t", data, partition_by="f")
    assert sorted(str(each["f"]) for each in table.partitions()) == ["1.5", "NaN", "None"]
    assert (lake.folder(table) / "f=NaN").is_dir()


_SCHEMAS = [
    (["p", "v", "id"], ["id", "p", "v"]),
    (["p", "id"], ["p", "id"]),
]


@pytest.mark.parametrize(("given", "kept"), _SCHEMAS)
def test_schema_overwrite_with_same_columns_keeps_their_order(
    lake: Lake, given: list[str], kept: list[str]
) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample().select(given), mode="overwrite", schema_mode="overwrite")
    assert [field.name for field in table.schema().fields] == kept
    assert column(table, "id") == [1, 2, 3]


def test_schema_overwrite_keeps_types_of_null_columns_and_sets_metadata(lake: Lake) -> None:
    table = lake.make("t", sample())
    marked = pa.field("id", pa.int64(), metadata={"k": "v"})
    fields = [marked, pa.field("p", pa.string()), pa.field("v", pa.null())]
    data = pa.table([[1], ["a"], [None]], schema=pa.schema(fields))
    lake.write_deltalake(table, data, mode="overwrite", schema_mode="overwrite")
    found = table.schema().fields
    assert [str(field.type) for field in found][2] == 'PrimitiveType("double")'
    assert found[0].metadata == {"k": "v"}


@pytest.mark.parametrize(
    ("known", "given", "message"),
    [
        (pa.int8(), pa.array([300]), "Can't cast value 300 to type Int8"),
        (pa.int64(), pa.array(["x"]), "Cannot cast string 'x' to value of Int64 type"),
        (pa.float64(), pa.array(["x"]), "Cannot cast string 'x' to value of Float64 type"),
        (pa.int64(), pa.array([math.nan]), "Can't cast value NaN to type Int64"),
        (pa.int64(), pa.array([{"a": 1}]), r"Cannot cast field c from Struct\(\"a\": Int64\)"),
    ],
)
def test_cast_error_names_the_value(
    lake: Lake, known: pa.DataType, given: pa.Array, message: str
) -> None:
    table = lake.make("t", pa.table({"c": pa.array([1], known)}))
    with pytest.raises(Exception, match=message):
        lake.write_deltalake(table, pa.table({"c": given}), mode="append")
    assert table.count() == 1


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (TypeError, {"mode": None}),
        (TypeError, {"name": 5}),
        (TypeError, {"partition_by": {"p"}}),
        (TypeError, {"configuration": {"delta.checkpointInterval": 5}}),
        (TypeError, {"target_file_size": "x"}),
        (ValueError, {"target_file_size": 0}),
        (OverflowError, {"target_file_size": -1}),
        (deltalake.exceptions.DeltaError, {"schema_mode": "overwrite"}),
    ],
)
def test_write_with_invalid_arguments_creates_no_table(
    lake: Lake, error: type[Exception], options: dict[str, Any]
) -> None:
    with pytest.raises(error):
        lake.write_deltalake(lake.uri("t"), sample(), **options)
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.alter.add_columns("x"),
        lambda table: table.alter.add_columns(None),
        lambda table: table.alter.add_columns([Field("n", PrimitiveType("long")), 5]),
        lambda table: table.alter.add_constraint(None),
        lambda table: table.alter.drop_constraint(None),
        lambda table: table.alter.set_table_properties({"delta.checkpointInterval": 5}),
        lambda table: table.alter.set_table_name(5),
        lambda table: table.alter.set_column_metadata("id", {"a": 1}),
        lambda table: table.transaction_version(5),
    ],
)
def test_arguments_of_the_wrong_type_raise_type_error(lake: Lake, call: Any) -> None:
    table = lake.make("t", sample())
    with pytest.raises(TypeError):
        call(table)
    assert table.version() == 0


def test_partition_filter_on_a_missing_column_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by="p")
    for filters in ([("zz", "=", "1")], [[("p", "=", "a")], [("zz", "=", "1")]]):
        with pytest.raises(ValueError, match="columns that are not in table schema"):
            table.partitions(file_pruning_predicate=filters)


def test_dataset_fragment_has_partition_and_statistics(lake: Lake) -> None:
    table = lake.make("t", sample().drop_columns(["v"]).slice(0, 1), partition_by="p")
    (fragment,) = table.to_pyarrow_dataset().get_fragments()
    known = '((((p == "a") and is_valid(id)) and (id >= 1)) and (id <= 1))'
    assert str(fragment.partition_expression) == known


@pytest.mark.parametrize("name", ["without_files", "skip_stats"])
def test_ignored_arguments_warn(lake: Lake, name: str) -> None:
    lake.make("t", sample())
    with pytest.warns(DeprecationWarning, match=f"'{name}' parameter is deprecated and ignored"):
        lake.DeltaTable(lake.uri("t"), **{name: True})
