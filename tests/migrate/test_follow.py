"""A followed table equals its log, is read-only, and never affects the log."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import duckdb
import pytest

from deltasql.exceptions import (
    LogParseError,
    TableExistsError,
    TableFollowsError,
    TxnLogTableNotFoundError,
    TxnLogTransactionError,
    UnsupportedFeatureError,
    VersionTakenError,
)
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.load_table import LoadCounts, load_commits
from deltasql.migrate.importing.log_source import LocalLog
from deltasql.mirror.log.listing import list_log
from deltasql.storage import open_storage
from tests.commit.support import audit
from tests.migrate.authority_support import (
    NAME,
    everything_below,
    open_catalog,
    ours,
    sql_ids,
    theirs,
    verify_all_versions,
)
from tests.migrate.sources import (
    CHECKPOINT,
    HEAD,
    SCHEMA,
    copy_of,
    paths_at,
    read_ids,
    rows,
    stock_paths_at,
)
from tests.mirror.support import LOG, commit_path, forget_commits_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    settings = {"table": {"data_root": str(tmp_path / "lake")}}
    with open_catalog(catalog_uri, **settings) as opened:
        yield opened


# Content of the log


@pytest.mark.every_database
def test_followed_table_equals_the_log_at_every_version(catalog: Catalog, place: Path) -> None:
    report = catalog.follow(str(place))
    assert (report.table, report.state) == (NAME, "followed")
    assert (report.first_version, report.last_version, report.commits) == (0, HEAD, HEAD + 1)
    for version in range(HEAD + 1):
        assert paths_at(catalog, NAME, version) == stock_paths_at(place, version)
    assert sql_ids(catalog) == read_ids(place)
    assert verify_all_versions(catalog)
    audit(catalog)


@pytest.mark.every_database
def test_refresh_adds_only_new_commits(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    before = catalog.table(NAME).history()
    assert catalog.follow(str(place)).to_dict() | {"seconds": 0} == {
        "source": str(place),
        "table": NAME,
        "state": "up to date",
        "first_version": 0,
        "last_version": HEAD,
        "commits": 0,
        "files": 0,
        "notes": [],
        "seconds": 0,
    }
    theirs(place, 11)
    theirs(place, 12, 13)
    report = catalog.refresh(NAME)
    assert (report.state, report.commits, report.files) == ("refreshed", 2, 3)
    assert report.last_version == HEAD + 2
    assert catalog.table(NAME).history()[2:] == before
    assert sql_ids(catalog) == read_ids(place)
    assert verify_all_versions(catalog)


CHANGES: dict[str, Callable[[deltalake.DeltaTable], object]] = {
    "delete": lambda table: table.delete("id = 4"),
    "update": lambda table: table.update(updates={"id": "40"}, predicate="id = 4"),
    "overwrite": lambda table: deltalake.write_deltalake(table, rows(70), mode="overwrite"),
    "optimize": lambda table: table.optimize.compact(),
    "restore": lambda table: table.restore(1),
    "property": lambda table: table.alter.set_table_properties({"delta.appendOnly": "false"}),
    "column": lambda table: table.alter.add_columns(
        [deltalake.Field("note", deltalake.Schema.from_arrow(SCHEMA).fields[1].type)]
    ),
    "checkpoint": lambda table: table.create_checkpoint(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_follow_loads_any_operation_of_another_writer(
    catalog: Catalog, place: Path, change: str
) -> None:
    catalog.follow(str(place))
    CHANGES[change](deltalake.DeltaTable(str(place)))
    catalog.refresh(NAME)
    table = deltalake.DeltaTable(str(place))
    assert catalog.table(NAME).version() == table.version()
    assert sql_ids(catalog) == read_ids(place)
    assert verify_all_versions(catalog)


def test_log_can_be_followed_in_small_batches(catalog: Catalog, place: Path) -> None:
    reported: list[tuple[int, int]] = []
    catalog.follow(
        str(place), batch_size=1, on_progress=lambda each: reported.append((each.done, each.total))
    )
    assert (HEAD + 1, HEAD + 1) in reported
    for number in range(3):
        theirs(place, 100 + number)
    reported.clear()
    catalog.refresh(
        NAME, batch_size=1, on_progress=lambda each: reported.append((each.done, each.total))
    )
    assert reported == [(1, 3), (2, 3), (3, 3), (3, 3)]
    assert verify_all_versions(catalog)


def test_followed_table_can_be_renamed_dropped_and_undropped(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place), name="crm.log")
    catalog.rename("crm.log", NAME)
    theirs(place, 11)
    assert catalog.follow(str(place)).table == NAME
    catalog.drop(NAME)
    theirs(place, 12)
    catalog.undrop(NAME)
    assert catalog.follow(NAME).commits == 1  # by its name, too
    assert sql_ids(catalog) == read_ids(place)
    with pytest.raises(TableFollowsError):
        ours(catalog, 1)


# Changes to the log


@pytest.mark.every_database
def test_recreated_table_is_loaded_again(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    shutil.rmtree(place)
    for number in range(HEAD + 3):
        theirs(place, number)
    report = catalog.follow(str(place))
    assert (report.state, report.last_version) == ("loaded anew", HEAD + 2)
    assert f"another commit as version {HEAD}" in report.notes[0]
    assert sql_ids(catalog) == read_ids(place)
    with pytest.raises(TableFollowsError):
        ours(catalog, 1)
    assert catalog.refresh(NAME).state == "up to date"


def test_table_that_is_loaded_again_keeps_its_name(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place), name="seen", namespace="lake")
    shutil.rmtree(place)
    theirs(place, 1)
    report = catalog.refresh("lake.seen")
    assert (report.state, report.table) == ("loaded anew", "lake.seen")
    assert [table.full_name for table in catalog.tables()] == ["lake.seen"]


def test_log_with_a_gap_is_followed_from_the_next_checkpoint(catalog: Catalog, place: Path) -> None:
    commit_path(place, CHECKPOINT - 1).unlink()
    report = catalog.follow(str(place))
    assert (report.first_version, report.last_version) == (CHECKPOINT, HEAD)
    assert "earlier commits are missing" in report.summary()


def test_shorter_log_is_loaded_again(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    shutil.rmtree(place)
    theirs(place, 1)
    report = catalog.refresh(NAME)
    assert (report.state, report.last_version) == ("loaded anew", 0)
    assert sql_ids(catalog) == [1]


def test_log_cleaned_before_a_refresh_is_loaded_from_its_checkpoint(
    catalog: Catalog, place: Path, pristine: Path, tmp_path: Path
) -> None:
    late = copy_of(pristine, tmp_path / "late" / NAME)
    for version in range(3, HEAD + 1):
        commit_path(place, version).unlink()
    for each in (place / LOG).iterdir():
        if each.suffix != ".json":
            each.unlink()
    catalog.follow(str(place))
    assert catalog.table(NAME).version() == 2
    forget_commits_below(late, CHECKPOINT)
    shutil.rmtree(place)
    shutil.move(late, place)
    report = catalog.refresh(NAME)
    assert (report.state, report.first_version) == ("loaded anew", CHECKPOINT)
    assert sql_ids(catalog) == read_ids(place)


def test_log_with_only_its_last_version_is_followed(catalog: Catalog, place: Path) -> None:
    deltalake.DeltaTable(str(place)).create_checkpoint()
    forget_commits_below(place, HEAD)
    report = catalog.follow(str(place))
    assert (report.first_version, report.last_version) == (HEAD, HEAD)
    assert catalog.refresh(NAME).state == "up to date"
    theirs(place, 11)
    assert catalog.refresh(NAME).commits == 1
    assert sql_ids(catalog) == read_ids(place)
    assert verify_all_versions(catalog)


def test_log_cleanup_keeps_the_history_in_sql(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    expected = {version: read_ids(place, version) for version in range(HEAD + 1)}
    deltalake.DeltaTable(str(place)).create_checkpoint()
    forget_commits_below(place, HEAD)
    theirs(place, 11)
    assert catalog.refresh(NAME).state == "refreshed"
    for version, ids in expected.items():
        assert sql_ids(catalog, version) == ids


def test_deleted_log_is_an_error_and_keeps_the_content_of_sql(
    catalog: Catalog, place: Path
) -> None:
    catalog.follow(str(place))
    shutil.rmtree(place / LOG)
    with pytest.raises(TxnLogTableNotFoundError, match="no Delta table"):
        catalog.refresh(NAME)
    assert catalog.table(NAME).version() == HEAD
    assert sql_ids(catalog, 0) == [1, 2]


def test_refresh_stops_before_an_unreadable_commit(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    theirs(place, 11)
    broken = commit_path(place, HEAD + 2)
    broken.write_text('{"add": {"path": \n')
    with pytest.raises(LogParseError) as caught:
        catalog.refresh(NAME)
    assert (caught.value.line, broken.name in str(caught.value)) == (1, True)
    assert catalog.table(NAME).version() in (HEAD, HEAD + 1)
    broken.unlink()
    catalog.refresh(NAME)
    assert sql_ids(catalog) == read_ids(place)


def test_refresh_with_an_unknown_feature_is_rejected(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["teleport"],
        "writerFeatures": ["teleport"],
    }
    commit_path(place, HEAD + 1).write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(UnsupportedFeatureError, match="teleport"):
        catalog.refresh(NAME)
    assert catalog.table(NAME).version() == HEAD


def test_follow_reports_missing_data_files(catalog: Catalog, place: Path) -> None:
    (place / paths_at_stock(place)[0]).unlink()
    report = catalog.follow(str(place))
    assert report.state == "followed"
    assert any("missing" in note for note in report.notes)
    assert catalog.table(NAME).version() == HEAD


def test_nested_log_with_missing_data_files_can_be_followed(
    catalog_uri: DeltaSqlUri, place: Path
) -> None:
    (place / paths_at_stock(place)[0]).unlink()
    with open_catalog(catalog_uri, table={"allow_nested_location": True}) as catalog:
        catalog.create_table("outer", SCHEMA, location=str(place.parent))
        report = catalog.follow(str(place))
    assert any("missing" in note for note in report.notes)


def paths_at_stock(place: Path) -> list[str]:
    return stock_paths_at(place, HEAD)


# Concurrency and names


@pytest.mark.every_database
def test_concurrent_refreshes_are_consistent(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    for number in range(5):
        theirs(place, 30 + number)
    barrier = threading.Barrier(4)

    def work(_: int) -> int:
        barrier.wait()
        return catalog.refresh(NAME, batch_size=1).last_version or -1

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, range(4))) == {HEAD + 5}
    assert sql_ids(catalog) == read_ids(place)
    assert verify_all_versions(catalog)
    audit(catalog)


def test_commit_that_another_process_loaded_is_not_loaded_twice(
    catalog: Catalog, place: Path
) -> None:
    catalog.follow(str(place))
    theirs(place, 30)
    storage = open_storage(str(place), catalog.config.storage)
    listing = list_log(storage)
    last = listing.last_version
    catalog.refresh(NAME)
    # The loader reads the head after the refresh, but its listing is older.
    loader = LogLoader(catalog.store, catalog.resolve(NAME))
    with pytest.raises(VersionTakenError, match="got new commits while"):
        log = LocalLog(storage, listing)
        load_commits(loader, log, last, last, LoadCounts(), on_batch=lambda: None)
    audit(catalog)


def test_table_with_authority_sql_cannot_follow(catalog: Catalog, place: Path) -> None:
    catalog.import_table(str(place))
    with pytest.raises(TableExistsError, match="cannot follow"):
        catalog.follow(str(place))
    with pytest.raises(TxnLogTransactionError, match="its authority is the database"):
        catalog.refresh(NAME)


def test_import_of_a_followed_table_refreshes_it(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    theirs(place, 11)
    assert catalog.import_table(str(place)).commits == 1
    assert catalog.table(NAME).is_following
    assert sql_ids(catalog) == read_ids(place)


def test_duckdb_views_show_followed_tables(
    sqlite_uri: DeltaSqlUri, place: Path, tmp_path: Path
) -> None:
    with open_catalog(sqlite_uri) as catalog:
        catalog.follow(str(place))
        views = tmp_path / "views.duckdb"
        catalog.mirror.add_target(NAME, "views", str(views), kind="duckdb")
        theirs(place, 11)
        before = everything_below(place)
        catalog.refresh(NAME)
        with duckdb.connect(str(views), read_only=True) as connection:
            found = connection.execute(f"SELECT id FROM {NAME} ORDER BY id").fetchall()
        assert [row[0] for row in found] == read_ids(place)
        assert everything_below(place) == before


def test_name_or_location_in_use_is_rejected(catalog: Catalog, place: Path) -> None:
    catalog.create_table("taken", SCHEMA)
    with pytest.raises(TableExistsError, match="taken"):
        catalog.follow(str(place), name="taken")
    assert [table.name for table in catalog.tables()] == ["taken"]
    catalog.follow(str(place), name="index", namespace="crm")
    with pytest.raises(TableExistsError, match=r"the table crm\.index already follows"):
        catalog.follow(str(place), name="other")
    assert catalog.follow(str(place), name="crm.index").state == "up to date"


def test_follow_of_an_unknown_name_is_rejected(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TxnLogTableNotFoundError, match="neither a folder nor a table"):
        catalog.follow("nobody")
    catalog.create_table("mine", SCHEMA)
    with pytest.raises(TxnLogTransactionError, match="does not follow"):
        catalog.follow("mine")


def test_folder_without_a_delta_table_is_rejected(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TxnLogTableNotFoundError):
        catalog.follow(str(tmp_path / "empty"))
    assert catalog.tables() == []
