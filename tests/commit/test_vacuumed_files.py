"""If a vacuum claims files of an open transaction, the whole commit of the transaction fails."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import FilesTakenError
from deltasql.operations.vacuum.unreferenced import find_unreferenced
from deltasql.operations.vacuum.vacuum import plan_vacuum
from deltasql.phases import hooked
from deltasql.storage import open_storage
from tests.clock import Clock
from tests.spark import in_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql import Catalog, MultiTableTransaction
    from deltasql.model.progress import Progress
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2, 3]})
FUTURE_MS = 2**60
MONTH_S = 30 * 24 * 3600.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def lake(catalog: Catalog) -> Catalog:
    for name in ("t", "u"):
        catalog.create_table(name, ROWS.schema)
        with (
            catalog.begin() as tx
        ):  # the catalog now knows the table, so the next append takes the short path
            tx.write(name, ROWS)
    return catalog


def data_files(catalog: Catalog) -> set[str]:
    return {
        str(path)
        for name in ("t", "u")
        for path in Path(catalog.table(name).location).rglob("*.parquet")
        if "_delta_log" not in path.parts
    }


def live_files(catalog: Catalog) -> set[str]:
    found: set[str] = set()
    for name in ("t", "u"):
        table = catalog.table(name)
        found |= {f"{table.location}/{path}" for path in table.snapshot().scan().paths()}
    return found


def late_vacuum(catalog: Catalog, clock: Clock, **options: Any) -> list[str]:
    """Vacuum with a clock that is ahead by more than the retention."""
    clock.ahead_s = MONTH_S
    try:
        return catalog.vacuum("t", dry_run=False, **options)
    finally:
        clock.ahead_s = 0


def append(tx: MultiTableTransaction) -> None:
    tx.write("t", ROWS)


def append_to_two(tx: MultiTableTransaction) -> None:
    tx.write("t", ROWS)
    tx.write("u", ROWS)


def overwrite(tx: MultiTableTransaction) -> None:
    tx.write("t", ROWS, mode="overwrite")


def write_twice(tx: MultiTableTransaction) -> None:
    tx.write("t", ROWS)
    tx.write("t", ROWS, mode="overwrite")


@pytest.mark.two_databases
@pytest.mark.parametrize(
    ("operate", "full"),
    [(append, False), (append_to_two, True), (overwrite, False), (write_twice, True)],
)
def test_commit_whose_files_a_vacuum_claimed_fails(
    lake: Catalog, clock: Clock, operate: Callable[[MultiTableTransaction], None], full: bool
) -> None:
    before = {name: lake.table(name).version() for name in ("t", "u")}
    tx = lake.begin()
    operate(tx)
    assert late_vacuum(lake, clock, full=full)
    with pytest.raises(FilesTakenError) as caught:
        tx.commit()
    assert caught.value.txn_id == tx.txn_id
    assert caught.value.winning_operation == "VACUUM START"
    assert "Run the transaction again" in str(caught.value)
    # The vacuum made two commits, the transaction none.
    assert lake.table("t").version() == before["t"] + 2
    assert lake.table("u").version() == before["u"]
    assert data_files(lake) == live_files(lake)
    assert lake.store.intents_before(FUTURE_MS) == []
    with lake.begin() as again:
        operate(again)
    assert live_files(lake) <= data_files(lake)


def test_commit_older_than_the_minimum_age_of_a_forced_vacuum_fails(
    lake: Catalog, clock: Clock
) -> None:
    clock.ahead_s = -2 * 3600  # it began two hours ago
    tx = lake.begin()
    tx.write("t", ROWS)
    clock.ahead_s = 0
    options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
    assert len(lake.vacuum("t", dry_run=False, **options)) == 1
    with pytest.raises(FilesTakenError):
        tx.commit()
    assert data_files(lake) == live_files(lake)


def test_forced_vacuum_keeps_files_of_transactions_of_the_last_hour(lake: Catalog) -> None:
    tx = lake.begin()
    tx.write("t", ROWS)
    options: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
    for full in (False, True):
        lake.vacuum("t", dry_run=False, full=full, **options)
    tx.commit()
    assert data_files(lake) == live_files(lake)


def test_commit_fails_after_its_files_are_claimed_and_before_they_are_deleted(
    lake: Catalog, clock: Clock
) -> None:
    tx = lake.begin()
    tx.write("t", ROWS)
    [(_, _, path, _)] = lake.store.intents_before(FUTURE_MS)
    refused: list[BaseException] = []

    def commit_meanwhile(progress: Progress) -> None:
        if progress.phase != "deleting" or refused:
            return
        assert path in data_files(lake)
        # The intent still exists, in case the vacuum dies here.
        assert [row[2] for row in lake.store.intents_before(FUTURE_MS)] == [path]
        with pytest.raises(FilesTakenError) as caught:
            tx.commit()
        refused.append(caught.value)

    late_vacuum(lake, clock, on_progress=commit_meanwhile)
    assert refused
    assert data_files(lake) == live_files(lake)


@pytest.mark.parametrize("operate", [append, append_to_two, write_twice])
def test_commit_succeeds_when_its_intents_are_lost(
    lake: Catalog, operate: Callable[[MultiTableTransaction], None]
) -> None:
    """A server crash may lose them: they are not flushed to disk."""
    tx = lake.begin()
    operate(tx)
    lake.store.clear_intents(tx.txn_id)
    tx.commit()
    assert live_files(lake) <= data_files(lake)
    assert lake.table("t").version() == 2


def test_next_vacuum_deletes_the_files_that_a_killed_vacuum_claimed(
    lake: Catalog, clock: Clock
) -> None:
    tx = lake.begin()
    tx.write("t", ROWS)
    [(txn_id, table_id, path, _)] = lake.store.intents_before(FUTURE_MS)
    lake.store.take_intents(table_id, [(txn_id, path)])
    assert path in data_files(lake)
    late_vacuum(lake, clock)
    assert data_files(lake) == live_files(lake)
    assert lake.store.intents_before(FUTURE_MS) == []


def test_files_committed_during_a_vacuum_are_kept(lake: Catalog, clock: Clock) -> None:
    tx = lake.begin()
    tx.write("t", ROWS)
    done: list[object] = []

    def commit_meanwhile(point: str) -> None:
        if point == "ratified" and not done:  # the vacuum has committed VACUUM START
            done.append(tx)
            tx.commit()

    with hooked(commit_meanwhile):
        late_vacuum(lake, clock)
    assert done
    assert data_files(lake) == live_files(lake)
    assert lake.store.intents_before(FUTURE_MS) == []


def test_full_vacuum_keeps_files_whose_intents_are_recorded_during_the_listing(
    lake: Catalog,
) -> None:
    table = lake.table("t")
    storage = open_storage(table.location, lake.config.storage)
    begun: list[MultiTableTransaction] = []

    def find_late(*args: Any) -> Any:
        begun.append(lake.begin())
        begun[0].write("t", ROWS)
        return find_unreferenced(*args)

    # Like a clock that is ahead: every file looks old.
    options: dict[str, Any] = {"retention": timedelta(days=-7), "enforce_retention_duration": False}
    plan = plan_vacuum(table.snapshot(), storage, **options, full=True, find=find_late)
    assert plan.files == []
    begun[0].commit()
    assert data_files(lake) == live_files(lake)


def test_spark_data_source_write_fails_when_a_vacuum_claimed_its_folder(
    catalog_uri: DeltaSqlUri, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if catalog_uri.backend == "duckdb":
        pytest.skip("a DuckDB catalog belongs to one process: the data source refuses it")
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    address = catalog_uri.with_table("t").to_string()
    in_process.save(address, ROWS)
    planned = in_process.writer(address, ROWS.schema)
    message = planned.write(iter(ROWS.to_batches()))
    with deltasql.connect(catalog_uri) as catalog:
        assert late_vacuum(catalog, clock)
        with pytest.raises(FilesTakenError):
            planned.commit([message])
        table = catalog.table("t")
        live = {f"{table.location}/{path}" for path in table.snapshot().scan().paths()}
        found = Path(table.location).rglob("*.parquet")
        assert {str(path) for path in found if "_delta_log" not in path.parts} == live
        assert catalog.store.intents_before(FUTURE_MS) == []


def test_single_file_append_fails_if_a_vacuum_claims_its_file_while_it_waits(
    postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with deltasql.connect(postgres_uri, table={"data_root": str(tmp_path / "lake")}) as lake:
        lake.create_table("t", ROWS.schema)
        for _ in range(2):
            with lake.begin() as tx:
                tx.write("t", ROWS)
        late = lake.begin()
        late.write("t", ROWS)
        [(txn_id, table_id, path, _)] = lake.store.intents_before(FUTURE_MS)
        with lake.begin() as tx:
            tx.stage_table("t", [], operation="VACUUM START")
        raised: list[BaseException] = []

        def commit() -> None:
            try:
                late.commit()
            except FilesTakenError as error:
                raised.append(error)

        writer = threading.Thread(target=commit)
        with lake.store.change() as (session, _):
            row = {"txn_id": txn_id, "table_id": table_id, "path": path}
            assert session.execute("take_staged_file", **row, taken_by="a vacuum") == 1
            writer.start()
            while not _waits(postgres_uri):  # the test's own timeout ends it
                pass
        writer.join()
        assert [type(error) for error in raised] == [FilesTakenError]
        assert lake.table("t").version() == 3
        # A vacuum does not wait for a commit that holds its intents: it skips those files.
        other = lake.begin()
        other.write("t", ROWS)
        paths = [row[2] for row in lake.store.intents_before(FUTURE_MS) if row[0] == other.txn_id]
        with lake.store.change() as (session, _):
            assert lake.store.complete_intents(session, other.txn_id) == 1
            intents = [(other.txn_id, each) for each in paths]
            assert lake.store.take_intents(table_id, intents) == {}
            session.rollback()
        other.rollback()


def _waits(uri: DeltaSqlUri) -> bool:
    """Return whether a session waits for a lock on `dl_staged_files`."""
    import psycopg

    from deltasql.config import Config
    from deltasql.store.postgres.dialect import conninfo

    with psycopg.connect(conninfo(uri, Config.load())) as admin:
        text = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND query LIKE '%dl_staged_files%' AND datname = current_database()"
        )
        row = admin.execute(text).fetchone()
    return row is not None and row[0] > 0
