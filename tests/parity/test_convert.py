"""`convert_to_deltalake` turns folders of Parquet files into tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, Field, Schema
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, rows, sample

P = Schema([Field("p", "string")])


def place(lake: Lake, name: str = "t") -> Path:
    """Create the folder of a table that does not exist yet."""
    folder = lake.root / "lake" / name
    folder.mkdir(parents=True)
    return folder


def test_convert_keeps_the_files_in_place(lake: Lake) -> None:
    folder = place(lake)
    pq.write_table(sample(), folder / "a.parquet")
    pq.write_table(sample(), folder / "b.parquet")
    assert lake.convert_to_deltalake(lake.uri("t")) is None
    table = lake.DeltaTable(lake.uri("t"))
    assert (table.version(), table.count()) == (0, 6)
    assert table.schema() == Schema.from_arrow(sample().schema)
    assert sorted(each.rsplit("/", 1)[-1] for each in table.file_uris()) == [
        "a.parquet",
        "b.parquet",
    ]
    commit = table.history()[0]
    assert commit["operation"] == "CONVERT"
    assert commit["operationParameters"] == {
        "collectStats": "true",
        "partitionBy": "[]",
        "numFiles": "2",
    }


def test_convert_collects_statistics(lake: Lake) -> None:
    pq.write_table(sample(), place(lake) / "a.parquet")
    lake.convert_to_deltalake(lake.uri("t"))
    (action,) = pa.table(lake.DeltaTable(lake.uri("t")).get_add_actions(flatten=True)).to_pylist()
    assert (action["min.id"], action["max.id"], action["null_count.v"]) == (1, 3, 1)
    assert action["num_records"] == 3


def test_convert_reads_hive_partitions(lake: Lake) -> None:
    folder = place(lake)
    pq.write_to_dataset(sample(), folder, partition_cols=["p"])
    lake.convert_to_deltalake(
        lake.uri("t"),
        partition_by=P,
        partition_strategy="hive",
        name="people",
        description="who",
        configuration={"delta.appendOnly": "true"},
        commit_properties=CommitProperties(custom_metadata={"who": "me"}),
    )
    table = lake.DeltaTable(lake.uri("t"))
    assert sorted(each["p"] for each in table.partitions()) == ["a", "b"]
    assert [(row["id"], row["p"]) for row in rows(table)] == [(1, "a"), (2, "b"), (3, "a")]
    metadata = table.metadata()
    assert (metadata.name, metadata.description) == ("people", "who")
    assert metadata.partition_columns == ["p"]
    assert table.history()[0]["who"] == "me"


def test_converted_table_can_be_changed(lake: Lake) -> None:
    pq.write_table(sample(), place(lake) / "a.parquet")
    lake.convert_to_deltalake(lake.uri("t"))
    table = lake.append("t", sample())
    table.delete("id = 1")
    assert table.count() == 4


def test_convert_mode_decides_whether_an_existing_table_is_kept(lake: Lake) -> None:
    pq.write_table(sample(), place(lake) / "a.parquet")
    lake.convert_to_deltalake(lake.uri("t"))
    with pytest.raises(DeltaError, match="already a delta table location"):
        lake.convert_to_deltalake(lake.uri("t"))
    lake.convert_to_deltalake(lake.uri("t"), mode="ignore")
    assert lake.DeltaTable(lake.uri("t")).version() == 0


def test_invalid_conversions_are_rejected(lake: Lake) -> None:
    place(lake)
    with pytest.raises(DeltaError, match="No parquet file is found in the given location"):
        lake.convert_to_deltalake(lake.uri("t"))
    pq.write_to_dataset(sample(), place(lake, "u"), partition_cols=["p"])
    with pytest.raises(DeltaError, match="schema of partition columns must be provided"):
        lake.convert_to_deltalake(lake.uri("u"))
    with pytest.raises(ValueError, match="Partition strategy has to be provided"):
        lake.convert_to_deltalake(lake.uri("u"), partition_by=P)
    with pytest.raises(ValueError, match="Partition strategy must be"):
        lake.convert_to_deltalake(lake.uri("u"), partition_by=P, partition_strategy="bogus")
    assert not lake.DeltaTable.is_deltatable(lake.uri("u"))


def test_convert_without_statistics_collects_no_statistics(lake: Lake) -> None:
    pq.write_table(sample(), place(lake) / "a.parquet")
    lake.convert_to_deltalake(lake.uri("t"), collect_stats=False)
    table = lake.DeltaTable(lake.uri("t"))
    assert table.to_pyarrow_table().num_rows == 3
    assert table.history()[0]["operationParameters"]["collectStats"] == "false"
