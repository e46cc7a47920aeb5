"""An export is a Delta table of its own: any span of versions, with the data or without."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

import deltasql
from deltasql.exceptions import (
    TableExistsError,
    TxnLogStorageError,
    TxnLogUriError,
    VersionNotFoundError,
)
from deltasql.migrate.export import NOTE
from deltasql.mirror.read_log import read_state
from deltasql.storage import open_storage
from tests.mirror.published import CHECKPOINT, HEAD, append, publish_history
from tests.mirror.support import (
    LOG,
    checkpoint_versions,
    commit_lines,
    forget_commits_below,
    open_mirrored,
    published_versions,
)
from tests.oracles import tables_staged
from tests.oracles.readers import Deltalake, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.migrate.export_report import ExportProgress
    from deltasql.storage import Storage
    from deltasql.uri import DeltaSqlUri
    from tests.oracles.states import Rows

SPANS = [(None, None), (4, None), (None, 3), (HEAD, 5), (HEAD, HEAD), (0, 0)]


@pytest.fixture
def published(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a table `t` of some history."""
    with publish_history(catalog_uri, tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture
def kept(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """The same in SQLite alone: for what does not depend on the database."""
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        yield catalog


def rows(location: Path | str, version: int) -> Rows:
    return Deltalake().rows(Place(str(location)), version)


def is_readable(location: Path, version: int | None = None) -> bool:
    """Whether a reader takes what lies there for a table, at a version."""
    try:
        deltalake.DeltaTable(str(location), version=version)
    except DeltaError:
        return False
    return True


@pytest.mark.parametrize("with_data", [False, True])
@pytest.mark.parametrize(("version", "from_version"), SPANS)
def test_every_version_of_the_span_reads_as_at_the_table(
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
    assert not (copy / NOTE).exists()
    if with_data:  # nothing of it depends on the table
        shutil.rmtree(table.location)
    assert deltalake.DeltaTable(str(copy)).version() == last
    for each in range(first, last + 1):
        assert rows(copy, each) == before[each], each
    assert first == 0 or not is_readable(copy, first - 1)


def test_the_history_of_a_copy_is_that_of_the_table(published: Catalog, tmp_path: Path) -> None:
    table = published.table("t")
    published.export_table("t", str(tmp_path / "copy"), from_version=5)
    theirs = deltalake.DeltaTable(table.location).history()
    assert deltalake.DeltaTable(str(tmp_path / "copy")).history() == theirs[: HEAD - 5 + 1]


def test_a_copy_without_data_names_files_by_urls(kept: Catalog, tmp_path: Path) -> None:
    report = kept.export_table("t", str(tmp_path / "copy"))
    assert list((tmp_path / "copy").iterdir()) == [tmp_path / "copy" / LOG]
    root = Path(kept.table("t").location).as_uri()
    lines = [line for v in range(HEAD + 1) for line in commit_lines(tmp_path / "copy", v)]
    paths = [body["path"] for line in lines for k, body in line.items() if k in ("add", "remove")]
    assert paths
    assert all(path.startswith(f"{root}/p=") for path in paths)
    assert "the data stays at" in report.summary()
    assert report.files == 0


def test_times_of_versions_are_those_of_the_table(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    """Also where readers tell them by the times of the files."""
    settings = {"table": {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}}
    with publish_history(sqlite_uri, tmp_path / "lake", **settings) as catalog:
        catalog.export_table("t", str(tmp_path / "copy"), with_data=True)
        for row in catalog.table("t").history():
            path = tmp_path / "copy" / LOG / f"{row.version:020d}.json"
            assert int(path.stat().st_mtime_ns // 1_000_000) == row.committed_at_ms


def test_a_long_copy_gets_a_checkpoint(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    settings = {"mirror": {"mode": "sync", "checkpoint_interval": 4}}
    with publish_history(sqlite_uri, tmp_path / "lake", **settings) as catalog:
        long = catalog.export_table("t", str(tmp_path / "long"), from_version=2)
        short = catalog.export_table("t", str(tmp_path / "short"), from_version=6)
    assert long.checkpoints == checkpoint_versions(tmp_path / "long") == [2, HEAD]
    assert short.checkpoints == checkpoint_versions(tmp_path / "short") == [6]


def test_progress_goes_on_to_the_end(kept: Catalog, tmp_path: Path) -> None:
    seen: list[ExportProgress] = []
    report = kept.export_table("t", str(tmp_path / "copy"), with_data=True, on_progress=seen.append)
    done = [(each.commits, each.files, each.bytes) for each in seen]
    assert done == sorted(done)
    assert done[-1] == (report.commits, report.files, report.bytes) == (HEAD + 1, *done[-1][1:])
    assert seen[-1].fraction == 1.0
    assert seen[-1].eta_s == 0.0
    assert all(0 < each.fraction <= 1 and each.rate >= 0 for each in seen)
    assert report.bytes == sum(
        path.stat().st_size for path in (tmp_path / "copy").rglob("*.parquet")
    )
    assert json.loads(json.dumps(report.to_dict()))["last_version"] == HEAD


def test_a_table_is_named_by_its_uri(kept: Catalog, tmp_path: Path) -> None:
    uri = kept.table("t").uri
    assert deltasql.export_table(f"{uri}&version=3", str(tmp_path / "a")).last_version == 3
    assert deltasql.export_table(uri, str(tmp_path / "b"), version=4).last_version == 4
    with pytest.raises(TxnLogUriError, match="names no table"):
        deltasql.export_table(kept.uri, str(tmp_path / "c"))


# Where it goes


@pytest.mark.parametrize(("version", "from_version"), [(HEAD + 1, None), (None, -1), (2, 3)])
def test_versions_that_are_not_there_are_refused(
    kept: Catalog, tmp_path: Path, version: int | None, from_version: int | None
) -> None:
    with pytest.raises(VersionNotFoundError):
        kept.export_table("t", str(tmp_path / "copy"), version=version, from_version=from_version)
    assert not (tmp_path / "copy").exists()


def test_a_place_that_is_not_empty_is_refused(kept: Catalog, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "deep").mkdir(parents=True)
    (copy / "deep" / "file").write_text("mine")
    with pytest.raises(TxnLogStorageError, match="not empty: it holds deep/file"):
        kept.export_table("t", str(copy))
    assert [path.name for path in copy.rglob("*")] == ["deep", "file"]


def test_another_table_is_never_overwritten(kept: Catalog, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "copy"), pa.table({"id": [1]}))
    with pytest.raises(TableExistsError, match="A table already exists at"):
        kept.export_table("t", str(tmp_path / "copy"), with_data=True)
    kept.export_table("t", str(tmp_path / "other"))
    with pytest.raises(TableExistsError):
        kept.export_table("t", str(tmp_path / "other"))


def test_a_table_is_not_exported_into_itself(kept: Catalog) -> None:
    location = kept.table("t").location
    for place in (location, f"{location}/copy", f"file://{location}/copy"):
        with pytest.raises(TxnLogStorageError, match="belongs to"):
            kept.export_table("t", place)


# Interruptions


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


@pytest.mark.parametrize("from_version", [None, 5])
def test_an_export_that_dies_leaves_no_table_and_is_continued(
    kept: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_version: int | None
) -> None:
    table = kept.table("t")
    first, lives, died = from_version or 0, 0, 0
    while True:
        copy = tmp_path / f"copy {lives}"

        def dying(location: str, settings: Any, lives: int = lives, copy: Path = copy) -> Any:
            storage = open_storage(location, settings)
            return _Dying(storage, lives) if location == str(copy) else storage

        options: dict[str, Any] = {"from_version": from_version, "with_data": True}
        with monkeypatch.context() as patch:
            patch.setattr("deltasql.migrate.export.open_storage", dying)
            try:
                kept.export_table("t", str(copy), **options)
                break
            except KeyboardInterrupt:
                died += 1
        # Either nothing can be opened, or all that was asked for is there.
        if is_readable(copy):
            assert published_versions(copy) == list(range(first, HEAD + 1))
            assert [rows(copy, v) for v in (first, HEAD)] == [
                rows(table.location, v) for v in (first, HEAD)
            ]
        else:
            with pytest.raises((deltasql.exceptions.TxnLogError, FileNotFoundError)):
                read_state(open_storage(str(copy)))
        report = kept.export_table("t", str(copy), **options)
        assert report.continued is (lives > 0)
        for version in range(first, HEAD + 1):
            assert rows(copy, version) == rows(table.location, version)
        assert not (copy / NOTE).exists()
        lives += 1
    assert died > HEAD - first


def test_what_was_begun_is_ended_as_it_was_begun(kept: Catalog, tmp_path: Path) -> None:
    copy = tmp_path / "copy"

    def die(progress: ExportProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.export_table("t", str(copy), on_progress=die)
    append(kept, 9)
    with pytest.raises(TxnLogStorageError, match="not empty"):
        kept.export_table("t", str(copy), with_data=True)
    with pytest.raises(TxnLogStorageError, match="not empty"):
        kept.export_table("t", str(copy), version=HEAD + 1)
    assert kept.export_table("t", str(copy)).last_version == HEAD
    assert deltalake.DeltaTable(str(copy)).version() == HEAD


# Data


def test_files_of_older_versions_may_be_gone(kept: Catalog, tmp_path: Path) -> None:
    table, copy = kept.table("t"), tmp_path / "copy"
    live = set(table.snapshot().files()["path"].to_pylist())
    removed = [
        path
        for path in Path(table.location).rglob("*.parquet")
        if LOG not in path.parts and path.name not in {name.rpartition("/")[2] for name in live}
    ]
    for path in removed:
        path.unlink()
    report = kept.export_table("t", str(copy), with_data=True)
    assert len(report.gone) == len(removed) > 0
    assert f"{len(removed)} files of older versions are gone" in report.summary()
    assert rows(copy, HEAD) == rows(table.location, HEAD)
    assert kept.export_table("t", str(tmp_path / "b"), from_version=HEAD, with_data=True).gone == []


def test_a_live_file_that_is_gone_is_named_and_no_table_is_left(
    kept: Catalog, tmp_path: Path
) -> None:
    table, copy = kept.table("t"), tmp_path / "copy"
    paths = sorted(table.snapshot().files()["path"].to_pylist())
    storage = open_storage(table.location)
    lost = [Path(table.location) / storage.data_name(path) for path in paths[:2]]
    for path in lost:
        path.rename(path.with_suffix(".away"))
    with pytest.raises(TxnLogStorageError, match="2 files of version") as raised:
        kept.export_table("t", str(copy), with_data=True)
    assert all(path in str(raised.value) for path in paths[:2])
    assert not is_readable(copy)
    for path in lost:
        path.with_suffix(".away").rename(path)
    assert kept.export_table("t", str(copy), with_data=True).continued
    assert rows(copy, HEAD) == rows(table.location, HEAD)


def test_change_data_comes_along(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
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


def test_files_from_elsewhere_come_along(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    """A shallow clone names files of another table; a copy with data has them itself."""
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
def test_odd_tables_are_copied_whole(sqlite_uri: DeltaSqlUri, tmp_path: Path, name: str) -> None:
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


def test_a_table_that_began_with_a_checkpoint_is_exported_from_there(
    kept: Catalog, tmp_path: Path
) -> None:
    """Its first version sums up others: what is left of its own commit goes into the copy."""
    location = Path(kept.table("t").location)
    expected = {version: rows(location, version) for version in range(CHECKPOINT, HEAD + 1)}
    told = commit_lines(location, CHECKPOINT)
    for number, keeps_commit in enumerate((True, False)):
        forget_commits_below(location, CHECKPOINT + number)
        with deltasql.connect(f"deltasql://sqlite/{tmp_path}/{number}.db") as catalog:
            catalog.import_table(str(location), name="t")
            copy = tmp_path / f"copy {number}"
            report = catalog.export_table("t", str(copy), with_data=True)
        assert (report.first_version, report.last_version) == (CHECKPOINT, HEAD)
        assert {version: rows(copy, version) for version in expected} == expected
        kinds = [next(iter(line)) for line in commit_lines(copy, CHECKPOINT)]
        assert kinds == ([next(iter(line)) for line in told] if keeps_commit else ["commitInfo"])


def test_s3_is_a_place_to_export_to_and_from(
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
        with pytest.raises(TxnLogStorageError, match="not empty"):
            catalog.export_table("t", s3_location)


def test_an_object_store_keeps_no_times(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, s3_location: str, s3_options: dict[str, str]
) -> None:
    settings = {"table": {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}}
    with publish_history(sqlite_uri, tmp_path / "lake", **settings) as catalog:
        report = catalog.export_table(
            "t", f"{s3_location}/copy", version=2, storage_options=s3_options
        )
        assert "the time of a version is that of the export" in report.summary()
