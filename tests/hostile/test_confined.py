"""What is deleted, and who may look on: nothing outside of a table's folder, and nobody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.config import EngineSettings
from deltasql.engine import duckdb_shared

if TYPE_CHECKING:
    from deltasql import Catalog

ROWS = pa.table({"id": [1, 2, 3], "p": ["a", "b", "b"]})


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_dropping_deletes_no_file_anywhere(catalog: Catalog, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "others.txt").write_text("not ours")
    inside = shared / "a" / "t"
    for name, place in (("a.t", inside), ("a.around", shared)):
        catalog.create_table(name, ROWS.schema, partition_by="p", location=str(place))
        with catalog.begin() as tx:
            tx.write(name, ROWS)
    (inside / "link").symlink_to(shared)
    before = all_files(shared)
    assert len(before) >= 5
    for name in ("a.t", "a.around"):
        catalog.drop(name)
    catalog.drop_namespace("a")
    assert catalog.tables() == []
    assert all_files(shared) == before
    catalog.undrop("a.t")
    with catalog.begin() as tx:
        assert tx.read("a.t").num_rows == 3


@pytest.mark.parametrize("link", ["folder of a partition", "folder of the table"])
def test_a_vacuum_goes_where_the_table_is_and_not_behind_links(
    catalog: Catalog, tmp_path: Path, link: str
) -> None:
    victim, place = tmp_path / "victim", tmp_path / "lake" / "t"
    victim.mkdir()
    place.parent.mkdir(exist_ok=True)
    if link == "folder of the table":
        (tmp_path / "real").mkdir()
        place.symlink_to(tmp_path / "real")
    catalog.create_table("t", ROWS.schema, partition_by="p", location=str(place))
    with catalog.begin() as tx:
        tx.write("t", ROWS)
    for name in ("precious.parquet", "part-old.parquet"):
        (victim / name).write_bytes(b"PAR1")
        os.utime(victim / name, (1, 1))
    (place / "p=evil").symlink_to(victim)
    stray = place / "p=a" / "stray.parquet"
    stray.write_bytes(b"PAR1")
    os.utime(stray, (1, 1))
    before = all_files(victim)
    gone = catalog.vacuum(
        "t", dry_run=False, full=True, retention_hours=0, enforce_retention_duration=False
    )
    assert gone == ["p=a/stray.parquet"]
    assert all_files(victim) == before
    with catalog.begin() as tx:
        assert tx.read("t").num_rows == 3


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_rows_that_are_put_on_disk_are_for_this_user_alone() -> None:
    lent = duckdb_shared.lend(EngineSettings(memory_limit="64MB"))
    try:
        rows = "SELECT range AS i, repeat('x', 100) || range AS text FROM range(1000000)"
        lent.connection.execute(f"CREATE TABLE t AS {rows}")
        folder = Path(lent._instance.folder)
        assert list(folder.iterdir())  # more than fits into its memory
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        lent.give_back()
        duckdb_shared.close_idle()
    assert not folder.exists()
