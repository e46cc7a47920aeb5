"""Shallow and deep clones: the rows, schema and properties of a version, in a table of its own."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import (
    CommitConflictError,
    InvalidQueryError,
    MissingDataFilesError,
    TableExistsError,
    TxnLogError,
    TxnLogTableNotFoundError,
    TxnLogTransactionError,
)
from deltasql.model.protocol import FENCE, writer_features
from deltasql.phases import hooked
from tests.each import check_each
from tests.migrate.authority_support import everything_below
from tests.mirror.support import commit_lines, open_mirrored
from tests.oracles import tables, tables_staged
from tests.oracles.fixed_set import SMALL, Builder
from tests.oracles.readers import Deltalake, Place
from tests.oracles.states import Rows, arrow_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})
SMOKE: list[Builder] = [
    tables.string_partitions,
    tables_staged.absolute_path,
    tables_staged.mapped_partition,
    tables_staged.deletion_vectors,
]
NO_RETENTION: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(catalog_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def source(lake: Catalog) -> str:
    """A partitioned table with three rows in version 0 and one row in version 1."""
    with lake.begin() as tx:
        tx.write("source", ROWS, partition_by="day")
    with lake.begin() as tx:
        tx.delete("source", "id > 1")
    return "source"


def ids(lake: Catalog, name: str) -> list[int]:
    table = deltasql.DeltaTable(lake.table(name).uri)
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


def read_rows(lake: Catalog, name: str) -> Rows:
    """Return the rows that our engine reads."""
    with lake.begin() as tx:
        return arrow_rows(tx.read(name))


def stock_ids(lake: Catalog, name: str) -> list[int]:
    """Return the ids that stock deltalake reads from the published table."""
    table = deltalake.DeltaTable(lake.table(name).location)
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


def check_clones(folder: Path, build: Builder) -> None:
    """Clone every version of a table in both ways, and compare the rows."""
    with open_mirrored(f"deltasql://sqlite/{folder}/meta.db", folder / "lake") as lake:
        (table,) = build(lake)
        for version, rows in enumerate(table.states):
            for name, shallow in ((f"deep{version}", False), (f"shallow{version}", True)):
                lake.clone(table.name, name, shallow=shallow, version=version)
                assert read_rows(lake, name) == rows
        shutil.rmtree(table.table.location)
        for version, rows in enumerate(table.states):
            place = Place(lake.table(f"deep{version}").location)
            assert Deltalake().rows(place, 0) == rows
            (report,) = lake.mirror.verify(f"deep{version}", data="rows")
            assert report.ok, report.summary()


@pytest.mark.one_database
def test_clones_of_every_version_have_its_rows(tmp_path: Path) -> None:
    """The tables have encoded partition values, mapped columns, vectors and absolute paths."""
    check_each(SMOKE, lambda build: check_clones(tmp_path / build.__name__, build))


@pytest.mark.one_database
@pytest.mark.everything("clones of more tables")
def test_clones_of_all_fixed_tables_have_their_rows(tmp_path: Path) -> None:
    rest = [build for build in SMALL if build not in SMOKE]
    check_each(rest, lambda build: check_clones(tmp_path / build.__name__, build))


def test_deep_clone_is_independent_and_shallow_clone_is_not(lake: Catalog, source: str) -> None:
    deep = lake.clone(source, "deep")
    shallow = lake.clone(source, "shallow", shallow=True, version=0)
    assert (deep.version, deep.source_version, deep.files, deep.copied_files) == (0, 1, 1, 1)
    assert (shallow.files, shallow.copied_files, shallow.is_shallow) == (2, 0, True)
    assert deep.copied_bytes == deep.bytes > 0
    assert ids(lake, "deep") == stock_ids(lake, "deep") == [1]
    assert ids(lake, "shallow") == [1, 2, 3]
    for name in ("deep", "shallow"):
        with lake.begin() as tx:
            tx.write(name, pa.table({"id": [9], "day": ["c"]}))
    assert ids(lake, source) == [1]
    shutil.rmtree(lake.table(source).location)
    assert ids(lake, "deep") == [1, 9]
    with pytest.raises(MissingDataFilesError):
        ids(lake, "shallow")


def test_clone_has_the_schema_and_the_properties_of_its_source(lake: Catalog) -> None:
    lake.create_table(
        "source",
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]),
        properties={"delta.appendOnly": "false", "delta.enableChangeDataFeed": "true", "my": "own"},
        description="all orders",
        cluster_by=["id"],
        location=f"{lake.config.table.data_root}/elsewhere",
    )
    with lake.begin() as tx:
        tx.add_constraint("source", {"positive": "id > 0"})
        tx.write("source", pa.table({"id": [1], "name": ["a"]}))
    lake.fence("source")
    lake.clone("source", "copy", properties={"my": "other", "delta.appendOnly": "true"})
    old, new = (lake.table(name).snapshot() for name in ("source", "copy"))
    assert new.schema == old.schema
    assert new.metadata.description == "all orders"
    changed = {"my": "other", "delta.appendOnly": "true"}
    kept = {k: v for k, v in old.metadata.configuration.items() if "nCommit" not in k}
    kept.pop("deltasql.tableName")
    assert {k: v for k, v in new.metadata.configuration.items() if "nCommit" not in k} == {
        **kept,
        **changed,
    }
    assert new.domains().keys() == old.domains().keys()
    assert writer_features(old.protocol) - writer_features(new.protocol) == {FENCE}
    with pytest.raises(TxnLogError, match="positive"), lake.begin() as tx:
        tx.write("copy", pa.table({"id": [0], "name": ["a"]}))


def test_several_tables_are_cloned_in_one_transaction(lake: Catalog, source: str) -> None:
    lake.clone(source, "other")
    with lake.begin() as tx:
        for name in (source, "other"):
            tx.clone(name, f"{name}_copy")
            tx.clone(name, f"{name}_link", shallow=True)
    names = {f"{name}_{kind}" for name in (source, "other") for kind in ("copy", "link")}
    assert tx.versions == dict.fromkeys(names, 0)
    infos = [lake.table(name).history()[0] for name in names]
    assert len({info.txn_id for info in infos}) == 1
    assert all(ids(lake, name) == [1] for name in names)


def test_clone_that_is_rolled_back_leaves_no_file(lake: Catalog, source: str) -> None:
    before = everything_below(Path(lake.config.table.data_root))
    with pytest.raises(ZeroDivisionError), lake.begin() as tx:
        tx.clone(source, "copy")
        assert everything_below(Path(lake.config.table.data_root)) != before
        raise ZeroDivisionError
    assert everything_below(Path(lake.config.table.data_root)) == before
    assert not lake.exists("copy")


def test_intents_of_copied_files_are_recorded_before_the_copies_are_written(
    lake: Catalog, source: str
) -> None:
    """A vacuum then keeps the copies while the process runs, and deletes them if it was killed."""
    seen: list[int] = []

    def look(phase: str) -> None:
        if phase == "written":
            seen.append(len(lake.store.query("staged_files_before", before_ms=2**62)))

    with hooked(look):
        lake.clone(source, "copy", version=0)
    assert seen == [2]
    assert not lake.store.query("staged_files_before", before_ms=2**62)


def test_clone_replaces_a_table_and_keeps_its_history(lake: Catalog, source: str) -> None:
    with lake.begin() as tx:
        tx.write("target", pa.table({"x": ["old"]}))
    with pytest.raises(TableExistsError):
        lake.clone(source, "target")
    lake.fence("target")
    report = lake.clone(source, "target", replace=True)
    assert (report.version, report.removed_files, report.copied_files) == (2, 1, 1)
    assert ids(lake, "target") == stock_ids(lake, "target") == [1]
    assert FENCE in writer_features(lake.table("target").snapshot().protocol)
    for _ in range(2):  # the same files again
        lake.clone(source, "target", replace=True)
    assert ids(lake, "target") == [1]
    assert deltasql.DeltaTable(lake.table("target").uri, version=0).to_pyarrow_table().num_rows == 1
    lake.vacuum("target", **NO_RETENTION, dry_run=False, full=True)
    assert ids(lake, "target") == [1]
    with pytest.raises(TxnLogTransactionError, match="itself"):
        lake.clone("target", "target", replace=True)


def test_commit_info_describes_the_clone(lake: Catalog, source: str) -> None:
    lake.clone(source, "copy", shallow=True, version=0)
    info = lake.table("copy").history()[0].info
    assert info.operation == "CLONE"
    assert info.operation_parameters == {
        "source": lake.table(source).location,
        "sourceVersion": "0",
        "isShallow": "true",
    }
    metrics = {"sourceNumOfFiles": 2, "numCopiedFiles": 0, "numRemovedFiles": 0}
    assert metrics.items() <= info.operation_metrics.items()


def test_progress_counts_copied_files(lake: Catalog, source: str) -> None:
    seen: list[Any] = []
    lake.clone(source, "copy", version=0, on_progress=seen.append)
    last = seen[-1]
    assert (last.phase, last.unit, last.done, last.total) == ("copying", "files", 2, 2)
    assert last.bytes > 0


# Files that are missing, and vacuum


def test_version_without_its_files_is_not_cloned(lake: Catalog, source: str) -> None:
    lake.vacuum(source, **NO_RETENTION, dry_run=False)
    for shallow in (False, True):
        with pytest.raises(MissingDataFilesError, match="vacuum"):
            lake.clone(source, "copy", shallow=shallow, version=0)
    assert not lake.exists("copy")


@pytest.mark.parametrize("way", ["catalog", "transaction", "sql", "DeltaTable", "chain"])
def test_vacuum_keeps_the_files_of_shallow_clones(
    lake: Catalog, source: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    if way == "catalog":
        lake.clone(source, "link", shallow=True, version=0)
    elif way == "transaction":
        with lake.begin() as tx:
            tx.clone(source, "link", shallow=True, version=0)
    elif way == "sql":
        lake.sql(f"CREATE TABLE link SHALLOW CLONE {source} VERSION AS OF 0")
    elif way == "DeltaTable":
        deltasql.DeltaTable(lake.table(source).uri, version=0).clone("link", shallow=True)
    else:
        lake.clone(source, "first", shallow=True, version=0)
        lake.clone("first", "link", shallow=True)
        lake.drop("first")
    with lake.begin() as tx:
        tx.write(source, ROWS, mode="overwrite")
    for full in (False, True):
        lake.vacuum(source, **NO_RETENTION, full=full, dry_run=False)
    assert ids(lake, "link") == [1, 2, 3]


@pytest.mark.one_database
def test_vacuum_keeps_deletion_vectors_of_shallow_clones(lake: Catalog) -> None:
    (table,) = tables_staged.deletion_vectors(lake)
    head = lake.table(table.name).version()
    lake.clone(table.name, "link", shallow=True)
    with lake.begin() as tx:
        tx.delete(table.name)
    for full in (False, True):
        lake.vacuum(table.name, **NO_RETENTION, full=full, dry_run=False)
    assert read_rows(lake, "link") == table.states[head]


@pytest.mark.one_database
def test_full_vacuum_keeps_copied_deletion_vectors(lake: Catalog) -> None:
    (table,) = tables_staged.deletion_vectors(lake)
    head = lake.table(table.name).version()
    lake.clone(table.name, "copy")
    assert lake.vacuum("copy", **NO_RETENTION, full=True, dry_run=False) == []
    assert Deltalake().rows(Place(lake.table("copy").location), 0) == table.states[head]


def test_clones_of_a_table_with_deletion_vectors_write_separate_vectors(lake: Catalog) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    lake.create_table("s", ROWS.schema, properties=properties)
    with lake.begin() as tx:
        tx.write("s", pa.table({"id": range(1000), "day": ["a"] * 1000}))
    with lake.begin() as tx:
        tx.delete("s", "id = 0")
    lake.clone("s", "deep")
    lake.clone("s", "link", shallow=True)
    for number, name in enumerate(("s", "deep", "link"), 1):
        with lake.begin() as tx:
            metrics = tx.delete(name, f"id = {number}")
        assert metrics["num_deletion_vectors_added"] == 1, metrics
    for full in (False, True):
        for name in ("s", "deep", "link"):
            lake.vacuum(name, **NO_RETENTION, full=full, dry_run=False)
    for number, name in enumerate(("s", "deep", "link"), 1):
        assert ids(lake, name) == [i for i in range(1000) if i not in (0, number)]
    (report,) = lake.mirror.verify("deep", data="rows")
    assert report.ok, report.summary()


# Errors


def test_clone_of_a_table_that_the_transaction_changes_is_refused(
    lake: Catalog, source: str
) -> None:
    with lake.begin() as tx:
        tx.write(source, ROWS)
        with pytest.raises(TxnLogTransactionError, match="this transaction changes it"):
            tx.clone(source, "copy")
        tx.clone(source, "copy", version=1)
        with pytest.raises(TxnLogTransactionError, match="this transaction changes it"):
            tx.clone("copy", "copy2")
    assert ids(lake, "copy") == [1]


def test_concurrent_creation_of_the_target_is_a_conflict(lake: Catalog, source: str) -> None:
    for replace, error in ((False, TableExistsError), (True, CommitConflictError)):
        name = f"target_{replace}"
        with pytest.raises(error), lake.begin() as tx:
            tx.clone(source, name, replace=replace)
            with lake.begin() as other:
                other.write(name, pa.table({"x": [1]}))
        assert lake.table(name).version() == 0


def test_location_of_another_table_is_refused(lake: Catalog, source: str) -> None:
    location = lake.table(source).location
    for place in (location, f"{location}/below"):
        with pytest.raises(TableExistsError):
            lake.clone(source, "copy", location=place)


def test_unknown_source_is_refused(lake: Catalog) -> None:
    lake.create_table("source", ROWS.schema)
    with pytest.raises(TxnLogTableNotFoundError, match="Did you mean source"):
        lake.clone("sorce", "copy")


# SQL and DeltaTable


def test_sql_clones_versions_and_timestamps(lake: Catalog, source: str, tmp_path: Path) -> None:
    at = lake.table(source).snapshot(0).committed_at.astimezone(UTC)
    place = tmp_path / "place"
    (row,) = lake.sql(f"CREATE TABLE a CLONE {source} VERSION AS OF 0").to_pylist()
    assert (row["source_num_of_files"], row["num_copied_files"]) == (2, 2)
    lake.sql(f"CREATE TABLE b SHALLOW CLONE {source} TIMESTAMP AS OF '{at:%Y-%m-%d %H:%M:%S.%f}'")
    lake.sql(f"CREATE TABLE IF NOT EXISTS b DEEP CLONE {source}")
    lake.sql(f"CREATE TABLE c DEEP CLONE {source} TBLPROPERTIES ('my'='own') LOCATION '{place}'")
    assert (ids(lake, "a"), ids(lake, "b"), ids(lake, "c")) == ([1, 2, 3], [1, 2, 3], [1])
    assert lake.table("c").location == str(place)
    assert lake.table("c").snapshot().metadata.configuration["my"] == "own"
    lake.sql(f"CREATE OR REPLACE TABLE a SHALLOW CLONE {source}")
    lake.sql(f"REPLACE TABLE b CLONE {source}")
    assert (ids(lake, "a"), ids(lake, "b"), lake.table("b").version()) == ([1], [1], 1)
    with pytest.raises(TableExistsError):
        lake.sql(f"CREATE TABLE a CLONE {source}")
    with pytest.raises(TxnLogTableNotFoundError):
        lake.sql(f"REPLACE TABLE missing CLONE {source}")
    for wrong in ("CREATE TABLE d SHALLOW s", f"CREATE TABLE d CLONE {source} PARTITIONED BY (id)"):
        with pytest.raises(InvalidQueryError):
            lake.sql(wrong)


def test_sql_clones_several_tables_between_begin_and_commit(lake: Catalog, source: str) -> None:
    with deltasql.SqlSession(lake) as session:
        for text in (
            "BEGIN",
            f"CREATE TABLE a SHALLOW CLONE {source}",
            f"CREATE TABLE b DEEP CLONE {source} VERSION AS OF 0",
            "DELETE FROM b WHERE id = 2",
            "COMMIT",
        ):
            session.sql(text)
    assert (ids(lake, "a"), ids(lake, "b")) == ([1], [1, 3])
    assert lake.table("b").version() == 0


def test_delta_table_clone_copies_the_loaded_version(
    lake: Catalog, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    table = deltasql.DeltaTable(lake.table(source).uri, version=0)
    copy = table.clone("copy", properties={"my": "own"})
    assert sorted(copy.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    assert copy.metadata().configuration["my"] == "own"
    stock = deltasql.DeltaTable(lake.table(source).location)
    with pytest.raises(TxnLogError, match="not a table of a catalog"):
        stock.clone("copy2")


def test_clone_at_a_timestamp(lake: Catalog, source: str) -> None:
    lake.clone(source, "copy", timestamp=lake.table(source).snapshot(0).committed_at)
    assert ids(lake, "copy") == [1, 2, 3]
    with pytest.raises(TxnLogError):
        lake.clone(source, "copy2", timestamp=datetime(2001, 1, 1, tzinfo=UTC))


def test_deep_clone_copies_no_change_data(lake: Catalog) -> None:
    lake.create_table("s", ROWS.schema, properties={"delta.enableChangeDataFeed": "true"})
    with lake.begin() as tx:
        tx.write("s", ROWS)
    with lake.begin() as tx:
        tx.delete("s", "id = 1")
    lake.clone("s", "copy")
    kinds = [next(iter(line)) for line in commit_lines(lake.table("copy").location, 0)]
    assert "cdc" not in kinds
    assert ids(lake, "copy") == [2, 3]
