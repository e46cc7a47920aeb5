"""A log comes into SQL as it is: in whatever batches, and whatever became of an earlier try."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from deltasql.exceptions import LogParseError, VersionTakenError
from deltasql.migrate.importing.load_checkpoint import same_size
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.mirror.log.listing import list_log
from deltasql.mirror.log.read import read_commits, read_state, read_states, stream_state
from deltasql.mirror.verify.sql_state import SqlState
from tests.conftest import new_catalog_uri
from tests.migrate.small_logs import (
    added,
    everything,
    hidden_table,
    metadata,
    protocol,
    random_commits,
    write_log,
)
from tests.migrate.sources import HEAD, change_actions, checkpoint_file
from tests.mirror.support import LOG, forget_commits_below

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.mirror.log.listing import LogListing
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow

import deltasql

pytestmark = pytest.mark.two_databases

SEEDS = range(8)


@pytest.fixture
def other(backend: str, tmp_path: Path) -> Iterator[Catalog]:
    """A second catalog on the same kind of database."""
    folder = tmp_path / "other"
    folder.mkdir()
    for uri in new_catalog_uri(backend, folder):
        with deltasql.connect(uri, create=True) as opened:
            yield opened


def load(catalog: Catalog, storage: Storage, batch: int) -> TableRow:
    """Load all commits, so many at a time, each time with a loader of its own."""
    table = hidden_table(catalog.store, storage)
    commits = list(read_commits(storage, list_log(storage), 0, list_log(storage).last_version))
    for first in range(0, len(commits), batch):
        LogLoader(catalog.store, table).append(commits[first : first + batch])
    return table


def begin(
    catalog: Catalog,
    storage: Storage,
    version: int,
    listing: LogListing | None = None,
    table: TableRow | None = None,
    **options: Any,
) -> TableRow:
    """Begin a table with what holds at a version."""
    found = listing or list_log(storage)
    row = table or hidden_table(catalog.store, storage)
    loader = LogLoader(catalog.store, row, batch_files=3)
    loader.start(stream_state(storage, version, listing=found), None, 7, **options)
    return row


@pytest.mark.parametrize("seed", SEEDS)
def test_commits_in_batches_leave_the_rows_that_single_ones_leave(
    catalog: Catalog, other: Catalog, tmp_path: Path, seed: int
) -> None:
    storage = write_log(tmp_path / "t", random_commits(seed))
    one = everything(catalog.store, load(catalog, storage, 1))
    many = everything(other.store, load(other, storage, 5 + seed))
    assert many == one


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loader_that_has_seen_all_files_leaves_the_same_rows(
    catalog: Catalog, other: Catalog, tmp_path: Path, seed: int
) -> None:
    storage = write_log(tmp_path / "t", random_commits(seed))
    one = everything(catalog.store, load(catalog, storage, 1))
    commits = list(read_commits(storage, list_log(storage), 0, list_log(storage).last_version))
    table = hidden_table(other.store, storage)
    loader = LogLoader(other.store, table)
    size = 1 + seed % 4
    for first in range(0, len(commits), size):
        loader.append(commits[first : first + size])
    assert everything(other.store, table) == one


@pytest.mark.parametrize("seed", SEEDS)
def test_every_version_has_the_files_of_the_log(
    catalog: Catalog, tmp_path: Path, seed: int
) -> None:
    storage = write_log(tmp_path / "t", random_commits(seed))
    table = load(catalog, storage, 4)
    for state in read_states(storage, range(12)):
        found = SqlState(catalog.store, table, state.version)
        order = [("path", "ascending"), ("deletion_vector", "ascending")]
        assert found.files.sort_by(order).to_pylist() == state.files.sort_by(order).to_pylist()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_that_comes_in_pieces_is_the_state(tmp_path: Path, seed: int) -> None:
    storage = write_log(tmp_path / "t", random_commits(seed))
    listing = list_log(storage)
    whole, pieces = read_state(storage), stream_state(storage, 11, listing=listing)
    assert pa.concat_tables(pieces.files).equals(whole.files)
    assert pa.concat_tables(pieces.tombstones).equals(whole.tombstones)
    assert (pieces.metadata, pieces.protocol) == (whole.metadata, whole.protocol)
    assert (pieces.txns, pieces.domains) == (whole.txns, whole.domains)


def test_a_table_may_begin_with_a_state_in_several_transactions(
    catalog: Catalog, tmp_path: Path
) -> None:
    storage = write_log(tmp_path / "t", random_commits(3))
    heard: list[int] = []
    table = begin(catalog, storage, 11, on_files=heard.append)
    state = read_state(storage)
    found = SqlState(catalog.store, table, 11)
    order = [("path", "ascending"), ("deletion_vector", "ascending")]
    assert found.files.sort_by(order).to_pylist() == state.files.sort_by(order).to_pylist()
    assert sum(heard) == state.files.num_rows
    assert len([each for each in heard if each]) > 1
    rows = everything(catalog.store, table)
    assert len(rows["dl_remove_files"]) == state.tombstones.num_rows


def test_a_try_that_died_between_two_batches_leaves_nothing_to_the_next(
    catalog: Catalog, other: Catalog, tmp_path: Path
) -> None:
    storage = write_log(tmp_path / "t", random_commits(3))
    table = hidden_table(catalog.store, storage)

    def die(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(catalog, storage, 11, table=table, on_files=die)
    assert everything(catalog.store, table)["dl_add_files"]
    assert LogLoader(catalog.store, table).next_version is None
    begin(catalog, storage, 11, table=table)
    assert everything(catalog.store, table) == everything(other.store, begin(other, storage, 11))


def test_commits_after_a_try_that_died_find_an_empty_table(
    catalog: Catalog, other: Catalog, tmp_path: Path
) -> None:
    storage = write_log(tmp_path / "t", random_commits(3))
    table = hidden_table(catalog.store, storage)

    def die(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(catalog, storage, 11, table=table, on_files=die)
    LogLoader(catalog.store, table).append(list(read_commits(storage, list_log(storage), 0, 11)))
    assert everything(catalog.store, table) == everything(other.store, load(other, storage, 12))


def test_who_begins_a_table_anew_stops_who_was_at_it(catalog: Catalog, tmp_path: Path) -> None:
    storage = write_log(tmp_path / "t", random_commits(3))
    table = hidden_table(catalog.store, storage)

    def take_over(_: int) -> None:
        begin(catalog, storage, 11, table=table)

    with pytest.raises(VersionTakenError):
        begin(catalog, storage, 11, table=table, on_files=take_over)
    assert LogLoader(catalog.store, table).next_version == 12


def test_other_properties_of_a_table_stay_while_it_is_loaded(
    catalog: Catalog, tmp_path: Path
) -> None:
    storage = write_log(tmp_path / "t", random_commits(1))
    load(catalog, storage, 12)
    (row,) = catalog.store.query("list_dropped")
    assert '"kept": "yes"' in row[7]
    assert "deltasql.loading" in row[7]


def test_a_commit_that_says_a_file_twice_says_it_last(catalog: Catalog, tmp_path: Path) -> None:
    choose = random.Random(1)
    first, second = added("f", choose), added("f", choose)
    for each in (first, second):
        each["add"].pop("deletionVector", None)
    storage = write_log(tmp_path / "t", [[protocol(), metadata(["id"]), first, second]])
    table = load(catalog, storage, 1)
    (row,) = SqlState(catalog.store, table, 0).files.to_pylist()
    assert row["size"] == second["add"]["size"]


def test_a_log_that_begins_without_metadata_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    storage = write_log(tmp_path / "t", [[protocol()]])
    with pytest.raises(LogParseError, match="metaData"):
        load(catalog, storage, 1)


def test_what_cannot_be_read_is_an_error_where_it_is_loaded(
    catalog: Catalog, tmp_path: Path
) -> None:
    storage = write_log(tmp_path / "t", random_commits(3))
    state = stream_state(storage, 11, listing=list_log(storage))
    readable = state.files

    def broken() -> Iterator[pa.Table]:
        yield from readable
        raise LogParseError("damaged")

    object.__setattr__(state, "files", broken())
    table = hidden_table(catalog.store, storage)
    with pytest.raises(LogParseError, match="damaged"):
        LogLoader(catalog.store, table, batch_files=2).start(state, None, 7)
    assert LogLoader(catalog.store, table).next_version is None


def test_tables_are_cut_to_one_size() -> None:
    numbers = (pa.array(range(count), pa.int64()) for count in (0, 5, 0, 1, 2))
    tables = [pa.table({"n": each}) for each in numbers]
    assert [each.num_rows for each in same_size(tables, 3)] == [3, 3, 2]
    assert pa.concat_tables(same_size(tables, 3)).equals(pa.concat_tables(tables))


def test_tombstones_of_a_checkpoint_keep_the_partition_that_they_tell(
    catalog: Catalog, source: Path
) -> None:
    """Also where the writer does not say that it told more than the path."""

    def told_in_part(actions: list[Any]) -> list[Any]:
        for action in actions:
            action.get("remove", {}).pop("extendedFileMetadata", None)
        return actions

    checkpoint_file(source).unlink()
    (source / LOG / "_last_checkpoint").unlink()
    change_actions(source, 3, told_in_part)
    deltalake.DeltaTable(str(source)).create_checkpoint()
    forget_commits_below(source, HEAD)
    catalog.import_table(str(source))
    (gone,) = SqlState(catalog.store, catalog.table("events").row, HEAD).tombstones.to_pylist()
    assert (gone["partition"], gone["extended_file_metadata"]) == ('{"p":"a"}', None)
