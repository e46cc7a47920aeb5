"""Rows that do not fit are refused before anything is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError

if TYPE_CHECKING:
    from deltasql import Catalog

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"id": [1]}), "missing columns"),
        (pa.table({"id": [1], "name": ["a"], "x": [1]}), "unknown columns"),
        (pa.table({"id": ["one"], "name": ["a"]}), "does not fit"),
        (pa.table({"id": [None], "name": ["a"]}), "must not be null"),
    ],
)
def test_rows_that_do_not_fit_are_refused(catalog: Catalog, rows: pa.Table, message: str) -> None:
    catalog.create_table("t", SCHEMA)
    with pytest.raises(TxnLogSchemaError, match=message), catalog.begin() as tx:
        tx.write("t", rows)
    assert catalog.table("t").version() == 0


def test_rules_that_the_writer_cannot_keep_stop_it(catalog: Catalog) -> None:
    rule = {"delta.constraints.positive": "id > 0"}
    catalog.create_table("t", SCHEMA, properties=rule)
    rows = pa.table({"id": [-1], "name": ["a"]})
    with pytest.raises(UnsupportedFeatureError) as caught, catalog.begin() as tx:
        tx.write("t", rows)
    assert caught.value.features == ("checkConstraints",)


def test_null_and_empty_text_are_one_partition(catalog: Catalog) -> None:
    rows = pa.table({"id": [1, 2, 3], "p": pa.array([None, "", ""], pa.string())})
    catalog.create_table("parted", rows.schema, partition_by=["p"])
    with catalog.begin() as transaction:
        transaction.write("parted", rows)
    (only,) = catalog.table("parted").files().to_pylist()
    assert only["num_records"] == 3
