"""Rows that do not match the schema are refused before the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogSchemaError

if TYPE_CHECKING:
    from deltasql import Catalog

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"id": [1]}), r"number of fields does not match: 1 vs 2 \(missing: name\)"),
        (
            pa.table({"id": [1], "name": ["a"], "x": [1]}),
            r"does not match: 3 vs 2 \(not in the table: x\)",
        ),
        (pa.table({"id": [1], "x": ["a"]}), "Field x not found in schema"),
        (pa.table({"id": ["1", "2", "one", "x"], "name": ["a"] * 4}), "Cast error: .* 'one'"),
        (pa.table({"id": [1], "name": [{"x": 1}]}), "Cannot cast field name"),
    ],
)
def test_rows_that_do_not_match_the_schema_are_rejected(
    catalog: Catalog, rows: pa.Table, message: str
) -> None:
    catalog.create_table("t", SCHEMA)
    with pytest.raises(TxnLogSchemaError, match=message), catalog.begin() as tx:
        tx.write("t", rows)
    assert catalog.table("t").version() == 0


@pytest.mark.parametrize(
    ("values", "wanted", "named"),
    [
        (pa.array([["1"], ["2"], ["x"], ["y"]]), pa.list_(pa.int64()), r"\['x'\]"),
        (pa.array([{"a": "1"}, {"a": "x"}]), pa.struct([("a", pa.int64())]), r"\{'a': 'x'\}"),
        (pa.array(["1", "x"]).dictionary_encode(), pa.int64(), "'x'"),
        (pa.array([1, 2**62], pa.timestamp("s", "UTC")), pa.timestamp("us", "UTC"), str(2**62)),
    ],
    ids=["list", "struct", "dictionary", "timestamp"],
)
def test_error_names_the_first_value_that_cannot_be_cast(
    catalog: Catalog, values: pa.Array, wanted: pa.DataType, named: str
) -> None:
    catalog.create_table("t", pa.schema([("c", wanted)]))
    with pytest.raises(TxnLogSchemaError, match=named) as failed, catalog.begin() as tx:
        tx.write("t", pa.table({"c": values}))
    assert failed.value.column == "c"


def test_null_and_empty_string_are_one_partition(catalog: Catalog) -> None:
    rows = pa.table({"id": [1, 2, 3], "p": pa.array([None, "", ""], pa.string())})
    catalog.create_table("parted", rows.schema, partition_by=["p"])
    with catalog.begin() as transaction:
        transaction.write("parted", rows)
    (only,) = catalog.table("parted").files().to_pylist()
    assert only["num_records"] == 3
