"""Power loss: content is flushed before a file is named, folders before the call returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from deltasql.storage import local_files, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql.storage import Storage
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})


def stream(disk: Storage, name: str, **options: bool) -> None:
    with disk.writer(name, **options) as sink:
        sink.write(b"rows")


WAYS: dict[str, Callable[..., object]] = {
    "put_if_absent": lambda disk, name, **options: disk.put_if_absent(name, b"rows", **options),
    "put": lambda disk, name, **options: disk.put(name, b"rows", **options),
    "writer": stream,
    "copy_from": lambda disk, name, **options: disk.copy_from(
        open_storage(f"{disk.location}/source"), name, **options
    ),
}


@pytest.fixture(params=[True, False], ids=["unnamed", "hidden"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    if not request.param:
        monkeypatch.setattr(local_files, "_UNNAMED", 0)  # like a file system without unnamed files
    (tmp_path / "source" / "log").mkdir(parents=True)
    (tmp_path / "source" / "log" / "a").write_bytes(b"rows")
    return open_storage(str(tmp_path))


@pytest.mark.parametrize("way", WAYS)
def test_file_is_flushed_before_it_gets_its_name_and_folders_afterwards(
    disk: Storage, flushed: list[str], way: str
) -> None:
    root = disk.location
    WAYS[way](disk, "log/a")
    made, content, *folders = flushed
    assert made == root  # the folder `log` is new
    assert content.startswith(f"{root}/log/")
    assert content != f"{root}/log/a"
    assert folders == [f"{root}/log", root, root.rpartition("/")[0]]
    assert disk.read("log/a") == b"rows"
    # This process has already flushed the folders above.
    flushed.clear()
    WAYS[way](disk, "log/a")
    assert flushed[1:] == ([] if way == "put_if_absent" else [f"{root}/log"])


@pytest.mark.parametrize("way", WAYS)
def test_one_folder_flush_serves_several_files(disk: Storage, flushed: list[str], way: str) -> None:
    root = disk.location
    for name in ("log/a", "log/b"):
        if way == "copy_from":
            open_storage(f"{root}/source").put(name, b"rows")
    flushed.clear()
    for name in ("log/a", "log/b"):
        WAYS[way](disk, name, flush_folder=False)
    assert f"{root}/log" not in flushed
    disk.flush_folder("log/")
    assert flushed.count(f"{root}/log") == 1


def test_files_written_by_other_programs_are_flushed_with_their_folders(
    tmp_path: Path, flushed: list[str]
) -> None:
    disk = open_storage(str(tmp_path))
    (tmp_path / "log").mkdir()
    for name in ("log/a", "log/b"):
        (tmp_path / name).write_bytes(b"{}")
    disk.flush(["log/a", "log/b", "log/gone", "elsewhere/gone"])
    above = [f"{tmp_path}/log", str(tmp_path), str(tmp_path.parent)]
    assert flushed == [f"{tmp_path}/log/a", f"{tmp_path}/log/b", *above]


@pytest.mark.parametrize("synchronous", ["full", "normal", "off"])
def test_data_files_are_flushed_before_the_commit(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, flushed: list[str], synchronous: str
) -> None:
    """With any setting of the database: the published log, which is flushed, names these files."""
    lake = tmp_path / "lake"
    with deltasql.connect(
        sqlite_uri, store={"synchronous": synchronous}, table={"data_root": str(lake)}
    ) as catalog:
        catalog.create_table("t", ROWS.schema, partition_by=["day"])
        place = catalog.table("t").location
        flushed.clear()
        with catalog.begin() as tx:
            tx.write("t", ROWS)
            assert {f"{place}/day=a", f"{place}/day=b", place} <= set(flushed)
            assert len([each for each in flushed if "(deleted)" in each]) == 2


def test_new_folders_of_a_location_are_flushed(tmp_path: Path, flushed: list[str]) -> None:
    open_storage(f"{tmp_path}/space/t").make_root()
    assert flushed == [str(tmp_path), f"{tmp_path}/space"]
    assert (tmp_path / "space" / "t").is_dir()


def test_spark_files_are_flushed_before_the_commit(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, tmp_path: Path, flushed: list[str]
) -> None:
    """The new folders are flushed too. tests/power records the writes of the JVM."""
    rows = spark.range(4).repartition(1)
    with (
        deltasql.connect(sqlite_uri, table={"data_root": f"{tmp_path}/lake"}) as catalog,
        catalog.begin() as tx,
    ):
        tx.write("t", rows, engine="spark")
        (path,) = [each for each in flushed if each.endswith(".parquet")]
        folder, _, _ = path.rpartition("/")
        place, _, _ = folder.rpartition("/")
        assert place.startswith(f"{tmp_path}/lake/")
        assert {folder, place, f"{tmp_path}/lake", str(tmp_path)} <= set(flushed)
