"""Concurrent imports of one source: no run discards a table that another run has completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import VersionTakenError
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.load_table import (
    begin_loading,
    claim_loading,
    discard,
    finish_loading,
)
from deltasql.mirror.log.listing import list_log
from deltasql.mirror.log.read import read_commits, read_state
from deltasql.mirror.publish.targets import targets_of
from deltasql.storage import open_storage
from deltasql.store.load import is_claimed
from deltasql.store.locations import tables_at
from tests.migrate.small_logs import everything
from tests.migrate.sources import append, stock_paths_at

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.model.progress import Progress
    from deltasql.store.records import TableRow

pytestmark = pytest.mark.two_databases

OURS, THEIRS = "ours", "theirs"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A table with two versions."""
    place = tmp_path / "events"
    append(place, 1, 2)
    append(place, 3)
    return place


def half(catalog: Catalog, source: Path) -> tuple[TableRow, LogLoader]:
    """Start an import of the table and load its first version."""
    storage = open_storage(str(source))
    metadata = read_state(storage).metadata
    table = begin_loading(catalog.store, storage, metadata, "events", 1, token=OURS)
    loader = LogLoader(catalog.store, table, token=OURS)
    loader.append(list(read_commits(storage, list_log(storage), 0, 0)))
    return table, loader


def test_failed_import_keeps_the_table_of_a_concurrent_import(
    catalog: Catalog, source: Path
) -> None:
    (source / stock_paths_at(source, 1)[0]).unlink()
    others: list[str] = []

    def take_the_name(progress: Progress) -> None:
        if progress.phase == "checking files" and not others:
            others.append("")
            others[0] = catalog.import_table(str(source), force=True).state

    report = catalog.import_table(str(source), on_progress=take_the_name)
    assert (others, report.state) == (["imported"], "up to date")
    assert catalog.table("events").snapshot().totals().num_files == len(stock_paths_at(source, 1))
    assert len(tables_at(catalog.store.query, str(source))) == 1


def test_completed_table_is_never_discarded(catalog: Catalog, source: Path) -> None:
    table, _ = half(catalog, source)
    finish_loading(catalog.store, table, "default", "events")
    before = everything(catalog.store, table)
    with pytest.raises(VersionTakenError):
        discard(catalog.store, table, OURS)
    catalog.drop("events")
    with pytest.raises(VersionTakenError):
        discard(catalog.store, table, OURS)
    with pytest.raises(VersionTakenError):
        claim_loading(catalog.store, table, THEIRS)
    assert everything(catalog.store, table) == before


def test_run_that_lost_its_claim_cannot_write_or_discard(catalog: Catalog, source: Path) -> None:
    table, loader = half(catalog, source)
    storage = open_storage(str(source))
    claim_loading(catalog.store, table, THEIRS)
    with pytest.raises(VersionTakenError, match="another process"):
        loader.append(list(read_commits(storage, list_log(storage), 1, 1)))
    with pytest.raises(VersionTakenError, match="another process"):
        discard(catalog.store, table, OURS)
    discard(catalog.store, table, THEIRS)
    assert not any(everything(catalog.store, table).values())
    with catalog.store.session() as session:
        assert not is_claimed(session, table.table_id, THEIRS)


@pytest.mark.parametrize("why", ["finished", "moved"])
def test_table_to_be_replaced_is_kept_if_another_import_finished_first(
    catalog: Catalog, source: Path, why: str
) -> None:
    catalog.create_table("old", pa.schema([("id", pa.int64())]))
    table, _ = half(catalog, source)
    if why == "finished":
        finish_loading(catalog.store, table, "default", "events")
    version = 0 if why == "finished" else 1
    row = catalog.table("old").row
    with pytest.raises(VersionTakenError):
        finish_loading(catalog.store, table, "default", "old", version=version, replaces=row)
    assert catalog.table("old").row.table_id == row.table_id


def test_replaced_table_at_another_location_keeps_pending_versions(
    catalog: Catalog, source: Path
) -> None:
    catalog.create_table("events", pa.schema([("id", pa.int64())]))
    old = catalog.table("events").row
    before = next(each for each in targets_of(catalog.store, old) if each.is_own)
    assert before.pending
    assert catalog.import_table(str(source), force=True).state == "replaced"
    after = next(each for each in targets_of(catalog.store, old) if each.is_own)
    assert after.pending == before.pending
