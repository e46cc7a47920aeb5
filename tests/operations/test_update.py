"""UPDATE: new values, their types, and the constraints of the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogError, TxnLogSchemaError
from tests.operations.dml import changes, handle, make, paths, read, sorted_rows

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

ROWS = pa.table({"id": [1, 2, None], "s": ["a", "b", "c"], "v": [1.5, 2.5, 3.5]})


def test_only_files_with_matching_rows_change(catalog: Catalog) -> None:
    table = make(catalog, ROWS, pa.table({"id": [7], "s": ["z"], "v": [0.0]}))
    before = paths(catalog)
    metrics = json.loads(table.update({"v": "v * 10", "S": "concat(s, '!')"}, "id = 2"))
    assert len(before & paths(catalog)) == 1
    assert (metrics["num_updated_rows"], metrics["num_copied_rows"]) == (1, 2)
    assert {"id": 2, "s": "b!", "v": 25.0} in sorted_rows(catalog)
    assert {"id": None, "s": "c", "v": 3.5} in sorted_rows(catalog)


def test_values_are_computed_from_the_old_row(catalog: Catalog) -> None:
    table = make(catalog, pa.table({"a": [1], "b": [2]}))
    table.update({"a": "b", "b": "a"})
    assert sorted_rows(catalog) == [{"a": 2, "b": 1}]


def test_update_without_matches_commits_nothing(catalog: Catalog) -> None:
    table = make(catalog, ROWS)
    assert json.loads(table.update({"v": "0"}, "id = 99"))["num_updated_rows"] == 0
    assert handle(catalog).snapshot.version == table.snapshot.version


def test_struct_field_can_be_updated(catalog: Catalog) -> None:
    table = make(catalog, pa.table({"id": [1, 2], "p": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}))
    table.update({"p.x": "p.y * 10"}, "id = 2")
    assert sorted_rows(catalog) == [
        {"id": 1, "p": {"x": 1, "y": 2}},
        {"id": 2, "p": {"x": 40, "y": 4}},
    ]


def test_error_names_value_that_cannot_be_cast(catalog: Catalog) -> None:
    table = make(catalog, ROWS)
    with pytest.raises(
        TxnLogSchemaError, match="Cast error: Cannot cast string 'b' to value of Float64"
    ):
        table.update({"v": "s"}, "id = 2")
    assert handle(catalog).snapshot.version == table.snapshot.version


def test_safe_cast_sets_null_for_value_that_cannot_be_cast(catalog: Catalog) -> None:
    table = make(catalog, ROWS)
    table.update({"v": "s"}, "id = 2", safe_cast=True)
    assert {"id": 2, "s": "b", "v": None} in sorted_rows(catalog)


def test_error_names_integer_that_overflows_its_column(catalog: Catalog) -> None:
    table = make(catalog, pa.table({"n": pa.array([1], pa.int32())}))
    with pytest.raises(TxnLogSchemaError, match="3000000001"):
        table.update({"n": "n + 3000000000"})


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (pa.int64(), 7, 7),
        (pa.int64(), 7.9, 7),
        (pa.float64(), 1, 1.0),
        (pa.string(), "it's", "it's"),
        (pa.bool_(), True, True),
        (pa.list_(pa.int64()), [1, 2], [1, 2]),
        (
            pa.timestamp("us", "UTC"),
            datetime(2024, 5, 1, 12, tzinfo=UTC),
            datetime(2024, 5, 1, 12, tzinfo=UTC),
        ),
        (pa.timestamp("us"), datetime(2024, 5, 1, 12), datetime(2024, 5, 1, 12)),
        (pa.date32(), datetime(2024, 5, 1).date(), datetime(2024, 5, 1).date()),
        (pa.int64(), None, None),
    ],
)
def test_new_values_accept_python_values(
    catalog: Catalog, kind: pa.DataType, value: Any, stored: Any
) -> None:
    make(catalog, pa.table({"x": pa.nulls(1, kind)}))
    with catalog.begin() as tx:
        tx.update("t", new_values={"x": value})
    assert sorted_rows(catalog) == [{"x": stored}]


def test_update_of_partition_column_moves_the_row(catalog: Catalog) -> None:
    table = make(catalog, pa.table({"p": ["a", "b"], "x": [1, 2]}), partition_by=["p"])
    table.update({"p": "'c'"}, "x = 1")
    assert sorted_rows(catalog) == [{"p": "b", "x": 2}, {"p": "c", "x": 1}]
    assert sorted(path.partition("/")[0] for path in paths(catalog)) == ["p=b", "p=c"]


def test_constraint_is_enforced_on_updated_rows(catalog: Catalog) -> None:
    table = make(catalog, ROWS, properties={"delta.constraints.positive": "v > 0"})
    with pytest.raises(TxnLogError, match="Invalid data found: 1 rows failed validation check"):
        table.update({"v": "-v"}, "id = 1")
    table.update({"v": "v + 1"}, "id = 1")
    assert {"id": 1, "s": "a", "v": 2.5} in sorted_rows(catalog)


def test_not_null_is_enforced_on_updated_rows(catalog: Catalog) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    catalog.create_table("t", schema)
    table = make(catalog, pa.table({"id": [1]}))
    with pytest.raises(TxnLogError, match="Invalid data found"):
        table.update({"id": "NULL"})


def test_unknown_name_in_a_value_is_rejected(catalog: Catalog) -> None:
    for column in ("v", "vv"):
        with pytest.raises(TxnLogSchemaError, match="No field named ww"):
            make(catalog, ROWS, name=column).update({column: "ww + 1"})


def test_column_set_twice_is_rejected(catalog: Catalog) -> None:
    with pytest.raises(TxnLogSchemaError, match="set twice"):
        make(catalog, ROWS).update({"v": "1", "V": "2"})


def test_update_sees_earlier_updates_of_its_transaction(catalog: Catalog) -> None:
    make(catalog, ROWS)
    with catalog.begin() as tx:
        tx.update("t", {"v": "v + 1"})
        tx.update("t", {"v": "v * 2"}, predicate="id = 1")
        tx.delete("t", "v = 5.0")
        assert len(read(tx.target("t"))) == 2
    assert sorted(row["v"] for row in sorted_rows(catalog)) == [3.5, 4.5]


def test_change_data_has_preimage_and_postimage(catalog: Catalog) -> None:
    table = make(catalog, ROWS, properties={"delta.enableChangeDataFeed": "true"})
    table.update({"v": "0"}, "id = 2")
    images = [(row["v"], row["_change_type"]) for row in changes(catalog)]
    assert images == [(0.0, "update_postimage"), (2.5, "update_preimage")]
