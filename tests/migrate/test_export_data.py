"""Exports with data files: missing and external files, unusual tables, object stores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import (
    TableExistsError,
    TxnLogStorageError,
)
from deltasql.storage import open_storage
from tests.migrate.exporting import is_readable, rows
from tests.mirror.published import CHECKPOINT, HEAD, publish_history
from tests.mirror.support import (
    LOG,
    commit_lines,
    forget_commits_below,
    open_mirrored,
)
from tests.oracles import tables_staged
from tests.oracles.readers import Deltalake, Place

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.oracles.states import Rows


def test_export_reports_missing_files_of_older_versions(
    published_in_sqlite: Catalog, tmp_path: Path
) -> None:
    table, copy = published_in_sqlite.table("t"), tmp_path / "copy"
    live = set(table.snapshot().files()["path"].to_pylist())
    removed = [
        path
        for path in Path(table.location).rglob("*.parquet")
        if LOG not in path.parts and path.name not in {name.rpartition("/")[2] for name in live}
    ]
    for path in removed:
        path.unlink()
    report = published_in_sqlite.export_table("t", str(copy), with_data=True)
    assert len(report.missing_files) == len(removed) > 0
    assert f"missing: {len(removed)} files of older versions" in report.summary()
    assert rows(copy, HEAD) == rows(table.location, HEAD)
    assert (
        published_in_sqlite.export_table(
            "t", str(tmp_path / "b"), from_version=HEAD, with_data=True
        ).missing_files
        == []
    )


def test_export_with_a_missing_live_file_fails_and_leaves_no_table(
    published_in_sqlite: Catalog, tmp_path: Path
) -> None:
    table, copy = published_in_sqlite.table("t"), tmp_path / "copy"
    paths = sorted(table.snapshot().files()["path"].to_pylist())
    storage = open_storage(table.location)
    lost = [Path(table.location) / storage.data_name(path) for path in paths[:2]]
    for path in lost:
        path.rename(path.with_suffix(".away"))
    with pytest.raises(TxnLogStorageError, match="2 files of version") as raised:
        published_in_sqlite.export_table("t", str(copy), with_data=True)
    assert all(path in str(raised.value) for path in paths[:2])
    assert not is_readable(copy)
    for path in lost:
        path.with_suffix(".away").rename(path)
    assert published_in_sqlite.export_table("t", str(copy), with_data=True).continued
    assert rows(copy, HEAD) == rows(table.location, HEAD)


def test_export_includes_change_data(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        (written,) = tables_staged.change_data(catalog)
        for number, options in enumerate(({}, {"with_data": True}, {"from_version": 2})):
            copy = tmp_path / str(number)
            catalog.export_table("change_data", str(copy), **options)
            (cdc,) = [line["cdc"] for line in commit_lines(copy, 2) if "cdc" in line]
            if number == 1:
                assert (copy / cdc["path"]).exists()
                changes = pa.table(deltalake.DeltaTable(str(copy)).load_cdf(2, 2))
                assert changes["_change_type"].to_pylist() == ["delete"]
            else:
                assert cdc["path"] == written.uri("_change_data/cdc-1.parquet")


def test_export_with_data_copies_files_of_other_tables(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    """The log of a shallow clone names files of another table; a copy with data contains them."""
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        (source,) = tables_staged.deletion_vectors(catalog)
        clone = tmp_path / "clone"
        catalog.export_table("deletion_vectors", str(clone))
        catalog.import_table(str(clone), name="clone")
        catalog.export_table("clone", str(tmp_path / "again"), with_data=True)
        catalog.export_table("clone", str(tmp_path / "range"), with_data=True, from_version=3)
        catalog.export_table("clone", str(tmp_path / "urls"))
        for version, expected in enumerate(source.states):
            assert rows(tmp_path / "urls", version) == expected
        location = source.table.location
    shutil.rmtree(location)
    shutil.rmtree(clone)
    for version, expected in enumerate(source.states):
        assert rows(tmp_path / "again", version) == expected
        if version >= 3:
            assert rows(tmp_path / "range", version) == expected
    for version in range(len(source.states)):
        for line in commit_lines(tmp_path / "again", version):
            for body in (line.get(kind, {}) for kind in ("add", "remove")):
                assert "://" not in json.dumps(body)


@pytest.mark.parametrize("name", ["flat_paths", "absolute_path", "column_mapping", "applications"])
def test_export_of_unusual_tables_keeps_every_row(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, name: str
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        (written,) = getattr(tables_staged, name)(catalog)
        last = len(written.states) - 1
        catalog.export_table(name, str(tmp_path / "urls"))
        catalog.export_table(name, str(tmp_path / "state"), from_version=last)
        catalog.export_table(name, str(tmp_path / "data"), with_data=True)
        catalog.export_table(name, str(tmp_path / "last"), with_data=True, from_version=last)
        assert rows(tmp_path / "state", last) == written.states[-1]
        for version, expected in enumerate(written.states):
            assert rows(tmp_path / "urls", version) == expected
    shutil.rmtree(tmp_path / "lake")
    assert rows(tmp_path / "last", last) == written.states[-1]
    for version, expected in enumerate(written.states):
        assert rows(tmp_path / "data", version) == expected


def test_table_that_starts_with_a_checkpoint_is_exported_from_it(
    published_in_sqlite: Catalog, tmp_path: Path
) -> None:
    """The first version summarizes older ones; the copy keeps what is left of its commit."""
    location = Path(published_in_sqlite.table("t").location)
    expected = {version: rows(location, version) for version in range(CHECKPOINT, HEAD + 1)}
    original = commit_lines(location, CHECKPOINT)
    for number, keeps_commit in enumerate((True, False)):
        forget_commits_below(location, CHECKPOINT + number)
        with deltasql.connect(f"deltasql://sqlite/{tmp_path}/{number}.db") as catalog:
            catalog.import_table(str(location), name="t", force=True)
            copy = tmp_path / f"copy {number}"
            report = catalog.export_table("t", str(copy), with_data=True)
        assert (report.first_version, report.last_version) == (CHECKPOINT, HEAD)
        assert {version: rows(copy, version) for version in expected} == expected
        kinds = [next(iter(line)) for line in commit_lines(copy, CHECKPOINT)]
        assert kinds == (
            [next(iter(line)) for line in original] if keeps_commit else ["commitInfo"]
        )


@pytest.mark.everything("more tables on S3")
def test_table_can_be_exported_to_and_from_s3(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, s3_location: str, s3_options: dict[str, str]
) -> None:
    def seen(place: str, version: int) -> Rows:
        return Deltalake().rows(Place(place, s3_options if "://" in place else {}), version)

    settings = {"storage": {"options": s3_options}}
    with publish_history(sqlite_uri, tmp_path / "lake", **settings) as catalog:
        location = catalog.table("t").location
        expected = [seen(location, version) for version in range(HEAD + 1)]
        catalog.export_table("t", f"{s3_location}/copy", with_data=True)
        assert [seen(f"{s3_location}/copy", v) for v in range(HEAD + 1)] == expected
        catalog.import_table(f"{s3_location}/copy", name="remote")
        catalog.export_table("remote", str(tmp_path / "back"), with_data=True, from_version=4)
        assert [seen(str(tmp_path / "back"), v) for v in range(4, HEAD + 1)] == expected[4:]
        catalog.export_table("remote", f"{s3_location}/urls", from_version=2)
        assert [seen(f"{s3_location}/urls", v) for v in range(2, HEAD + 1)] == expected[2:]
        with pytest.raises(TableExistsError):
            catalog.export_table("t", f"{s3_location}/urls")
        with pytest.raises(TableExistsError, match="holds the folder of table remote"):
            catalog.export_table("t", s3_location)
        open_storage(f"{s3_location}/full", catalog.config.storage).put("x", b"1")
        with pytest.raises(TxnLogStorageError, match="not empty"):
            catalog.export_table("t", f"{s3_location}/full")


def test_export_to_an_object_store_warns_about_timestamps(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, s3_location: str, s3_options: dict[str, str]
) -> None:
    settings = {"table": {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}}
    with publish_history(sqlite_uri, tmp_path / "lake", **settings) as catalog:
        report = catalog.export_table(
            "t", f"{s3_location}/copy", version=2, storage_options=s3_options
        )
        assert "the timestamp of a version is the time of the export" in report.summary()
