"""Tables with Iceberg compatibility stay valid, and files can contain the partition columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.exceptions import InvalidActionError, TxnLogError, UnsupportedFeatureError
from deltasql.model.protocol import writer_features
from tests.conftest import add_file
from tests.each import check_each
from tests.operations.maintenance import open_lake, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
NAMES = "'delta.columnMapping.mode' = 'name'"
IDS = "'delta.enableRowTracking' = 'true'"
V3 = f"'delta.enableIcebergCompatV3' = 'true', {IDS}, {NAMES}"


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_lake(catalog_uri, tmp_path) as catalog:
        yield catalog


def stored_columns(lake: Catalog) -> list[list[str]]:
    """Return the columns of each live data file."""
    table = lake.table("t")
    root = Path(table.location)
    return [pq.read_schema(root / path).names for path in table.files()["path"].to_pylist()]


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        (
            "'delta.feature.materializePartitionColumns' = 'supported'",
            "materializePartitionColumns",
        ),
        (f"'delta.enableIcebergCompatV1' = 'true', {NAMES}", "icebergCompatV1"),
        (f"'delta.enableIcebergCompatV2' = 'true', {NAMES}", "icebergCompatV2"),
        (V3, "icebergCompatV3"),
    ],
)
def test_files_contain_the_partition_columns(lake: Catalog, properties: str, feature: str) -> None:
    lake.sql(
        "CREATE TABLE t (p STRING, id BIGINT, q INT) PARTITIONED BY (p, q) "
        f"TBLPROPERTIES ({properties})"
    )
    assert feature in writer_features(lake.table("t").snapshot().protocol)
    lake.sql("INSERT INTO t VALUES ('a', 1, 1), ('b', 2, NULL), (NULL, 3, 2)")
    lake.sql("UPDATE t SET id = 10, q = 5 WHERE id = 1")
    lake.sql("OPTIMIZE t")
    snapshot = lake.table("t").snapshot()
    mode = snapshot.metadata.configuration.get("delta.columnMapping.mode")
    names = {each.name: each.physical_name(mode) for each in snapshot.schema.fields}
    for stored in stored_columns(lake):
        assert [name for name in stored if not name.startswith("_row-")] == [
            names["id"],
            names["p"],
            names["q"],
        ]
    rows = lake.sql("SELECT * FROM t ORDER BY id").to_pylist()
    assert rows == [
        {"p": "b", "id": 2, "q": None},
        {"p": None, "id": 3, "q": 2},
        {"p": "a", "id": 10, "q": 5},
    ]
    assert opened(lake).to_pyarrow_table().num_rows == 3
    assert lake.mirror.verify("t", data="rows")[0].ok


def test_changes_that_iceberg_does_not_allow_are_refused_by_name(lake: Catalog) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p) TBLPROPERTIES "
        f"('delta.enableIcebergCompatV2' = 'true', 'delta.enableTypeWidening' = 'true', {NAMES})"
    )
    lake.sql("INSERT INTO t VALUES (1, 'a')")
    version = lake.table("t").version()
    statements = {
        "ALTER TABLE t ADD COLUMN j VARIANT": "columns of type variant",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')": "deletion",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableIcebergCompatV1' = 'true')": "two of them",
        "ALTER TABLE t ALTER COLUMN id TYPE DOUBLE": "from integer to double",
        f"CREATE TABLE u (id INT, x ARRAY<INT>) TBLPROPERTIES "
        f"('delta.enableIcebergCompatV1' = 'true', {NAMES})": "columns of type array",
        "CREATE TABLE u (id INT) TBLPROPERTIES ('delta.enableIcebergCompatV1' = 'true')": "mapping",
    }

    def refuse(statement: str) -> None:
        with pytest.raises(
            UnsupportedFeatureError, match=f"icebergCompatV.*{statements[statement]}"
        ):
            lake.sql(statement)

    check_each(statements, refuse)
    with pytest.raises(InvalidActionError, match="partition columns"), lake.begin() as tx:
        rows = lake.sql("SELECT * FROM t")
        tx.write("t", rows, mode="overwrite", schema_mode="overwrite", partition_by=["id"])
    with pytest.raises(InvalidActionError, match="number of its rows"), lake.begin() as tx:
        physical = lake.table("t").snapshot().schema.fields[1].physical_name("name")
        tx.stage_table("t", [add_file("a", stats="{}", partition_values={physical: "a"})])
    assert lake.table("t").version() == version
    lake.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    lake.sql("ALTER TABLE t DROP FEATURE icebergCompatV2")
    lake.sql("ALTER TABLE t ADD COLUMN tags ARRAY<STRING>")


def field_ids(node: Any, path: str = "") -> dict[str, int]:
    """Return the field id of every node of a Parquet schema in Arrow, by its path."""
    found = {}
    if pa.types.is_map(node):
        fields = [node.key_field, node.item_field]
    else:
        fields = [node.field(number) for number in range(node.num_fields)]
    for field in fields:
        name = f"{path}.{field.name}" if path else field.name
        if b"PARQUET:field_id" in (field.metadata or {}):
            found[name] = int(field.metadata[b"PARQUET:field_id"])
        found |= field_ids(field.type, name)
    return found


def ids_in_files(lake: Catalog) -> list[dict[str, int]]:
    """Return the field ids in each live data file, by the paths of the columns."""
    table = lake.table("t")
    found = []
    for path in table.files()["path"].to_pylist():
        ids = {}
        for field in pq.read_schema(Path(table.location) / path):
            own = {field.name: int(field.metadata[b"PARQUET:field_id"])}
            ids |= own | field_ids(field.type, field.name)
        found.append(ids)
    return found


def test_column_of_another_type_keeps_no_ids_of_its_old_elements(lake: Catalog) -> None:
    """A table is created with an edited schema of another table."""
    key = "delta.columnMapping.nested.ids"
    marks = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"}
    fields = [
        {"name": "a", "type": MAP, "metadata": {**marks, key: {"a.element": 2, "a.key": 9}}},
        {"name": "b", "type": "long", "metadata": {key: {"b.element": 4}}},
    ]
    schema = {"type": "struct", "fields": [{**each, "nullable": True} for each in fields]}
    properties = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}
    with lake.begin() as tx:
        tx.create_table("t", json.dumps(schema), properties=properties)
    snapshot = lake.table("t").snapshot()
    first, second = (each.metadata for each in snapshot.schema.fields)
    assert (first[key], second["delta.columnMapping.id"]) == ({"a.key": 9, "a.value": 11}, 10)
    assert key not in second
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "11"


def test_elements_of_arrays_and_maps_have_ids_in_files(lake: Catalog) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, l ARRAY<ARRAY<STRING>>, m MAP<STRING, STRUCT<x: ARRAY<INT>>>) "
        f"TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true', {NAMES})"
    )
    lake.sql("INSERT INTO t VALUES (1, array(array('a')), map('k', struct(array(2) AS x)))")
    lake.sql("ALTER TABLE t ADD COLUMN tags ARRAY<STRING>")
    lake.sql("INSERT INTO t VALUES (2, NULL, NULL, array('b'))")
    lake.sql("UPDATE t SET id = 10 WHERE id = 1")
    lake.sql("OPTIMIZE t")
    snapshot = lake.table("t").snapshot()
    names = {each.name: each.physical_name("name") for each in snapshot.schema.fields}
    tags = snapshot.schema.find("tags").metadata["delta.columnMapping.nested.ids"]
    assert list(tags) == [f"{names['tags']}.element"]
    [ids] = ids_in_files(lake)
    assert len(ids) == len(set(ids.values())) == 11
    assert ids[f"{names['tags']}.element"] == tags[f"{names['tags']}.element"]
    highest = int(snapshot.metadata.configuration["delta.columnMapping.maxColumnId"])
    assert max(ids.values()) <= highest
    rows = lake.sql("SELECT * FROM t ORDER BY id").to_pylist()
    assert rows[1] == {"id": 10, "l": [["a"]], "m": [("k", {"x": [2]})], "tags": None}
    assert opened(lake).to_pyarrow_table().num_rows == 2
    assert lake.mirror.verify("t", data="rows")[0].ok


def test_rows_of_version_3_keep_their_ids_in_columns_with_the_field_ids_of_iceberg(
    lake: Catalog,
) -> None:
    lake.sql(f"CREATE TABLE t (id INT, l ARRAY<INT>, x VARIANT) TBLPROPERTIES ({V3})")
    lake.sql("INSERT INTO t (id, l) VALUES (1, array(1)), (2, array(2)), (3, array(3))")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    lake.sql("DELETE FROM t WHERE id = 3")
    assert any(lake.table("t").files()["deletion_vector"].to_pylist())
    lake.sql("UPDATE t SET id = 10 WHERE id = 1")
    lake.sql("OPTIMIZE t")
    snapshot = lake.table("t").snapshot()
    start = "delta.rowTracking.materializedRow"
    properties = snapshot.metadata.configuration
    names = [properties[f"{start}{kind}ColumnName"] for kind in ("Id", "CommitVersion")]
    array = snapshot.schema.fields[1].physical_name("name")
    [ids] = ids_in_files(lake)
    assert [ids[name] for name in names] == [2147483540, 2147483539]
    highest = int(properties["delta.columnMapping.maxColumnId"])
    assert 1 <= ids[array] < ids[f"{array}.element"] <= highest
    with lake.begin() as tx:
        rows = tx.read("t", ["id"], row_ids=True).to_pylist()
    assert {row["id"]: row["_row_id"] for row in rows} == {10: 0, 2: 1}
    assert lake.mirror.verify("t", data="rows")[0].ok


def test_version_3_is_refused_without_row_tracking_and_for_defaults_that_are_no_literals(
    lake: Catalog,
) -> None:
    lake.sql(
        f"CREATE TABLE t (id INT, p INT) PARTITIONED BY (p) TBLPROPERTIES ({V3}, "
        "'delta.enableTypeWidening' = 'true', 'delta.feature.allowColumnDefaults' = 'supported')"
    )
    version = lake.table("t").version()
    statements = {
        f"CREATE TABLE u (id INT) TBLPROPERTIES ({V3.replace(IDS, NAMES)})": "row tracking",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')": "row tracking",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true')": "two of them",
        "ALTER TABLE t ALTER COLUMN id TYPE DOUBLE": "from integer to double",
        "ALTER TABLE t ALTER COLUMN id SET DEFAULT 1 + 2": "not a literal: 1 \\+ 2",
        "ALTER TABLE t ALTER COLUMN id SET DEFAULT CAST('1' AS INT)": "not a literal",
        "ALTER TABLE t ALTER COLUMN id SET DEFAULT NULL": "not a literal",
    }

    def refuse(statement: str) -> None:
        with pytest.raises(
            UnsupportedFeatureError, match=f"icebergCompatV3.*{statements[statement]}"
        ):
            lake.sql(statement)

    check_each(statements, refuse)
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV3 needs it"):
        lake.sql("ALTER TABLE t DROP FEATURE rowTracking")
    assert lake.table("t").version() == version
    lake.sql("ALTER TABLE t ALTER COLUMN id SET DEFAULT -5")
    lake.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    lake.sql("INSERT INTO t (p) VALUES (1)")
    assert lake.sql("SELECT * FROM t").to_pylist() == [{"id": -5, "p": 1}]


@pytest.mark.parametrize("compat", ["'delta.enableIcebergCompatV2' = 'true', " + NAMES, V3])
def test_table_is_replaced_with_another_type_of_its_partition_column(
    lake: Catalog, compat: str
) -> None:
    lake.sql(f"CREATE TABLE t (id INT, p INT) PARTITIONED BY (p) TBLPROPERTIES ({compat})")
    lake.sql("INSERT INTO t VALUES (1, 1)")
    replace = "CREATE OR REPLACE TABLE t (id INT, {0}) {1} TBLPROPERTIES (" + compat + ")"
    for columns in (("q BIGINT", "PARTITIONED BY (q)"), ("p BIGINT", "")):
        with pytest.raises(InvalidActionError, match="partition columns of t cannot change"):
            lake.sql(replace.format(*columns))
    lake.sql(replace.format("p BIGINT", "PARTITIONED BY (p)"))
    lake.sql("INSERT INTO t VALUES (2, 3000000000)")
    assert lake.sql("SELECT * FROM t").to_pylist() == [{"id": 2, "p": 3_000_000_000}]
    assert lake.mirror.verify("t", data="rows")[0].ok


def test_rows_with_ids_in_files_prevent_version_3(lake: Catalog) -> None:
    lake.sql(f"CREATE TABLE t (id INT) TBLPROPERTIES ({NAMES})")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ({V3})")
    lake.sql("UPDATE t SET id = 10 WHERE id = 1")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableIcebergCompatV3' = 'false')")
    with pytest.raises(UnsupportedFeatureError, match="lack the field ids of the columns with row"):
        lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ({V3})")
    lake.sql("DELETE FROM t")
    lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ({V3})")


def test_arrays_without_ids_in_files_prevent_version_2(lake: Catalog) -> None:
    lake.sql(f"CREATE TABLE t (id INT, l ARRAY<INT>) TBLPROPERTIES ({NAMES})")
    enable = "ALTER TABLE t SET TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true')"
    lake.sql("INSERT INTO t VALUES (1, array(1))")
    with pytest.raises(UnsupportedFeatureError, match="lack the field ids of array elements"):
        lake.sql(enable)
    lake.sql("DELETE FROM t")
    lake.sql(enable)
    lake.sql("INSERT INTO t VALUES (1, array(1))")
    assert lake.mirror.verify("t")[0].ok


def test_iceberg_compatibility_is_rejected_if_existing_files_lack_partition_columns(
    lake: Catalog,
) -> None:
    lake.sql(f"CREATE TABLE t (id INT, p INT) PARTITIONED BY (p) TBLPROPERTIES ({NAMES})")
    lake.sql("INSERT INTO t VALUES (1, 1)")
    enable = "ALTER TABLE t SET TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true')"
    with pytest.raises(TxnLogError, match="lack the partition columns"):
        lake.sql(enable)
    lake.sql("DELETE FROM t")
    lake.sql(enable)
    lake.sql("INSERT INTO t VALUES (1, 1)")
    assert [len(each) for each in stored_columns(lake)] == [2]
