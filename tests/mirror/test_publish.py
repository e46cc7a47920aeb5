"""Publishing after a commit: in order, once, never overwriting, and never failing the commit."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltasql import AddFile
from deltasql.exceptions import MirrorDivergedError, TxnLogError
from deltasql.mirror.log.encode import commit_bytes
from deltasql.mirror.publish.status import release
from deltasql.phases import hooked
from tests.commit.support import file, run, values
from tests.mirror.support import (
    commit_path,
    forget_published,
    log_bytes,
    log_names,
    open_mirrored,
    published_versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.model.progress import Progress
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64())])
FOREIGN = b'{"commitInfo":{"operation":"WRITE","engineInfo":"somebody else"}}\n'


@pytest.fixture
def mirrored(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        yield catalog


def append(catalog: Catalog, *names: str, table: str = "t") -> int:
    for name in names:
        with catalog.begin() as tx:
            tx.stage_table(table, [file(name)])
    return catalog.table(table).version()


def location(catalog: Catalog, table: str = "t") -> Path:
    return Path(catalog.table(table).location)


def from_sql(catalog: Catalog, table: str = "t") -> list[bytes]:
    row = catalog.resolve(table)
    with catalog.store.session() as session:
        return [
            commit_bytes(session, row.table_id, version)
            for version in range(catalog.table(table).version() + 1)
        ]


def published(catalog: Catalog, table: str = "t") -> list[bytes]:
    place = location(catalog, table)
    return [commit_path(place, v).read_bytes() for v in published_versions(place)]


def test_commit_is_published_when_it_returns(mirrored: Catalog) -> None:
    append(mirrored, "a", "b", "c")
    assert published(mirrored) == from_sql(mirrored)
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.version, status.published_version) == ("ACTIVE", 3, 3)
    assert (status.pending, status.lag_s, status.is_unhealthy) == (0, 0.0, False)
    assert [v.status for v in mirrored.mirror.versions("t")] == ["COMPLETE"] * 4


def test_every_table_of_a_commit_is_published(mirrored: Catalog) -> None:
    mirrored.create_table("u", SCHEMA)
    with mirrored.begin() as tx:
        tx.stage_table("t", [file("a")])
        tx.stage_table("u", [file("a")])
        tx.create_table("v", SCHEMA)
    for name, version in (("t", 1), ("u", 1), ("v", 0)):
        assert published(mirrored, name) == from_sql(mirrored, name)
        assert DeltaTable(str(location(mirrored, name))).version() == version


def test_mode_off_leaves_publishing_to_a_later_call(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake", mirror={"mode": "off"}) as catalog:
        catalog.create_table("t", SCHEMA)
        append(catalog, "a", "b")
        assert not location(catalog).exists()
        [status] = catalog.mirror.status()
        assert (status.published_version, status.pending) == (-1, 3)
        assert catalog.mirror.lag("t") > 0
        assert {v.status for v in catalog.mirror.versions("t")} == {"PENDING"}
        assert catalog.mirror.publish() == 3
        assert catalog.mirror.publish("t") == 0
        assert published(catalog) == from_sql(catalog)


def test_mode_in_the_uri_overrides_the_configuration(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    uri = f"{sqlite_uri.to_string()}?mirror=off"
    with open_mirrored(uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        assert catalog.mirror.mode == "off"
        assert not location(catalog).exists()


def test_identical_commit_file_counts_as_published(mirrored: Catalog) -> None:
    append(mirrored, "a", "b")
    before = log_bytes(location(mirrored))
    row = mirrored.resolve("t")
    forget_published(mirrored.store, row, from_version=0)
    [stood] = mirrored.mirror.status("t")
    assert stood.published_version == -1
    assert mirrored.mirror.publish("t") == 3
    assert log_bytes(location(mirrored)) == before


def test_foreign_commit_file_quarantines_the_mirror_and_is_kept(mirrored: Catalog) -> None:
    append(mirrored, "a")
    foreign = commit_path(location(mirrored), 2)
    foreign.write_bytes(FOREIGN)
    assert append(mirrored, "b", "c", "d") == 4, "the commits themselves happen"
    assert foreign.read_bytes() == FOREIGN
    assert published_versions(location(mirrored)) == [0, 1, 2]
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.published_version, status.is_unhealthy) == ("QUARANTINED", 1, True)
    assert status.last_error is not None
    assert "version 2 of t" in status.last_error
    statuses = {v.version: v.status for v in mirrored.mirror.versions("t")}
    assert statuses == {0: "COMPLETE", 1: "COMPLETE", 2: "FAILED", 3: "PENDING", 4: "PENDING"}
    with pytest.raises(MirrorDivergedError) as caught:
        mirrored.mirror.publish("t")
    assert (caught.value.table, caught.value.version) == ("t", 2)
    assert mirrored.mirror.run(once=True) == 0


def test_released_mirror_publishes_again(mirrored: Catalog) -> None:
    foreign = commit_path(location(mirrored), 1)
    foreign.write_bytes(FOREIGN)
    append(mirrored, "a", "b")
    foreign.unlink()
    release(mirrored.store, mirrored.resolve("t"))
    assert append(mirrored, "c") == 3
    assert published(mirrored) == from_sql(mirrored)


def test_diverged_table_does_not_block_others(mirrored: Catalog) -> None:
    mirrored.create_table("u", SCHEMA)
    commit_path(location(mirrored), 1).write_bytes(FOREIGN)
    with mirrored.begin() as tx:
        tx.stage_table("t", [file("a")])
        tx.stage_table("u", [file("a")])
    assert published(mirrored, "u") == from_sql(mirrored, "u")


def test_publish_failure_is_recorded_logged_and_retried(
    mirrored: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    append(mirrored, "a")
    place = location(mirrored)
    moved = place.with_name("moved")
    place.rename(moved)
    place.write_text("a file where a folder should be")
    with caplog.at_level(logging.WARNING, logger="deltasql"):
        assert append(mirrored, "b", "c") == 3
    assert "publishing failed" in caplog.text
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.published_version, status.pending) == ("FAILED", 1, 2)
    assert status.attempts == 2
    assert status.last_error is not None
    assert [v.status for v in mirrored.mirror.versions("t", limit=2)] == ["PENDING", "FAILED"]
    with pytest.raises(TxnLogError):
        mirrored.mirror.publish("t")
    place.unlink()
    moved.rename(place)
    append(mirrored, "d")
    assert published(mirrored) == from_sql(mirrored)
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.attempts, status.last_error) == ("ACTIVE", 0, None)


def test_unpublished_versions_are_published_before_the_next(mirrored: Catalog) -> None:
    """This process believes that everything is published, but SQL was reset by a repair."""
    append(mirrored, "a", "b", "c")
    for version in (2, 3):
        commit_path(location(mirrored), version).unlink()
    forget_published(mirrored.store, mirrored.resolve("t"), from_version=2)
    append(mirrored, "d")
    assert published(mirrored) == from_sql(mirrored)


def test_commit_publishes_at_most_one_batch_of_older_versions(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    folder = tmp_path / "lake"
    with open_mirrored(catalog_uri, folder, mirror={"mode": "off"}) as catalog:
        catalog.create_table("t", SCHEMA)
        append(catalog, *map(str, range(7)))
    limited = {"mode": "sync", "batch_versions": 5}
    with open_mirrored(catalog_uri, folder, mirror=limited) as catalog:
        append(catalog, "b")
        assert published_versions(location(catalog)) == [0, 1, 2, 3, 4]
        append(catalog, "c")
        assert published(catalog) == from_sql(catalog)


def test_progress_callback_does_not_change_checkpoints(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    reported: list[tuple[int, int]] = []
    with open_mirrored(sqlite_uri, tmp_path / "lake", mirror={"mode": "off"}) as catalog:
        for table in ("watched", "alone"):
            catalog.create_table(table, SCHEMA)
            for number in range(120):
                append(catalog, str(number), table=table)
        catalog.mirror.publish(
            "watched", on_progress=lambda each: reported.append((each.done, each.total))
        )
        catalog.mirror.publish("alone")
        checkpoints = [
            sorted(
                each.name for each in (location(catalog, table) / "_delta_log").glob("*.checkp*")
            )
            for table in ("watched", "alone")
        ]
    assert reported == [(0, 121), (50, 121), (100, 121), (121, 121)]
    assert checkpoints[0] == checkpoints[1] != []


def test_progress_callback_is_called_after_each_batch(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    reported: list[tuple[int, int]] = []
    short = {"mode": "off", "batch_versions": 3}
    with open_mirrored(sqlite_uri, tmp_path / "lake", mirror=short) as catalog:
        catalog.create_table("t", SCHEMA)
        append(catalog, *map(str, range(6)))
        catalog.mirror.publish(
            "t", on_progress=lambda each: reported.append((each.done, each.total))
        )
    assert reported == [(0, 7), (3, 7), (6, 7), (7, 7)]


def test_error_in_a_progress_callback_is_not_a_mirror_failure(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    def listen(progress: Progress) -> None:
        if progress.done:
            raise BrokenPipeError

    with open_mirrored(sqlite_uri, tmp_path / "lake", mirror={"mode": "off"}) as catalog:
        catalog.create_table("t", SCHEMA)
        append(catalog, *map(str, range(60)))
        with pytest.raises(BrokenPipeError):
            catalog.mirror.publish("t", on_progress=listen)
        [status] = catalog.mirror.status("t")
        assert (status.state, status.published_version, status.last_error) == ("ACTIVE", 49, None)
        assert catalog.mirror.publish("t") == 11


def test_renamed_table_is_published_at_its_location(mirrored: Catalog) -> None:
    place = location(mirrored)
    append(mirrored, "a")
    mirrored.rename("t", "crm.renamed")
    append(mirrored, "b", table="crm.renamed")
    assert location(mirrored, "crm.renamed") == place
    assert published(mirrored, "crm.renamed") == from_sql(mirrored, "crm.renamed")


def test_dropped_table_is_published_and_undrop_continues(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake", mirror={"mode": "off"}) as catalog:
        table = catalog.create_table("t", SCHEMA)
        append(catalog, "a")
        catalog.drop("t")
        assert [status.pending for status in catalog.mirror.status()] == [2]
        assert catalog.mirror.run(once=True) == 2
        assert published_versions(table.location) == [0, 1]
        assert catalog.mirror.status() == []
        catalog.undrop("t")
        append(catalog, "b")
        assert catalog.mirror.run(once=True) == 1
        assert published(catalog) == from_sql(catalog)


def test_files_appear_in_version_order(mirrored: Catalog) -> None:
    seen: list[list[int]] = []

    def look(phase: str) -> None:
        if phase == "published":
            seen.append(published_versions(location(mirrored)))

    with hooked(look):
        append(mirrored, "a", "b", "c")
    assert seen == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.every_database
def test_concurrent_commits_of_threads_leave_no_gap(mirrored: Catalog) -> None:
    barrier = threading.Barrier(4)
    gaps: list[list[int]] = []

    def work(writer: int) -> None:
        barrier.wait()
        for number in range(8):
            with mirrored.begin() as tx:
                tx.stage_table("t", [file(f"{writer}-{number}")])
            there = published_versions(location(mirrored))
            if there != list(range(len(there))):
                gaps.append(there)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gaps == []
    assert mirrored.table("t").version() == 32
    assert published(mirrored) == from_sql(mirrored)
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.published_version) == ("ACTIVE", 32)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_concurrent_commits_of_processes_leave_no_gap(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
    gaps = values(run(commit_and_look, [(catalog_uri, tmp_path / "lake", n) for n in range(3)]))
    assert gaps == [[], [], []]
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        assert catalog.table("t").version() == 30
        assert published(catalog) == from_sql(catalog)
        [status] = catalog.mirror.status("t")
        assert (status.state, status.published_version) == ("ACTIVE", 30)


def commit_and_look(barrier: Any, uri: DeltaSqlUri, folder: Path, writer: int) -> list[list[int]]:
    gaps = []
    with open_mirrored(uri, folder) as catalog:
        place = location(catalog)
        barrier.wait()
        for number in range(10):
            with catalog.begin() as tx:
                tx.stage_table("t", [file(f"{writer}-{number}")])
            assert tx.versions["t"] in published_versions(place)
            there = published_versions(place)
            if there != list(range(len(there))):
                gaps.append(there)
    return gaps


def test_forked_child_publishes_its_commits(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        append(catalog, "a")
        child = os.fork()
        if child == 0:
            append(catalog, "b")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        append(catalog, "c")
        assert published(catalog) == from_sql(catalog)


def test_deltalake_reads_a_file_added_again(mirrored: Catalog) -> None:
    append(mirrored, "a", "b")
    with mirrored.begin() as tx:
        tx.stage_table("t", [AddFile("a", {}, 200, 0)])
    assert sorted(DeltaTable(str(location(mirrored))).file_uris()) == [
        f"{location(mirrored)}/a",
        f"{location(mirrored)}/b",
    ]


def test_publishing_leaves_no_temporary_files(mirrored: Catalog) -> None:
    append(mirrored, *map(str, range(12)))
    suffixes = {name.partition(".")[2] for name in log_names(location(mirrored))}
    assert suffixes <= {"json", "crc", "checkpoint.parquet", ""}
