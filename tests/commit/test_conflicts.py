"""Delta's conflict rules: what may commit after a concurrent commit, and the conflict errors."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from deltasql import (
    AddFile,
    Catalog,
    DomainMetadata,
    Metadata,
    Protocol,
    ReadSet,
    RemoveFile,
    SetTransaction,
)
from deltasql.commit.conflict import check_conflicts
from deltasql.commit.staged import Isolation, Staged
from deltasql.config import Config
from deltasql.config.sections import DEFAULT_ISOLATION_LEVEL
from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentDomainMetadataError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
    TableChangedError,
    TxnLogTransactionError,
    VersionNotFoundError,
)
from deltasql.model.properties import TableProperties
from tests.commit.support import (
    audit,
    commit,
    file,
    live,
    open_catalog,
    removal,
    serializable,
    set_isolation_level,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

WHOLE = ReadSet(whole_table=True)
A, B = file("a", 0, 9), file("b", 10, 19)


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    """A catalog with table `t`: files a (id 0..9) and b (id 10..19) at version 1."""
    catalog.create_table(
        "t",
        pa.schema([("id", pa.int64())]),
        properties={"delta.feature.domainMetadata": "supported"},
    )
    commit(catalog, [A, B])
    return catalog


# Appends


def test_blind_append_succeeds_after_a_concurrent_append(table: Catalog) -> None:
    commit(table, file("theirs"))
    assert commit(table, file("ours"), read_version=1) == 3
    assert live(table) == ["a", "b", "ours", "theirs"]


def test_blind_append_succeeds_after_a_delete_when_serializable(table: Catalog) -> None:
    serializable(table)
    commit(table, removal(A))
    commit(table, file("ours"), read_version=2)
    assert live(table) == ["b", "ours"]


def test_append_without_a_read_version_follows_the_latest_version(table: Catalog) -> None:
    with table.begin() as tx:
        tx.stage_table("t", file("ours"))
        commit(table, file("theirs"))
    assert tx.versions == {"t": 3}


def test_rebase_keeps_the_transaction_id_and_the_read_version(table: Catalog) -> None:
    with table.begin() as tx:
        tx.stage_table("t", file("ours"), read_version=1)
        commit(table, file("theirs"))
    newest = table.table("t").history(1)[0]
    assert (newest.version, newest.txn_id, newest.info.read_version) == (3, tx.txn_id, 1)
    assert newest.info.is_blind_append


@pytest.mark.parametrize("level", ["WriteSerializable", "Serializable"])
def test_overwrite_tolerates_a_blind_append_unless_serializable(table: Catalog, level: str) -> None:
    if level == "Serializable":
        serializable(table)
    base = table.table("t").version()
    commit(table, file("theirs"))
    overwrite = [removal(A), removal(B), file("ours")]
    if level == "Serializable":
        with pytest.raises(ConcurrentAppendError):
            commit(table, overwrite, read_version=base, reads=WHOLE)
        assert live(table) == ["a", "b", "theirs"]
    else:
        commit(table, overwrite, read_version=base, reads=WHOLE)
        assert live(table) == ["ours", "theirs"]
    assert table.table("t").history(1)[0].info.isolation_level == level


def test_isolation_level_of_a_table_without_the_property_comes_from_the_configuration(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    settings = {"data_root": str(tmp_path), "isolation_level": "Serializable"}
    with open_catalog(catalog_uri, table=settings) as catalog:
        catalog.create_table("t", pa.schema([("id", pa.int64())]))
        commit(catalog, A)
        commit(catalog, B)
        with pytest.raises(ConcurrentAppendError):
            commit(catalog, [removal(A)], read_version=1, reads=WHOLE)


def test_default_isolation_level_is_the_same_in_config_and_commits(table: Catalog) -> None:
    commit(table, [removal(A)], read_version=1)
    level = table.table("t").history(1)[0].info.isolation_level
    assert level == Config().table.isolation_level == DEFAULT_ISOLATION_LEVEL
    assert TableProperties({}).isolation_level is None


def test_snapshot_isolation_property_still_detects_append_conflicts(table: Catalog) -> None:
    set_isolation_level(table, "SnapshotIsolation")
    base = table.table("t").version()
    commit(table, file("theirs"), read_version=base, reads=WHOLE)
    with pytest.raises(ConcurrentAppendError):
        commit(table, [file("ours")], read_version=base, reads=WHOLE)


def test_append_that_read_the_table_is_not_blind(table: Catalog) -> None:
    """Two INSERT … SELECT from the same table have no serial order."""
    commit(table, file("theirs"), reads=WHOLE, read_version=1)
    with pytest.raises(ConcurrentAppendError):
        commit(table, file("ours"), reads=WHOLE, read_version=1)


def test_schema_change_that_read_the_table_conflicts_with_blind_appends(table: Catalog) -> None:
    """An overwrite with a new schema must not follow an append with the old schema."""
    metadata = table.table("t").snapshot().metadata
    commit(table, file("theirs"))
    with pytest.raises(ConcurrentAppendError):
        commit(
            table,
            [removal(A), removal(B), replace(metadata, description="other")],
            read_version=1,
            reads=WHOLE,
        )


# Deletes


def test_second_delete_of_a_file_conflicts(table: Catalog) -> None:
    commit(table, removal(A))
    with pytest.raises(ConcurrentDeleteDeleteError):
        commit(table, [removal(A), file("rewritten")], read_version=1)
    assert live(table) == ["b"]


def test_concurrent_deletes_of_different_files_succeed(table: Catalog) -> None:
    commit(table, removal(A))
    commit(table, removal(B), read_version=1)
    assert live(table) == []


def test_concurrent_delete_of_a_read_file_conflicts(table: Catalog) -> None:
    commit(table, removal(A))
    with pytest.raises(ConcurrentDeleteReadError):
        commit(table, file("derived"), read_version=1, reads=ReadSet(paths=frozenset({"a"})))
    commit(table, file("derived"), read_version=1, reads=ReadSet(paths=frozenset({"b"})))


def test_whole_table_read_conflicts_with_any_delete(table: Catalog) -> None:
    commit(table, removal(A))
    with pytest.raises(ConcurrentDeleteReadError):
        commit(table, file("derived"), read_version=1, reads=WHOLE)


def test_compaction_succeeds_after_an_append_when_serializable(table: Catalog) -> None:
    serializable(table)
    commit(table, file("theirs"))
    commit(table, compaction(), read_version=2, reads=ReadSet(paths=frozenset({"a", "b"})))
    assert live(table) == ["compacted", "theirs"]
    assert table.table("t").history(1)[0].info.isolation_level == "SnapshotIsolation"


def test_append_succeeds_after_a_compaction(table: Catalog) -> None:
    serializable(table)
    commit(table, compaction())
    commit(table, file("ours"), read_version=2, reads=WHOLE)
    assert live(table) == ["compacted", "ours"]


def test_change_of_one_file_succeeds_after_a_compaction_of_others_that_it_read(
    table: Catalog,
) -> None:
    compacted = [removal(B, data_change=False), file("compacted", 10, 19, data_change=False)]
    commit(table, compacted)
    both = ReadSet(paths=frozenset({"a", "b"}))
    commit(table, removal(A), read_version=1, reads=both)
    assert live(table) == ["compacted"]


@pytest.mark.parametrize("moves", [1, 2])
def test_delete_of_compacted_rows_conflicts_with_a_transaction_that_read_them(
    table: Catalog, moves: int
) -> None:
    """The delete conflicts without the compaction, too: it removes rows that we read."""
    commit(table, compaction())
    moved = file("compacted", 0, 19)
    if moves == 2:
        again = file("again", 0, 19, data_change=False)
        commit(table, [removal(moved, data_change=False), again])
        moved = again
    commit(table, [removal(moved), file("left", 10, 19)])
    with pytest.raises(ConcurrentDeleteReadError):
        commit(table, file("ours"), read_version=1, reads=ReadSet(paths=frozenset({"a"})))
    assert live(table) == ["left"]


def test_delete_of_rows_that_a_compaction_did_not_move_is_no_conflict(table: Catalog) -> None:
    compacted = [removal(B, data_change=False), file("compacted", 10, 19, data_change=False)]
    commit(table, compacted)
    commit(table, removal(file("compacted", 10, 19)))
    commit(table, file("ours"), read_version=1, reads=ReadSet(paths=frozenset({"a"})))
    assert live(table) == ["a", "ours"]


@pytest.mark.parametrize("reads", [WHOLE, ReadSet(paths=frozenset({"a"}))], ids=["all", "file"])
def test_file_is_not_added_again_after_a_compaction_moved_its_rows(
    table: Catalog, reads: ReadSet
) -> None:
    commit(table, compaction())
    with pytest.raises(ConcurrentDeleteReadError):
        commit(table, replace(A, data_change=False), read_version=1, reads=reads)
    assert live(table) == ["compacted"]


def test_compaction_conflicts_with_a_delete_of_its_input(table: Catalog) -> None:
    commit(table, removal(A))
    with pytest.raises(ConcurrentDeleteDeleteError):
        commit(table, compaction(), read_version=1)
    assert live(table) == ["b"]


def test_delete_conflicts_with_a_compaction_of_its_file(table: Catalog) -> None:
    commit(table, compaction())
    with pytest.raises(ConcurrentDeleteDeleteError):
        commit(table, removal(A), read_version=1)
    assert live(table) == ["compacted"]


def compaction() -> Sequence[AddFile | RemoveFile]:
    return [
        removal(A, data_change=False),
        removal(B, data_change=False),
        file("compacted", 0, 19, data_change=False),
    ]


# Metadata, protocol, applications, domains


OURS: dict[str, object] = {
    "append": file("ours"),
    "delete": removal(A),
    "metadata": "metadata",
    "txn": SetTransaction("etl", 1),
    "domain": DomainMetadata("d", "{}", False),
}


@pytest.mark.parametrize("ours", OURS)
def test_every_change_conflicts_with_a_concurrent_metadata_change(
    table: Catalog, ours: str
) -> None:
    metadata = table.table("t").snapshot().metadata
    action = replace(metadata, description="ours") if ours == "metadata" else OURS[ours]
    commit(table, replace(metadata, description="theirs"))
    with pytest.raises(MetadataChangedError):
        commit(table, action, read_version=1)
    assert table.table("t").snapshot().metadata.description == "theirs"


@pytest.mark.parametrize("ours", OURS)
def test_every_change_conflicts_with_a_concurrent_protocol_change(
    table: Catalog, ours: str
) -> None:
    metadata = table.table("t").snapshot().metadata
    action = replace(metadata, description="ours") if ours == "metadata" else OURS[ours]
    commit(table, wider_protocol(table))
    with pytest.raises(ProtocolChangedError):
        commit(table, action, read_version=1)


def test_rows_written_before_a_metadata_change_conflict(table: Catalog) -> None:
    metadata = table.table("t").snapshot().metadata
    rows = pa.table({"id": [1, 2]})
    with table.begin() as tx:
        tx.write("t", rows)
        commit(table, file("theirs"))  # a concurrent append does not conflict
    tx = table.begin()
    tx.write("t", rows)
    commit(table, replace(metadata, description="theirs"))
    with pytest.raises(MetadataChangedError):
        tx.commit()
    assert table.table("t").version() == 4


def test_metadata_change_does_not_conflict_with_a_concurrent_append(table: Catalog) -> None:
    metadata: Metadata = table.table("t").snapshot().metadata
    commit(table, file("theirs"))
    assert commit(table, replace(metadata, description="ours"), read_version=1) == 3


def wider_protocol(catalog: Catalog) -> Protocol:
    protocol = catalog.table("t").snapshot().protocol
    features = sorted({*(protocol.writer_features or ()), "appendOnly"})
    return replace(protocol, writer_features=tuple(features))


@pytest.mark.parametrize("read_version", [1, None])
def test_second_commit_of_the_same_application_id_conflicts(
    table: Catalog, read_version: int | None
) -> None:
    """Even a blind append conflicts, because its application transaction is already committed."""
    tx = table.begin()
    tx.stage_table("t", [file("ours"), SetTransaction("etl", 7)], read_version=read_version)
    commit(table, [file("theirs"), SetTransaction("etl", 7)])
    with pytest.raises(ConcurrentTransactionError) as caught:
        tx.commit()
    assert caught.value.app_id == "etl"
    assert live(table) == ["a", "b", "theirs"]


def test_commits_of_different_application_ids_do_not_conflict(table: Catalog) -> None:
    commit(table, [file("theirs"), SetTransaction("one", 1)])
    commit(table, [file("ours"), SetTransaction("two", 1)], read_version=1)
    found = table.table("t").snapshot().transactions()
    assert {app: txn.version for app, txn in found.items()} == {"one": 1, "two": 1}


def test_concurrent_changes_of_one_domain_conflict(table: Catalog) -> None:
    commit(table, DomainMetadata("d", json.dumps({"by": "them"}), False))
    with pytest.raises(ConcurrentDomainMetadataError) as caught:
        commit(table, DomainMetadata("d", json.dumps({"by": "us"}), False), read_version=1)
    assert caught.value.domain == "d"
    commit(table, DomainMetadata("e", "{}", False), read_version=1)


# Conflict errors


def test_conflict_names_table_versions_winner_and_help(table: Catalog) -> None:
    with table.begin() as winner:
        winner.stage_table("t", removal(A), operation="DELETE")
    commit(table, file("later"))
    with pytest.raises(ConcurrentDeleteDeleteError) as caught:
        commit(table, removal(A), read_version=1)
    error = caught.value
    assert (error.table, error.expected_version, error.actual_version) == ("t", 1, 3)
    assert (error.winning_version, error.winning_txn_id) == (2, winner.txn_id)
    assert error.winning_operation == "DELETE"
    assert isinstance(error, CommitFailedError)
    assert isinstance(error, TxnLogTransactionError)
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.fields, str(copied)) == (error.fields, str(error))
    assert "Help:" in str(error)


@pytest.mark.parametrize("read_version", [99, -1])
def test_unknown_read_version_is_rejected(table: Catalog, read_version: int) -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        commit(table, removal(A), read_version=read_version)
    assert (caught.value.version, caught.value.latest) == (read_version, 1)
    assert live(table) == ["a", "b"]


def test_conflict_in_one_table_changes_no_table(table: Catalog) -> None:
    table.create_table("u", pa.schema([("id", pa.int64())]))
    commit(table, removal(A))
    tx = table.begin()
    tx.stage_table("u", file("u1"))
    tx.stage_table("t", removal(A), read_version=1)
    with pytest.raises(CommitConflictError):
        tx.commit()
    assert (live(table, "u"), live(table)) == ([], ["b"])
    assert tx.versions == {}
    audit(table)


def test_commit_to_a_dropped_and_recreated_table_fails(table: Catalog) -> None:
    tx = table.begin()
    tx.stage_table("t", file("ours"))
    table.drop("t")
    table.create_table("t", pa.schema([("id", pa.int64())]))
    with pytest.raises(TableChangedError):
        tx.commit()
    assert live(table) == []


def test_every_concurrent_commit_is_checked(table: Catalog) -> None:
    for number in range(5):
        commit(table, file(f"n{number}"))
    commit(table, removal(B))
    commit(table, file("last"))
    with pytest.raises(ConcurrentDeleteDeleteError) as caught:
        commit(table, removal(B), read_version=1)
    assert (caught.value.winning_version, caught.value.actual_version) == (7, 8)


def test_no_conflict_without_concurrent_commits(table: Catalog) -> None:
    staged = Staged(table.resolve("t"), read_version=1, reads=WHOLE, adds=[file("ours")])
    check_conflicts(staged, [], Isolation.SERIALIZABLE)
