"""ALTER TABLE gives the results of deltalake, and columns can be renamed and dropped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.schema import Field, PrimitiveType, StructType

import deltasql
from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentAppendError,
    InvalidDataError,
    TxnLogError,
    TxnLogProtocolError,
    TxnLogSchemaError,
    UnsupportedFeatureError,
)
from tests.operations.maintenance import agree, numbers, open_lake, opened, own_rows, published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a table `t` of three rows."""
    with open_lake(catalog_uri, tmp_path) as catalog:
        catalog.create_table("t", numbers(0, 0).schema)
        with catalog.begin() as tx:
            tx.write("t", numbers(1, 4))
        yield catalog


def alter_everything(table: Any) -> list[dict[str, Any]]:
    """Make every change that deltalake supports; return the history entries of the changes."""
    alter = table.alter
    alter.add_columns([Field("extra", PrimitiveType("integer"))])
    alter.add_columns(Field("more", StructType([Field("x", PrimitiveType("string"))])))
    alter.add_columns([Field("more", StructType([Field("y", PrimitiveType("long"))]))])
    alter.add_constraint({"positive": "id>0"})
    alter.add_constraint({"positive": "id > 0"})
    alter.drop_constraint("positive")
    alter.drop_constraint("nothing", raise_if_not_exists=False)
    alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    alter.set_table_name("other")
    alter.set_table_description("words")
    alter.set_column_metadata("text", {"comment": "words"})
    alter.add_feature(deltalake.TableFeatures.AppendOnly, allow_protocol_versions_increase=True)
    return [
        {key: each[key] for key in ("operation", "operationParameters")}
        for each in reversed(table.history(table.version()))
    ][-11:]


def test_history_schema_and_names_match_deltalake(lake: Catalog, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "stock", numbers(1, 4))
    stock, ours = deltalake.DeltaTable(tmp_path / "stock"), opened(lake)
    expected, found = alter_everything(stock), alter_everything(ours)
    assert found == expected
    assert ours.schema() == stock.schema()
    mine, theirs = ours.metadata(), stock.metadata()
    assert (mine.name, mine.description) == (theirs.name, theirs.description)
    assert theirs.configuration.items() <= mine.configuration.items()
    assert own_rows(lake) == agree(lake)
    assert published(lake).schema() == stock.schema()


def test_renamed_column_keeps_old_values_and_accepts_new_ones(lake: Catalog) -> None:
    table = opened(lake)
    files = table.file_uris()
    table.alter.rename_column("text", "words")
    assert table.file_uris() == files
    table.alter.add_columns([Field("late", PrimitiveType("long"))])
    with lake.begin() as tx:
        more = numbers(4, 5).rename_columns(["id", "part", "words"])
        tx.write("t", more.append_column("late", pa.array([7], pa.int64())))
    rows = agree(lake)
    assert [row["words"] for row in rows] == ["t1", "t2", "t3", "t4"]
    assert [row["late"] for row in rows] == [None, None, None, 7]


def test_older_versions_keep_the_old_column_name(lake: Catalog) -> None:
    before = opened(lake).version()
    opened(lake).alter.rename_column("text", "words")
    assert own_rows(lake, version=before)[0].keys() == {"id", "part", "text"}


def test_partition_column_can_be_renamed(lake: Catalog) -> None:
    lake.create_table("p", numbers(0, 0).schema, partition_by=["part"])
    with lake.begin() as tx:
        tx.write("p", numbers(1, 3, "x"))
    opened(lake, "p").alter.rename_column("part", "place")
    with lake.begin() as tx:
        tx.write("p", numbers(3, 4, "y").rename_columns(["id", "place", "text"]))
    assert opened(lake, "p").metadata().partition_columns == ["place"]
    assert [row["place"] for row in agree(lake, "p")] == ["x", "x", "y"]


def test_struct_field_can_be_renamed_and_dropped(lake: Catalog) -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.string())])
    lake.create_table("s", pa.schema([("id", pa.int64()), ("box", inner)]))
    with lake.begin() as tx:
        tx.write("s", pa.table({"id": [1], "box": pa.array([{"x": 5, "y": "why"}], inner)}))
    alter = opened(lake, "s").alter
    alter.rename_column("box.x", "z")
    assert agree(lake, "s") == [{"id": 1, "box": {"z": 5, "y": "why"}}]
    alter.drop_column("box.y")
    assert agree(lake, "s") == [{"id": 1, "box": {"z": 5}}]


def test_dropped_column_added_again_is_null(lake: Catalog) -> None:
    alter = opened(lake).alter
    alter.drop_column("text")
    assert [row.keys() for row in agree(lake)] == [{"id", "part"}] * 3
    alter.add_columns([Field("text", PrimitiveType("string"))])
    assert [row["text"] for row in agree(lake)] == [None, None, None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda alter: alter.rename_column("nope", "x"), "No column with the name 'nope'"),
        (lambda alter: alter.rename_column("text", "ID"), "already exists"),
        (lambda alter: alter.rename_column("id", "key"), "positive uses it"),
        (lambda alter: alter.drop_column("id"), "positive uses it"),
        (lambda alter: alter.drop_column(["part", "text", "id"]), "positive uses it"),
        (lambda alter: alter.add_columns([Field("ID", PrimitiveType("long"))]), "Duplicate field"),
        (
            lambda alter: alter.add_columns([Field("must", PrimitiveType("long"), nullable=False)]),
            "cannot be NOT NULL",
        ),
    ],
)
def test_alter_that_would_break_the_table_is_rejected(
    lake: Catalog, change: Any, message: str
) -> None:
    table = opened(lake)
    table.alter.add_constraint({"positive": "id > 0"})
    version = table.version()
    with pytest.raises(TxnLogError, match=message):
        change(table.alter)
    assert lake.table("t").version() == version


def test_dropped_column_added_with_its_old_field_is_null(lake: Catalog) -> None:
    table = opened(lake)
    table.alter.rename_column("id", "number")
    before = table.schema()
    for add in (
        lambda: table.alter.add_columns([f for f in before.fields if f.name == "text"]),
        lambda: deltasql.write_deltalake(
            table,
            pa.table({"number": [], "part": [], "text": []}, schema=pa.schema(before)),
            mode="append",
            schema_mode="merge",
        ),
    ):
        table.alter.drop_column("text")
        add()
        assert {row["text"] for row in agree(lake)} == {None}


def test_struct_and_its_field_can_be_dropped_together(lake: Catalog) -> None:
    rows = pa.table({"id": [1], "s": [{"x": 1, "y": 2}]})
    lake.create_table("s", rows.schema)
    opened(lake, "s").alter.drop_column(["s", "s.x", "s"])
    assert opened(lake, "s").schema().to_arrow().names == ["id"]


def test_physical_name_of_a_column_cannot_be_set(lake: Catalog) -> None:
    table = opened(lake)
    table.alter.rename_column("id", "number")
    place = {"delta.columnMapping.physicalName": "text"}
    with pytest.raises(TxnLogSchemaError, match="cannot be set"):
        table.alter.set_column_metadata("number", place)


def test_partition_column_and_last_column_cannot_be_dropped(lake: Catalog) -> None:
    lake.create_table("p", numbers(0, 0).schema, partition_by=["part"])
    with pytest.raises(TxnLogSchemaError, match="partition column"):
        opened(lake, "p").alter.drop_column("part")
    lake.create_table("one", pa.schema([("id", pa.int64())]))
    with pytest.raises(TxnLogSchemaError, match="the only one left"):
        opened(lake, "one").alter.drop_column("id")


def test_statistics_columns_follow_a_renamed_column(lake: Catalog) -> None:
    table = opened(lake)
    table.alter.set_table_properties({"delta.dataSkippingStatsColumns": "id,text"})
    table.alter.rename_column("text", "the words")
    assert table.metadata().configuration["delta.dataSkippingStatsColumns"] == "id,`the words`"
    table.alter.drop_column("the words")
    assert table.metadata().configuration["delta.dataSkippingStatsColumns"] == "id"


def test_new_constraint_is_checked_against_existing_rows(lake: Catalog) -> None:
    table = opened(lake)
    with pytest.raises(InvalidDataError, match=r"Invalid data found: 2 rows") as caught:
        table.alter.add_constraint({"small": "id < 2"})
    assert "| 2  | a    | t2   |" in str(caught.value)
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": pa.array([None], pa.int64()), "part": ["a"], "text": ["n"]}))
    table.update_incremental()
    with pytest.raises(InvalidDataError, match="1 rows"):  # null does not satisfy it
        table.alter.add_constraint({"positive": "id > 0"})


def test_new_constraint_conflicts_with_concurrent_append(lake: Catalog) -> None:
    table = opened(lake)
    with lake.begin() as tx:
        tx.write("t", numbers(-5, -4))
    with pytest.raises(ConcurrentAppendError):
        table.alter.add_constraint({"positive": "id > 0"})
    assert len(agree(lake)) == 4


def test_new_not_null_column_conflicts_with_concurrent_append(lake: Catalog) -> None:
    lake.create_table("empty", numbers(0, 0).schema)
    stale = opened(lake, "empty")
    with lake.begin() as tx:
        tx.write("empty", numbers(0, 1))
    with pytest.raises(ConcurrentAppendError):
        stale.alter.add_columns(Field("n", PrimitiveType("long"), nullable=False))


def test_append_conflicts_with_concurrent_new_constraint(lake: Catalog) -> None:
    with pytest.raises(CommitConflictError), lake.begin() as tx:
        tx.write("t", numbers(-5, -4))
        opened(lake).alter.add_constraint({"positive": "id > 0"})


def test_schema_and_rows_change_in_one_commit(lake: Catalog) -> None:
    version = lake.table("t").version()
    with lake.begin() as tx:
        tx.rename_column("t", "text", "words")
        tx.add_columns("t", pa.schema([("late", pa.int64())]))
        more = numbers(4, 5).rename_columns(["id", "part", "words"])
        tx.write("t", more.append_column("late", pa.array([9], pa.int64())))
        tx.add_constraint("t", {"positive": "id > 0"})
        tx.set_table_properties("t", {"delta.appendOnly": "true"})
    assert lake.table("t").version() == version + 1
    assert [row["late"] for row in agree(lake)] == [None, None, None, 9]


def test_new_constraint_is_checked_against_rows_of_its_transaction(lake: Catalog) -> None:
    with pytest.raises(InvalidDataError, match="1 rows"), lake.begin() as tx:
        tx.write("t", numbers(-5, -4))
        tx.add_constraint("t", {"positive": "id > 0"})


def test_added_feature_keeps_features_of_the_legacy_protocol_version(lake: Catalog) -> None:
    lake.create_table(
        "old", numbers(0, 0).schema, properties={"delta.enableInCommitTimestamps": "false"}
    )
    table = opened(lake, "old")
    assert table.protocol().min_writer_version == 2
    with pytest.raises(TxnLogError, match="min_writer is not v7"):
        table.alter.add_feature(deltalake.TableFeatures.ChangeDataFeed)
    table.alter.add_feature(
        deltalake.TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True
    )
    features = table.protocol().writer_features
    assert sorted(features or ()) == ["appendOnly", "changeDataFeed", "invariants"]


def test_unsupported_feature_is_rejected_by_name(lake: Catalog) -> None:
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged"), lake.begin() as tx:
        tx.add_feature("t", "catalogManaged", allow_protocol_versions_increase=True)


def test_unused_feature_does_not_block_writes(lake: Catalog) -> None:
    opened(lake).alter.add_feature(
        deltalake.TableFeatures.IcebergCompatV1, allow_protocol_versions_increase=True
    )
    with lake.begin() as tx:
        tx.write("t", numbers(4, 5))
    assert len(agree(lake)) == 4


def test_column_mapping_can_be_enabled_but_not_disabled(lake: Catalog) -> None:
    table = opened(lake)
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    assert table.protocol() == (2, 5, None, None)
    schema = json.loads(table.schema().to_json())
    ids = [field["metadata"]["delta.columnMapping.id"] for field in schema["fields"]]
    assert ids == [1, 2, 3]
    with pytest.raises(TxnLogProtocolError, match="cannot change from name to none"):
        table.alter.set_table_properties({"delta.columnMapping.mode": "none"})
    assert len(agree(lake)) == 3


def test_min_version_properties_raise_the_protocol(lake: Catalog) -> None:
    lake.create_table(
        "old", numbers(0, 0).schema, properties={"delta.enableInCommitTimestamps": "false"}
    )
    table = opened(lake, "old")
    table.alter.set_table_properties({"delta.minWriterVersion": "4"})
    assert table.protocol().min_writer_version == 4
    table.alter.set_table_properties({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"})
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert "changeDataFeed" in (protocol.writer_features or ())
