"""Creating tables by URI and converting Parquet folders, compared with deltalake."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, Field, Schema
from deltalake.transaction import AddAction, RemoveAction

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.api.deltalake_compat.create import create_table_with_add_actions
from deltasql.exceptions import TableExistsError, TxnLogError, TxnLogSchemaError, TxnLogUriError
from tests.operations.deltalake_comparison import last_commit, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

SCHEMA = Schema([Field("id", "long"), Field("name", "string")])
ROWS = pa.table({"id": [1, 2], "name": ["x", "y"]})


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "ours")


@pytest.fixture
def uri(catalog_uri: DeltaSqlUri, location: str) -> Iterator[str]:
    yield replace(catalog_uri.with_table("sales"), location=location).to_string()
    close_all()


def create(uri: str, **options: Any) -> deltasql.DeltaTable:
    return deltasql.DeltaTable.create(uri, SCHEMA, **options)


def added(path: str = "a.parquet", **values: str) -> AddAction:
    return AddAction(path, 10, values, 0, True, '{"numRecords":1}')


def test_created_table_has_the_same_metadata_as_in_deltalake(
    uri: str, location: str, tmp_path: Path
) -> None:
    options = {"partition_by": "name", "description": "sold", "name": "sales of a year"}
    ours = create(uri, **options)
    theirs = deltalake.DeltaTable.create(str(tmp_path / "stock"), SCHEMA, **options)  # type: ignore[arg-type]
    assert ours.version() == theirs.version() == 0
    assert last_commit(ours) == last_commit(theirs) == last_commit(deltalake.DeltaTable(location))
    for one in (ours, theirs):
        assert one.metadata().name == "sales of a year"
        assert one.metadata().description == "sold"
        assert one.metadata().partition_columns == ["name"]
    keys = theirs.history()[0]["operationParameters"].keys()
    assert ours.history()[0]["operationParameters"].keys() == keys


def test_new_table_needs_no_reader_feature(uri: str, location: str) -> None:
    """Only writers need to support in-commit timestamps; readers refuse `catalogManaged`."""
    create(uri)
    protocol = deltalake.DeltaTable(location).protocol()
    assert "inCommitTimestamp" in (protocol.writer_features or ())
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    assert not {"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"} & features
    assert protocol.min_reader_version == 1


def test_create_mode_decides_whether_an_existing_table_is_kept_or_replaced(uri: str) -> None:
    deltasql.write_deltalake(uri, ROWS)
    with pytest.raises(TableExistsError, match=r"^Generic error: A Delta Lake table"):
        create(uri)
    with pytest.raises(TxnLogError, match=r"^Generic error: SaveMode `append` is not"):
        create(uri, mode="append")
    assert create(uri, mode="ignore").version() == 0
    wanted = Schema([Field("other", "long")])
    replaced = deltasql.DeltaTable.create(uri, wanted, mode="overwrite")
    assert (replaced.version(), replaced.schema(), rows(replaced)) == (1, wanted, [])
    assert replaced.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE"
    replaced.load_as_version(0)
    assert len(rows(replaced)) == 2


def test_create_rejects_unknown_properties_unless_allowed(uri: str) -> None:
    with pytest.raises(TxnLogError, match="Error parsing property 'foo':'1'"):
        create(uri, configuration={"foo": "1"})
    with pytest.raises(TxnLogError, match=r"Error parsing property 'delta.foo':'1'"):
        create(uri, configuration={"delta.foo": "1"})
    table = create(uri, configuration={"foo": "1"}, raise_if_key_not_exists=False)
    assert table.metadata().configuration["foo"] == "1"


def test_table_without_columns_is_rejected(uri: str) -> None:
    with pytest.raises(TxnLogSchemaError, match="At least one column must be defined"):
        deltasql.DeltaTable.create(uri, Schema([]))


def test_create_with_add_actions_gives_the_same_table_as_deltalake(
    uri: str, tmp_path: Path
) -> None:
    stock = str(tmp_path / "stock")
    arguments: dict[str, Any] = {
        "partition_by": ["name"],
        "commit_properties": CommitProperties({"k": 1}),
    }
    create_table_with_add_actions(uri, SCHEMA, [added(name="x")], **arguments)
    deltalake.transaction.create_table_with_add_actions(
        stock, SCHEMA, [added(name="x")], **arguments
    )
    ours, theirs = deltasql.DeltaTable(uri), deltalake.DeltaTable(stock)
    assert last_commit(ours) == last_commit(theirs)
    assert len(ours.file_uris()) == 1
    assert ours.history(1)[0]["k"] == 1


@pytest.mark.parametrize(("mode", "files"), [("append", 2), ("overwrite", 1), ("error", 2)])
def test_write_transaction_commits_files_in_each_mode(uri: str, mode: str, files: int) -> None:
    deltasql.write_deltalake(uri, ROWS)
    table = deltasql.DeltaTable(uri)
    table.create_write_transaction([added()], mode, SCHEMA)
    opened = deltasql.DeltaTable(uri)
    assert (opened.version(), len(opened.file_uris())) == (1, files)
    assert opened.history(1)[0]["operationParameters"]["partitionBy"] == "[]"


def test_write_transaction_overwrites_only_the_filtered_partition(uri: str) -> None:
    deltasql.write_deltalake(uri, ROWS, partition_by=["name"])
    table = deltasql.DeltaTable(uri)
    new = added("name=x/b.parquet", name="x")
    table.create_write_transaction([new], "overwrite", SCHEMA, ["name"], [("name", "=", "x")])
    assert len(deltasql.DeltaTable(uri).file_uris()) == 2


def test_write_transaction_removes_files(uri: str) -> None:
    deltasql.write_deltalake(uri, ROWS)
    table = deltasql.DeltaTable(uri)
    (path,) = (name.rpartition("/")[2] for name in table.file_uris())
    table.create_write_transaction([added(), RemoveAction(path, True, 1)], "append", SCHEMA)
    assert [name.rpartition("/")[2] for name in table.file_uris()] == ["a.parquet"]


# Convert to Delta


def parquet_folder(location: str, *places: str) -> None:
    rows = pa.table({"id": [1, 2, None], "place": places or ("x", "y", "z")})
    pq.write_to_dataset(rows, location, partition_cols=["place"])


def test_converted_parquet_folder_equals_that_of_deltalake(
    uri: str, location: str, tmp_path: Path
) -> None:
    stock = str(tmp_path / "stock")
    options: dict[str, Any] = {
        "partition_by": Schema([Field("place", "string")]),
        "partition_strategy": "hive",
        "configuration": {"delta.logRetentionDuration": "interval 1 days"},
    }
    for place, convert, target in (
        (location, deltasql.convert_to_deltalake, uri),
        (stock, deltalake.convert_to_deltalake, stock),
    ):
        parquet_folder(place)
        convert(target, **options)
    ours, theirs = deltasql.DeltaTable(uri), deltalake.DeltaTable(stock)
    mirror = deltalake.DeltaTable(location)
    assert rows(ours) == rows(theirs) == rows(mirror)
    assert last_commit(ours) == last_commit(theirs)
    numbers = [pa.table(each.get_add_actions(flatten=True)) for each in (ours, theirs)]
    for column in ("num_records", "null_count.id", "min.id", "max.id", "partition.place"):
        assert sorted(map(str, numbers[0][column])) == sorted(map(str, numbers[1][column]))
    with pytest.raises(TableExistsError, match="already a delta table location"):
        deltasql.convert_to_deltalake(uri)
    deltasql.convert_to_deltalake(uri, mode="ignore")
    deltasql.write_deltalake(uri, pa.table({"id": [9], "place": ["x"]}), mode="append")
    assert len(rows(deltasql.DeltaTable(uri))) == 4


def test_convert_decodes_partition_folder_names(uri: str, location: str) -> None:
    parquet_folder(location, "x", "y z", "é/q")
    place = Schema([Field("place", "string")])
    deltasql.convert_to_deltalake(uri, partition_by=place, partition_strategy="hive")
    found = deltasql.DeltaTable(uri).to_pyarrow_table()
    assert sorted(found["place"].to_pylist()) == ["x", "y z", "é/q"]
    assert rows(deltalake.DeltaTable(location)) == rows(deltasql.DeltaTable(uri))


def test_convert_reads_partition_values_from_plain_folder_names(uri: str, location: str) -> None:
    from pathlib import Path

    for year in ("2023", "2024"):
        Path(location, year).mkdir(parents=True)
        pq.write_table(pa.table({"id": [int(year)]}), f"{location}/{year}/part-0.parquet")
    years = Schema([Field("year", "integer")])
    deltasql.convert_to_deltalake(uri, partition_by=years, partition_strategy="directory")
    found = deltasql.DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert all(row["id"] == row["year"] for row in found)


def test_invalid_conversions_are_rejected(
    uri: str, location: str, catalog_uri: DeltaSqlUri
) -> None:
    with pytest.raises(TxnLogError, match="No parquet file is found in the given location"):
        deltasql.convert_to_deltalake(uri)
    parquet_folder(location)
    with pytest.raises(TxnLogSchemaError, match="schema of partition columns must be provided"):
        deltasql.convert_to_deltalake(uri)
    with pytest.raises(ValueError, match="Partition strategy has to be provided"):
        deltasql.convert_to_deltalake(uri, partition_by=Schema([Field("place", "string")]))
    with pytest.raises(TxnLogUriError, match="location"):
        deltasql.convert_to_deltalake(catalog_uri.with_table("t").to_string())


def test_convert_without_statistics_records_no_statistics(uri: str, location: str) -> None:
    from pathlib import Path

    Path(location).mkdir()
    pq.write_table(ROWS, f"{location}/a.parquet")
    deltasql.convert_to_deltalake(uri, collect_stats=False)
    assert pa.table(deltasql.DeltaTable(uri).get_add_actions())["num_records"].to_pylist() == [None]


def test_converted_table_with_column_mapping_reads_its_files(uri: str, location: str) -> None:
    pq.write_table(ROWS, _folder(location) / "a.parquet")
    deltasql.convert_to_deltalake(uri, configuration={"delta.columnMapping.mode": "name"})
    assert deltasql.DeltaTable(uri).to_pyarrow_table().to_pydict() == ROWS.to_pydict()


def test_folder_with_a_log_is_not_converted(uri: str, location: str) -> None:
    for _ in range(2):
        deltalake.write_deltalake(location, ROWS, mode="overwrite")
    with pytest.raises(TableExistsError, match="already a delta table location"):
        deltasql.convert_to_deltalake(uri)


def test_deleted_database_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    for number in range(2):
        uri = f"deltasql://sqlite/{_folder(str(folder))}/meta.db?table=t"
        deltasql.write_deltalake(uri, pa.table({"id": [number]}))
        assert deltasql.DeltaTable(uri).to_pyarrow_table().to_pydict() == {"id": [number]}
        shutil.rmtree(folder)
    close_all()


def _folder(place: str) -> Path:
    Path(place).mkdir(parents=True)
    return Path(place)


def test_metadata_name_is_the_name_that_the_user_set(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    """The metadata contains neither the folder name nor the name in the catalog."""
    for number, name in enumerate((None, "t1", "sales")):
        place = replace(catalog_uri.with_table(f"t{number}"), location=str(tmp_path / f"f{number}"))
        deltasql.write_deltalake(place.to_string(), pa.table({"id": [1]}), name=name)
        opened = deltasql.DeltaTable(catalog_uri.with_table(f"t{number}").to_string())
        assert opened.metadata().name == name
        assert opened.metadata().configuration == {}
    close_all()
