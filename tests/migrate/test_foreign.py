"""Foreign commits are detected, and one call adopts or rejects them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from deltasql.commit.committer import Committer
from deltasql.exceptions import (
    CommitConflictError,
    InvalidActionError,
    MetadataChangedError,
    TxnLogProtocolError,
)
from deltasql.migrate.authority.foreign_commits import reject
from deltasql.mirror.publish.targets import ACTIVE, QUARANTINED
from deltasql.storage import open_storage
from tests.mirror.published import change_commit
from tests.mirror.support import commit_path, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog whose table `t` at version 1 can also be written outside SQL."""
    settings = {"table": {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}}
    with open_mirrored(catalog_uri, tmp_path / "lake", **settings) as opened:
        opened.create_table("t", SCHEMA, partition_by=["p"])
        ours(opened, 1)
        yield opened


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "p": ["a"] * len(ids)}, schema=SCHEMA)


def ours(catalog: Catalog, *ids: int) -> int:
    """Commit rows through SQL."""
    with catalog.begin() as tx:
        tx.write("t", rows(*ids))
    return tx.versions["t"]


def theirs(catalog: Catalog, *ids: int) -> int:
    """Append rows with deltalake, outside SQL; return the version."""
    location = catalog.table("t").location
    deltalake.write_deltalake(location, rows(*ids), mode="append")
    return deltalake.DeltaTable(location).version()


def all_ids(catalog: Catalog) -> list[int]:
    """Return the ids that deltalake reads from the published table."""
    table = deltalake.DeltaTable(catalog.table("t").location).to_pyarrow_table()
    return sorted(table["id"].to_pylist())


def state(catalog: Catalog) -> tuple[str, int, int]:
    (own,) = catalog.mirror.status("t")
    return own.state, own.version, own.published_version


def verify_all_versions(catalog: Catalog) -> bool:
    (report,) = catalog.mirror.verify("t", versions="all")
    assert report.ok, report.summary()
    return True


def test_foreign_commit_quarantines_the_mirror_and_sql_stays_usable(catalog: Catalog) -> None:
    theirs(catalog, 2)
    (report,) = catalog.mirror.verify("t")
    assert report.found.counts == {"foreign-version": 1}
    assert state(catalog)[0] == QUARANTINED  # the verification quarantined it
    assert ours(catalog, 3) == 2
    assert ours(catalog, 4) == 3
    assert state(catalog) == (QUARANTINED, 3, 1)
    assert catalog.table("t").snapshot().totals().num_records == 3
    assert all_ids(catalog) == [1, 2]


@pytest.mark.two_databases
def test_foreign_commit_on_the_head_is_adopted_unchanged(catalog: Catalog) -> None:
    for number in (2, 3):
        theirs(catalog, number)
    location = catalog.table("t").location
    files = [commit_path(location, version).read_bytes() for version in (2, 3)]
    report = catalog.mirror.adopt("t")
    assert report.adopted == {2: 2, 3: 3}
    assert report.backups == []
    with pytest.warns(DeprecationWarning, match="use backups instead"):
        assert report.aside == []
    assert [commit_path(location, version).read_bytes() for version in (2, 3)] == files
    assert state(catalog) == (ACTIVE, 3, 3)
    assert catalog.table("t").history()[0].info.engine_info.startswith("delta-rs")
    assert ours(catalog, 4) == 4
    assert all_ids(catalog) == [1, 2, 3, 4]
    assert verify_all_versions(catalog)
    assert catalog.mirror.verify("t")[0].foreign_bytes == [2, 3]


@pytest.mark.parametrize("operation", ["delete", "update", "overwrite", "optimize", "property"])
def test_any_foreign_operation_on_the_head_is_adopted(catalog: Catalog, operation: str) -> None:
    ours(catalog, 2)
    table = deltalake.DeltaTable(catalog.table("t").location)
    if operation == "delete":
        table.delete("id = 1")
    elif operation == "update":
        table.update(updates={"id": "9"}, predicate="id = 2")
    elif operation == "overwrite":
        deltalake.write_deltalake(table, rows(7), mode="overwrite")
    elif operation == "optimize":
        table.optimize.compact()
    else:
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    expected = all_ids(catalog)
    assert catalog.mirror.adopt("t").adopted == {3: 3}
    assert ours(catalog, 5) == 4
    assert all_ids(catalog) == sorted([*expected, 5])
    assert verify_all_versions(catalog)


@pytest.mark.two_databases
def test_foreign_append_is_adopted_after_the_commits_of_sql(catalog: Catalog) -> None:
    theirs(catalog, 2)
    theirs(catalog, 3)
    ours(catalog, 4)
    location = catalog.table("t").location
    foreign = commit_path(location, 2).read_bytes()
    report = catalog.mirror.adopt("t")
    assert report.adopted == {2: 3, 3: 4}
    assert report.released
    assert len(report.backups) == 2
    assert foreign in [(Path(location) / name).read_bytes() for name in report.backups]
    assert state(catalog) == (ACTIVE, 4, 4)
    assert all_ids(catalog) == [1, 2, 3, 4]
    assert verify_all_versions(catalog)


def test_foreign_delete_of_foreign_rows_is_adopted(catalog: Catalog) -> None:
    theirs(catalog, 2)
    deltalake.DeltaTable(catalog.table("t").location).delete("id = 2")
    with catalog.begin() as tx:
        tx.stage_table("t", {"txn": {"appId": "etl", "version": 1}})
    assert catalog.mirror.adopt("t").adopted == {2: 3, 3: 4}
    assert all_ids(catalog) == [1]
    assert verify_all_versions(catalog)


@pytest.mark.two_databases
def test_no_foreign_commit_is_adopted_if_a_later_one_is_invalid(catalog: Catalog) -> None:
    location = catalog.table("t").location
    theirs(catalog, 2)
    deltalake.DeltaTable(location).delete("id = 1")
    change_commit(location, 3, set_field("remove", "path", "nowhere.parquet"))
    ours(catalog, 4)
    with pytest.raises(InvalidActionError, match="not live") as raised:
        catalog.mirror.adopt("t")
    assert "version 3 of the log" in raised.value.help
    assert "deltasql mirror reject t" in raised.value.help
    assert state(catalog) == (QUARANTINED, 2, 1)
    assert catalog.mirror.reject("t").rejected == [2, 3]
    assert all_ids(catalog) == [1, 4]
    assert verify_all_versions(catalog)


@pytest.mark.two_databases
def test_conflicting_foreign_commit_can_only_be_rejected(
    catalog: Catalog,
) -> None:
    location = catalog.table("t").location
    deltalake.DeltaTable(location).delete("id = 1")
    with catalog.begin() as tx:
        tx.write("t", rows(8), mode="overwrite")
    assert state(catalog) == (QUARANTINED, 2, 1)
    with pytest.raises(CommitConflictError) as raised:
        catalog.mirror.adopt("t")
    assert "version 2 of the log" in raised.value.help
    assert state(catalog) == (QUARANTINED, 2, 1)
    report = catalog.mirror.reject("t")
    assert (report.rejected, report.released) == ([2], True)
    assert state(catalog) == (ACTIVE, 2, 2)
    assert all_ids(catalog) == [8]
    assert verify_all_versions(catalog)


def test_reject_keeps_copies_of_commits_and_checkpoint(catalog: Catalog) -> None:
    for number in (2, 3):
        theirs(catalog, number)
    location = catalog.table("t").location
    deltalake.DeltaTable(location).create_checkpoint()
    deltalake.DeltaTable(location).compact_logs(1, 3)
    report = catalog.mirror.reject("t")
    assert report.rejected == [2, 3]
    assert {Path(name).name.removesuffix(".aside") for name in report.backups} >= {
        f"{1:020d}.{3:020d}.compacted.json",
        f"{2:020d}.json",
        f"{3:020d}.json",
        f"{3:020d}.checkpoint.parquet",
        "_last_checkpoint",
    }
    assert "rejected" in report.summary()
    assert all_ids(catalog) == [1]
    assert ours(catalog, 5) == 2
    assert all_ids(catalog) == [1, 5]
    assert verify_all_versions(catalog)


def test_adopt_and_reject_without_foreign_commits_change_nothing(catalog: Catalog) -> None:
    for resolve in (catalog.mirror.adopt, catalog.mirror.reject):
        report = resolve("t")
        assert report.to_dict() == {
            "table": "t",
            "location": catalog.table("t").location,
            "adopted": {},
            "rejected": [],
            "backups": [],
            "aside": [],
            "released": False,
            "dry_run": False,
        }
    assert verify_all_versions(catalog)


def set_field(kind: str, field: str, value: object) -> Any:
    def change(action: dict[str, Any]) -> None:
        if kind in action:
            action[kind][field] = value

    return change


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (set_field("add", "partitionValues", {}), InvalidActionError),
        (set_field("remove", "path", "nowhere.parquet"), InvalidActionError),
        (set_field("metaData", "partitionColumns", []), InvalidActionError),
        (set_field("metaData", "id", "another"), InvalidActionError),
        (set_field("protocol", "minWriterVersion", 9), TxnLogProtocolError),
    ],
    ids=["partition", "not live", "partitioning", "other table", "protocol"],
)
def test_invalid_foreign_commit_is_not_adopted(
    catalog: Catalog, change: Any, error: type[Exception]
) -> None:
    location = catalog.table("t").location
    first = commit_path(location, 0).read_text()
    deltalake.DeltaTable(location).update(updates={"id": "9"}, predicate="id = 1")
    path = commit_path(location, 2)
    path.write_text(path.read_text() + "\n" + first.partition("\n")[2])  # add protocol and metadata
    change_commit(location, 2, change)
    with pytest.raises(error):
        catalog.mirror.adopt("t")
    assert state(catalog) == (ACTIVE, 1, 1)
    catalog.mirror.reject("t")
    assert all_ids(catalog) == [1]
    assert verify_all_versions(catalog)


def test_foreign_commit_that_adds_a_live_file_is_not_adopted(catalog: Catalog) -> None:
    location = catalog.table("t").location
    commit_path(location, 2).write_bytes(commit_path(location, 1).read_bytes())
    with pytest.raises(InvalidActionError, match="live already"):
        catalog.mirror.adopt("t")


def test_metadata_changed_on_both_sides_is_a_conflict(catalog: Catalog) -> None:
    table = catalog.table("t")
    deltalake.DeltaTable(table.location).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 7 days"}
    )
    metadata = table.snapshot().metadata
    changed = {**metadata.body(), "description": "ours"}
    with catalog.begin() as tx:
        tx.stage_table("t", {"metaData": changed})
    with pytest.raises(MetadataChangedError):
        catalog.mirror.adopt("t")


@pytest.mark.two_databases
def test_interrupted_adopt_is_completed_by_the_next_adopt(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs(catalog, 2)
    ours(catalog, 3)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("deltasql.migrate.authority.foreign_commits._move_to_backup", die)
        catalog.mirror.adopt("t")
    assert catalog.table("t").version() == 3
    assert catalog.mirror.adopt("t").adopted == {2: 3}
    assert state(catalog) == (ACTIVE, 3, 3)
    assert all_ids(catalog) == [1, 2, 3]
    assert verify_all_versions(catalog)


def test_reject_after_an_interrupted_adopt_says_what_stays(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs(catalog, 2)
    theirs(catalog, 3)
    ours(catalog, 4)
    commit = Committer.commit

    def die_at_the_second(self: Committer, staged: Any, txn_id: str) -> Any:
        if catalog.table("t").version() == 3:
            raise KeyboardInterrupt
        return commit(self, staged, txn_id)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Committer, "commit", die_at_the_second)
        catalog.mirror.adopt("t")
    for dry_run in (True, False):
        report = catalog.mirror.reject("t", dry_run=dry_run)
        assert (report.adopted, report.rejected) == ({2: 3}, [3])
    assert all_ids(catalog) == [1, 2, 4]
    assert verify_all_versions(catalog)


def test_next_commit_completes_an_interrupted_adopt(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs(catalog, 2)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("deltasql.mirror.publish.status.mark_published", die)
        catalog.mirror.adopt("t")
    ours(catalog, 3)  # finds the foreign file, whose content SQL has now
    assert state(catalog) == (ACTIVE, 3, 3)
    assert all_ids(catalog) == [1, 2, 3]
    assert verify_all_versions(catalog)


def test_reject_does_nothing_when_newer_foreign_commits_exist(catalog: Catalog) -> None:
    """If another commit was built on it, nothing is rejected."""
    newest = theirs(catalog, 2)
    table = catalog.table("t").row
    storage = open_storage(table.location)
    theirs(catalog, 3)
    assert reject(catalog.store, table, storage, last=newest).rejected == []
    assert all_ids(catalog) == [1, 2, 3]
    assert reject(catalog.store, table, storage, last=newest + 1).rejected == [newest, newest + 1]
    assert all_ids(catalog) == [1]
