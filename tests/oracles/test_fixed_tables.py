"""Every reader reads the same rows of a published table, at every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltasql.mirror.checkpoint.write import write_checkpoint
from deltasql.storage import open_storage
from tests.mirror.support import (
    checkpoint_versions,
    copy_table,
    forget_checkpoints,
    forget_checksums,
    forget_commits_below,
    open_mirrored,
)
from tests.oracles.deltasql_reader import own_log, own_rows
from tests.oracles.fixed_set import TABLES, Lake, checked_versions, table_and_reader
from tests.oracles.readers import DuckDb, Place, stock_log
from tests.selection import smoke

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri
    from tests.oracles.writing import Written

_DECODED = "DuckDB decodes the percent sign of the folder's own name"
_ENCODED = "polars looks for the files in a folder with the percent-encoded name"
LONG = ("many_commits", "many_files")
MANY = "readers of more tables"


@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"many_files"}))
def test_files_listed_by_sql_contain_the_written_rows(lake: Lake, name: str) -> None:
    for table in lake.tables(name):
        assert table.table.version() == len(table.states) - 1
        for version in checked_versions(table):
            assert own_rows(table.table, version) == table.states[version], version


@pytest.mark.parametrize(
    ("name", "reader"), table_and_reader("deltalake", "pyarrow", "polars", "duckdb")
)
def test_reader_reads_the_rows_of_every_version(lake: Lake, name: str, reader: str) -> None:
    for table in lake.tables(name):
        for version in checked_versions(table):
            found = lake.reader(reader).rows(lake.place(table), version)
            assert found == table.states[version], f"{table.name} at version {version}"


@pytest.mark.parametrize("name", smoke(TABLES, TABLES.keys() - {"many_files"}, MANY))
def test_deltalake_reads_the_state_of_every_version(lake: Lake, name: str) -> None:
    for table in lake.tables(name):
        for version in checked_versions(table):
            expected = own_log(table.table, version)
            assert stock_log(lake.place(table), version, expected.apps) == expected


@pytest.mark.parametrize(
    ("name", "reader"),
    table_and_reader(
        *("deltalake", "pyarrow", "polars", "duckdb"),
        without=("absolute_path",),
        smoke=("primitives", "nested", "rewritten", "column_mapping", "deletion_vectors"),
    ),
)
def test_reader_can_start_from_a_checkpoint(
    lake: Lake, name: str, reader: str, tmp_path: Path
) -> None:
    for number, table in enumerate(lake.tables(name)):
        alone = checkpoint_alone(table, tmp_path / str(number))
        last = len(table.states) - 1
        found = lake.reader(reader).rows(Place(str(alone)), last)
        assert found == table.states[last]


@pytest.mark.parametrize("name", smoke(TABLES, TABLES.keys() - {"many_files"}, MANY))
def test_checkpoints_and_commits_give_deltalake_the_same_state(
    lake: Lake, name: str, tmp_path: Path
) -> None:
    for number, table in enumerate(lake.tables(name)):
        last = len(table.states) - 1
        expected = own_log(table.table, last)
        alone = checkpoint_alone(table, tmp_path / str(number))
        assert stock_log(Place(str(alone)), last, expected.apps) == expected
        without = copy_table(table.table.location, tmp_path / f"{number} without")
        forget_checkpoints(without)
        assert stock_log(Place(str(without)), last, expected.apps) == expected


def test_long_log_has_checkpoints_at_its_interval(lake: Lake) -> None:
    (table,) = lake.tables("many_commits")
    assert [v for v in checkpoint_versions(table.table.location) if v % 30 == 0] == [
        *range(30, 200, 30)
    ]


def test_duckdb_reads_the_domains_of_every_version(lake: Lake) -> None:
    (table,) = lake.tables("applications")
    reader = lake.reader("duckdb")
    assert isinstance(reader, DuckDb)
    for version in range(len(table.states)):
        domains = table.table.snapshot(version).domains().values()
        sql = "FROM delta_domain_metadata($place, version = $version)"
        found = reader.query(sql, place=table.table.location, version=version)
        assert sorted(found) == sorted((each.domain, each.configuration) for each in domains)


@pytest.mark.parametrize(
    ("folder", "reader"),
    [
        ("a b é", "deltalake"),
        ("100% #1", "deltalake"),
        ("a b é", "pyarrow"),
        ("100% #1", "pyarrow"),
        ("a b é", "duckdb"),
        pytest.param("100% #1", "duckdb", marks=pytest.mark.xfail(reason=_DECODED, strict=True)),
        pytest.param("a b é", "polars", marks=pytest.mark.xfail(reason=_ENCODED, strict=True)),
        pytest.param("100% #1", "polars", marks=pytest.mark.xfail(reason=_ENCODED, strict=True)),
    ],
)
def test_location_can_have_any_name(
    lake: Lake, tmp_path: Path, sqlite_uri: DeltaSqlUri, folder: str, reader: str
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / folder) as catalog:
        (table,) = TABLES["rewritten"](catalog)
        for version, expected in enumerate(table.states):
            assert lake.reader(reader).rows(lake.place(table), version) == expected


@pytest.mark.two_databases
@pytest.mark.parametrize("backend", ["duckdb", "postgres"])
def test_every_database_publishes_the_same_tables(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        lake = Lake(catalog)
        for name in TABLES:
            for table in lake.tables(name) if name not in LONG else ():
                place = lake.place(table)
                for version, rows in enumerate(table.states):
                    assert lake.reader("deltalake").rows(place, version) == rows
                expected = own_log(table.table, version)
                assert stock_log(place, version, expected.apps) == expected


def checkpoint_alone(table: Written, target: Path) -> Path:
    """Copy a table with only a checkpoint of its last version and that version in its log."""
    last = len(table.states) - 1
    store, row = table.catalog.store, table.table.row
    copy = copy_table(row.location, target)
    if last not in checkpoint_versions(copy):
        write_checkpoint(store, row, open_storage(str(copy)), last)
    forget_commits_below(copy, last)
    forget_checksums(copy)  # they contain parts of the state
    return copy
