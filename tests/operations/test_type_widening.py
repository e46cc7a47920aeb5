"""Columns can change to wider types, and older files are read with the new types."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake.schema import PrimitiveType

from deltasql.exceptions import TxnLogError, TxnLogSchemaError, UnsupportedFeatureError
from deltasql.model.schema.schema import schema_of
from tests.each import check_each
from tests.operations.maintenance import data_files, open_lake, opened, own_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

PROPERTIES = {"delta.enableTypeWidening": "true"}
COLUMNS = """b TINYINT, i INT, f FLOAT, d DECIMAL(6, 2), day DATE, n SMALLINT,
    s STRUCT<x: SMALLINT>, l ARRAY<SMALLINT>, m MAP<SMALLINT, INT>, p SMALLINT"""
CHANGES = {
    "b": "BIGINT",
    "i": "DOUBLE",
    "f": "DOUBLE",
    "d": "DECIMAL(12, 4)",
    "day": "TIMESTAMP_NTZ",
    "n": "DECIMAL(12, 2)",
    "s.x": "INT",
    "l.element": "BIGINT",
    "m.key": "INT",
    "m.value": "BIGINT",
    "p": "INT",
}
OLD = {
    "b": 1,
    "i": 3,
    "f": 0.10000000149011612,
    "d": Decimal("1.2500"),
    "day": datetime(2024, 5, 1),
    "n": Decimal("7.00"),
    "s": {"x": 1},
    "l": [1, None],
    "m": [(1, 2)],
    "p": 7,
}
NEW = {
    "b": 3_000_000_000,
    "i": 3.5,
    "f": 0.1,
    "d": Decimal("12345678.1234"),
    "day": datetime(2024, 5, 1, 10),
    "n": Decimal("7.25"),
    "s": {"x": 70_000},
    "l": [3_000_000_000],
    "m": [(70_000, 3_000_000_000)],
    "p": 70_000,
}


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_lake(catalog_uri, tmp_path) as catalog:
        yield catalog


def widened(lake: Catalog) -> None:
    """Create a table `t` with a row in a file of the old types, and a row of the new types."""
    lake.sql(
        f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    lake.sql(
        "INSERT INTO t VALUES (1, 3, 0.1, 1.25, '2024-05-01', 7, named_struct('x', 1), "
        "array(1, NULL), map(1, 2), 7)"
    )
    files = data_files(lake)
    for name, kind in CHANGES.items():
        lake.sql(f"ALTER TABLE t ALTER COLUMN {name} TYPE {kind}")
    assert data_files(lake) == files
    lake.sql(
        "INSERT INTO t VALUES (3000000000, 3.5, 0.1, 12345678.1234, '2024-05-01 10:00:00', 7.25, "
        "named_struct('x', 70000), array(3000000000), map(70000, 3000000000), 70000)"
    )


def test_files_of_old_types_are_read_pruned_and_rewritten(lake: Catalog) -> None:
    widened(lake)
    assert own_rows(lake) == [OLD, NEW]
    # The second condition of each pair is true for the old row only if it is not cast.
    conditions = {
        "b = 1": 1,
        "b = 3000000000": 1,
        "i < 3.4": 1,
        "i > 2.6": 2,
        "f > 0.1": 1,
        "d = 1.2512": 0,
        "d < 1.2512": 1,
        "day < '2024-05-01 09:00:00'": 1,
        "day = '2024-05-01 09:00:00'": 0,
        "n = 7.25": 1,
        "n < 7.1": 1,
        "p = 7": 1,
        "p > 8": 1,
    }

    def count(condition: str) -> None:
        wanted = conditions[condition]
        found = lake.sql(f"SELECT count(*) AS n FROM t WHERE {condition}").to_pylist()
        queried = lake.query(f"SELECT count(*) AS n FROM t WHERE {condition}").read_all()
        assert found == queried.to_pylist() == [{"n": wanted}]

    check_each(conditions, count)
    lake.sql("UPDATE t SET b = 2 WHERE i < 3.4")
    lake.sql("OPTIMIZE t")
    assert own_rows(lake) == [{**OLD, "b": 2}, NEW]


def test_changes_are_recorded_in_the_metadata_and_the_protocol(lake: Catalog) -> None:
    widened(lake)
    snapshot = lake.table("t").snapshot()
    fields = {each.name: each for each in schema_of(snapshot.metadata.schema_string).fields}
    recorded = {name: field.metadata.get("delta.typeChanges") for name, field in fields.items()}
    assert recorded["b"] == [{"fromType": "byte", "toType": "long"}]
    assert recorded["d"] == [{"fromType": "decimal(6,2)", "toType": "decimal(12,4)"}]
    assert recorded["l"] == [{"fromType": "short", "toType": "long", "fieldPath": "element"}]
    assert recorded["m"] == [
        {"fromType": "short", "toType": "integer", "fieldPath": "key"},
        {"fromType": "integer", "toType": "long", "fieldPath": "value"},
    ]
    assert recorded["s"] is None
    inner: Any = fields["s"].type
    assert inner.fields[0].metadata == {
        "delta.typeChanges": [{"fromType": "short", "toType": "integer"}]
    }
    assert "typeWidening" in (snapshot.protocol.reader_features or ())


@pytest.mark.parametrize("change", ["i SMALLINT", "i STRING", "i DECIMAL(10, 2)", "s INT"])
def test_narrower_and_other_types_are_refused(lake: Catalog, change: str) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS}) TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    name, _, kind = change.partition(" ")
    with pytest.raises(TxnLogSchemaError, match=f"{name}.* cannot change"):
        lake.sql(f"ALTER TABLE t ALTER COLUMN {name} TYPE {kind}")


def test_invalid_type_changes_are_refused(lake: Catalog) -> None:
    lake.sql(f"CREATE TABLE t ({COLUMNS})")
    with pytest.raises(UnsupportedFeatureError, match="type widening is not enabled"):
        lake.sql("ALTER TABLE t ALTER COLUMN i TYPE BIGINT")
    alter = opened(lake).alter
    alter.set_table_properties(PROPERTIES)
    with pytest.raises(TxnLogError, match=r"No column with the name .l\.key."):
        alter.set_column_type("l.key", "BIGINT")
    alter.add_constraint({"positive": "i > 0"})
    with pytest.raises(TxnLogSchemaError, match="positive uses it"):
        alter.set_column_type("i", "BIGINT")
    alter.set_column_type("b", PrimitiveType("long"))
    assert opened(lake).schema().to_arrow().field(0).type == pa.int64()


def test_schema_merge_widens_columns_that_no_constraint_uses(lake: Catalog) -> None:
    old = pa.schema([("a", pa.int16()), ("c", pa.int16()), ("i", pa.int32()), ("d", pa.date32())])
    given = pa.table(
        {
            "a": pa.array([70_000], pa.int32()),
            "c": pa.array([2], pa.int32()),
            "i": pa.array([2.0], pa.float64()),
            "d": pa.array([datetime(2024, 5, 1, 10)], pa.timestamp("us")),
            "new": pa.array([1], pa.int8()),
        }
    )
    lake.create_table("t", old, properties=PROPERTIES)
    first = pa.table([[1], [1], [1], [date(2024, 5, 1)]], schema=old)
    with lake.begin() as tx:
        tx.write("t", first)
        tx.add_constraint("t", {"small": "c < 100"})
    with lake.begin() as tx:
        tx.write("t", given, mode="append", schema_mode="merge")
    fields = {each.name: each for each in lake.table("t").snapshot().schema.fields}
    types = {name: each.type for name, each in fields.items()}
    assert types == {
        "a": "integer",
        "c": "short",
        "i": "integer",
        "d": "timestamp_ntz",
        "new": "byte",
    }
    assert [name for name, each in fields.items() if "delta.typeChanges" in each.metadata] == [
        "a",
        "d",
    ]
    source = pa.table({"a": pa.array([3_000_000_000], pa.int64())})
    with lake.begin() as tx:
        merge = tx.merge("t", source, "t.a = s.a", "s", "t", merge_schema=True)
        merge.when_not_matched_insert({"a": "s.a", "c": "1"}).execute()
    assert [row["a"] for row in own_rows(lake)] == [1, 3_000_000_000, 70_000]
    changes = lake.table("t").snapshot().schema.fields[0].metadata["delta.typeChanges"]
    assert changes == [
        {"fromType": "short", "toType": "integer"},
        {"fromType": "integer", "toType": "long"},
    ]


def test_schema_merge_keeps_the_type_where_widening_is_not_enabled(lake: Catalog) -> None:
    lake.create_table("t", pa.schema([("a", pa.int16())]))
    with lake.begin() as tx:
        wide = pa.table({"a": pa.array([2], pa.int32()), "b": [1]})
        tx.write("t", wide, mode="append", schema_mode="merge")
    assert (
        json.loads(lake.table("t").snapshot().metadata.schema_string)["fields"][0]["type"]
        == "short"
    )
