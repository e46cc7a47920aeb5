"""`restore` and `repair`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, column, numbers


def grown(lake: Lake) -> Any:
    """Return a table with three versions; each adds ten rows."""
    for start in (0, 10, 20):
        lake.append("t", numbers(start, start + 10))
    return lake.DeltaTable(lake.uri("t"))


@pytest.mark.two_databases
def test_restore_makes_a_new_version_with_the_old_rows(lake: Lake) -> None:
    table = grown(lake)
    assert table.restore(0) == {"numRemovedFile": 2, "numRestoredFile": 0}
    assert table.version() == 3
    assert column(table, "id") == list(range(10))
    commit = table.history(1)[0]
    assert (commit["operation"], commit["readVersion"]) == ("RESTORE", 2)
    assert commit["operationParameters"]["version"] == "0"
    assert commit["operationMetrics"] == {"numRemovedFile": 2, "numRestoredFile": 0}


@pytest.mark.two_databases
def test_restore_brings_back_deleted_rows(lake: Lake) -> None:
    table = grown(lake)
    table.delete()
    assert table.restore(2) == {"numRemovedFile": 0, "numRestoredFile": 3}
    assert column(table, "id") == list(range(30))
    assert lake.DeltaTable(lake.uri("t"), version=3).count() == 0


def test_restore_accepts_a_timestamp(lake: Lake) -> None:
    table = grown(lake)
    assert table.restore(datetime(2001, 1, 1, tzinfo=UTC)) == {
        "numRemovedFile": 2,
        "numRestoredFile": 0,
    }
    assert column(table, "id") == list(range(10))
    table.delete()
    table.restore("2001-01-01T00:00:00Z")
    assert (table.version(), column(table, "id")) == (5, list(range(10)))


def test_restore_brings_back_the_schema(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 2))
    data = pa.table({"id": ["x"]})
    lake.write_deltalake(table, data, mode="overwrite", schema_mode="overwrite")
    table.restore(0)
    assert table.to_pyarrow_table().to_pylist() == numbers(0, 2).to_pylist()


def test_invalid_restore_targets_are_rejected(lake: Lake) -> None:
    table = grown(lake)
    with pytest.raises(DeltaError, match="99"):
        table.restore(99)
    with pytest.raises(DeltaError, match="Version to restore 2 should be less"):
        table.restore(2)
    with pytest.raises(ValueError, match="Failed to parse datetime string"):
        table.restore("no time")
    with pytest.raises(DeltaError, match="Either the version or datetime"):
        table.restore(1.5)
    assert lake.DeltaTable(lake.uri("t")).version() == 2


def test_restore_rejects_missing_files_unless_ignored(lake: Lake) -> None:
    table = grown(lake)
    lost = table.file_uris()[0]
    table.delete()
    Path(lost).unlink()
    with pytest.raises(DeltaError, match="missing file"):
        table.restore(2)
    result = table.restore(2, ignore_missing_files=True)
    assert result == {"numRemovedFile": 0, "numRestoredFile": 3}


def test_restore_records_commit_properties(lake: Lake) -> None:
    table = grown(lake)
    table.restore(1, commit_properties=CommitProperties(custom_metadata={"who": "me"}))
    assert table.history(1)[0]["who"] == "me"


@pytest.mark.two_databases
def test_repair_removes_missing_files_from_the_table(lake: Lake) -> None:
    table = grown(lake)
    lost = table.file_uris()[0]
    Path(lost).unlink()
    name = lost.rsplit("/", 1)[-1]
    assert table.repair(dry_run=True) == {"dry_run": True, "files_removed": [name]}
    assert table.version() == 2
    assert table.repair() == {"dry_run": False, "files_removed": [name]}
    assert (table.version(), len(table.file_uris())) == (3, 2)
    assert table.to_pyarrow_table().num_rows == 20
    assert table.history(1)[0]["operation"] == "FSCK"


def test_repair_of_a_complete_table_makes_no_commit(lake: Lake) -> None:
    table = grown(lake)
    assert table.repair() == {"dry_run": False, "files_removed": []}
    assert table.version() == 2


def test_positional_commit_arguments_of_repair_warn(lake: Lake) -> None:
    table = grown(lake)
    Path(table.file_uris()[0]).unlink()
    with pytest.warns(DeprecationWarning, match="positionally to repair"):
        table.repair(False, None, CommitProperties(custom_metadata={"who": "me"}))
    assert table.history(1)[0]["who"] == "me"
