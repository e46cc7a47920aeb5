"""Data verification finds missing, truncated, unreadable, miscounted and differing data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.engine.choose import open_engine
from deltasql.verify import statistics as measure
from deltasql.verify.verify_data import verify_snapshot
from tests.mirror.published import HEAD, change_commit, forget_derived, publish_history
from tests.mirror.support import open_mirrored
from tests.oracles import tables, tables_staged
from tests.oracles.fixed_set import TABLES
from tests.selection import smoke

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.model.progress import Progress
    from deltasql.uri import DeltaSqlUri
    from deltasql.verify.report import DataReport

pytestmark = pytest.mark.one_database


def live_files(catalog: Catalog, name: str = "t") -> dict[str, Path]:
    """Return the live files by their paths in the log."""
    table = catalog.table(name)
    storage = deltasql.storage.open_storage(table.location)
    paths = table.snapshot().files()["path"].to_pylist()
    return {path: Path(table.location) / storage.data_name(path) for path in sorted(paths)}


def verify_data(catalog: Catalog, name: str = "t", **options: Any) -> DataReport:
    (report,) = catalog.mirror.verify(name, **{"data": "rows", **options})
    (found,) = report.data
    assert report.ok == (found.ok and report.total == 0)
    assert json.loads(json.dumps(report.to_dict()))["data"][0]["total"] == found.total  # type: ignore[attr-defined]
    return found  # type: ignore[return-value]


def kinds(report: DataReport) -> set[tuple[str | None, str]]:
    return {(each.path, each.kind) for each in report.differences}


@pytest.mark.parametrize("checks", ["files", "counts", "rows", True])
def test_correct_data_has_no_difference(
    catalog_uri: DeltaSqlUri, tmp_path: Path, checks: Any
) -> None:
    with publish_history(catalog_uri, tmp_path / "lake") as catalog:
        (report,) = catalog.mirror.verify("t", versions="sample", data=checks)
        (found,) = report.data
        assert report.ok, report.summary()
        assert isinstance(found, deltasql.verify.report.DataReport)
        assert found.version == HEAD
        assert found.files == len(live_files(catalog))
        assert found.rows == (None if checks == "files" else 3)
        assert found.compared_with == ("deltalake" if checks in ("rows", True) else None)


@pytest.mark.parametrize(
    "name",
    smoke(
        [name for name in TABLES if name != "many_files"],
        (
            *("typed_partitions", "primitives", "nested", "rewritten", "evolved"),
            *("column_mapping", "deletion_vectors", "change_data"),
        ),
        "more kinds of tables",
    ),
)
def test_every_version_of_every_table_verifies(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, name: str
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        for written in TABLES[name](catalog):
            (report,) = catalog.mirror.verify(
                written.name, versions="sample", data="rows", data_versions="sample", sample=6
            )
            assert report.ok, report.summary()
            for found in report.data:
                assert found.rows == len(written.states[found.version].rows)  # type: ignore[attr-defined]


def test_listed_versions_are_verified(published_in_sqlite: Catalog) -> None:
    (report,) = published_in_sqlite.mirror.verify("t", data="rows", data_versions=[1, 4, 99])
    assert [each.version for each in report.data] == [1, 4]  # type: ignore[attr-defined]
    assert report.ok, report.summary()
    (report,) = published_in_sqlite.mirror.verify("t", data="files", data_versions="all")
    assert len(report.data) == HEAD + 1


def test_each_bad_file_is_reported_and_the_others_are_checked(published_in_sqlite: Catalog) -> None:
    with published_in_sqlite.begin() as tx:
        for number in range(6):
            tx.write("t", pa.table({"id": [number], "p": ["x"]}))
    paths = live_files(published_in_sqlite)
    gone, short, noise, empty, *_ = paths
    paths[gone].unlink()
    paths[short].write_bytes(paths[short].read_bytes()[:-20])
    paths[noise].write_bytes(b"\0" * paths[noise].stat().st_size)
    paths[empty].write_bytes(b"")
    report = verify_data(published_in_sqlite)
    assert kinds(report) == {
        (gone, "missing"),
        (short, "size"),
        (short, "unreadable"),
        (noise, "unreadable"),
        (empty, "size"),
        (empty, "unreadable"),
    }
    assert report.rows == len(paths) - 4
    assert report.compared_with is None
    assert "rows not compared, because not all files can be read" in report.summary()
    quick = verify_data(published_in_sqlite, data="files")
    assert kinds(quick) == {(gone, "missing"), (short, "size"), (empty, "size")}
    assert quick.rows is None


def test_verification_stops_after_many_unreadable_files(
    published_in_sqlite: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_MOST_UNREADABLE", 3)
    with published_in_sqlite.begin() as tx:
        for number in range(20):
            tx.write("t", pa.table({"id": [number], "p": ["x"]}))
    paths = live_files(published_in_sqlite)
    for path in paths.values():
        path.write_bytes(b"\0" * path.stat().st_size)
    report = verify_data(published_in_sqlite, data="counts")
    assert 3 <= report.counts["unreadable"] < 10
    assert report.counts["unreadable"] + report.counts["unchecked"] == len(paths)


def test_wrong_statistics_are_found(published_in_sqlite: Catalog) -> None:
    with published_in_sqlite.begin() as tx:
        tx.write("t", pa.table({"id": [5, 6, None], "p": ["x"] * 3}))
        adds = tx.target("t").staged.adds
        stats = {"numRecords": 4, "minValues": {"id": 6}, "maxValues": {"id": 5}}
        adds[0] = replace(adds[0], stats=json.dumps({**stats, "nullCount": {"id": 2}}))
    path = adds[0].path
    report = verify_data(published_in_sqlite, data="counts")
    assert kinds(report) == {(path, kind) for kind in ("rows", "min", "max", "nulls")}
    assert "the log has 4, the file has 3" in report.summary()


def test_invalid_statistics_are_ignored(published_in_sqlite: Catalog) -> None:
    for stats in ("not json", '{"minValues":{"id":"x"},"nullCount":7}', "[]"):
        with published_in_sqlite.begin() as tx:
            tx.write("t", pa.table({"id": [5], "p": ["x"]}))
            adds = tx.target("t").staged.adds
            adds[0] = replace(adds[0], stats=stats)
    assert verify_data(published_in_sqlite, data="counts").ok


def test_float32_bounds_are_compared_as_float32(published_in_sqlite: Catalog) -> None:
    """Other writers write the shortest decimal text of the number."""
    data = pa.table({"x": pa.array([1.1, 2.7, float("nan")], pa.float32())})
    with published_in_sqlite.begin() as tx:
        tx.write("floats", data)
        adds = tx.target("floats").staged.adds
        stats = '{"numRecords":3,"minValues":{"x":1.1},"maxValues":{"x":2.7},"nullCount":{"x":0}}'
        adds[0] = replace(adds[0], stats=stats)
    report = verify_data(published_in_sqlite, "floats", with_deltalake=False)
    assert report.ok, report.summary()


def test_differing_rows_are_shown(published_in_sqlite: Catalog) -> None:
    """The published log has another partition value for one file than the database."""
    location = published_in_sqlite.table("t").location

    def move(action: dict[str, Any]) -> None:
        if action.get("add", {}).get("partitionValues", {}).get("p") == "a b":
            action["add"]["partitionValues"]["p"] = "b a"

    change_commit(location, HEAD, move)
    forget_derived(location)
    report = verify_data(published_in_sqlite, with_deltalake=False)
    assert report.counts == {"row": 2}
    shown = {(each.field, each.log, each.data) for each in report.differences}
    assert shown == {("id=8, p='a b'", 0, 1), ("id=8, p='b a'", 1, 0)}
    assert (
        "a row occurs 1 times in the data and 0 times in the log: id=8, p='a b'" in report.summary()
    )


def test_old_names_of_a_difference_are_deprecated(published_in_sqlite: Catalog) -> None:
    (file, *_) = live_files(published_in_sqlite).values()
    file.unlink()
    (difference,) = verify_data(published_in_sqlite, data="files").differences
    new = {"field": None, "log": None, "data": None}
    for (name, value), old in zip(new.items(), ("column", "told", "found"), strict=True):
        with pytest.warns(DeprecationWarning, match=f"use {name} instead"):
            assert getattr(difference, old) == value
        assert difference.to_dict()[old] == difference.to_dict()[name]


def test_duplicate_rows_are_counted(published_in_sqlite: Catalog) -> None:
    with published_in_sqlite.begin() as tx:
        for _ in range(3):
            tx.write("t", pa.table({"id": [7], "p": ["x"]}))
    location = published_in_sqlite.table("t").location
    path = Path(location) / "_delta_log" / f"{HEAD + 1:020d}.json"
    lines = path.read_text().splitlines()
    adds = [line for line in lines if line.startswith('{"add"')]
    path.write_text("\n".join(line for line in lines if line != adds[0]))
    forget_derived(location)
    report = verify_data(published_in_sqlite, with_deltalake=False)
    assert [(e.log, e.data) for e in report.differences] == [(2, 3)]


def test_deletion_vectors_are_verified(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        (written,) = tables_staged.deletion_vectors(catalog)
        vector = Path(written.table.location) / "deletion_vector_1.bin"
        content = vector.read_bytes()
        vector.write_bytes(content[:-1] + b"\0")
        report = verify_data(catalog, written.name)
        assert {kind for _, kind in kinds(report)} == {"unreadable"}
        assert "checksum" in report.summary()
        vector.unlink()
        report = verify_data(catalog, written.name)
        assert {kind for _, kind in kinds(report)} == {"missing"}


def test_table_that_deltalake_cannot_read_is_compared_with_a_replay(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        (written,) = tables.primitives(catalog)
        snapshot = written.table.snapshot()
        features = tuple({*(snapshot.protocol.reader_features or ()), "vacuumProtocolCheck"})
        writers = tuple({*(snapshot.protocol.writer_features or ()), "vacuumProtocolCheck"})
        upgraded = replace(
            snapshot.protocol,
            min_reader_version=3,
            min_writer_version=7,
            reader_features=features,
            writer_features=writers,
        )
        written.stage([upgraded], written.rows, operation="UPGRADE PROTOCOL")
        report = verify_data(catalog, written.name)
        assert report.ok, report.summary()
        assert report.compared_with == "replay"
        assert "deltalake does not support vacuumProtocolCheck" in report.summary()


def test_transaction_can_verify_its_staged_data(published_in_sqlite: Catalog) -> None:
    with published_in_sqlite.begin() as tx:
        assert tx.verify_data("t", checks="rows").compared_with == "deltalake"
        tx.write("t", pa.table({"id": [5], "p": ["x"]}))
        reported: list[Progress] = []
        report = tx.verify_data("t", checks="rows", on_progress=reported.append)
        assert report.ok
        assert [*dict.fromkeys(each.phase for each in reported)] == [
            "looking for files",
            "reading data",
        ]
        assert (report.rows, report.compared_with, report.version) == (4, None, None)


def test_data_of_a_replica_is_verified(published_in_sqlite: Catalog, tmp_path: Path) -> None:
    published_in_sqlite.mirror.add_target("t", "replica", str(tmp_path / "replica"))
    published_in_sqlite.mirror.publish("t")
    assert verify_data(published_in_sqlite, target="replica").ok
    for path in (tmp_path / "replica").rglob("p=*/*.parquet"):
        path.unlink()
    assert {kind for _, kind in kinds(verify_data(published_in_sqlite, target="replica"))} == {
        "missing"
    }
    assert verify_data(published_in_sqlite).ok


def test_data_on_s3_is_verified(
    sqlite_uri: DeltaSqlUri,
    s3_location: str,
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_mirrored(sqlite_uri, s3_location, storage={"options": s3_options}) as catalog:
        for number in range(5):
            with catalog.begin() as tx:
                tx.write("t", pa.table({"id": [number], "x": [1.5]}))
        assert verify_data(catalog).ok
        storage = deltasql.storage.open_storage(catalog.table("t").location, catalog.config.storage)
        first, second, third, *_ = sorted(catalog.table("t").snapshot().files()["path"].to_pylist())
        storage.delete(first)
        storage.put(second, b"\0" * storage.size(second))
        storage.put(third, storage.read(third) + b"more")
        expected = {(first, "missing"), (second, "unreadable"), (third, "size")}
        for listed_from in (1, 100):
            monkeypatch.setattr("deltasql.engine.files.file_sizes._LISTED_FROM", listed_from)
            found = kinds(verify_data(catalog))
            assert expected <= found
            assert found - expected <= {(third, "unreadable")}


def test_snapshot_is_verified_without_a_mirror(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": [1, 2]}))
    with open_engine(catalog.config) as engine:
        report = verify_snapshot(catalog.table("t").snapshot(), engine, catalog.config)
    assert report.ok
    assert (report.rows, report.engine) == (2, "duckdb")


def test_rows_of_an_imported_table_are_verified(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    place = str(tmp_path / "foreign")
    for number in range(4):
        data = pa.table({"id": [number, number + 1], "day": ["mon", None]})
        deltalake.write_deltalake(place, data, mode="append", partition_by=["day"])
    deltalake.DeltaTable(place).delete("id = 2")
    with deltasql.connect(sqlite_uri) as catalog:
        catalog.import_table(place, name="t")
        (report,) = catalog.mirror.verify("t", versions="all", data="rows", data_versions="all")
        assert report.ok, report.summary()
        assert [each.rows for each in report.data] == [2, 4, 6, 8, 6]  # type: ignore[attr-defined]
