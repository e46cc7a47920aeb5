"""The fence: other engines refuse to commit to the path of a fenced table, and still read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import duckdb_extensions
import polars
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import CommitFailedError

import deltasql
from deltasql.exceptions import (
    LogParseError,
    MirrorDivergedError,
    OtherAuthorityError,
    TableFollowsError,
)
from deltasql.migrate.rebuild import rebuild_catalog
from deltasql.mirror.log.listing import list_log
from deltasql.model.protocol import FENCE
from deltasql.storage import open_storage
from tests.commit.support import run
from tests.migrate.authority_support import (
    IDS,
    NAME,
    cut_over_and_die,
    enable_timestamps_as_spark,
    open_catalog,
    ours,
    roll_back_and_die,
    sql_ids,
    verify_all_versions,
)
from tests.migrate.sources import HEAD, change_actions, read_ids, rows
from tests.mirror.support import LOG, commit_lines, commit_path
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database
KILLED = "processes killed at more points"


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(catalog_uri, table={"data_root": str(tmp_path / "lake")}) as opened:
        yield opened


@pytest.fixture
def location(catalog: Catalog) -> str:
    """The location of a published table with one row."""
    with catalog.begin() as tx:
        tx.write(NAME, rows(1))
    return catalog.table(NAME).location


def features(location: Path | str) -> list[str]:
    """Return the writer features that stock deltalake reads."""
    return deltalake.DeltaTable(str(location)).protocol().writer_features or []


def in_duckdb(location: Path | str, statement: str) -> list[Any]:
    """Run a statement with DuckDB's delta extension; the table is `d`."""
    duckdb_extensions.import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD delta; ATTACH '{location}' AS d (TYPE delta)")
        return connection.execute(statement).fetchall()


def checkpoint_without_files(location: str) -> int:
    """Write a checkpoint with deltalake and take its files out; return its version."""
    deltalake.DeltaTable(location).create_checkpoint()
    (checkpoint,) = (Path(location) / LOG).glob("*.checkpoint.parquet")
    actions = pq.read_table(checkpoint)
    pq.write_table(actions.filter(actions["add"].is_null()), checkpoint)
    return int(checkpoint.name[:20])


def test_path_writers_refuse_a_fenced_table_and_readers_read_it(
    catalog: Catalog, location: str
) -> None:
    """DuckDB writes to a table with in-commit timestamps; only the fence stops it."""
    in_duckdb(location, "INSERT INTO d VALUES (9, 'a')")
    assert catalog.mirror.adopt(NAME).adopted == {1: 1}
    report = catalog.fence(NAME)
    assert (report.state, report.version, report.is_published) == ("fenced", 2, True)
    for checkpointed in (False, True):
        if checkpointed:
            catalog.mirror.checkpoint(NAME)
            assert ours(catalog, 2) == 3
        stock = deltalake.DeltaTable(location)
        writers: dict[str, Callable[[], object]] = {
            "append": lambda: deltalake.write_deltalake(location, rows(5), mode="append"),
            "delete": stock.delete,
            "optimize": stock.optimize.compact,
            "polars": lambda: polars.from_arrow(rows(5)).write_delta(location, mode="append"),
        }
        for write in writers.values():
            with pytest.raises(CommitFailedError, match=FENCE):
                write()
        with pytest.raises(duckdb.IOException, match=FENCE):
            in_duckdb(location, "INSERT INTO d VALUES (5, 'a')")
        expected = sql_ids(catalog)
        assert read_ids(location) == expected
        assert sorted(polars.read_delta(location)["id"].to_list()) == expected
        assert in_duckdb(location, "SELECT id FROM d ORDER BY id") == [(n,) for n in expected]
    assert verify_all_versions(catalog)


def test_unfenced_table_can_be_written_again(catalog: Catalog, location: str) -> None:
    before = catalog.table(NAME).snapshot().protocol
    catalog.fence(NAME)
    assert catalog.fence(NAME).state == "was fenced"
    report = catalog.unfence(NAME)
    assert (report.state, report.version) == ("unfenced", 2)
    assert catalog.unfence(NAME).state == "was not fenced"
    assert catalog.table(NAME).snapshot().protocol == before
    in_duckdb(location, "INSERT INTO d VALUES (9, 'a')")
    operations = [row.info.operation for row in catalog.table(NAME).history()]
    assert operations == ["UNFENCE", "FENCE", "WRITE"]


def test_deltalake_sees_the_protocol_without_the_fence(catalog: Catalog, location: str) -> None:
    before = deltasql.DeltaTable(catalog.table(NAME).uri).protocol()
    catalog.fence(NAME)
    assert FENCE in features(location)
    assert deltasql.DeltaTable(catalog.table(NAME).uri).protocol() == before


def test_new_tables_are_fenced_by_configuration_property_and_transaction(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    settings = {"data_root": str(tmp_path / "lake"), "fence": True}
    with open_catalog(catalog_uri, table=settings) as catalog:
        with catalog.begin() as tx:
            tx.write("configured", rows(1))
        assert FENCE in features(catalog.table("configured").location)
        catalog.unfence("configured")
        catalog.optimize("configured")
        assert FENCE not in features(catalog.table("configured").location)
    with open_catalog(catalog_uri, table={**settings, "fence": False}) as catalog:
        property = {f"delta.feature.{FENCE}": "supported"}
        catalog.create_table("by_property", rows().schema, properties=property)
        with catalog.begin() as tx:
            tx.write("in_transaction", rows(1))
            assert tx.fence("in_transaction")
        for name in ("by_property", "in_transaction"):
            assert FENCE in features(catalog.table(name).location)
        assert catalog.table("in_transaction").version() == 0


def test_fence_takes_effect_when_it_is_published(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    settings = {"mirror": {"mode": "off"}, "table": {"data_root": str(tmp_path / "lake")}}
    with open_catalog(catalog_uri, **settings) as catalog:
        with catalog.begin() as tx:
            tx.write(NAME, rows(1))
        catalog.mirror.publish(NAME)
        report = catalog.fence(NAME)
        assert not report.is_published
        assert "deltasql mirror run" in report.summary()
        location = catalog.table(NAME).location
        assert FENCE not in features(location)
        catalog.mirror.publish(NAME)
        assert FENCE in features(location)


def test_foreign_commits_have_to_be_resolved_before_a_fence(
    catalog: Catalog, location: str
) -> None:
    """A foreign commit next to the fence could only be rejected, and its rows would be lost."""
    in_duckdb(location, "INSERT INTO d VALUES (9, 'a')")
    with pytest.raises(MirrorDivergedError, match="adopt"):
        catalog.fence(NAME)
    catalog.mirror.adopt(NAME)
    assert catalog.fence(NAME).is_published
    assert sql_ids(catalog) == [1, 9]


def test_restore_neither_adds_nor_removes_the_fence(catalog: Catalog, location: str) -> None:
    """The fence belongs to the log, not to the rows of a version."""
    catalog.fence(NAME)
    with catalog.begin() as tx:
        tx.restore(NAME, 0, protocol_downgrade_allowed=True)
    assert FENCE in features(location)
    catalog.unfence(NAME)
    with catalog.begin() as tx:
        tx.restore(NAME, 1, protocol_downgrade_allowed=True)
    assert FENCE not in features(location)


# Import, follow, rebuild, export


def test_fenced_log_can_be_followed_imported_and_rebuilt(
    catalog: Catalog, location: str, other: Catalog, tmp_path: Path
) -> None:
    catalog.fence(NAME)
    other.follow(location)
    assert sql_ids(other) == [1]
    with pytest.raises(TableFollowsError):
        other.fence(NAME)
    ours(catalog, 2)
    other.refresh(NAME)
    assert sql_ids(other) == [1, 2]
    other.drop(NAME)
    with open_catalog(f"deltasql://sqlite/{tmp_path}/third.db") as third:
        with pytest.raises(OtherAuthorityError):
            third.import_table(location)
        assert third.import_table(location, force=True).verification.ok
        assert ours(third, 3) == 3
    with open_catalog(f"deltasql://sqlite/{tmp_path}/rebuilt.db") as rebuilt:
        rebuild_catalog(rebuilt.store, [location])
        assert ours(rebuilt, 4) == 4
        assert FENCE in features(location)
        assert verify_all_versions(rebuilt)


@pytest.mark.parametrize("with_data", [False, True])
def test_export_has_no_fence(
    catalog: Catalog, location: str, tmp_path: Path, with_data: bool
) -> None:
    catalog.fence(NAME)
    for number in range(2, 14):
        ours(catalog, number)
    copies = [tmp_path / "all", tmp_path / "last"]
    catalog.export_table(NAME, str(copies[0]), with_data=with_data)
    catalog.export_table(NAME, str(copies[1]), with_data=with_data, from_version=5)
    for copy in copies:
        in_duckdb(copy, "INSERT INTO d VALUES (99, 'a')")  # deltalake refuses the timestamps
        for file in (copy / "_delta_log").glob("*.crc"):
            assert FENCE not in json.dumps(json.loads(file.read_text())["protocol"])
        name = copy.name
        assert catalog.import_table(str(copy), name=name).verification.ok
        found = deltasql.DeltaTable(catalog.table(name).uri).to_pyarrow_table()
        assert sorted(found["id"].to_pylist()) == [*range(1, 14), 99]
        assert FENCE not in (catalog.table(name).snapshot().protocol.writer_features or ())


# Cutover and rollback


def test_cutover_fences_the_table_with_its_own_commit(
    catalog: Catalog, place: Path, other: Catalog
) -> None:
    catalog.follow(str(place))
    preview = catalog.cutover(NAME, fence=True, dry_run=True)
    assert (preview.fence.state, preview.version) == ("would fence", HEAD + 1)
    report = catalog.cutover(NAME, fence=True)
    assert (report.fence.state, report.fence.version) == ("fenced", HEAD + 1)
    assert "fenced by version 7" in report.summary()
    assert "delta-spark" not in report.warnings[0]
    assert [next(iter(line)) for line in commit_lines(place, HEAD + 1)].count("protocol") == 1
    assert FENCE in features(place)
    assert catalog.cutover(NAME, fence=True).fence.state == "was fenced"
    with pytest.raises(OtherAuthorityError):
        other.import_table(str(place))


def test_cutover_fences_a_log_with_timestamps_by_another_commit(
    catalog: Catalog, place: Path
) -> None:
    catalog.follow(str(place))
    catalog.cutover(NAME)
    report = catalog.cutover(NAME, fence=True)
    assert (report.state, report.fence.state, report.fence.version) == (
        "was cut over",
        "fenced",
        HEAD + 2,
    )
    assert FENCE in features(place)


@pytest.mark.parametrize(
    "phase", smoke(["claimed", "handed over", "taken over"], ["handed over"], KILLED)
)
def test_killed_cutover_with_a_fence_is_finished(
    catalog_uri: DeltaSqlUri, place: Path, phase: str
) -> None:
    with open_catalog(catalog_uri) as catalog:
        catalog.follow(str(place))
    run(cut_over_and_die, [(catalog_uri, phase, True)])
    with open_catalog(catalog_uri) as catalog:
        assert catalog.cutover(NAME, fence=True).fence.state in ("fenced", "was fenced")
        assert FENCE in features(place)
        assert ours(catalog, 11) == HEAD + 2
        assert verify_all_versions(catalog)


def test_cutover_names_delta_spark_jobs_that_the_fence_stops(catalog: Catalog, place: Path) -> None:
    def by_spark(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"commitInfo": {**each["commitInfo"], "engineInfo": "Apache-Spark/4.2.0 Delta"}}
            if "commitInfo" in each
            else each
            for each in actions
        ]

    change_actions(place, HEAD, by_spark)
    catalog.follow(str(place))
    (*_, warning) = catalog.cutover(NAME, fence=True, dry_run=True).warnings
    assert "Apache-Spark/4.2.0 Delta" in warning
    assert f"deltasql table unfence {NAME}" in warning


def test_fence_warns_if_this_process_configured_the_log_store(
    catalog: Catalog, location: str
) -> None:
    catalog.has_log_store = True  # a session of delta-spark uses the LogStore
    (warning,) = catalog.fence(NAME).warnings
    assert "LogStore" in warning


@pytest.mark.parametrize("timestamps", ["ours", "theirs", "none"])
def test_rollback_drops_the_fence_in_one_commit(
    catalog: Catalog, place: Path, other: Catalog, timestamps: str
) -> None:
    if timestamps == "theirs":
        enable_timestamps_as_spark(place)
    catalog.import_table(str(place))
    if timestamps == "ours":
        catalog.cutover(NAME)
    catalog.fence(NAME)
    head = ours(catalog, 11)
    assert catalog.rollback(NAME, dry_run=True).fence_dropped
    report = catalog.rollback(NAME)
    assert (report.version, report.fence_dropped) == (head + 1, True)
    assert report.timestamps_dropped == (timestamps == "ours")
    assert "the fence" in report.summary()
    assert FENCE not in features(place)
    info = commit_lines(place, head + 1)[0]["commitInfo"]
    assert ("inCommitTimestamp" in info) == (timestamps == "theirs")
    in_duckdb(place, "INSERT INTO d VALUES (12, 'a')")
    assert read_ids(place) == [*IDS, 11, 12]
    assert catalog.rollback(NAME).state == "was rolled back"
    assert other.import_table(str(place)).verification.ok  # no catalog owns the log


@pytest.mark.parametrize(
    "phase", smoke(["left", "giving back", "given back"], ["given back"], KILLED)
)
def test_killed_rollback_of_a_fenced_table_is_finished(
    catalog_uri: DeltaSqlUri, place: Path, other: Catalog, phase: str
) -> None:
    enable_timestamps_as_spark(place)
    with open_catalog(catalog_uri) as catalog:
        catalog.import_table(str(place))
        catalog.fence(NAME)
        ours(catalog, 11)
    run(roll_back_and_die, [(catalog_uri, phase)])
    with open_catalog(catalog_uri) as catalog:
        catalog.rollback(NAME)
    assert FENCE not in features(place)
    assert other.import_table(str(place)).verification.ok


def test_rollback_of_a_follower_keeps_the_fence_of_another_catalog(
    catalog: Catalog, place: Path, other: Catalog
) -> None:
    other.import_table(str(place))
    other.cutover(NAME, fence=True)
    catalog.follow(str(place))
    assert not catalog.rollback(NAME).fence_dropped
    assert FENCE in features(place)
    assert ours(other, 11) == HEAD + 2


def test_fence_records_the_owner_even_without_in_commit_timestamps(
    catalog: Catalog, place: Path, other: Catalog
) -> None:
    catalog.import_table(str(place))
    ours(catalog, 11)
    catalog.fence(NAME)
    with pytest.raises(OtherAuthorityError):
        other.import_table(str(place))


# Checkpoints and log clean-up of other programs, which a fence does not stop


def test_log_cleaned_up_by_deltalake_is_not_reported_as_diverged(
    catalog: Catalog, location: str
) -> None:
    properties = {"delta.logRetentionDuration": "interval 0 seconds"}
    with catalog.begin() as tx:
        tx.set_table_properties(NAME, properties)
    catalog.fence(NAME)
    for number in range(2, 6):
        ours(catalog, number)
    stock = deltalake.DeltaTable(location)
    stock.create_checkpoint()
    stock.cleanup_metadata()
    listing = list_log(open_storage(location))
    assert 0 not in listing.commits  # the clean-up took place
    assert ours(catalog, 6) == 7
    (report,) = catalog.mirror.verify(NAME)
    assert report.ok, report.summary()
    assert catalog.mirror.status(NAME)[0].state == "ACTIVE"
    assert sql_ids(catalog, 0) == [1]
    catalog.rollback(NAME)
    assert read_ids(location) == [1, 2, 3, 4, 5, 6]


def test_cleanup_loses_no_rows_after_another_program_wrote_a_wrong_checkpoint(
    catalog: Catalog, location: str
) -> None:
    """The commits before the checkpoint are deleted, so the checkpoint must be right."""
    catalog.fence(NAME)
    for number in range(2, 6):
        ours(catalog, number)
    version = checkpoint_without_files(location)
    assert read_ids(location) == []
    ours(catalog, 6)
    with catalog.begin() as tx:
        tx.set_table_properties(NAME, {"delta.logRetentionDuration": "interval 0 seconds"})
    assert catalog.mirror.clean_log(NAME) > 0
    assert min(list_log(open_storage(location)).commits) == version
    assert read_ids(location, version) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("load", ["import", "follow", "rebuild"])
def test_wrong_checkpoint_of_another_program_is_not_loaded(
    catalog: Catalog, location: str, tmp_path: Path, load: str
) -> None:
    """Its commits are gone, but the checksum of the version shows that files are missing."""
    catalog.fence(NAME)
    for number in range(2, 6):
        ours(catalog, number)
    version = checkpoint_without_files(location)
    for number in range(version):
        commit_path(location, number).unlink()
    with open_catalog(f"deltasql://sqlite/{tmp_path}/new.db") as new:
        if load == "rebuild":
            report = rebuild_catalog(new.store, [location])
            assert not report.ok
            assert "contradicts the checksum" in report.summary()
            return
        with pytest.raises(LogParseError, match="contradicts the checksum"):
            new.follow(location) if load == "follow" else new.import_table(location, force=True)
