"""Loading a log gives the same rows in any batches, also after an interrupted attempt."""

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
from deltasql.verify.sql_state import SqlState
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
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.mirror.log.listing import LogListing
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow

import deltasql

pytestmark = pytest.mark.two_databases

SEEDS = smoke(range(8), range(4), "more seeds")


@pytest.fixture
def other(backend: str, tmp_path: Path) -> Iterator[Catalog]:
    """A second catalog in the same kind of database."""
    folder = tmp_path / "other"
    folder.mkdir()
    for uri in new_catalog_uri(backend, folder):
        with deltasql.connect(uri, create=True) as opened:
            yield opened


def load(catalog: Catalog, storage: Storage, batch: int) -> TableRow:
    """Load all commits in batches of this size, each with a new loader."""
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
    """Start a table with the state at a version."""
    found = listing or list_log(storage)
    row = table or hidden_table(catalog.store, storage)
    loader = LogLoader(catalog.store, row, batch_files=3)
    loader.start(stream_state(storage, version, listing=found), None, 7, **options)
    return row


@pytest.mark.parametrize("seed", SEEDS)
def test_batched_commits_give_the_rows_of_single_commits(
    catalog: Catalog, other: Catalog, tmp_path: Path, seed: int
) -> None:
    storage = write_log(tmp_path / "t", random_commits(seed))
    one = everything(catalog.store, load(catalog, storage, 1))
    many = everything(other.store, load(other, storage, 5 + seed))
    assert many == one


@pytest.mark.parametrize("seed", SEEDS)
def test_loader_gives_the_same_rows_for_any_batch_size(
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
def test_streamed_state_equals_the_state(tmp_path: Path, seed: int) -> None:
    storage = write_log(tmp_path / "t", random_commits(seed))
    listing = list_log(storage)
    whole, pieces = read_state(storage), stream_state(storage, 11, listing=listing)
    assert pa.concat_tables(pieces.files).equals(whole.files)
    assert pa.concat_tables(pieces.tombstones).equals(whole.tombstones)
    assert (pieces.metadata, pieces.protocol) == (whole.metadata, whole.protocol)
    assert (pieces.txns, pieces.domains) == (whole.txns, whole.domains)


def test_table_can_start_with_a_state_in_several_transactions(
    catalog: Catalog, tmp_path: Path
) -> None:
    storage = write_log(tmp_path / "t", random_commits(3))
    reported: list[int] = []
    table = begin(catalog, storage, 11, on_files=reported.append)
    state = read_state(storage)
    found = SqlState(catalog.store, table, 11)
    order = [("path", "ascending"), ("deletion_vector", "ascending")]
    assert found.files.sort_by(order).to_pylist() == state.files.sort_by(order).to_pylist()
    assert sum(reported) == state.files.num_rows
    assert len([each for each in reported if each]) > 1
    rows = everything(catalog.store, table)
    assert len(rows["dl_remove_files"]) == state.tombstones.num_rows


def test_interrupted_load_of_a_state_leaves_nothing_behind(
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


def test_commits_can_be_loaded_after_an_interrupted_load(
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


def test_second_load_of_a_table_stops_the_first(catalog: Catalog, tmp_path: Path) -> None:
    storage = write_log(tmp_path / "t", random_commits(3))
    table = hidden_table(catalog.store, storage)

    def take_over(_: int) -> None:
        begin(catalog, storage, 11, table=table)

    with pytest.raises(VersionTakenError):
        begin(catalog, storage, 11, table=table, on_files=take_over)
    assert LogLoader(catalog.store, table).next_version == 12


def test_loading_keeps_other_table_properties(catalog: Catalog, tmp_path: Path) -> None:
    storage = write_log(tmp_path / "t", random_commits(1))
    load(catalog, storage, 12)
    (row,) = catalog.store.query("list_dropped")
    assert '"kept": "yes"' in row[7]
    assert "deltasql.loading" in row[7]


def test_last_add_of_a_file_in_a_commit_wins(catalog: Catalog, tmp_path: Path) -> None:
    choose = random.Random(1)
    first, second = added("f", choose), added("f", choose)
    for each in (first, second):
        each["add"].pop("deletionVector", None)
    storage = write_log(tmp_path / "t", [[protocol(), metadata(["id"]), first, second]])
    table = load(catalog, storage, 1)
    (row,) = SqlState(catalog.store, table, 0).files.to_pylist()
    assert row["size"] == second["add"]["size"]


def test_log_without_initial_metadata_is_rejected(catalog: Catalog, tmp_path: Path) -> None:
    storage = write_log(tmp_path / "t", [[protocol()]])
    with pytest.raises(LogParseError, match="metaData"):
        load(catalog, storage, 1)


def test_unreadable_state_fails_the_load(catalog: Catalog, tmp_path: Path) -> None:
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


def test_same_size_regroups_rows_into_tables_of_one_size() -> None:
    numbers = (pa.array(range(count), pa.int64()) for count in (0, 5, 0, 1, 2))
    tables = [pa.table({"n": each}) for each in numbers]
    assert [each.num_rows for each in same_size(tables, 3)] == [3, 3, 2]
    assert pa.concat_tables(same_size(tables, 3)).equals(pa.concat_tables(tables))


def test_tombstones_of_a_checkpoint_keep_their_partition(catalog: Catalog, source: Path) -> None:
    """They keep it even if the writer does not set `extendedFileMetadata`."""

    def without_some_fields(actions: list[Any]) -> list[Any]:
        for action in actions:
            action.get("remove", {}).pop("extendedFileMetadata", None)
        return actions

    checkpoint_file(source).unlink()
    (source / LOG / "_last_checkpoint").unlink()
    change_actions(source, 3, without_some_fields)
    deltalake.DeltaTable(str(source)).create_checkpoint()
    forget_commits_below(source, HEAD)
    catalog.import_table(str(source))
    (gone,) = SqlState(catalog.store, catalog.table("events").row, HEAD).tombstones.to_pylist()
    assert (gone["partition"], gone["extended_file_metadata"]) == ('{"p":"a"}', None)
