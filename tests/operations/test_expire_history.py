"""Expired versions are gone; every other version, reader and commit is as before."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

import deltasql
from deltasql.api.inspect import totals
from deltasql.exceptions import (
    CommitConflictError,
    FilesTakenError,
    TxnLogConfigError,
    TxnLogMirrorError,
    TxnLogTransactionError,
    VersionNotFoundError,
)
from deltasql.mirror.checkpoint.source import CheckpointSource
from deltasql.mirror.log.encode import actions_span
from deltasql.operations import expire_history as expiry
from deltasql.operations.changes.log import ChangeLog
from deltasql.store.sqlite import dialect
from deltasql.verify.sql_state import SqlState
from tests.clock import Clock
from tests.conftest import new_catalog_uri
from tests.operations.maintenance import in_order, open_lake, published, stock_rows
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.progress import Progress
    from deltasql.store.dialect import Session
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
YEAR_S = 365 * 24 * 3600.0
LOG_TABLES = (
    *("dl_table_versions", "dl_add_files", "dl_file_stats", "dl_remove_files", "dl_cdc_files"),
    *("dl_metadata_updates", "dl_protocol_updates", "dl_txn_actions", "dl_domain_metadata"),
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "VERSIONS_PER_BATCH", 3)
    monkeypatch.setattr(expiry, "ROWS_PER_BATCH", 4)
    monkeypatch.setattr(expiry, "_FILE_IDS_PER_BATCH", 5)


def rows(first: int, last: int, part: str = "a") -> pa.Table:
    ids = range(first, last)
    return pa.table({"id": ids, "part": [part] * len(ids)}, SCHEMA)


def write(catalog: Catalog, table: pa.Table, name: str = "t", **options: Any) -> None:
    with catalog.begin() as tx:
        tx.write(name, table, **options)


def filled(catalog: Catalog, versions: int = 8, **options: Any) -> Catalog:
    """Create the table `t` with appends and, in every third version, a delete."""
    catalog.create_table("t", SCHEMA, **options)
    for version in range(1, versions + 1):
        with catalog.begin() as tx:
            if version % 3 == 0:
                tx.delete("t", f"id = {10 * (version - 1)}")
            else:
                tx.write("t", rows(10 * version, 10 * version + 3))
    return catalog


def pass_a_year(clock: Clock) -> None:
    """Set the clock ahead, beyond every retention."""
    clock.ahead_s += YEAR_S


def expire(catalog: Catalog, clock: Clock, **options: Any) -> expiry.ExpiredHistory:
    """Expire the history with a clock that is ahead of every retention."""
    pass_a_year(clock)
    return catalog.expire_history("t", dry_run=False, **options)


def vacuum(catalog: Catalog, clock: Clock, **options: Any) -> list[str]:
    pass_a_year(clock)
    return catalog.vacuum("t", dry_run=False, **options)


def state(catalog: Catalog, version: int, name: str = "t") -> dict[str, Any]:
    """Return everything that a version says about its table."""
    table = catalog.table(name)
    found = SqlState(catalog.store, table.row, version)
    snapshot = table.snapshot(version)
    return {
        "files": in_order(found.files),
        "metadata": found.metadata,
        "protocol": found.protocol,
        "txns": found.txns,
        "domains": found.domains,
        "totals": found.totals,
        "plan": sorted(snapshot.scan("id > 30").paths()),
        "part": sorted(snapshot.scan("part = 'b'").paths()),
    }


def counts(catalog: Catalog) -> dict[str, int]:
    """Return the number of rows of the table `t` in each table of the log."""
    table_id = catalog.table("t").row.table_id
    found = {}
    with catalog.store.session() as session:
        for name in LOG_TABLES:
            query = f"SELECT count(*) FROM {name} WHERE table_id = {table_id}"
            found[name] = raw(catalog, session, query)
    return found


def raw(catalog: Catalog, session: Any, query: str) -> int:
    connection = getattr(session, "_connection", None)
    assert connection is not None
    return int(connection.execute(query).fetchone()[0])


def random_commit(catalog: Catalog, choice: random.Random, number: int) -> None:
    kind = choice.choice(["append", "append", "delete", "overwrite", "optimize", "property", "txn"])
    part = choice.choice("ab")
    if kind == "optimize":
        catalog.optimize("t")
        return
    with catalog.begin() as tx:
        if kind == "append":
            tx.write("t", rows(10 * number, 10 * number + 5, part))
        elif kind == "delete":
            tx.delete("t", f"id % 7 = {choice.randrange(7)}")
        elif kind == "overwrite":
            tx.write("t", rows(10 * number, 10 * number + 2, part), mode="overwrite")
        elif kind == "property":
            tx.set_table_properties("t", {"note": str(number)}, raise_if_not_exists=False)
        else:
            tx.write("t", rows(10 * number, 10 * number + 1, part))
            application = deltasql.Transaction(choice.choice("xy"), number)
            properties = deltasql.CommitProperties(app_transactions=[application])
            tx.set_commit_properties("t", properties)


@pytest.mark.every_database
@pytest.mark.parametrize("seed", smoke(range(1, 9), [1], "more random tables"))
def test_every_version_that_is_left_is_unchanged(catalog: Catalog, clock: Clock, seed: int) -> None:
    choice = random.Random(seed)
    properties = {"delta.enableChangeDataFeed": "true"} if seed % 2 else {}
    catalog.create_table("t", SCHEMA, partition_by=["part"], properties=properties)
    while catalog.table("t").version() < 12:
        random_commit(catalog, choice, catalog.table("t").version() + 1)
    last = catalog.table("t").version()
    vacuum(catalog, clock)
    before = {version: state(catalog, version) for version in range(last + 1)}
    for first in (5, last - 3):
        pass_a_year(clock)
        plan = catalog.expire_history("t", before_version=first)
        done = expire(catalog, clock, before_version=first)
        assert (plan.dry_run, done.dry_run) == (True, False)
        assert (plan.rows, plan.versions) == (done.rows, done.versions)
        assert done.first_version == first
        assert catalog.inspect.first_version("t") == first
        for version in range(first, last + 1):
            assert state(catalog, version) == before[version], version
        for version in range(first):
            with pytest.raises(VersionNotFoundError, match=f"it has {first} to "):
                catalog.table("t").snapshot(version)
    assert counts(catalog)["dl_table_versions"] == catalog.table("t").version() - last + 4
    checks = {check.name: check.status for check in catalog.inspect.doctor().checks}
    assert checks["integrity"] == checks["orphan rows"] == "ok"


@pytest.mark.two_databases
def test_rows_that_no_version_needs_are_deleted(catalog: Catalog, clock: Clock) -> None:
    filled(catalog)
    write(catalog, rows(0, 3), mode="overwrite")
    vacuum(catalog, clock)
    last = catalog.table("t").version()
    expire(catalog, clock, before_version=last)
    left = counts(catalog)
    assert left["dl_table_versions"] == left["dl_add_files"] == 1
    assert left["dl_file_stats"] == 2  # of two columns
    assert left["dl_remove_files"] == left["dl_cdc_files"] == 0
    assert left["dl_metadata_updates"] == left["dl_protocol_updates"] == 1


def test_dry_run_changes_nothing(catalog: Catalog, clock: Clock) -> None:
    filled(catalog)
    before = counts(catalog)
    pass_a_year(clock)
    plan = catalog.expire_history("t", before_version=5)
    assert counts(catalog) == before
    assert plan.to_dict()["versions"] == 5
    assert plan.limited_by == "before_version"
    assert "5 versions and" in plan.summary()


def test_history_changes_and_restores_begin_at_the_first_version(
    catalog: Catalog, clock: Clock
) -> None:
    filled(catalog)
    expire(catalog, clock, before_version=4)
    table = catalog.table("t")
    assert [row.version for row in table.history()] == [8, 7, 6, 5, 4]
    assert [each.version for each in catalog.inspect.history("t").items] == [8, 7, 6, 5, 4]
    changed = catalog.changes("t", 5).read_all()["_commit_version"].to_pylist()
    assert set(changed) == {5, 6, 7, 8}
    with pytest.raises(VersionNotFoundError, match="version 4") as caught:
        catalog.changes("t", 4)
    assert "Start at version 5" in str(caught.value)
    with catalog.begin() as tx, pytest.raises(VersionNotFoundError, match="it has 4 to 8"):
        tx.restore("t", 3)
    with catalog.begin() as tx, pytest.raises(VersionNotFoundError):
        tx.restore("t", datetime(2000, 1, 1, tzinfo=UTC))
    with catalog.begin() as tx:
        tx.restore("t", 4)
    assert table.snapshot().totals() == table.snapshot(4).totals()


@pytest.mark.every_database
def test_snapshot_opened_before_the_expiry_raises_an_error(catalog: Catalog, clock: Clock) -> None:
    filled(catalog)
    reads = {
        "files": lambda snapshot: snapshot.files(),
        "paths": lambda snapshot: snapshot.file_paths(),
        "plan": lambda snapshot: snapshot.scan("id > 30").paths(),
        "nothing": lambda snapshot: snapshot.scan("id > 30000").paths(),
        "totals": lambda snapshot: snapshot.totals(),
        "transactions": lambda snapshot: snapshot.transactions(),
        "domains": lambda snapshot: snapshot.domains(),
    }
    opened = {name: catalog.table("t").snapshot(3) for name in reads}
    expire(catalog, clock, before_version=5)
    catalog.cache.clear()
    for name, read in reads.items():
        with pytest.raises(VersionNotFoundError, match="t has no version 3; it has 5 to 8"):
            read(opened[name])
            pytest.fail(name)


@pytest.mark.every_database
def test_cached_files_of_an_expired_version_are_not_updated(catalog: Catalog, clock: Clock) -> None:
    filled(catalog, 2)
    with deltasql.connect(catalog.uri) as reader:
        stale = reader.table("t").snapshot()
        stale.files()
        stale.files_to_read()
        reader.inspect.stats("t")
        with catalog.begin() as tx:
            tx.delete("t", "id = 10")
        write(catalog, rows(50, 52), mode="overwrite")
        write(catalog, rows(60, 62))
        expire(catalog, clock, before_version=5)
        table = catalog.table("t")
        expected = sorted(SqlState(catalog.store, table.row, 5).files["path"].to_pylist())
        assert len(expected) == 2
        latest = reader.table("t").snapshot()
        assert sorted(latest.files()["path"].to_pylist()) == expected
        assert sorted(latest.files_to_read()["path"].to_pylist()) == expected
        assert reader.inspect.stats("t").files == 2


def test_changes_that_are_read_during_an_expiry_raise_an_error(
    catalog: Catalog, clock: Clock
) -> None:
    filled(catalog)
    log = ChangeLog(catalog.store, catalog.table("t").row, catalog.config.storage)
    started = log.versions(4, 8)
    expire(catalog, clock, before_version=5)
    for changes in (started, log.versions(2, 8), log.versions(5, 8)):
        with pytest.raises(VersionNotFoundError, match="it has 5 to 8"):
            next(changes)
    assert [each.version for each in log.versions(6, 8)] == [6, 7, 8]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_change_feed_that_starts_at_expired_version_0_raises(
    catalog: Catalog, clock: Clock, mode: str
) -> None:
    filled(catalog, 4)
    write(catalog, rows(50, 52), mode=mode)
    write(catalog, rows(60, 62))
    log = ChangeLog(catalog.store, catalog.table("t").row, catalog.config.storage)
    expire(catalog, clock, before_version=5)
    with pytest.raises(VersionNotFoundError, match="t has no version 0; it has 5 to 6"):
        list(log.versions(0, 6))


@pytest.mark.parametrize("backend", ["sqlite"])  # others bind a list of any length
def test_expiry_between_the_parts_of_a_long_list_is_not_seen(
    catalog: Catalog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("t", SCHEMA, partition_by=["part"])
    for part in "abcdefghijklmnopqrst":
        write(catalog, rows(0, 2, part))
    snapshot = catalog.table("t").snapshot()
    write(catalog, rows(0, 2, "z"), mode="overwrite")
    last = catalog.table("t").version()
    expand, parts = dialect._expand, 0

    def expire_before_the_second_part(*arguments: Any) -> Any:
        nonlocal parts
        if arguments[0] == "files_in_partitions":
            parts += 1
            if parts == 2:
                expire(catalog, clock, before_version=last)
        return expand(*arguments)

    monkeypatch.setattr(dialect, "_LIST_CHUNK", 2)
    monkeypatch.setattr(dialect, "_expand", expire_before_the_second_part)
    assert len(snapshot.scan("part IN ('a', 'b', 'c', 'd')").files) == 4
    assert parts == 2


def test_export_during_an_expiry_raises_an_error(
    catalog: Catalog, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    filled(catalog)
    expire(catalog, clock, before_version=2)
    read = CheckpointSource.live_files

    def expire_before(source: CheckpointSource) -> Iterator[pa.Table]:
        expire(catalog, clock, before_version=5)
        yield from read(source)

    monkeypatch.setattr(CheckpointSource, "live_files", expire_before)
    with pytest.raises(VersionNotFoundError, match="t has no version 2; it has 5 to 8"):
        catalog.export_table("t", str(tmp_path / "copy"))
    assert not list((tmp_path / "copy" / "_delta_log").glob("*.checkpoint.parquet"))


def test_commit_that_expires_while_it_is_read_raises_an_error(
    catalog: Catalog, clock: Clock
) -> None:
    filled(catalog, 4)
    write(catalog, rows(50, 52), mode="overwrite")
    table_id = catalog.table("t").row.table_id
    with catalog.store.session() as session:

        class Reading:
            def query(self, name: str, **params: Any) -> list[Any]:
                if name == "adds_between":
                    expire(catalog, clock, before_version=5)
                return session.query(name, **params)

        with pytest.raises(VersionNotFoundError, match="begins at version 5"):
            actions_span(cast("Session", Reading()), table_id, 1, 2)
        with pytest.raises(VersionNotFoundError, match="begins at version 5"):
            actions_span(session, table_id, 1, 2)


def test_cached_totals_of_an_expired_version_are_not_updated(
    catalog: Catalog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "_FEW_FILES", 0)
    filled(catalog, 2)
    assert catalog.inspect.table("t").files == 2
    write(catalog, rows(50, 52), mode="overwrite")
    expire(catalog, clock, before_version=3)
    write(catalog, rows(60, 62))
    assert catalog.inspect.table("t").files == 2


@pytest.mark.two_databases
def test_transaction_based_on_an_expired_version_conflicts(catalog: Catalog, clock: Clock) -> None:
    filled(catalog, 3)
    tx = catalog.begin()
    tx.delete("t", "id = 11")
    blind = catalog.begin()
    blind.write("t", rows(70, 71))
    for number in range(4):
        write(catalog, rows(100 + number, 101 + number))
    expire(catalog, clock, before_version=5)
    before = counts(catalog)
    with pytest.raises(CommitConflictError, match="version 3, on which the transaction is based"):
        tx.commit()
    assert counts(catalog) == before
    assert blind.commit()["t"] == 8
    with catalog.begin() as again:
        again.delete("t", "id = 11")


def test_transaction_based_on_the_first_version_commits(catalog: Catalog, clock: Clock) -> None:
    filled(catalog, 4)
    tx = catalog.begin()
    tx.delete("t", "id = 11")
    write(catalog, rows(200, 201))
    expire(catalog, clock, before_version=4)
    assert tx.commit()["t"] == 6


@pytest.mark.two_databases
def test_files_taken_by_an_expired_vacuum_are_not_committed(catalog: Catalog, clock: Clock) -> None:
    filled(catalog, 2)
    tx = catalog.begin()
    tx.write("t", rows(70, 71))
    assert vacuum(catalog, clock)
    write(catalog, rows(80, 81))
    expire(catalog, clock, before_version=catalog.table("t").version())
    with pytest.raises(FilesTakenError):
        tx.commit()


@pytest.mark.two_databases
def test_vacuum_finds_the_same_files_after_the_expiry(catalog: Catalog, clock: Clock) -> None:
    filled(catalog, properties={"delta.enableChangeDataFeed": "true"})
    pass_a_year(clock)
    wanted = catalog.vacuum("t")
    assert wanted
    done = expire(catalog, clock, before_version=8)
    assert done.waiting_for_vacuum == counts(catalog)["dl_remove_files"] > 0
    pass_a_year(clock)
    assert sorted(catalog.vacuum("t")) == sorted(wanted)
    assert sorted(vacuum(catalog, clock)) == sorted(wanted)
    again = expire(catalog, clock)
    assert again.waiting_for_vacuum == 0
    assert again.rows["dl_remove_files"] == done.waiting_for_vacuum
    left = counts(catalog)
    assert left["dl_remove_files"] == left["dl_cdc_files"] == 0


def test_versions_that_a_vacuum_kept_stay(catalog: Catalog, clock: Clock) -> None:
    filled(catalog)
    vacuum(catalog, clock, keep_versions=[3])
    kept = state(catalog, 3)
    done = expire(catalog, clock)
    assert (done.first_version, done.limited_by) == (3, "versions that the last vacuum kept")
    assert state(catalog, 3) == kept


def test_versions_that_a_vacuum_kept_stay_although_it_spared_files_of_a_clone(
    catalog: Catalog, clock: Clock
) -> None:
    filled(catalog)
    catalog.clone("t", "link", shallow=True, version=4)
    write(catalog, rows(100, 101), mode="overwrite")
    assert vacuum(catalog, clock, keep_versions=[2])
    kept = state(catalog, 2)
    done = expire(catalog, clock)
    assert (done.first_version, done.limited_by) == (2, "versions that the last vacuum kept")
    assert state(catalog, 2) == kept
    vacuum(catalog, clock)
    assert expire(catalog, clock).first_version > 2


def test_versions_that_a_vacuum_kept_stay_although_it_deleted_nothing(
    catalog: Catalog, clock: Clock
) -> None:
    filled(catalog, 2)
    assert vacuum(catalog, clock, keep_versions=[1]) == []
    assert expire(catalog, clock).first_version == 1
    before = catalog.table("t").version()
    assert vacuum(catalog, clock, keep_versions=[1]) == []
    assert catalog.table("t").version() == before
    assert vacuum(catalog, clock) == []
    assert expire(catalog, clock).first_version > 2


def test_versions_that_a_failed_vacuum_kept_stay(
    catalog: Catalog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(catalog)

    def fail(*_: Any) -> None:
        raise OSError("the storage is down")

    with monkeypatch.context() as patch:
        patch.setattr("deltasql.api.catalog.vacuum.delete_data", fail)
        with pytest.raises(OSError, match="storage is down"):
            vacuum(catalog, clock, keep_versions=[3])
    assert expire(catalog, clock).first_version == 3


@pytest.mark.two_databases
def test_vacuum_and_expiry_at_the_same_time_keep_the_same_versions(
    catalog: Catalog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(catalog)
    delete = expiry._Expiry.delete_versions

    def after_a_vacuum(self: expiry._Expiry, first: int) -> None:
        vacuum(catalog, clock, keep_versions=[3])
        delete(self, first)

    with monkeypatch.context() as patch:
        patch.setattr(expiry._Expiry, "delete_versions", after_a_vacuum)
        assert expire(catalog, clock, before_version=6).versions == 0
    assert expire(catalog, clock, before_version=6).first_version == 3
    assert state(catalog, 3)["files"]


def test_commits_of_the_last_hour_stay(catalog: Catalog, clock: Clock) -> None:
    properties = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
    filled(catalog, properties=dict.fromkeys(properties, "interval 0 seconds"))
    done = catalog.expire_history("t", dry_run=False)
    assert (done.first_version, done.limited_by) == (0, "retention")
    clock.ahead_s += 3601
    assert catalog.expire_history("t", dry_run=False).first_version == 8


def test_retention_of_the_table_is_the_shortest(catalog: Catalog) -> None:
    filled(catalog, properties={"delta.logRetentionDuration": "interval 40 days"})
    done = catalog.expire_history("t", dry_run=False)
    assert (done.versions, done.first_version, done.limited_by) == (0, 0, "retention")
    with pytest.raises(TxnLogConfigError, match="960 hours") as caught:
        catalog.expire_history("t", retention_hours=24)
    assert "delta.logRetentionDuration" in str(caught.value)
    with pytest.raises(VersionNotFoundError, match="its latest is 8"):
        catalog.expire_history("t", before_version=9)


@pytest.mark.every_database
@pytest.mark.parametrize("stop_after", smoke([1, 2, 4, 6], [4], "stops at other batches"))
def test_interrupted_expiry_is_finished_by_the_next(
    catalog: Catalog, clock: Clock, stop_after: int
) -> None:
    filled(catalog)
    vacuum(catalog, clock)
    last = catalog.table("t").version()
    before = {version: state(catalog, version) for version in range(last + 1)}
    calls = 0

    def interrupt(_: Progress) -> None:
        nonlocal calls
        calls += 1
        if calls > stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        expire(catalog, clock, before_version=last, on_progress=interrupt)
    low = catalog.inspect.first_version("t")
    for version in range(low, last + 1):
        assert state(catalog, version) == before[version]
    expire(catalog, clock, before_version=last)
    assert state(catalog, last) == before[last]
    left = counts(catalog)
    assert left["dl_table_versions"] == 1
    assert left["dl_add_files"] == len(before[last]["files"])
    assert left["dl_remove_files"] == 0


@pytest.mark.every_database
def test_writers_and_readers_continue_during_an_expiry(catalog: Catalog, clock: Clock) -> None:
    filled(catalog, 12)
    stop, failures, written = threading.Event(), [], []

    def work() -> None:
        number = 1000
        try:
            while not stop.is_set():
                number += 1
                write(catalog, rows(number, number + 1))
                written.append(number)
                found = catalog.query("SELECT count(*) AS n FROM t WHERE id > 1000").read_all()
                assert found["n"].to_pylist() == [len(written)]
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        done = expire(catalog, clock, before_version=12)
    finally:
        stop.set()
        writer.join()
    assert failures == []
    assert done.first_version == 12
    assert catalog.inspect.first_version("t") == 12
    found = catalog.query("SELECT id FROM t WHERE id > 1000 ORDER BY id").read_all()
    assert found["id"].to_pylist() == written


def test_catalog_cannot_be_read_at_a_time_before_the_first_version(
    catalog: Catalog, clock: Clock
) -> None:
    filled(catalog)
    catalog.create_table("other", SCHEMA)
    history = {row.version: row.committed_at_ms for row in catalog.table("t").history()}
    then = datetime.fromtimestamp(history[2] / 1000, UTC)
    assert set(catalog.as_of(then)) == {"t"}
    expire(catalog, clock, before_version=5)
    with pytest.raises(VersionNotFoundError, match="history of t begins at version 5"):
        catalog.as_of(then)
    assert set(catalog.as_of(datetime.now(UTC))) == {"t", "other"}


def test_commits_of_several_tables_keep_their_other_participants(
    catalog: Catalog, clock: Clock
) -> None:
    for name in ("t", "u"):
        catalog.create_table(name, SCHEMA)
    with catalog.begin() as tx:
        tx.write("t", rows(0, 1))
        tx.write("u", rows(0, 1))
    write(catalog, rows(1, 2))
    expire(catalog, clock, before_version=2)
    assert [row.version for row in catalog.table("u").history()] == [1, 0]
    [event] = catalog.inspect.transactions().items
    assert [each.table for each in event.participants] == ["u"]


def test_table_that_was_never_published_cannot_be_published_or_replicated(
    catalog: Catalog, clock: Clock, tmp_path: Path
) -> None:
    filled(catalog)
    expire(catalog, clock, before_version=3)
    with pytest.raises(TxnLogMirrorError, match="its log begins at version 3"):
        catalog.mirror.add_target("t", "copy", str(tmp_path / "copy"))
    with open_lake(catalog.uri, tmp_path) as publishing:
        with pytest.raises(VersionNotFoundError, match="begins at version 3"):
            publishing.mirror.publish("t")
        [status] = publishing.mirror.status("t")
        assert status.published_version == -1
        assert "version 0 has expired" in (status.last_error or "")
    assert not list(Path(status.location).glob("_delta_log/*.json"))


# With a published log


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that publishes; its table `t` has a checkpoint in every second version."""
    with open_lake(catalog_uri, tmp_path) as catalog:
        properties = {"delta.checkpointInterval": "2"}
        yield filled(catalog, 10, properties=properties)


def clean_log(catalog: Catalog, clock: Clock) -> None:
    """Delete the old files of the published log."""
    table = deltasql.DeltaTable(catalog.table("t").uri)
    pass_a_year(clock)
    table.cleanup_metadata()


def log_of(catalog: Catalog) -> Path:
    return Path(catalog.table("t").location) / "_delta_log"


def test_versions_of_the_published_log_stay(lake: Catalog, clock: Clock) -> None:
    done = expire(lake, clock)
    assert (done.versions, done.first_version) == (0, 0)
    assert done.limited_by == "the published log 'table'"


def test_unpublished_versions_stay(lake: Catalog, clock: Clock) -> None:
    with deltasql.connect(lake.uri, mirror={"mode": "off"}) as silent:
        write(silent, rows(300, 301))
        limits = {each.reason: each.first_version for each in silent.expire_history("t").limits}
        assert limits["versions to publish to 'table'"] == 10


@pytest.mark.two_databases
def test_published_log_can_be_verified_repaired_and_rebuilt(
    lake: Catalog, clock: Clock, tmp_path: Path
) -> None:
    vacuum(lake, clock)
    write(lake, rows(300, 302))
    clean_log(lake, clock)
    first_in_log = min(int(path.name[:20]) for path in log_of(lake).glob("0*"))
    assert first_in_log > 5
    done = expire(lake, clock)
    assert done.first_version == first_in_log - 1
    assert lake.inspect.first_version("t") == first_in_log - 1
    # verify
    [report] = lake.mirror.verify("t", versions="all")
    assert report.ok, report.summary()
    # publish
    write(lake, rows(310, 312))
    assert published(lake).version() == lake.table("t").version()
    # repair: a commit file, a checkpoint, then everything
    expected = stock_rows(lake)
    for pattern in (f"{lake.table('t').version():020d}.json", "*.checkpoint.parquet", "*"):
        for path in log_of(lake).glob(pattern):
            if path.is_file():
                path.unlink()
        repaired = lake.mirror.repair("t")
        assert repaired.ok, (pattern, repaired.summary())
        assert stock_rows(lake) == expected
        [report] = lake.mirror.verify("t", versions="all")
        assert report.ok, (pattern, report.summary())
    # rebuild
    (tmp_path / "rebuilt").mkdir()
    uri = next(new_catalog_uri("sqlite", tmp_path / "rebuilt"))
    assert deltasql.rebuild(uri, str(tmp_path / "lake")).ok
    with deltasql.connect(uri) as again:
        version = lake.table("t").version()
        assert again.table("t").version() == version
        assert state(again, version)["plan"] == state(lake, version)["plan"]


def test_removed_files_in_the_oldest_checkpoint_stay(lake: Catalog, clock: Clock) -> None:
    clock.ahead_s += 2 * 24 * 3600
    write(lake, rows(300, 301))
    write(lake, rows(301, 302))
    assert vacuum(lake, clock)  # its checkpoint also deletes the log before the one at version 12
    done = lake.expire_history("t", dry_run=False)
    assert done.first_version == 11
    assert counts(lake)["dl_remove_files"] == 3  # of the versions 3, 6 and 9
    assert (done.waiting_for_vacuum, "dl_remove_files" in done.rows) == (0, False)
    [report] = lake.mirror.verify("t", versions="all")
    assert report.ok, report.summary()
    expire(lake, clock, before_version=11)
    assert counts(lake)["dl_remove_files"] == 3


def test_log_can_be_cleaned_and_expired_again_and_again(lake: Catalog, clock: Clock) -> None:
    for number in range(3):
        for each in range(4):
            write(lake, rows(1000 * number + each, 1000 * number + each + 2))
        write(lake, rows(0, 2), mode="overwrite")
        vacuum(lake, clock)
        clean_log(lake, clock)
        before = lake.inspect.first_version("t")
        done = expire(lake, clock)
        assert done.first_version > before
        [report] = lake.mirror.verify("t", versions="all")
        assert report.ok, report.summary()


def test_exported_table_begins_at_the_first_version(
    lake: Catalog, clock: Clock, tmp_path: Path
) -> None:
    clean_log(lake, clock)
    first = expire(lake, clock).first_version
    report = lake.export_table("t", str(tmp_path / "copy"))
    assert report.first_version == first
    (tmp_path / "other").mkdir()
    with deltasql.connect(
        next(new_catalog_uri("sqlite", tmp_path / "other")), create=True
    ) as other:
        other.import_table(str(tmp_path / "copy"), name="t")
        assert other.inspect.first_version("t") == first
        for version in range(first, 11):
            assert len(other.table("t").files(version)) == len(lake.table("t").files(version))


def test_table_that_follows_a_log_is_refused(lake: Catalog, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with deltasql.connect(
        next(new_catalog_uri("sqlite", tmp_path / "other")), create=True
    ) as other:
        other.follow(lake.table("t").location, name="t")
        with pytest.raises(TxnLogTransactionError, match="follows the log"):
            other.expire_history("t")
