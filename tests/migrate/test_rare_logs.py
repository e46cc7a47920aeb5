"""Import, verification and cutover of rare logs that the protocol allows."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from deltasql.exceptions import LogParseError, TxnLogStorageError, VersionGapError
from deltasql.mirror.log.encode import commits_between
from deltasql.model.clock import now_ms
from deltasql.storage.base import LONGEST_READ
from tests.migrate.handwritten import PROTOCOL, HandwrittenTable, added, column, metadata, removed
from tests.mirror.support import forget_commits_below, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
IDS = metadata(column("id"))


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(catalog_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path) -> HandwrittenTable:
    return HandwrittenTable(tmp_path / "t")


def ids(catalog: Catalog, name: str = "t") -> list[int]:
    found = catalog.query(f"SELECT id FROM {name} ORDER BY id").read_all()
    return [row["id"] for row in found.to_pylist()]


def assert_verified(catalog: Catalog, name: str = "t") -> None:
    (report,) = catalog.mirror.verify(name, versions="all")
    assert report.ok, report.summary()


def encoded(catalog: Catalog, name: str = "t") -> dict[int, list[dict[str, Any]]]:
    """Return the commits as SQL would publish them."""
    table = catalog.table(name)
    with catalog.store.session() as session:
        found = commits_between(session, table.row.table_id, 0, table.version())
    return {v: [json.loads(line) for line in data.splitlines()] for v, data in found}


# Forms of a path


SPELLINGS = ["{}", "file:{}", "file://{}", "file://localhost{}"]


def test_every_form_of_an_absolute_path_is_the_same_file(
    lake: Catalog, made: HandwrittenTable, tmp_path: Path
) -> None:
    first_file = made.add("kept.parquet", ROWS.slice(0, 1))
    outside = str(tmp_path / "outside")
    os.mkdir(outside)
    adds, removes = [], []
    for first, add in enumerate(SPELLINGS):
        for second, remove in enumerate(SPELLINGS):
            place = f"{outside}/{first}{second}.parquet"
            adds.append({"add": {**made.add("x", ROWS)["add"], "path": add.format(place)}})
            os.replace(made.folder / "x", place)
            removes.append(removed(remove.format(place)))
    made.commit(PROTOCOL, IDS, first_file, *adds)
    made.commit(*removes)
    report = lake.import_table(made.path, name="t")
    assert report.verification is not None
    assert report.verification.ok
    assert ids(lake) == [1]
    assert lake.table("t").files()["path"].to_pylist() == ["kept.parquet"]


def test_live_file_is_removed_by_any_form_of_its_path(
    lake: Catalog, made: HandwrittenTable
) -> None:
    """The removal may be in a later commit, which a repeated import loads."""
    place = made.folder / "x.parquet"
    add = made.add("x.parquet", ROWS)
    add["add"]["path"] = str(place)
    made.commit(PROTOCOL, IDS, add)
    lake.import_table(made.path, name="t")
    assert ids(lake) == [1, 2, 3]
    made.commit(removed(f"file:{place}"), {**add, "add": {**add["add"], "path": f"file://{place}"}})
    lake.import_table(made.path, name="t")
    assert ids(lake) == [1, 2, 3]
    made.commit(removed(str(place)))
    lake.import_table(made.path, name="t")
    assert ids(lake) == []
    assert_verified(lake)


def test_commit_removes_a_file_of_a_checkpoint_with_another_path_form(
    lake: Catalog, made: HandwrittenTable
) -> None:
    place = made.folder / "x.parquet"
    add = made.add("x.parquet", ROWS)
    add["add"]["path"] = f"file:{place}"
    made.commit(PROTOCOL, IDS, add)
    deltalake.DeltaTable(made.path).create_checkpoint()
    made.commit(removed(str(place)))
    (made.log / f"{0:020d}.json").unlink()
    lake.import_table(made.path, name="t")
    assert ids(lake) == []


def test_removals_find_files_stored_by_an_earlier_release(
    lake: Catalog, made: HandwrittenTable
) -> None:
    """That release computed path keys from the paths as they are written in the log."""
    import hashlib

    place = str(made.folder / "x.parquet")
    add = made.add("x.parquet", ROWS)
    add["add"]["path"] = f"file:{place}"
    made.commit(PROTOCOL, IDS, add)
    lake.import_table(made.path, name="t")
    path = add["add"]["path"]
    folder = hashlib.sha256(path.rpartition("/")[0].encode()).digest()[:4]
    key = folder + hashlib.sha256(path.encode()).digest()[:12]
    with lake.store.change() as (session, _):
        session.script(f"UPDATE dl_add_files SET path_key = {_blob(lake, key)}")
    with lake.begin() as tx:
        tx.delete("t", "id = 2")
    assert ids(lake) == [1, 3]


def _blob(catalog: Catalog, key: bytes) -> str:
    text = key.hex()
    kinds = {"sqlite": f"X'{text}'", "duckdb": f"unhex('{text}')"}
    return kinds.get(catalog.store.dialect.name, f"'\\x{text}'::bytea")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_delta_spark_agrees_on_path_forms(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, made: HandwrittenTable, tmp_path: Path
) -> None:
    place = str(made.folder / "x.parquet")
    add = made.add("x.parquet", ROWS)
    add["add"]["path"] = place
    made.commit(PROTOCOL, IDS, add, made.add("y.parquet", ROWS.slice(0, 1)))
    made.commit(removed(f"file:{place}", deletionTimestamp=now_ms()))
    # delta-spark compares paths within a partition of its state; with one partition it sees all
    # files.
    partitions = "spark.databricks.delta.snapshotPartitions"
    before = spark.conf.get(partitions)
    spark.conf.set(partitions, "1")
    try:
        assert [row["id"] for row in spark.read.format("delta").load(made.path).collect()] == [1]
    finally:
        spark.conf.set(partitions, before)
    with open_mirrored(sqlite_uri, tmp_path / "lake") as lake:
        lake.import_table(made.path, name="t")
        assert ids(lake) == [1]


# Transaction ids


def info(txn_id: object) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": 1, "operation": "WRITE", "txnId": txn_id}}


def test_log_with_repeated_transaction_ids_is_imported(
    lake: Catalog, made: HandwrittenTable
) -> None:
    texts: list[object] = ["same", "same", "", "x" * 10_000, 7, {"a": 1}, "NUL \0", "same"]
    made.commit(info(texts[0]), PROTOCOL, IDS, made.add("0.parquet", ROWS.slice(0, 1)))
    for number, text in enumerate(texts[1:], 1):
        made.commit(info(text), made.add(f"{number}.parquet", ROWS.slice(0, 1)))
    dry = lake.import_table(made.path, name="t", dry_run=True)
    report = lake.import_table(made.path, name="t")
    assert (dry.commits, dry.live_files) == (report.commits, report.live_files)
    assert_verified(lake)
    assert len({row.txn_id for row in lake.table("t").history()}) == len(texts)
    txn_ids = {v: lines[0]["commitInfo"].get("txnId") for v, lines in encoded(lake).items()}
    assert txn_ids == dict(enumerate(texts))
    # Test an import that continues, and a repeated import.
    made.commit(info("same"), made.add("8.parquet", ROWS.slice(0, 1)))
    assert lake.import_table(made.path, name="t").state == "continued"
    assert lake.import_table(made.path, name="t").state == "up to date"
    assert ids(lake) == [1] * 9


def test_log_with_repeated_transaction_ids_is_followed(
    lake: Catalog, made: HandwrittenTable
) -> None:
    made.commit(info("same"), PROTOCOL, IDS, made.add("0.parquet", ROWS.slice(0, 1)))
    lake.follow(made.path, name="t")
    for number in (1, 2):
        made.commit(info("same"), made.add(f"{number}.parquet", ROWS.slice(0, 1)))
        lake.follow(made.path, name="t")
    assert ids(lake) == [1, 1, 1]
    lake.cutover("t")
    with lake.begin() as tx:
        tx.write("t", ROWS)
    assert_verified(lake)


# A table that starts without a schema


def test_table_is_imported_from_the_first_version_with_a_schema(
    lake: Catalog, made: HandwrittenTable
) -> None:
    made.commit({"commitInfo": {"timestamp": 1}}, PROTOCOL, metadata(schemaString=None))
    made.commit({"commitInfo": {"timestamp": 2, "operation": "DLT SETUP"}})
    made.commit(
        {"commitInfo": {"timestamp": 3}},
        metadata(column("id")),
        {"txn": {"appId": "dlt", "version": 1}},
        made.add("a.parquet", ROWS),
    )
    made.commit({"commitInfo": {"timestamp": 4}}, made.add("b.parquet", ROWS))
    dry = lake.import_table(made.path, name="t", dry_run=True)
    report = lake.import_table(made.path, name="t")
    assert (dry.first_version, report.first_version, report.last_version) == (2, 2, 3)
    assert "begins at version 2: earlier versions have no schema" in report.notes
    assert ids(lake) == [1, 1, 2, 2, 3, 3]
    with lake.begin() as tx:
        tx.write("t", ROWS)
    # deltalake reads such a log only from a checkpoint
    (checked,) = lake.mirror.verify("t", versions="all", with_deltalake=False)
    assert checked.ok, checked.summary()
    lake.mirror.checkpoint("t")
    assert deltalake.DeltaTable(made.path).to_pyarrow_table().num_rows == 9
    assert lake.import_table(made.path, name="t").state == "up to date"


@pytest.mark.one_database
def test_table_without_a_schema_is_rejected(lake: Catalog, made: HandwrittenTable) -> None:
    made.commit(PROTOCOL, metadata(schemaString=None))
    made.commit({"commitInfo": {"timestamp": 2}})
    for dry_run in (True, False):
        with pytest.raises(LogParseError, match="has no schema up to version 1"):
            lake.import_table(made.path, name="t", dry_run=dry_run)
    assert lake.tables() == []


@pytest.mark.one_database
def test_metadata_that_removes_the_schema_is_rejected(
    lake: Catalog, made: HandwrittenTable
) -> None:
    made.commit(PROTOCOL, IDS)
    made.commit(metadata(schemaString=None))
    for dry_run in (True, False):
        with pytest.raises(LogParseError, match="without a schemaString"):
            lake.import_table(made.path, name="t", dry_run=dry_run)


# Unknown keys next to an action, and unknown files in the log


BESIDE: dict[str, Any] = {"futureThing": {"a": [1, 2.5, None]}, "note": "text", "n": 5}


def test_unknown_keys_next_to_an_action_are_ignored_and_kept(
    lake: Catalog, made: HandwrittenTable, tmp_path: Path
) -> None:
    made.commit(
        {"commitInfo": {"timestamp": 1, "operation": "WRITE"}, **BESIDE},
        {**PROTOCOL, **BESIDE},
        {**BESIDE, **IDS},
        {**made.add("a.parquet", ROWS), **BESIDE},
        {"x": 1, "y": {}},
    )
    made.commit(
        {**made.add("b.parquet", ROWS), **BESIDE},
        {**removed("a.parquet"), **BESIDE},
        {"txn": {"appId": "a", "version": 1}, **BESIDE},
        {"cdc": {**added("c.parquet")["add"], "dataChange": False}, **BESIDE},
    )
    lake.import_table(made.path, name="t")
    assert ids(lake) == [1, 2, 3]
    assert_verified(lake)
    for lines in encoded(lake).values():
        for line in lines:
            if set(line) == {"commitInfo"}:  # added for a commit without commitInfo
                continue
            assert {key: line[key] for key in BESIDE} == BESIDE, line
    # A checkpoint cannot store unknown keys. Verification must not report this as a difference.
    lake.mirror.checkpoint("t")
    forget_commits_below(made.folder, 1)
    assert_verified(lake)
    # An export contains unknown keys, too.
    lake.export_table("t", str(tmp_path / "exported"))
    first = (tmp_path / "exported" / "_delta_log" / f"{0:020d}.json").read_text()
    assert first.count("futureThing") == 4


@pytest.mark.one_database
def test_two_actions_in_one_line_are_rejected(lake: Catalog, made: HandwrittenTable) -> None:
    made.commit(PROTOCOL, IDS, {**added("a"), **removed("b")})
    with pytest.raises(LogParseError, match="one line holds two actions"):
        lake.import_table(made.path, name="t")


@pytest.mark.one_database
def test_key_inside_an_action_never_becomes_an_action(
    lake: Catalog, made: HandwrittenTable
) -> None:
    """Even if it has the name of the field that stores keys next to an action."""
    hidden = {"deltasql.beside": removed("a.parquet")}
    add = made.add("a.parquet", ROWS)
    made.commit(PROTOCOL, IDS, {"add": {**add["add"], **hidden}})
    lake.import_table(made.path, name="t")
    lines = encoded(lake)[0]
    assert not [line for line in lines if "remove" in line]


@pytest.mark.one_database
def test_log_file_with_an_impossible_version_is_ignored(
    lake: Catalog, made: HandwrittenTable
) -> None:
    made.commit(PROTOCOL, IDS, made.add("a.parquet", ROWS))
    for name in ("9" * 20 + ".json", "9" * 20 + ".checkpoint.parquet", "9" * 20 + ".crc"):
        (made.log / name).write_text("{}")
    lake.import_table(made.path, name="t")
    assert_verified(lake)
    with lake.begin() as tx:
        tx.write("t", ROWS)
    assert lake.import_table(made.path, name="t").state == "up to date"


@pytest.mark.one_database
def test_huge_version_gap_is_found_quickly(lake: Catalog, made: HandwrittenTable) -> None:
    made.commit(PROTOCOL, IDS)
    (made.log / f"{10**15:020d}.json").write_text('{"commitInfo":{}}')
    begun = time.monotonic()
    with pytest.raises(VersionGapError, match="versions 1 to 999999999999999 are missing"):
        lake.import_table(made.path, name="t")
    assert time.monotonic() - begun < 10


@pytest.mark.one_database
@pytest.mark.parametrize("name", ["commit", "checkpoint", "_last_checkpoint", "device"])
def test_pipe_or_device_in_a_log_is_rejected_quickly(
    lake: Catalog, made: HandwrittenTable, name: str
) -> None:
    made.commit(PROTOCOL, IDS)
    names = {
        "commit": f"{1:020d}.json",
        "device": f"{1:020d}.json",
        "checkpoint": f"{1:020d}.checkpoint.parquet",
        "_last_checkpoint": "_last_checkpoint",
    }
    if name == "checkpoint":
        made.commit({"commitInfo": {}})
        (made.log / f"{0:020d}.json").unlink()
    place = made.log / names[name]
    if name == "device":
        place.symlink_to("/dev/zero")
    else:
        os.mkfifo(place)
    begun = time.monotonic()
    with pytest.raises((TxnLogStorageError, LogParseError), match="pipe or a device"):
        lake.import_table(made.path, name="t")
    assert time.monotonic() - begun < 10


@pytest.mark.one_database
def test_oversized_log_lines_and_files_are_rejected(lake: Catalog, made: HandwrittenTable) -> None:
    made.commit(PROTOCOL, IDS)
    place = made.log / f"{1:020d}.json"
    place.write_text('{"commitInfo":{"note":"' + "x" * (64 << 20) + '"}}')
    with pytest.raises(LogParseError, match="a line of more than 64 MiB") as failure:
        lake.import_table(made.path, name="t")
    assert failure.value.line == 1
    with open(place, "wb") as file:
        file.truncate(LONGEST_READ + 1)  # a sparse file
    with pytest.raises(TxnLogStorageError, match=r"at most .* are read"):
        lake.import_table(made.path, name="t")
