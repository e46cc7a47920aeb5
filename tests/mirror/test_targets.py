"""Several publish targets: replicas with data files, and views of the latest version."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltasql
from deltasql import AddFile, DeletionVector
from deltasql.exceptions import TxnLogConfigError, TxnLogMirrorError
from deltasql.mirror.log.encode import files_named
from tests.commit.support import file
from tests.mirror.support import log_bytes, open_mirrored, published_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


@pytest.fixture
def mirrored(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA, partition_by="day")
        yield catalog


def write(catalog: Catalog, *numbers: int) -> None:
    for number in numbers:
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [number], "day": [f"a b/{number}%"]}))


def state(catalog: Catalog, name: str) -> Any:
    return next(status for status in catalog.mirror.status("t") if status.target == name)


def test_replica_has_the_same_log_and_data(mirrored: Catalog, tmp_path: Path) -> None:
    write(mirrored, 1, 2)
    replica = tmp_path / "second place"
    mirrored.mirror.add_target("t", "second", str(replica))
    assert [target.name for target in mirrored.mirror.targets("t")] == ["table", "second"]
    assert state(mirrored, "second").pending == 3
    write(mirrored, 3)
    assert state(mirrored, "second").published_version == 3
    own = Path(mirrored.table("t").location)
    jsons = {name: data for name, data in log_bytes(own).items() if name.endswith(".json")}
    assert jsons == {n: d for n, d in log_bytes(replica).items() if n.endswith(".json")}
    shutil.rmtree(own)
    rows = DeltaTable(str(replica)).to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == [{"id": n, "day": f"a b/{n}%"} for n in (1, 2, 3)]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_running_writers_notice_a_new_replica(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with (
        open_mirrored(catalog_uri, tmp_path / "lake") as writer,
        open_mirrored(catalog_uri, tmp_path / "lake") as other,
    ):
        writer.create_table("t", SCHEMA, partition_by="day")
        write(writer, 1)
        other.mirror.add_target("t", "second", str(tmp_path / "replica"))
        write(writer, 2)
        assert published_versions(tmp_path / "replica") == [0, 1, 2]
        other.mirror.remove_target("t", "second")
        write(writer, 3)
        assert published_versions(tmp_path / "replica") == [0, 1, 2]
        assert [target.name for target in writer.mirror.targets("t")] == ["table"]


def test_failing_replica_does_not_block_other_targets(mirrored: Catalog, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    mirrored.mirror.add_target("t", "second", str(blocked))
    write(mirrored, 1)
    assert (state(mirrored, "table").state, state(mirrored, "table").pending) == ("ACTIVE", 0)
    assert (state(mirrored, "second").state, state(mirrored, "second").pending) == ("FAILED", 2)
    blocked.unlink()
    write(mirrored, 2)
    assert published_versions(blocked) == [0, 1, 2]


def test_failing_own_location_does_not_block_replicas(mirrored: Catalog, tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    mirrored.mirror.add_target("t", "second", str(replica))
    write(mirrored, 1)
    own = Path(mirrored.table("t").location)
    (own / "_delta_log" / f"{2:020d}.json").mkdir()
    write(mirrored, 2, 3)
    assert state(mirrored, "table").published_version == 1
    assert published_versions(replica) == [0, 1, 2, 3]


def test_replica_skips_missing_files_that_are_not_live(mirrored: Catalog, tmp_path: Path) -> None:
    with mirrored.begin() as tx:
        tx.stage_table("t", [file("old", partition_values={"day": "x"})])
    with mirrored.begin() as tx:
        tx.stage_table("t", [deltasql.RemoveFile("old")])
    mirrored.mirror.add_target("t", "second", str(tmp_path / "replica"))
    assert mirrored.mirror.publish("t") == 3
    assert published_versions(tmp_path / "replica") == [0, 1, 2]


def test_missing_live_file_stops_a_replica(mirrored: Catalog, tmp_path: Path) -> None:
    with mirrored.begin() as tx:
        tx.stage_table("t", [file("gone", partition_values={"day": "x"})])
    mirrored.mirror.add_target("t", "second", str(tmp_path / "replica"))
    with pytest.raises(TxnLogMirrorError, match="gone"):
        mirrored.mirror.publish("t")
    assert published_versions(tmp_path / "replica") == [0]
    assert "gone" in state(mirrored, "second").last_error


def test_files_named_returns_data_vector_and_change_files() -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, offset=4)
    actions = [
        AddFile("a%20b", {}, 1, 1, deletion_vector=vector),
        AddFile("/elsewhere/c", {}, 1, 1),
        deltasql.AddCdcFile("_change_data/d", {}, 1),
    ]
    data = "".join(action.to_json() + "\n" for action in actions).encode()
    assert [named.path for named in files_named(data)] == [
        "a%20b",
        "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "/elsewhere/c",
        "_change_data/d",
    ]


def test_view_is_updated_directly_to_the_latest_version(
    mirrored: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, int]] = []

    def show(_: Any, table: Any, location: str, version: int, __: Any) -> None:
        if version == 5:
            raise OSError("the disk is full")
        shown.append((location, version))

    monkeypatch.setattr("deltasql.mirror.duckdb.refresh.publish_view", show)
    place = str(tmp_path / "views.duckdb")
    write(mirrored, 1, 2)
    mirrored.mirror.add_target("t", "views", place, kind="duckdb")
    write(mirrored, 3, 4)
    assert shown == [(place, 3), (place, 4)]
    write(mirrored, 5)
    assert (state(mirrored, "views").state, state(mirrored, "views").pending) == ("FAILED", 1)
    assert state(mirrored, "table").pending == 0
    write(mirrored, 6)
    assert shown[-1] == (place, 6)
    statuses = {v.version: v.status for v in mirrored.mirror.versions("t", target="views")}
    assert set(statuses.values()) <= {"COMPLETE", "FAILED"}
    assert statuses[6] == "COMPLETE"


def test_invalid_targets_are_rejected(mirrored: Catalog, tmp_path: Path) -> None:
    mirror = mirrored.mirror
    mirror.add_target("t", "second", str(tmp_path / "replica"))
    with pytest.raises(TxnLogMirrorError, match="the name is already in use"):
        mirror.add_target("t", "second", str(tmp_path / "other"))
    mirrored.create_table("u", SCHEMA)
    for table in ("t", "u"):
        for place in (tmp_path / "replica", mirrored.table("t").location):
            with pytest.raises(TxnLogMirrorError, match="the location is already in use"):
                mirror.add_target(table, "third", f"{place}/")
    with pytest.raises(TxnLogConfigError, match="iceberg"):
        mirror.add_target("t", "third", str(tmp_path / "x"), kind="iceberg")
    with pytest.raises(TxnLogMirrorError, match="own target"):
        mirror.remove_target("t", "table")
    with pytest.raises(TxnLogMirrorError, match="no target 'third'"):
        mirror.remove_target("t", "third")
    with pytest.raises(TxnLogMirrorError, match="targets of this table are: table, second"):
        mirror.versions("t", target="third")
