"""A lost catalog is rebuilt from the published logs, equal to the original at every version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.api.catalog.connect import is_new
from deltasql.mirror.log.encode import commits_between
from deltasql.verify.sql_state import SqlState
from deltasql.verify.verify_log import verify_table
from tests.conftest import add_file, new_catalog_uri
from tests.mirror.published import CHECKPOINT, HEAD, append, publish_history, storage_of
from tests.mirror.support import LOG, commit_path, forget_commits_below, log_bytes, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.model.progress import Progress
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture
def lost(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with three tables, one of them in another namespace."""
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        with catalog.begin() as tx:
            tx.create_table("crm.customers", SCHEMA)
            tx.create_table("orders", SCHEMA, partition_by=["p"])
        for number in range(3):
            rows = pa.table({"id": [number], "p": ["x"]})
            with catalog.begin() as tx:
                tx.write("crm.customers", rows)
                tx.write("orders", rows)
        yield catalog


@pytest.fixture
def empty_uri(backend: str, tmp_path: Path) -> Iterator[DeltaSqlUri]:
    """A second catalog, in each database."""
    folder = tmp_path / "new"
    folder.mkdir()
    yield from new_catalog_uri(backend, folder)


def content(catalog: Catalog, name: str, first: int = 0) -> list[tuple[Any, ...]]:
    """Return everything that SQL stores about a table, at every version."""
    table = catalog.table(name)
    history = {row.version: row for row in table.history()}
    with catalog.store.session() as session:
        encoded = dict(commits_between(session, table.row.table_id, first, max(history)))
    out = []
    for version in sorted(each for each in history if each >= first):
        state = SqlState(catalog.store, table.row, version)
        row = history[version]
        out.append(
            (
                version,
                row.committed_at_ms,
                row.txn_id,
                row.group_size,
                row.info,
                state.metadata,
                state.protocol,
                state.txns,
                state.domains,
                state.files.sort_by("path").to_pylist(),
                encoded[version],
            )
        )
    return out


def verified(catalog: Catalog) -> bool:
    """Assert that the log of every table equals SQL at every version; return True."""
    reports = [
        verify_table(catalog.store, table.row, storage_of(table), versions="all")
        for table in catalog.tables()
    ]
    assert [each.summary() for each in reports if not each.ok] == []
    return bool(reports)


def test_rebuilt_catalog_equals_the_lost_catalog(
    lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    report = deltasql.rebuild(empty_uri, str(tmp_path / "lake"))
    assert report.ok, report.summary()
    assert sorted(each.name or "" for each in report.tables) == ["crm.customers", "orders", "t"]
    with open_mirrored(empty_uri, tmp_path / "lake") as catalog:
        assert [t.full_name for t in catalog.tables()] == [t.full_name for t in lost.tables()]
        for name in ("t", "orders", "crm.customers"):
            assert catalog.table(name).location == lost.table(name).location
            assert catalog.table(name).row.table_uuid == lost.table(name).row.table_uuid
            assert content(catalog, name) == content(lost, name)
        assert verified(catalog)
        pending = [(each.state, each.pending) for each in catalog.mirror.status()]
        assert pending == [("ACTIVE", 0)] * 3


def test_rebuild_restores_a_transaction_of_many_tables(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    names = [f"t{number}" for number in range(101)]
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        with catalog.begin() as tx:
            for name in names:
                tx.create_table(name, SCHEMA)
        wanted = [content(catalog, name) for name in names]
    (tmp_path / "new").mkdir()
    with deltasql.connect(next(new_catalog_uri("sqlite", tmp_path / "new"))) as again:
        assert deltasql.rebuild(again.uri, str(tmp_path / "lake")).ok
        assert {each.group_size for each in again.table("t7").history()} == {101}
        assert [content(again, name) for name in names] == wanted


@pytest.mark.two_databases
def test_rebuilt_table_accepts_commits(
    lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    deltasql.rebuild(empty_uri, str(tmp_path / "lake"))
    with open_mirrored(empty_uri, tmp_path / "lake") as catalog:
        assert append(catalog, 9) == HEAD + 1
        table = catalog.table("t")
        assert commit_path(table.location, HEAD + 1).exists()
        assert deltalake.DeltaTable(table.location).version() == HEAD + 1
        assert catalog.table("t").scan("id = 9").files
        assert verified(catalog)


def test_repeated_rebuild_changes_nothing(
    lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    root = str(tmp_path / "lake")
    deltasql.rebuild(empty_uri, root)
    before = log_bytes(lost.table("t").location)
    again = deltasql.rebuild(empty_uri, root)
    assert [(each.state, each.loaded) for each in again.tables] == [("up to date", 0)] * 3
    assert log_bytes(lost.table("t").location) == before


def test_dry_run_loads_nothing(lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path) -> None:
    report = deltasql.rebuild(empty_uri, str(tmp_path / "lake"), dry_run=True)
    assert {each.name for each in report.tables} == {"t", "orders", "crm.customers"}
    assert {each.state for each in report.tables} == {"would load"}
    assert is_new(empty_uri)
    with deltasql.connect(empty_uri, create=True) as catalog:
        assert deltasql.rebuild(catalog, str(tmp_path / "lake"), dry_run=True).tables
        assert catalog.tables() == []
        assert catalog.dropped() == []


@pytest.mark.two_databases
def test_interrupted_rebuild_is_continued(
    lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltasql.migrate.importing.load_table.BATCH_COMMITS", 2)

    def cut(progress: Progress) -> None:
        if progress.table.endswith("/t") and progress.done == 4:
            raise KeyboardInterrupt

    root = str(tmp_path / "lake")
    with pytest.raises(KeyboardInterrupt):
        deltasql.rebuild(empty_uri, root, on_progress=cut)
    with deltasql.connect(empty_uri) as catalog:
        assert catalog.tables() == []  # a partial table is invisible
    report = deltasql.rebuild(empty_uri, root)
    states = {each.name: (each.state, each.loaded) for each in report.tables}
    assert states["t"] == ("continued", HEAD + 1 - 4)
    with deltasql.connect(empty_uri) as catalog:
        assert content(catalog, "t") == content(lost, "t")
        assert verified(catalog)


def test_rebuild_updates_an_older_backup(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        pass
    database = Path(sqlite_uri.database)
    backup = database.read_bytes()
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        append(catalog, 20)
        append(catalog, 21)
        expected = content(catalog, "t")
    for file in database.parent.glob(f"{database.name}*"):
        if file.is_file():
            file.unlink()
    database.write_bytes(backup)
    report = deltasql.rebuild(sqlite_uri, str(tmp_path / "lake"))
    assert [(each.name, each.state, each.loaded) for each in report.tables] == [
        ("t", "continued", 2)
    ]
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        assert content(catalog, "t") == expected
        assert append(catalog, 22) == HEAD + 3
        assert verified(catalog)


def test_rebuild_is_rejected_when_the_log_has_diverged(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        location = catalog.table("t").location
    head, after = commit_path(location, HEAD), commit_path(location, HEAD + 1)
    after.write_bytes(head.read_bytes())
    head.write_bytes(commit_path(location, HEAD - 1).read_bytes())
    report = deltasql.rebuild(sqlite_uri, str(tmp_path / "lake"))
    assert not report.ok
    assert "not the same commit in the database and in the log" in report.summary()


@pytest.mark.two_databases
def test_cleaned_log_is_rebuilt_from_its_checkpoint(
    lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    location = Path(lost.table("t").location)
    forget_commits_below(location, CHECKPOINT)
    report = deltasql.rebuild(empty_uri, str(tmp_path / "lake"))
    assert report.ok, report.summary()
    (found,) = [each for each in report.tables if each.name == "t"]
    assert (found.first_version, found.last_version, found.loaded) == (CHECKPOINT, HEAD, 3)
    with open_mirrored(empty_uri, tmp_path / "lake") as catalog:
        for version in range(CHECKPOINT, HEAD + 1):
            ours, theirs = (SqlState(c.store, c.table("t").row, version) for c in (catalog, lost))
            assert ours.metadata == theirs.metadata
            assert ours.txns == theirs.txns
            drop = ["data_change"]  # which a checkpoint does not store
            assert (
                ours.files.drop_columns(drop)
                .sort_by("path")
                .equals(theirs.files.drop_columns(drop).sort_by("path"))
            )
        assert verified(catalog)
        assert [row.version for row in catalog.table("t").history()] == [8, 7, 6]
        assert append(catalog, 9) == HEAD + 1
        assert verified(catalog)


def test_rebuild_ignores_modification_times_of_copied_files(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        location = Path(catalog.table("t").location)
        times = {row.version: row.committed_at_ms for row in catalog.table("t").history()}
    forget_commits_below(location, CHECKPOINT + 1)
    for file in (location / LOG).iterdir():
        os.utime(file, (2_000_000_000, 2_000_000_000))
    uri = f"deltasql://sqlite/{tmp_path}/new.db"
    deltasql.rebuild(uri, str(tmp_path / "lake"))
    with deltasql.connect(uri) as catalog:
        found = {row.version: row.committed_at_ms for row in catalog.table("t").history()}
    assert found == {8: times[8], 7: times[7], 6: times[7] - 1}


@pytest.mark.two_databases
def test_rebuild_keeps_a_file_that_was_removed_and_added_again(
    lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    add = add_file("again.parquet", partition_values={"p": "x"})
    gone = deltasql.RemoveFile(path=add.path, deletion_timestamp=1)
    for actions in ([add], [gone], [add], [gone, add_file("b", partition_values={"p": "x"})]):
        with lost.begin() as tx:
            tx.stage_table("orders", actions)
    assert deltasql.rebuild(empty_uri, str(tmp_path / "lake")).ok
    with deltasql.connect(empty_uri) as catalog:
        assert content(catalog, "orders") == content(lost, "orders")
        assert verified(catalog)


def test_rebuild_includes_tables_of_other_writers(empty_uri: DeltaSqlUri, tmp_path: Path) -> None:
    place = tmp_path / "lake" / "events"
    for number in range(3):
        rows = pa.table({"id": [number], "day": ["2024-01-01"]})
        deltalake.write_deltalake(str(place), rows, mode="append", partition_by=["day"])
    deltalake.DeltaTable(str(place)).delete("id = 1")
    report = deltasql.rebuild(empty_uri, str(tmp_path / "lake"))
    assert [(each.name, each.loaded) for each in report.tables] == [("events", 4)]
    with open_mirrored(empty_uri, tmp_path / "lake") as catalog:
        assert catalog.table("events").history()[0].info.operation == "DELETE"
        assert verified(catalog)


def test_rebuild_gives_a_shared_name_to_the_newest_table(
    empty_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    with open_mirrored(f"deltasql://sqlite/{folder}/meta.db", tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        catalog.drop("t")
        catalog.create_table("t", SCHEMA)
        newest = catalog.table("t").location
    report = deltasql.rebuild(empty_uri, str(tmp_path / "lake"))
    with deltasql.connect(empty_uri) as catalog:
        assert sorted(table.name for table in catalog.tables()) == ["t", "t-2"]
        assert catalog.table("t").location == newest
    assert "name of a newer table" in report.summary()


def test_damaged_log_does_not_stop_the_other_tables(
    lost: Catalog, empty_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    commit_path(lost.table("orders").location, 2).write_text("{")
    report = deltasql.rebuild(empty_uri, str(tmp_path / "lake"))
    assert not report.ok
    states = {Path(each.location).name: each for each in report.tables}
    assert states["orders"].state == "failed"
    assert f"{LOG}/{2:020d}.json" in states["orders"].notes[0]
    assert states["t"].state == "loaded"
    with deltasql.connect(empty_uri) as catalog:
        assert [table.name for table in catalog.tables()] == ["customers", "t"]


def test_rebuild_without_a_folder_is_rejected(sqlite_uri: DeltaSqlUri) -> None:
    with pytest.raises(deltasql.exceptions.TxnLogConfigError, match="no folder"):
        deltasql.rebuild(sqlite_uri)
