"""The data source `deltasql` reads every table and makes one commit per write."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql.exceptions import (
    CommitConflictError,
    InvalidDataError,
    TxnLogConfigError,
    TxnLogEngineError,
    TxnLogSchemaError,
    TxnLogUriError,
)
from tests.mirror.support import open_mirrored
from tests.oracles import tables_staged
from tests.oracles.fixed_set import PLAIN, SMALL
from tests.oracles.readers import Deltalake, Place
from tests.oracles.states import arrow_rows
from tests.spark.in_process import load, moved, save, source, writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.oracles.writing import Written

IDS = pa.schema([("id", pa.int64()), ("part", pa.int64())])


def uri(lake: Catalog, name: str) -> str:
    return lake.uri.with_table(name).to_string()


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "part": [n % 2 for n in numbers]}, IDS)


def found(lake: Catalog, name: str) -> list[int]:
    return sorted(load(uri(lake, name))["id"].to_pylist())


def files_of(lake: Catalog, name: str) -> set[str]:
    """Return all data files below a table's folder, also unreferenced ones."""
    root = Path(lake.table(name).location)
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_every_version_of_every_table_is_read(
    lake: Catalog, make: Callable[[Catalog], list[Written]]
) -> None:
    [written] = make(lake)
    assert arrow_rows(load(written.table.uri)) == written.states[-1]
    for version in {0, len(written.states) // 2}:
        at = load(written.table.uri, versionAsOf=version)
        assert arrow_rows(at) == written.states[version]


@pytest.mark.parametrize("make", PLAIN, ids=lambda make: make.__name__)
def test_rows_written_by_the_data_source_are_read_by_deltalake(
    lake: Catalog, make: Callable[[Catalog], list[Written]]
) -> None:
    [written] = make(lake)
    rows = load(written.table.uri)
    place = str(Path(lake.table(written.name).location).parent / "copy")
    location = f"{uri(lake, 'copy')}&location={place}"
    names = list(written.partition_by)
    save(location, rows, partitionBy=json.dumps(names))
    assert arrow_rows(load(uri(lake, "copy"))) == written.states[-1]
    assert Deltalake().rows(Place(place), 0) == written.states[-1]


def test_timestamp_as_of_selects_the_version_at_that_time(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1))
    at = lake.table("t").snapshot().committed_at.isoformat()
    save(uri(lake, "t"), ids(2))
    assert load(uri(lake, "t"), timestampAsOf=at)["id"].to_pylist() == [1]


def test_reader_returns_the_version_at_load_time(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1))
    made = source(uri(lake, "t"))
    schema = made.schema()
    save(uri(lake, "t"), ids(2))
    reader = moved(made).reader(schema)
    rows = [
        row for part in reader.partitions() for batch in reader.read(part) for row in batch["id"]
    ]
    assert [row.as_py() for row in rows] == [1]


def test_all_tasks_of_a_write_are_one_commit(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1, 2), ids(3), ids())
    save(uri(lake, "t"), ids(4), userMetadata="nightly")
    assert found(lake, "t") == [1, 2, 3, 4]
    [last, first] = lake.table("t").history()
    assert (last.info.user_metadata, last.info.operation) == ("nightly", "WRITE")
    assert first.info.operation_metrics["num_added_rows"] == 3


def test_files_of_repeated_tasks_are_deleted(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(0))
    planned = writer(uri(lake, "t"), IDS)
    lost = planned.write(iter(ids(1, 2).to_batches()))
    again = planned.write(iter(ids(1, 2).to_batches()))
    assert len(files_of(lake, "t")) == 1 + len(lost.adds) + len(again.adds)
    moved(planned).commit([moved(again)])
    assert found(lake, "t") == [0, 1, 2]
    assert files_of(lake, "t") == set(lake.table("t").files()["path"].to_pylist())
    assert not lake.store.intents_before(2**60)


def test_aborted_write_leaves_no_files(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(0))
    before = files_of(lake, "t")
    planned = writer(uri(lake, "t"), IDS)
    done = planned.write(iter(ids(1).to_batches()))
    moved(planned).abort([moved(done), None])
    assert (files_of(lake, "t"), found(lake, "t")) == (before, [0])


def test_write_conflicts_with_a_concurrent_schema_change(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(0))
    planned = writer(uri(lake, "t"), IDS)
    done = planned.write(iter(ids(1).to_batches()))
    before = files_of(lake, "t")
    save(uri(lake, "t"), ids(2).append_column("more", pa.array(["x"])), mergeSchema=True)
    with pytest.raises(CommitConflictError):
        planned.commit([done])
    planned.abort([done])
    assert found(lake, "t") == [0, 2]
    assert not files_of(lake, "t") & (before - set(lake.table("t").files(0)["path"].to_pylist()))


def test_overwrite_replaces_all_rows_or_the_rows_that_match_replace_where(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1, 2, 3, 4), partitionBy="part")
    save(uri(lake, "t"), ids(5, 7), overwrite=True, replaceWhere="part = 1")
    assert found(lake, "t") == [2, 4, 5, 7]
    save(uri(lake, "t"), ids(6), overwrite=True, replaceWhere="id > 4")
    assert found(lake, "t") == [2, 4, 6]
    with pytest.raises(InvalidDataError):
        save(uri(lake, "t"), ids(1), overwrite=True, replaceWhere="id > 4")
    save(uri(lake, "t"), ids(9), overwrite=True)
    assert found(lake, "t") == [9]
    assert lake.table("t").snapshot().partition_columns == ("part",)


def test_replace_where_on_a_change_data_feed_table_names_the_alternative(lake: Catalog) -> None:
    lake.create_table("t", IDS, properties={"delta.enableChangeDataFeed": "true"})
    save(uri(lake, "t"), ids(1, 2, 3))
    with pytest.raises(TxnLogEngineError, match=r"deltasql\.spark\.write"):
        save(uri(lake, "t"), ids(3), overwrite=True, replaceWhere="id = 3")
    assert found(lake, "t") == [1, 2, 3]


def test_schema_changes_only_when_requested(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1))
    wider = ids(2).append_column("more", pa.array(["x"]))
    with pytest.raises(TxnLogSchemaError):
        save(uri(lake, "t"), wider)
    save(uri(lake, "t"), wider, mergeSchema=True)
    save(uri(lake, "t"), ids(3), mergeSchema=True)
    assert sorted(load(uri(lake, "t"))["more"].to_pylist(), key=str) == [None, None, "x"]
    save(uri(lake, "t"), pa.table({"id": ["a"]}), overwrite=True, overwriteSchema=True)
    assert load(uri(lake, "t")).to_pylist() == [{"id": "a"}]


def test_new_columns_of_a_column_mapped_table_use_physical_names(lake: Catalog) -> None:
    lake.create_table("t", IDS, properties={"delta.columnMapping.mode": "name"})
    save(uri(lake, "t"), ids(1))
    save(uri(lake, "t"), ids(2).append_column("more", pa.array(["x"])), mergeSchema=True)
    rows = {row["id"]: row["more"] for row in load(uri(lake, "t")).to_pylist()}
    assert rows == {1: None, 2: "x"}


def test_tasks_apply_generated_columns_and_constraints(lake: Catalog) -> None:
    [written] = tables_staged.rules(lake)
    at = pa.scalar("2024-03-01T10:00:00Z").cast(pa.timestamp("us", "UTC"))
    row = {"id": [3], "at": pa.array([at]), "n": pa.array([5], pa.int32())}
    save(written.table.uri, pa.table(row))
    rows = load(written.table.uri, versionAsOf=3).to_pylist()
    assert {row["id"]: str(row["day"]) for row in rows}[3] == "2024-03-01"
    with pytest.raises(InvalidDataError):
        save(written.table.uri, pa.table({**row, "id": [-1]}))


def test_write_with_a_transaction_version_is_applied_once(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1), txnAppId="job", txnVersion=7)
    for version in (7, 6):
        save(uri(lake, "t"), ids(2), txnAppId="job", txnVersion=version)
    save(uri(lake, "t"), ids(3), txnAppId="job", txnVersion=8)
    assert found(lake, "t") == [1, 3]
    assert len(files_of(lake, "t")) == 2


def test_concurrent_writes_of_one_application_id_conflict(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(0))
    both = [writer(uri(lake, "t"), IDS, txnAppId="job", txnVersion=1) for _ in range(2)]
    first, second = (each.write(iter(ids(1).to_batches())) for each in both)
    both[0].commit([first])
    with pytest.raises(CommitConflictError):
        both[1].commit([second])
    assert found(lake, "t") == [0, 1]


@pytest.mark.parametrize("options", [{}, {"replaceWhere": "id < 100"}])
def test_concurrent_overwrites_conflict(lake: Catalog, options: dict[str, Any]) -> None:
    save(uri(lake, "t"), ids())  # an empty table has no files that both would remove
    both = [writer(uri(lake, "t"), IDS, overwrite=True, **options) for _ in range(2)]
    first, second = (each.write(iter(ids(n).to_batches())) for n, each in enumerate(both))
    both[0].commit([first])
    with pytest.raises(CommitConflictError):
        both[1].commit([second])
    assert found(lake, "t") == [0]


def test_change_data_feed_of_versions_is_read(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1, 2))
    save(uri(lake, "t"), ids(3))
    with lake.begin() as tx:
        tx.delete("t", "id = 1")
    rows = load(uri(lake, "t"), readChangeFeed=True, startingVersion=1).to_pylist()
    changes = sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in rows)
    assert changes == [(1, "insert", 3), (2, "delete", 1)]
    older_name = load(uri(lake, "t"), readChangeData=True, startingVersion=1).to_pylist()
    assert sorted(map(str, older_name)) == sorted(map(str, rows))
    until = load(uri(lake, "t"), readChangeFeed=True, startingVersion=0, endingVersion=0)
    assert sorted(until["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"versionAsOff": 1}, TxnLogConfigError, "versionAsOf"),
        ({"versionAsOf": "x"}, TxnLogConfigError, "whole number"),
        ({"versionAsOf": 0, "timestampAsOf": "2024-01-01"}, TxnLogConfigError, "used together"),
        ({"readChangeFeed": True}, TxnLogConfigError, "startingVersion"),
        ({"path": "sales"}, TxnLogUriError, "register"),
        ({"provider": "deltasql", "owner": "ann"}, TxnLogConfigError, "saveAsTable"),
    ],
)
def test_invalid_options_are_rejected(
    lake: Catalog, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    save(uri(lake, "t"), ids(1))
    given = dict(options)
    with pytest.raises(error, match=message):
        load(given.pop("path", uri(lake, "t")), **given)


def test_data_source_reads_and_writes_a_postgres_catalog(
    postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(postgres_uri, tmp_path / "lake") as opened:
        opened.create_table("t", IDS, partition_by=["part"])
        save(uri(opened, "t"), ids(1, 2), ids(3), txnAppId="job", txnVersion=1)
        save(uri(opened, "t"), ids(5), overwrite=True, replaceWhere="part = 1")
        assert found(opened, "t") == [2, 5]
        assert not opened.store.intents_before(2**60)


def test_read_workers_do_not_get_the_database_uri(lake: Catalog) -> None:
    save(uri(lake, "t"), ids(1))
    made, streamed = source(uri(lake, "t")), source(uri(lake, "t"))
    reader = made.reader(made.schema())
    stream = streamed.streamReader(streamed.schema())
    sent = pickle.dumps((made, reader, reader.partitions(), streamed, stream))
    assert lake.uri.database.encode() not in sent
