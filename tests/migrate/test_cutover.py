"""Cutover: SQL becomes the authority with one commit, and nothing written before is lost."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from deltasql.exceptions import (
    ImportMismatchError,
    MirrorDivergedError,
    ProtocolChangedError,
    RetriesExhaustedError,
    TableFollowsError,
    TxnLogTableNotFoundError,
    UnsupportedFeatureError,
)
from deltasql.model.actions import Protocol
from deltasql.phases import hooked
from tests.commit.support import audit
from tests.migrate.authority_support import (
    IDS,
    NAME,
    everything_below,
    is_write_blocked,
    once_at,
    open_catalog,
    ours,
    sql_ids,
    theirs,
    verify_all_versions,
)
from tests.migrate.sources import HEAD, read_ids, rows
from tests.mirror.support import commit_lines, commit_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with open_catalog(catalog_uri) as opened:
        yield opened


def follow_or_import(catalog: Catalog, place: Path, way: str) -> None:
    """Follow or import a table."""
    if way == "followed":
        catalog.follow(str(place))
    else:
        catalog.import_table(str(place))


BOTH = pytest.mark.parametrize("way", ["followed", "imported"])


@pytest.mark.two_databases
@BOTH
def test_sql_is_the_authority_after_cutover(catalog: Catalog, place: Path, way: str) -> None:
    follow_or_import(catalog, place, way)
    theirs(place, 11)
    report = catalog.cutover(NAME)
    assert (report.state, report.version, report.caught_up) == ("cut over", HEAD + 2, 1)
    assert report.ok
    assert is_write_blocked(place)
    assert ours(catalog, 12) == HEAD + 3
    assert sql_ids(catalog) == read_ids(place) == [*IDS, 11, 12]
    assert verify_all_versions(catalog)
    assert [(s.state, s.pending) for s in catalog.mirror.status(NAME)] == [("ACTIVE", 0)]
    audit(catalog)


def test_cutover_commit_only_enables_timestamps(catalog: Catalog, place: Path) -> None:
    before = deltalake.DeltaTable(str(place))
    catalog.follow(str(place))
    catalog.cutover(NAME)
    info, protocol, metadata = commit_lines(place, HEAD + 1)
    assert protocol["protocol"] == {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "inCommitTimestamp", "invariants"],
    }
    at = info["commitInfo"]["inCommitTimestamp"]
    parameters = info["commitInfo"]["operationParameters"]
    assert parameters == {"properties": '{"delta.enableInCommitTimestamps": "true"}'}
    assert metadata["metaData"]["configuration"] == {
        **before.metadata().configuration,
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": str(HEAD + 1),
        "delta.inCommitTimestampEnablementTimestamp": str(at),
    }
    assert metadata["metaData"]["id"] == before.metadata().id
    row = catalog.table(NAME).history()[0]
    assert (row.version, row.committed_at_ms, row.info.operation) == (
        HEAD + 1,
        at,
        "SET TBLPROPERTIES",
    )
    # The bytes are those that SQL publishes.
    assert catalog.mirror.verify(NAME)[0].foreign_bytes == list(range(HEAD + 1))


@pytest.mark.parametrize(
    "protocol",
    [Protocol(1, 1), Protocol(1, 4), Protocol(2, 5), Protocol(1, 7, None, ("appendOnly",))],
    ids=str,
)
def test_cutover_upgrades_any_protocol_that_deltasql_can_write(
    catalog: Catalog, place: Path, protocol: Protocol
) -> None:
    body = json.dumps({"protocol": protocol.body()})
    commit_path(place, HEAD + 1).write_text(f"{body}\n")
    catalog.follow(str(place))
    catalog.cutover(NAME)
    after = catalog.table(NAME).snapshot().protocol
    assert after.min_writer_version == 7
    assert "inCommitTimestamp" in (after.writer_features or ())
    assert verify_all_versions(catalog)


def test_writer_with_an_older_snapshot_is_rejected(catalog: Catalog, place: Path) -> None:
    late = deltalake.DeltaTable(str(place))
    catalog.follow(str(place))
    catalog.cutover(NAME)
    before = everything_below(place)
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        deltalake.write_deltalake(late, rows(99), mode="append")
    after = {name: data for name, data in everything_below(place).items() if name in before}
    assert after == before
    assert read_ids(place) == IDS
    assert ours(catalog, 12) == HEAD + 2


@BOTH
def test_repeated_cutover_changes_nothing(catalog: Catalog, place: Path, way: str) -> None:
    follow_or_import(catalog, place, way)
    catalog.cutover(NAME)
    before = everything_below(place)
    report = catalog.cutover(NAME)
    assert (report.state, report.version, report.caught_up) == ("was cut over", None, 0)
    assert everything_below(place) == before


@BOTH
def test_dry_run_reports_and_changes_nothing(catalog: Catalog, place: Path, way: str) -> None:
    follow_or_import(catalog, place, way)
    theirs(place, 11)
    before, row = everything_below(place), catalog.table(NAME).row
    report = catalog.cutover(NAME, dry_run=True)
    assert (report.state, report.version, report.caught_up) == ("would cut over", HEAD + 2, 1)
    assert report.ok
    assert everything_below(place) == before
    assert catalog.table(NAME).row == row
    assert catalog.table(NAME).version() == HEAD


@pytest.mark.every_database
def test_cutover_publishes_pending_commits_first(catalog_uri: DeltaSqlUri, place: Path) -> None:
    with open_catalog(catalog_uri, mirror={"mode": "off"}) as catalog:
        catalog.import_table(str(place))
        ours(catalog, 11)
        ours(catalog, 12)
        assert catalog.cutover(NAME).version == HEAD + 3
        assert read_ids(place) == [*IDS, 11, 12]
        assert verify_all_versions(catalog)


# Concurrent writers


@BOTH
@pytest.mark.parametrize("phase", ["claimed", "handing over"])
def test_concurrent_write_outside_sql_is_not_lost(
    catalog: Catalog, place: Path, way: str, phase: str
) -> None:
    follow_or_import(catalog, place, way)
    with hooked(once_at(phase, lambda: theirs(place, 11))):
        report = catalog.cutover(NAME)
    assert (report.attempts, report.caught_up, report.version) == (2, 1, HEAD + 2)
    assert is_write_blocked(place)
    ours(catalog, 12)
    assert sql_ids(catalog) == read_ids(place) == [*IDS, 11, 12]
    assert verify_all_versions(catalog)


@pytest.mark.every_database
def test_concurrent_write_through_sql_is_not_lost(catalog: Catalog, place: Path) -> None:
    catalog.import_table(str(place))
    with hooked(once_at("claimed", lambda: ours(catalog, 11))):
        report = catalog.cutover(NAME)
    assert (report.attempts, report.version) == (2, HEAD + 2)
    assert sql_ids(catalog) == read_ids(place) == [*IDS, 11]
    assert verify_all_versions(catalog)


def test_cutover_fails_after_too_many_concurrent_commits(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))

    def hook(phase: str) -> None:
        if phase == "handing over":
            theirs(place, 11)

    with hooked(hook), pytest.raises(RetriesExhaustedError, match="another writer committed"):
        catalog.cutover(NAME, verify=False)
    assert catalog.cutover(NAME).state == "cut over"
    assert sql_ids(catalog) == read_ids(place)


@pytest.mark.two_databases
def test_cutover_loses_no_acknowledged_write(catalog: Catalog, place: Path) -> None:
    """Every acknowledged write is in the table, whatever the order."""
    catalog.follow(str(place))
    barrier = threading.Barrier(3)

    def write(number: int) -> list[int]:
        barrier.wait()
        done = []
        for each in range(number * 1000, number * 1000 + 20):
            try:
                theirs(place, each)
            except deltalake.exceptions.DeltaError:
                break
            done.append(each)
        return done

    def cut(_: int) -> list[int]:
        barrier.wait()
        catalog.cutover(NAME, verify=False)
        return []

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(write, 1), pool.submit(write, 2), pool.submit(cut, 0)]
        acknowledged = [each for future in futures for each in future.result()]
    assert is_write_blocked(place)
    assert sql_ids(catalog) == read_ids(place)
    assert set(acknowledged) <= set(read_ids(place))
    assert verify_all_versions(catalog)


@pytest.mark.every_database
def test_concurrent_cutovers_make_one_commit(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    barrier = threading.Barrier(2)

    def cut(_: int) -> str:
        barrier.wait()
        return catalog.cutover(NAME).state

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(cut, range(2))) <= {"cut over", "was cut over"}
    assert catalog.table(NAME).version() == HEAD + 1
    assert ours(catalog, 11) == HEAD + 2
    assert verify_all_versions(catalog)


def test_transaction_that_read_before_the_cutover_conflicts(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    with pytest.raises(ProtocolChangedError), catalog.begin() as tx:
        assert sorted(tx.read(NAME)["id"].to_pylist()) == IDS
        catalog.cutover(NAME)
        tx.write(NAME, rows(11))
    assert ours(catalog, 12) == HEAD + 2
    assert verify_all_versions(catalog)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_other_catalog_object_can_write_after_the_cutover(
    catalog: Catalog, catalog_uri: DeltaSqlUri, place: Path
) -> None:
    with open_catalog(catalog_uri) as other:
        catalog.follow(str(place))
        with pytest.raises(TableFollowsError):
            ours(other, 11)
        catalog.cutover(NAME)
        assert ours(other, 11) == HEAD + 2
        with other.begin() as tx:
            tx.stage_table(NAME, {"txn": {"appId": "etl", "version": 1}})
        assert tx.versions == {NAME: HEAD + 3}
        assert sql_ids(catalog) == read_ids(place) == [*IDS, 11]
        assert verify_all_versions(catalog)


# Reasons for a refusal


def test_cutover_with_an_unsupported_feature_is_rejected(catalog: Catalog, place: Path) -> None:
    protocol = Protocol(1, 7, None, ("futureThing", "domainMetadata")).body()
    commit_path(place, HEAD + 1).write_text(json.dumps({"protocol": protocol}) + "\n")
    catalog.follow(str(place))
    before = everything_below(place)
    with pytest.raises(UnsupportedFeatureError, match="futureThing"):
        catalog.cutover(NAME)
    assert everything_below(place) == before
    assert catalog.table(NAME).row.is_following
    assert catalog.refresh(NAME).state == "up to date"


def test_cutover_is_rejected_when_sql_differs_from_the_log(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    before = everything_below(place)
    with catalog.store.change() as (session, _):
        session.execute(
            "mark_removed",
            table_id=catalog.table(NAME).row.table_id,
            version=HEAD,
            file_ids=list(range(20)),
        )
    with pytest.raises(ImportMismatchError, match="was not cut over"):
        catalog.cutover(NAME)
    assert everything_below(place) == before
    with pytest.raises(TableFollowsError):
        ours(catalog, 11)


def test_cutover_is_rejected_when_sql_and_log_have_diverged(
    catalog_uri: DeltaSqlUri, place: Path
) -> None:
    with open_catalog(catalog_uri, mirror={"mode": "off"}) as catalog:
        catalog.import_table(str(place))
        ours(catalog, 11)
        theirs(place, 12)
        before = everything_below(place)
        with pytest.raises(MirrorDivergedError, match="mirror adopt"):
            catalog.cutover(NAME)
        assert everything_below(place) == before
        catalog.mirror.adopt(NAME)
        catalog.cutover(NAME)
        assert sql_ids(catalog) == read_ids(place) == [*IDS, 11, 12]
        assert verify_all_versions(catalog)


def test_cutover_keeps_existing_in_commit_timestamps(catalog: Catalog, place: Path) -> None:
    """Other writers enabled them, so there is nothing to enable."""
    protocol = Protocol(1, 7, None, ("inCommitTimestamp",)).body()
    metadata = commit_lines(place, 0)[2]["metaData"]
    wanted = {"delta.enableInCommitTimestamps": "true"}
    since = {
        "delta.inCommitTimestampEnablementVersion": str(HEAD + 1),
        "delta.inCommitTimestampEnablementTimestamp": "4102444800000",
    }
    metadata["configuration"] = {**metadata["configuration"], **wanted, **since}
    info = {"inCommitTimestamp": 4102444800000, "timestamp": 1, "operation": "X"}
    lines = [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]
    commit_path(place, HEAD + 1).write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    catalog.follow(str(place))
    before = everything_below(place)
    report = catalog.cutover(NAME)
    assert (report.state, report.version) == ("cut over", None)
    assert everything_below(place) == before
    assert ours(catalog, 11) == HEAD + 2
    row = catalog.table(NAME).history()[0]
    assert row.committed_at_ms == 4102444800001  # later than the previous commit
    assert verify_all_versions(catalog)


def test_cutover_and_rollback_of_unknown_table_are_rejected(catalog: Catalog) -> None:
    with pytest.raises(TxnLogTableNotFoundError):
        catalog.cutover(NAME)
    with pytest.raises(TxnLogTableNotFoundError):
        catalog.rollback(NAME)
