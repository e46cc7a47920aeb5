"""The write modes append, overwrite, error and ignore give the results of deltalake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, PostCommitHookProperties, Transaction, WriterProperties

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.exceptions import (
    CommitConflictError,
    InvalidDataError,
    TableExistsError,
    TxnLogConfigError,
    TxnLogError,
    TxnLogSchemaError,
    TxnLogTransactionError,
    VersionTakenError,
)
from deltasql.operations.write_request import WriteRequest
from tests.operations.deltalake_comparison import Twins, properties, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2], "name": ["x", "y"]})
MORE = pa.table({"id": [3], "name": ["z"]})


@pytest.fixture
def twins(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Twins]:
    place = str(tmp_path / "ours")
    uri = replace(catalog_uri.with_table("sales"), location=place).to_string()
    yield Twins(str(tmp_path / "stock"), uri, place)
    close_all()


@pytest.fixture
def filled(twins: Twins) -> Twins:
    assert twins.write(ROWS) is None
    return twins


@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
@pytest.mark.parametrize("partition_by", [None, "name", ["name"]])
def test_every_mode_creates_a_missing_table(twins: Twins, mode: Any, partition_by: Any) -> None:
    assert twins.write(ROWS, mode=mode, partition_by=partition_by) is None
    twins.assert_alike()


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore"])
def test_second_write_matches_deltalake(filled: Twins, mode: Any) -> None:
    assert filled.write(MORE, mode=mode) is None
    filled.assert_alike()


def test_mode_error_rejects_an_existing_table(filled: Twins) -> None:
    error = filled.write(MORE)
    assert isinstance(error, TableExistsError)
    assert error.full_message.startswith("A table already exists at: ")
    filled.assert_alike()


def test_mode_ignore_does_not_read_the_data(filled: Twins) -> None:
    def never() -> Any:
        yield from ()
        raise AssertionError("read")

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, never())
    deltasql.write_deltalake(filled.uri, reader, mode="ignore")


def test_invalid_modes_are_rejected(filled: Twins) -> None:
    assert "Invalid save mode provided: up" in str(filled.write(MORE, mode="up"))
    error = filled.write(MORE, mode="append", schema_mode="up")
    assert isinstance(error, TxnLogConfigError)
    assert "Invalid schema write mode provided: up" in str(error)
    error = filled.write(MORE, mode="append", schema_mode="overwrite")
    assert "Schema overwrite not supported for Append" in str(error)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_write_without_rows_commits_a_version(filled: Twins, mode: Any) -> None:
    assert filled.write(ROWS.slice(0, 0), mode=mode) is None
    filled.assert_alike()


def test_new_table_gets_name_description_and_properties(twins: Twins) -> None:
    texts = {"name": "sold", "description": "what was sold"}
    wanted = {"delta.appendOnly": "true", "delta.logRetentionDuration": None}
    assert twins.write(ROWS, configuration=wanted, **texts) is None
    for table in (deltalake.DeltaTable(twins.path), deltasql.DeltaTable(twins.uri)):
        assert (table.metadata().name, table.metadata().description) == tuple(texts.values())
        assert properties(table) == {"delta.appendOnly": "true"}


def test_existing_table_keeps_its_properties(filled: Twins) -> None:
    assert filled.write(MORE, mode="append", configuration={"delta.appendOnly": "true"}) is None
    assert properties(deltasql.DeltaTable(filled.uri)) == {}


def test_unknown_properties_are_rejected(twins: Twins) -> None:
    error = twins.write(ROWS, configuration={"foo": "1"})
    assert error.full_message.startswith("Error parsing property 'foo':'1'")


def test_overwrite_of_append_only_table_is_rejected(twins: Twins) -> None:
    assert twins.write(ROWS, configuration={"delta.appendOnly": "true"}) is None
    assert twins.write(MORE, mode="append") is None
    for options in ({}, {"predicate": "id = 1"}):
        error = twins.write(ROWS.slice(0, 1), mode="overwrite", **options)
        assert isinstance(error, TxnLogTransactionError)
        assert "Delta table is append-only" in str(error)
    twins.assert_alike()


# Partitions


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_different_partition_columns_are_rejected(twins: Twins, mode: Any) -> None:
    assert twins.write(ROWS, partition_by=["name"]) is None
    error = twins.write(MORE, mode=mode, partition_by=["id"])
    assert isinstance(error, TxnLogSchemaError)
    assert "Specified table partitioning does not match table partitioning" in str(error)
    assert twins.write(MORE, mode=mode, partition_by=["name"]) is None
    twins.assert_alike()


@pytest.mark.parametrize("partition_by", [None, [], ["id"]])
def test_schema_overwrite_may_change_partition_columns(twins: Twins, partition_by: Any) -> None:
    assert twins.write(ROWS, partition_by=["name"]) is None
    options = {"mode": "overwrite", "schema_mode": "overwrite", "partition_by": partition_by}
    assert twins.write(ROWS, **options) is None
    twins.assert_alike()


def test_unknown_partition_column_is_rejected(twins: Twins) -> None:
    error = twins.write(ROWS, partition_by=["day"])
    assert "Partition column 'day' not found in schema" in str(error)


# Replace where


@pytest.mark.parametrize("partition_by", [None, ["name"]])
@pytest.mark.parametrize(
    ("predicate", "data"),
    [
        ("id = 1", pa.table({"id": [1], "name": ["new"]})),
        ("id >= 1", pa.table({"id": [5, 6], "name": ["x", None]})),
        ("id = 7", pa.table({"id": [7], "name": ["new"]})),
        ("name = 'x'", pa.table({"id": [8, 9], "name": ["x", "x"]})),
        ("name = 'x' OR name IS NULL", pa.table({"id": [8], "name": pa.nulls(1, pa.string())})),
        ("id = 1 AND name = 'x'", ROWS.slice(0, 0)),
        ("name = 'x' OR name = 'y'", pa.table({"id": [1], "name": ["y"]})),
    ],
)
def test_overwrite_with_predicate_replaces_matching_rows(
    twins: Twins, predicate: str, data: pa.Table, partition_by: Any
) -> None:
    assert twins.write(ROWS, partition_by=partition_by) is None
    assert twins.write(MORE, mode="append") is None
    assert twins.write(data, mode="overwrite", predicate=predicate) is None
    twins.assert_alike()


def test_predicate_of_an_overwrite_is_evaluated_in_its_flavour(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    # Spark divides integers to a fraction and unescapes a backslash; DataFusion does neither.
    predicate = r"id / 2 = 0.5 AND name = 'C:\\x'"
    given = pa.table({"id": [1, 0], "name": ["C:\\x", "C:\\x"]})
    new = given.slice(0, 1)
    with deltasql.connect(catalog_uri, table={"data_root": str(tmp_path)}) as catalog:
        with catalog.begin() as tx:
            tx.write("t", given)
        request = WriteRequest("overwrite", predicate=predicate, flavour="spark")
        with catalog.begin() as tx:
            assert tx.write_rows("t", new, request)["num_removed_files"] == 1
        with pytest.raises(InvalidDataError), catalog.begin() as tx:
            tx.write_rows("t", new, replace(request, flavour="datafusion"))
        recorded = [row.info.operation_parameters for row in catalog.table("t").history()]
    assert recorded[0]["predicate"] == r"id / 2 = 0.5 AND name = 'C:\x'"


def test_overwrite_with_predicate_rewrites_only_files_with_matches(filled: Twins) -> None:
    deltasql.write_deltalake(filled.uri, MORE, mode="append")
    before = set(deltasql.DeltaTable(filled.uri).file_uris())
    new = pa.table({"id": [1], "name": ["new"]})
    deltasql.write_deltalake(filled.uri, new, mode="overwrite", predicate="id = 1")
    after = set(deltasql.DeltaTable(filled.uri).file_uris())
    assert len(before & after) == 1
    assert len(after) == 2


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_written_rows_must_match_the_predicate(filled: Twins, mode: Any) -> None:
    data = pa.table({"id": [1, 5, None], "name": ["a", "b", "c"]})
    error = filled.write(data, mode=mode, predicate="id = 1")
    assert isinstance(error, InvalidDataError)
    assert error.full_message.startswith("Invalid data found: 2 rows failed validation check.")
    assert "| 5  | b    |" in str(error)
    filled.assert_alike()


def test_unknown_column_in_predicate_is_rejected(filled: Twins) -> None:
    assert isinstance(filled.write(MORE, mode="overwrite", predicate="zz = 1"), TxnLogError)


def test_replaced_rows_are_in_the_change_data(twins: Twins) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    assert twins.write(ROWS, configuration=feed) is None
    new = pa.table({"id": [1], "name": ["new"]})
    assert twins.write(new, mode="overwrite", predicate="id = 1") is None
    found = [
        sorted(
            (row["id"], row["name"], row["_change_type"])
            for row in pa.table(table.load_cdf(starting_version=1)).to_pylist()
        )
        for table in (
            deltalake.DeltaTable(twins.path),
            deltalake.DeltaTable(twins.location),
            deltasql.DeltaTable(twins.uri),
        )
    ]
    assert found == [[(1, "new", "insert"), (1, "x", "delete")]] * 3


# Handles and commits


def test_write_moves_the_handle_to_the_new_version(filled: Twins) -> None:
    table = deltasql.DeltaTable(filled.uri)
    deltasql.write_deltalake(table, MORE, mode="append")
    deltasql.write_deltalake(table, MORE, mode="append")
    assert table.version() == 2
    assert len(rows(table)) == 4
    with pytest.raises(TableExistsError, match="A table already exists at"):
        deltasql.write_deltalake(table, MORE)
    deltasql.write_deltalake(table, MORE, mode="ignore")
    assert table.version() == 2


def test_paths_and_deltalake_tables_are_written_by_deltalake(tmp_path: Path) -> None:
    deltasql.write_deltalake(tmp_path / "a", ROWS)
    stock = deltalake.DeltaTable(str(tmp_path / "a"))
    deltasql.write_deltalake(stock, MORE, mode="append")
    assert stock.version() == 1
    with pytest.raises(ValueError, match="table_or_uri must be"):
        deltasql.write_deltalake(5, ROWS)  # type: ignore[arg-type]


def test_append_from_a_stale_handle_succeeds(filled: Twins) -> None:
    stale = deltasql.DeltaTable(filled.uri)
    deltasql.write_deltalake(filled.uri, MORE, mode="append")
    deltasql.write_deltalake(stale, MORE, mode="append")
    assert stale.version() == 2
    assert len(rows(stale)) == 4


def test_overwrite_from_a_stale_handle_keeps_newer_appends(filled: Twins) -> None:
    stale = deltasql.DeltaTable(filled.uri)
    deltasql.write_deltalake(filled.uri, MORE, mode="append")
    deltasql.write_deltalake(stale, ROWS.slice(0, 1), mode="overwrite")
    assert sorted(stale.to_pyarrow_table()["id"].to_pylist()) == [1, 3]


def test_two_overwrites_of_one_version_conflict(filled: Twins) -> None:
    stale = deltasql.DeltaTable(filled.uri)
    deltasql.write_deltalake(filled.uri, MORE, mode="overwrite")
    with pytest.raises(CommitConflictError):
        deltasql.write_deltalake(stale, ROWS, mode="overwrite")


def test_append_with_an_older_schema_conflicts(filled: Twins) -> None:
    stale = deltasql.DeltaTable(filled.uri)
    wider = MORE.append_column("more", [[1]])
    deltasql.write_deltalake(filled.uri, wider, mode="append", schema_mode="merge")
    with pytest.raises(CommitConflictError, match="Metadata changed"):
        deltasql.write_deltalake(stale, MORE, mode="append")


def test_taken_version_is_an_error_without_retries(filled: Twins) -> None:
    stale = deltasql.DeltaTable(filled.uri)
    once = CommitProperties(max_commit_retries=0)
    deltasql.write_deltalake(filled.uri, MORE, mode="append", commit_properties=once)
    with pytest.raises(VersionTakenError, match=r"^Failed to commit transaction: 0"):
        deltasql.write_deltalake(stale, MORE, mode="append", commit_properties=once)


def test_commit_properties_reach_the_log(filled: Twins) -> None:
    custom = {"ticket": {"id": 7}, "userName": "ann", "operationParameters": {"z": 1, "mode": "?"}}
    commit = CommitProperties(custom_metadata=custom, app_transactions=[Transaction("etl", 3)])
    post = PostCommitHookProperties(create_checkpoint=False)
    options = {"commit_properties": commit, "post_commithook_properties": post}
    assert filled.write(MORE, mode="append", **options) is None
    filled.assert_alike()
    for table in (deltasql.DeltaTable(filled.uri), deltalake.DeltaTable(filled.location)):
        last = table.history(1)[0]
        assert (last["ticket"], last["userName"]) == ({"id": 7}, "ann")
        assert table.transaction_version("etl") == 3


@pytest.mark.parametrize(
    "custom",
    [
        {"timestamp": 1},
        {"engineInfo": "me"},
        {"operationParameters": "x"},
        {"readVersion": 1.5},
        {"isBlindAppend": "x"},
        {"isolationLevel": "none"},
        {"userId": 5},
        {"x": float("nan")},
        {"x": object()},
        {5: "x"},
    ],
)
def test_invalid_custom_metadata_is_rejected(filled: Twins, custom: Any) -> None:
    commit = CommitProperties(custom_metadata=custom)
    error = filled.write(MORE, mode="append", commit_properties=commit)
    assert isinstance(error, ValueError)
    assert "CommitProperties.custom_metadata" in str(error)
    filled.assert_alike()


def test_writer_properties_apply_to_data_files(filled: Twins) -> None:
    import pyarrow.parquet as pq

    shape = WriterProperties(compression="ZSTD", compression_level=3, max_row_group_size=10)
    many = pa.table({"id": range(25), "name": ["n"] * 25})
    deltasql.write_deltalake(filled.uri, many, mode="overwrite", writer_properties=shape)
    (path,) = deltasql.DeltaTable(filled.uri).file_uris()
    footer = pq.read_metadata(path)
    assert footer.num_row_groups == 3
    assert footer.row_group(0).column(0).compression == "ZSTD"


def test_target_file_size_splits_files(filled: Twins) -> None:
    import numpy

    numbers = numpy.random.default_rng(0).integers(0, 2**60, 400_000)
    many = pa.table({"id": numbers, "name": ["n"] * len(numbers)})
    deltasql.write_deltalake(filled.uri, many, mode="overwrite", target_file_size=1024 * 1024)
    assert len(deltasql.DeltaTable(filled.uri).file_uris()) >= 3


def test_error_names_the_path_of_a_missing_struct_field(twins: Twins) -> None:
    address = pa.struct([("city", pa.string()), ("zip", pa.string())])
    rows = pa.table({"to": pa.array([{"city": "x", "zip": "1"}], address)})
    deltasql.write_deltalake(twins.uri, rows)
    other = pa.table({"to": [{"city": "x", "code": "1"}]})
    with pytest.raises(TxnLogSchemaError) as caught:
        deltasql.write_deltalake(twins.uri, other, mode="append")
    assert caught.value.column == "to.code"
