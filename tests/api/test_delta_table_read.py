"""Reading every kind of table at several versions, compared with deltalake and the written rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError, DeltaProtocolError

from deltasql import DeltaTable, write_deltalake
from deltasql.api.catalog.connect import close_all
from tests.conftest import new_catalog_uri
from tests.mirror.support import open_mirrored
from tests.oracles.fixed_set import TABLES, Lake
from tests.oracles.readers import stock_table
from tests.oracles.states import arrow_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.api.conftest import Address
    from tests.oracles.writing import Written

MAPPED_OR_DELETED = ("column_mapping", "mapped_partition", "deletion_vectors")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield a catalog with the fixed set of tables of tests/oracles, each built on first use."""
    folder = tmp_path_factory.mktemp("lake")
    for uri in new_catalog_uri("sqlite", folder):
        with open_mirrored(uri, folder / "lake") as catalog:
            yield Lake(catalog)
    close_all()


def opened(lake: Lake, table: Written) -> Iterator[tuple[int, DeltaTable, deltalake.DeltaTable]]:
    """Open the first, a middle and the last version with deltasql and with deltalake."""
    last = len(table.states) - 1
    for version in sorted({0, last // 2, last}):
        own = DeltaTable(table.table.uri, version=version)
        yield version, own, stock_table(lake.place(table), version)


def facts(metadata: deltalake.Metadata) -> list[Any]:
    names = ("id", "name", "description", "partition_columns", "created_time")
    return [getattr(metadata, name) for name in names]


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"many_files"}))
def test_scan_and_to_pyarrow_table_return_the_written_rows(lake: Lake, name: str) -> None:
    for table in lake.tables(name):
        for version, own, stock in opened(lake, table):
            expected = table.states[version]
            assert arrow_rows(pa.table(own.scan())) == expected
            assert arrow_rows(own.to_pyarrow_table()) == expected
            assert pa.table(own.scan()).schema == pa.table(stock.scan()).schema
            assert own.to_pyarrow_table().schema.equals(pa.schema(stock.schema().to_arrow()))


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"many_files"}))
def test_metadata_and_listings_equal_those_of_deltalake(lake: Lake, name: str) -> None:
    for table in lake.tables(name):
        for version, own, stock in opened(lake, table):
            assert own.schema() == stock.schema()
            snapshot = own._table.snapshot
            assert tuple(snapshot.protocol.writer_features or ()) == tuple(
                stock.protocol().writer_features or ()
            )
            assert facts(own.metadata()) == facts(stock.metadata())
            assert snapshot.metadata.configuration == stock.metadata().configuration
            assert own._table.get_active_partitions() == stock._table.get_active_partitions()
            assert own._table.get_add_file_sizes() == stock._table.get_add_file_sizes()
            for flatten in (False, True):
                found = pa.table(own.get_add_actions(flatten))
                expected = pa.table(stock.get_add_actions(flatten))
                if version >= 10:  # deltalake lists files of a checkpoint in the checkpoint's order
                    found, expected = found.sort_by("path"), expected.sort_by("path")
                assert found.schema.equals(expected.schema)
                assert found.to_pylist() == expected.to_pylist()
            # deltalake treats the absolute URI of a file as a relative path.
            if version < 10 and name != "absolute_path":
                assert own.file_uris() == stock.file_uris()
            assert pa.table(own.deletion_vectors()).equals(pa.table(stock.deletion_vectors()))


@pytest.mark.parametrize("name", MAPPED_OR_DELETED)
def test_dataset_is_rejected_with_column_mapping_or_deletion_vectors(lake: Lake, name: str) -> None:
    for table in lake.tables(name):
        own = DeltaTable(table.table.uri)
        with pytest.raises(DeltaProtocolError, match=r"pyarrow Datasets|not yet supported"):
            own.to_pyarrow_dataset()
        assert len(own.to_pandas()) == pa.table(own.scan()).num_rows > 0
        first = own.schema().fields[0].name
        some = own.to_pyarrow_table(columns=[first], filters=[(first, "!=", 0)])
        assert some.column_names == [first]


# Selecting rows and columns


@pytest.fixture
def uri(address: Address) -> str:
    """Return the URI of a table with two commits of two partitions each."""
    for start in (0, 10):
        rows = pa.table(
            {
                "id": pa.array(range(start, start + 4), pa.int64()),
                "Name": [f"n{each}" for each in range(start, start + 4)],
                "deep": [{"x": each} for each in range(start, start + 4)],
                "p": pa.array([1, 2, 1, 2], pa.int32()),
            }
        )
        write_deltalake(address("t"), rows, mode="append", partition_by=["p"])
    return address("t")


def ids(table: Any) -> list[int]:
    return sorted(pa.table(table)["id"].to_pylist())


def test_scan_applies_columns_and_predicate_exactly(uri: str) -> None:
    own = DeltaTable(uri)
    stock = deltalake.DeltaTable(own.table_uri)
    for predicate in ("id > 2 AND p = 1", "deep.x = 11", "`Name` LIKE 'n1%'", "id IN (1, 12)"):
        assert ids(own.scan(predicate=predicate)) == ids(stock.scan(predicate=predicate))
    chosen = pa.table(own.scan(["p", "id"], "id < 2"))
    assert chosen.column_names == ["p", "id"]
    assert sorted(chosen["id"].to_pylist()) == [0, 1]
    assert pa.table(own.scan(["Name"], "id = 3")).to_pylist() == [{"Name": "n3"}]
    for wrong in ({"columns": ["nope"]}, {"predicate": "nope = 1"}, {"predicate": "id +"}):
        with pytest.raises(DeltaError):
            own.scan(**wrong).read_all()
    with pytest.raises(DeltaError, match="No field named nope"):
        own.scan(["nope"])


def test_scan_keeps_its_version_until_it_is_read(uri: str) -> None:
    reader = DeltaTable(uri).scan()
    write_deltalake(uri, pa.table({"id": [99]}), mode="append", schema_mode="merge")
    assert 99 not in ids(reader)


def test_pyarrow_table_has_the_rows_and_types_of_deltalake(uri: str) -> None:
    own = DeltaTable(uri)
    stock = deltalake.DeltaTable(own.table_uri)
    calls: list[dict[str, Any]] = [
        {},
        {"columns": ["p", "id"]},
        {"filters": [("id", ">", 2), ("p", "=", 1)]},
        {"filters": [[("id", "=", 1)], [("p", "=", 2), ("id", ">", 9)]], "columns": ["id"]},
    ]
    for call in calls:
        assert own.to_pyarrow_table(**call).equals(stock.to_pyarrow_table(**call))
        assert own.to_pandas(**call).equals(stock.to_pandas(**call))
    with pytest.warns(DeprecationWarning, match="partitions"):
        found = own.to_pyarrow_table(partitions=[("p", "=", "1")])
    assert ids(found) == [0, 2, 10, 12]


def test_dataset_accepts_the_options_of_deltalake(uri: str) -> None:
    import pyarrow.dataset as pds
    import pyarrow.fs as pfs

    own = DeltaTable(uri)
    stock = deltalake.DeltaTable(own.table_uri)
    large = own.to_pyarrow_dataset(as_large_types=True)
    assert large.schema == stock.to_pyarrow_dataset(as_large_types=True).schema
    assert large.to_table().num_rows == 8
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32())])
    assert own.to_pyarrow_dataset(schema=schema).to_table().schema == schema
    options = pds.ParquetReadOptions(dictionary_columns={"Name"})
    dictionary = own.to_pyarrow_dataset(parquet_read_options=options)
    assert dictionary.schema == stock.to_pyarrow_dataset(parquet_read_options=options).schema
    assert dictionary.to_table().num_rows == 8
    folder = own.table_uri.removeprefix("file://")
    system = pfs.SubTreeFileSystem(folder, pfs.LocalFileSystem())
    assert own.to_pyarrow_dataset(filesystem=system).to_table().num_rows == 8
    with pytest.warns(DeprecationWarning, match="partitions"):
        assert own.to_pyarrow_dataset([("p", "=", 2)]).to_table().num_rows == 4


def test_table_in_s3_reads_like_deltalake(
    sqlite_address: Address, s3_location: str, s3_options: dict[str, str]
) -> None:
    uri = f"{sqlite_address('t')}&location={s3_location}/t%20%C3%A9"
    rows = pa.table({"id": [1, 2, 3], "p": ["a", "ü b", None]})
    write_deltalake(uri, rows, partition_by=["p"], storage_options=s3_options)
    own = DeltaTable(uri, storage_options=s3_options)
    stock = deltalake.DeltaTable(own.table_uri, storage_options=s3_options)
    assert own.table_uri == stock.table_uri
    # deltalake keeps the table folder percent-encoded and decodes the paths below it.
    assert own.file_uris() == [each.replace("t%20%C3%A9", "t é") for each in stock.file_uris()]
    assert own.to_pyarrow_table().equals(stock.to_pyarrow_table())
    assert ids(own.scan(predicate="id > 1")) == [2, 3]
    assert own._table.get_add_file_sizes() == stock._table.get_add_file_sizes()
    assert pa.table(own.get_add_actions()).equals(pa.table(stock.get_add_actions()))
    assert ids(DeltaTable(own.table_uri, storage_options=s3_options).scan()) == [1, 2, 3]


def test_ten_thousand_files_open_faster_than_in_deltalake(lake: Lake) -> None:
    (table,) = lake.tables("many_files")
    uri, place = table.table.uri, lake.place(table)
    DeltaTable(uri)

    def seconds(open_table: Any) -> float:
        started = time.perf_counter()
        open_table()
        return time.perf_counter() - started

    ours = min(seconds(lambda: DeltaTable(uri)) for _ in range(5))
    stock = min(seconds(lambda: stock_table(place)) for _ in range(3))
    assert ours < stock / 5
    own, other = DeltaTable(uri), stock_table(place)
    assert sorted(own.file_uris()) == sorted(other.file_uris())
    assert own.count() == other.count()
    ours = min(seconds(lambda: DeltaTable(uri).file_uris()) for _ in range(3))
    assert ours < min(seconds(lambda: stock_table(place).file_uris()) for _ in range(3))
