"""An export is a separate Delta table with any range of versions, with or without data files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import (
    TableExistsError,
    TxnLogStorageError,
    TxnLogUriError,
    VersionNotFoundError,
)
from deltasql.migrate.exporting.destination import UNFINISHED_FILE
from deltasql.mirror.log.read import read_state
from deltasql.storage import open_storage
from tests.migrate.exporting import is_readable, rows
from tests.mirror.published import HEAD, append, publish_history
from tests.mirror.support import (
    LOG,
    checkpoint_versions,
    commit_lines,
    published_versions,
)
from tests.selection import smoke

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.model.progress import Progress
    from deltasql.storage import Storage
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database

SPANS = [(None, None), (4, None), (None, 3), (HEAD, 5), (HEAD, HEAD), (0, 0)]


@pytest.mark.parametrize("with_data", [False, True])
@pytest.mark.parametrize(("version", "from_version"), SPANS)
def test_every_exported_version_has_the_rows_of_the_table(
    published: Catalog,
    tmp_path: Path,
    version: int | None,
    from_version: int | None,
    with_data: bool,
) -> None:
    table, copy = published.table("t"), tmp_path / "copy"
    before = {each: rows(table.location, each) for each in range(HEAD + 1)}
    report = published.export_table(
        "t", str(copy), version=version, from_version=from_version, with_data=with_data
    )
    first, last = from_version or 0, HEAD if version is None else version
    assert (report.first_version, report.last_version) == (first, last)
    assert published_versions(copy) == list(range(first, last + 1))
    assert not (copy / UNFINISHED_FILE).exists()
    if with_data:  # the copy does not depend on the table
        shutil.rmtree(table.location)
    assert deltalake.DeltaTable(str(copy)).version() == last
    for each in range(first, last + 1):
        assert rows(copy, each) == before[each], each
    assert first == 0 or not is_readable(copy, first - 1)


@pytest.mark.parametrize(("version", "from_version"), [(None, None), (None, 5), (3, None)])
def test_every_exported_version_has_its_checksum(
    published_in_sqlite: Catalog, tmp_path: Path, version: int | None, from_version: int | None
) -> None:
    copy = tmp_path / "copy"
    report = published_in_sqlite.export_table(
        "t", str(copy), version=version, from_version=from_version
    )
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/other.db") as other:
        other.import_table(str(copy), name="t")
        (found,) = other.mirror.verify("t", versions="all")
    assert found.ok, found.summary()
    assert found.checksums == report.last_version - report.first_version + 1


def test_export_keeps_the_history(published: Catalog, tmp_path: Path) -> None:
    table = published.table("t")
    published.export_table("t", str(tmp_path / "copy"), from_version=5)
    theirs = deltalake.DeltaTable(table.location).history()
    assert deltalake.DeltaTable(str(tmp_path / "copy")).history() == theirs[: HEAD - 5 + 1]


def test_export_without_data_names_files_by_url(
    published_in_sqlite: Catalog, tmp_path: Path
) -> None:
    report = published_in_sqlite.export_table("t", str(tmp_path / "copy"))
    assert list((tmp_path / "copy").iterdir()) == [tmp_path / "copy" / LOG]
    root = Path(published_in_sqlite.table("t").location).as_uri()
    lines = [line for v in range(HEAD + 1) for line in commit_lines(tmp_path / "copy", v)]
    paths = [body["path"] for line in lines for k, body in line.items() if k in ("add", "remove")]
    assert paths
    assert all(path.startswith(f"{root}/p=") for path in paths)
    assert "the data stays at" in report.summary()
    assert report.files == 0


def test_export_keeps_commit_timestamps(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    """This includes versions for which readers use the modification times of the files."""
    settings = {"table": {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}}
    with publish_history(sqlite_uri, tmp_path / "lake", **settings) as catalog:
        catalog.export_table("t", str(tmp_path / "copy"), with_data=True)
        for row in catalog.table("t").history():
            path = tmp_path / "copy" / LOG / f"{row.version:020d}.json"
            assert int(path.stat().st_mtime_ns // 1_000_000) == row.committed_at_ms


def test_long_export_gets_a_checkpoint(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    settings = {"mirror": {"mode": "sync", "checkpoint_interval": 4}}
    with publish_history(sqlite_uri, tmp_path / "lake", **settings) as catalog:
        long = catalog.export_table("t", str(tmp_path / "long"), from_version=2)
        short = catalog.export_table("t", str(tmp_path / "short"), from_version=6)
    assert long.checkpoints == checkpoint_versions(tmp_path / "long") == [2, HEAD]
    assert short.checkpoints == checkpoint_versions(tmp_path / "short") == [6]


def test_export_reports_progress_to_the_end(published_in_sqlite: Catalog, tmp_path: Path) -> None:
    seen: list[Progress] = []
    report = published_in_sqlite.export_table(
        "t", str(tmp_path / "copy"), with_data=True, on_progress=seen.append
    )
    assert {each.unit for each in seen} == {"files"}
    done = [(each.done, each.files, each.bytes) for each in seen]
    assert done == sorted(done)
    assert done[-1] == (report.files, report.files, report.bytes)
    assert report.commits == HEAD + 1
    assert seen[-1].fraction == 1.0
    assert seen[-1].eta_s == 0.0
    assert all(0 < each.fraction <= 1 and each.rate >= 0 for each in seen)
    assert report.bytes == sum(
        path.stat().st_size for path in (tmp_path / "copy").rglob("*.parquet")
    )
    assert json.loads(json.dumps(report.to_dict()))["last_version"] == HEAD


def test_export_accepts_a_table_uri(published_in_sqlite: Catalog, tmp_path: Path) -> None:
    uri = published_in_sqlite.table("t").uri
    assert deltasql.export_table(f"{uri}&version=3", str(tmp_path / "a")).last_version == 3
    assert deltasql.export_table(uri, str(tmp_path / "b"), version=4).last_version == 4
    with pytest.raises(TxnLogUriError, match="names no table"):
        deltasql.export_table(published_in_sqlite.uri, str(tmp_path / "c"))


# Target locations


@pytest.mark.parametrize(("version", "from_version"), [(HEAD + 1, None), (None, -1), (2, 3)])
def test_export_of_unknown_versions_is_rejected(
    published_in_sqlite: Catalog, tmp_path: Path, version: int | None, from_version: int | None
) -> None:
    with pytest.raises(VersionNotFoundError):
        published_in_sqlite.export_table(
            "t", str(tmp_path / "copy"), version=version, from_version=from_version
        )
    assert not (tmp_path / "copy").exists()


def test_export_to_a_nonempty_folder_is_rejected(
    published_in_sqlite: Catalog, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    (copy / "deep").mkdir(parents=True)
    (copy / "deep" / "file").write_text("mine")
    with pytest.raises(TxnLogStorageError, match="not empty: it contains deep/file"):
        published_in_sqlite.export_table("t", str(copy))
    assert [path.name for path in copy.rglob("*")] == ["deep", "file"]


def test_export_never_overwrites_a_table(published_in_sqlite: Catalog, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "copy"), pa.table({"id": [1]}))
    with pytest.raises(TableExistsError, match="A table already exists at"):
        published_in_sqlite.export_table("t", str(tmp_path / "copy"), with_data=True)
    published_in_sqlite.export_table("t", str(tmp_path / "other"))
    with pytest.raises(TableExistsError):
        published_in_sqlite.export_table("t", str(tmp_path / "other"))


def test_export_into_the_table_itself_is_rejected(published_in_sqlite: Catalog) -> None:
    location = published_in_sqlite.table("t").location
    for place in (location, f"{location}/copy", f"file://{location}/copy"):
        with pytest.raises(TxnLogStorageError, match="location of the table itself"):
            published_in_sqlite.export_table("t", place)


# Interrupted exports


class _Dying:
    """A storage whose process ends before the nth change of a file."""

    def __init__(self, storage: Storage, lives: int) -> None:
        self._storage, self._lives = storage, lives

    def __getattr__(self, name: str) -> Any:
        if name in ("put", "writer", "delete", "copy_from", "put_if_absent"):
            self._lives -= 1
            if self._lives < 0:
                raise KeyboardInterrupt
        return getattr(self._storage, name)


@pytest.mark.parametrize("from_version", smoke([None, 5], [5], "the whole table"))
def test_interrupted_export_leaves_no_table_and_can_be_continued(
    published_in_sqlite: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    from_version: int | None,
) -> None:
    table = published_in_sqlite.table("t")
    first, lives, died = from_version or 0, 0, 0
    while True:
        copy = tmp_path / f"copy {lives}"

        def dying(location: str, settings: Any, lives: int = lives, copy: Path = copy) -> Any:
            storage = open_storage(location, settings)
            return _Dying(storage, lives) if location == str(copy) else storage

        options: dict[str, Any] = {"from_version": from_version, "with_data": True}
        with monkeypatch.context() as patch:
            patch.setattr("deltasql.migrate.exporting.export.open_storage", dying)
            try:
                published_in_sqlite.export_table("t", str(copy), **options)
                break
            except KeyboardInterrupt:
                died += 1
        # Either no table can be opened, or the copy is complete.
        if is_readable(copy):
            assert published_versions(copy) == list(range(first, HEAD + 1))
            assert [rows(copy, v) for v in (first, HEAD)] == [
                rows(table.location, v) for v in (first, HEAD)
            ]
        else:
            with pytest.raises((deltasql.exceptions.TxnLogError, FileNotFoundError)):
                read_state(open_storage(str(copy)))
        report = published_in_sqlite.export_table("t", str(copy), **options)
        assert report.continued is (lives > 0)
        for version in range(first, HEAD + 1):
            assert rows(copy, version) == rows(table.location, version)
        assert not (copy / UNFINISHED_FILE).exists()
        lives += 1
    assert died > HEAD - first


def test_continued_export_must_have_the_same_options(
    published_in_sqlite: Catalog, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"

    def die(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        published_in_sqlite.export_table("t", str(copy), on_progress=die)
    append(published_in_sqlite, 9)
    with pytest.raises(TxnLogStorageError, match="not empty"):
        published_in_sqlite.export_table("t", str(copy), with_data=True)
    with pytest.raises(TxnLogStorageError, match="not empty"):
        published_in_sqlite.export_table("t", str(copy), version=HEAD + 1)
    assert published_in_sqlite.export_table("t", str(copy)).last_version == HEAD
    assert deltalake.DeltaTable(str(copy)).version() == HEAD
