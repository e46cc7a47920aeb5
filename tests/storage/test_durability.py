"""What survives a loss of power: data files once they are written, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from deltasql.storage import local_files, open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "hidden"])
def test_a_durable_file_is_flushed_when_it_has_its_name(
    tmp_path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    if not unnamed:
        monkeypatch.setattr(local_files, "_UNNAMED", 0)  # as on a disk without such files
    disk = open_storage(str(tmp_path))
    with disk.writer("day=a/part.parquet", durable=True) as sink:
        sink.write(b"rows")
        assert flushed == []
    assert disk.read("day=a/part.parquet") == b"rows"
    if unnamed:
        assert len(flushed) == 1
    else:
        assert flushed == [f"{tmp_path}/day=a/part.parquet", f"{tmp_path}/day=a", str(tmp_path)]


def test_what_can_be_written_again_is_not_flushed(tmp_path: Path, flushed: list[str]) -> None:
    disk = open_storage(str(tmp_path))
    with disk.writer("checkpoint") as sink:
        sink.write(b"rows")
    disk.put_if_absent("commit", b"{}")
    disk.put("last", b"{}")
    assert flushed == []


@pytest.mark.parametrize(("synchronous", "expected"), [("full", 2), ("normal", 0), ("off", 0)])
def test_every_data_file_of_a_commit_is_flushed_once(
    sqlite_uri: DeltaSqlUri,
    tmp_path: Path,
    flushed: list[str],
    synchronous: str,
    expected: int,
) -> None:
    with deltasql.connect(
        sqlite_uri,
        store={"synchronous": synchronous},
        table={"data_root": str(tmp_path / "lake")},
    ) as catalog:
        catalog.create_table("t", ROWS.schema, partition_by=["day"])
        with catalog.begin() as tx:
            tx.write("t", ROWS)
            assert len(flushed) == expected
    assert len(flushed) == expected
