"""VACUUM deletes only files that no retained version needs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.exceptions import (
    MirrorDivergedError,
    TxnLogError,
    TxnLogMirrorError,
    VersionNotFoundError,
)
from deltasql.model.clock import now_ms
from deltasql.operations.vacuum import file_search as vacuum_search
from tests.conftest import new_catalog_uri
from tests.counting import counting
from tests.operations.maintenance import (
    agree,
    data_files,
    numbers,
    open_lake,
    opened,
    own_rows,
    stock_rows,
)
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

NOW: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}


@pytest.fixture(scope="module", autouse=True)
def _small_pages() -> Iterator[None]:
    """Read the needed files in pages of two, so that several pages are read."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vacuum_search, "_PAGE", 2)
        yield


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a table `t`: created, an append, an overwrite."""
    with open_lake(catalog_uri, tmp_path) as catalog:
        catalog.create_table("t", numbers(0, 0).schema, partition_by=["part"])
        write(catalog, 0)
        write(catalog, 10, mode="overwrite")
        yield catalog


def test_vacuum_runs_one_query_for_the_publish_targets(lake: Catalog) -> None:
    with counting() as sent:
        lake.vacuum("t", dry_run=False, **NOW)
    assert sent.counts_by_statement()["target_locations"] == 1


def write(catalog: Catalog, first: int, part: str = "a", mode: str = "append") -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(first, first + 2, part), mode=mode)


def reached(catalog: Catalog, version: int) -> set[str]:
    """Return the paths of the files of one version."""
    return set(catalog.table("t").files(version)["path"].to_pylist())


def test_vacuum_commits_and_result_match_deltalake(lake: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "stock"
    for first, mode in ((0, "append"), (10, "overwrite")):
        rows = numbers(first, first + 2)
        deltalake.write_deltalake(place, rows, mode=mode, partition_by=["part"])
    stock, ours = deltalake.DeltaTable(place), opened(lake)
    for run in (
        lambda table: table.vacuum(),
        lambda table: table.vacuum(**NOW),
        lambda table: table.vacuum(**NOW, keep_versions=[table.version() - 1]),
        lambda table: table.vacuum(**NOW, dry_run=False),
    ):
        assert len(run(ours)) == len(run(stock))
    for mine, theirs in zip(ours.history(2), stock.history(2), strict=True):
        assert mine["operation"] == theirs["operation"]
        assert mine["operationParameters"] == theirs["operationParameters"]
        assert mine["operationMetrics"].keys() == theirs["operationMetrics"].keys()
    assert [row["id"] for row in agree(lake)] == [10, 11]


def test_dry_run_deletes_and_commits_nothing(lake: Catalog) -> None:
    files, table = data_files(lake), opened(lake)
    assert table.vacuum(**NOW) == list(reached(lake, 1))
    assert (data_files(lake), table.version()) == (files, 2)


def test_removed_files_within_retention_are_kept(lake: Catalog) -> None:
    assert opened(lake).vacuum(dry_run=False) == []
    assert opened(lake).vacuum(retention_hours=200, dry_run=False) == []
    assert own_rows(lake, version=1) == stock_rows(lake, version=1)


def test_retention_below_the_table_property_is_rejected(lake: Catalog) -> None:
    table = opened(lake)
    with pytest.raises(TxnLogError, match=r"Invalid retention period.* 168 hours, got 1 hours"):
        table.vacuum(retention_hours=1)
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    assert table.vacuum() == list(reached(lake, 1))


def test_second_vacuum_deletes_nothing(lake: Catalog) -> None:
    table = opened(lake)
    assert len(table.vacuum(**NOW, dry_run=False)) == 1
    version = table.version()
    assert table.vacuum(**NOW, dry_run=False, full=True) == []
    assert table.version() == version
    write(lake, 20, mode="overwrite")
    assert len(opened(lake).vacuum(**NOW, dry_run=False)) == 1


def test_kept_versions_stay_readable_until_a_later_vacuum(lake: Catalog) -> None:
    write(lake, 20, mode="overwrite")
    table = opened(lake)
    rows = own_rows(lake, version=1)
    assert table.vacuum(**NOW, dry_run=False, keep_versions=[1]) == list(reached(lake, 2))
    assert own_rows(lake, version=1) == stock_rows(lake, version=1) == rows
    assert table.vacuum(**NOW, dry_run=False) == list(reached(lake, 1))
    assert table.vacuum(**NOW, dry_run=False) == []
    with pytest.raises(VersionNotFoundError, match="no version 99, which keep_versions names"):
        table.vacuum(**NOW, keep_versions=[99])


def test_restored_files_are_kept(lake: Catalog) -> None:
    table = opened(lake)
    table.restore(1)
    assert table.vacuum(**NOW, dry_run=False) == list(reached(lake, 2))
    assert [row["id"] for row in agree(lake)] == [0, 1]


def test_restored_files_with_encoded_names_are_kept(lake: Catalog) -> None:
    write(lake, 20, part="50% of ü/x")
    version, files = opened(lake).version(), reached(lake, 3)
    assert any("%" in each for each in files)
    write(lake, 30, mode="overwrite")
    opened(lake).restore(version)
    assert not files & set(opened(lake).vacuum(**NOW, dry_run=False))
    assert [row["id"] for row in agree(lake)] == [10, 11, 20, 21]


def test_full_vacuum_deletes_unreferenced_files(lake: Catalog) -> None:
    root = Path(lake.table("t").location)
    for name in ("stray.parquet", "part=a/stray", "_change_data/stray"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"x")
    for name in ("_hidden/kept", ".kept", "part=a/_kept", "_delta_log/kept"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"x")
    table = opened(lake)
    assert table.vacuum(full=True) == []  # the files are too new
    found = set(table.vacuum(**NOW, full=True, dry_run=False))
    assert found == reached(lake, 1) | {"stray.parquet", "part=a/stray", "_change_data/stray"}
    assert {"_hidden/kept", ".kept", "part=a/_kept"} <= data_files(lake)
    assert (root / "_delta_log/kept").exists()
    agree(lake)


def test_vacuum_with_spark_as_default_engine_needs_no_session(lake: Catalog) -> None:
    with deltasql.connect(lake.uri, engine={"default": "spark"}) as other:
        lite, full = (other.vacuum("t", **NOW, full=each) for each in (False, True))
    assert set(lite) == set(full) == reached(lake, 1)


def test_full_vacuum_keeps_nested_tables_and_linked_files(lake: Catalog, tmp_path: Path) -> None:
    root = Path(lake.table("t").location)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"x")
    (root / "link").symlink_to(outside)
    inside = {"location": str(root / "inner"), "allow_nested_location": True}
    lake.create_table("inner", numbers(0, 0).schema, **inside)
    with lake.begin() as tx:
        tx.write("inner", numbers(0, 3))
    lake.drop("inner")
    found = opened(lake).vacuum(**NOW, full=True, dry_run=False)
    assert set(found) == reached(lake, 1)
    assert (outside / "kept").exists()
    with deltasql.connect(lake.uri, table={"allow_nested_location": True}) as other:
        other.undrop("inner")
    assert len(agree(lake, "inner")) == 3


def test_full_vacuum_keeps_a_database_in_the_table_folder(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/t/meta.db") as catalog:
        catalog.create_table("t", numbers(0, 0).schema, location=str(tmp_path / "t"))
        write(catalog, 0)
        assert catalog.vacuum("t", **NOW, full=True, dry_run=False) == []
        assert len(agree(catalog)) == 2


def test_vacuum_keeps_files_of_running_transactions_only(lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", numbers(30, 32))
        assert set(opened(lake).vacuum(**NOW, full=True, dry_run=False)) == reached(lake, 1)
    assert len(agree(lake)) == 4
    root = Path(lake.table("t").location)
    (root / "orphan.parquet").write_bytes(b"x")
    (root / "spark").mkdir()
    (root / "spark/orphan.parquet").write_bytes(b"x")
    (root / "early/_temporary").mkdir(parents=True)  # its writer died before it wrote a file
    day_ms = timedelta(days=1) // timedelta(milliseconds=1)
    table_id = lake.table("t").row.table_id
    with lake.store.change() as (session, _):
        rows = [
            ("dead", table_id, f"{root}/orphan.parquet", now_ms() - day_ms),
            ("dead", table_id, f"{root}/spark/", now_ms() - day_ms),
            ("dead", table_id, f"{root}/early/", now_ms() - day_ms),
        ]
        session.insert("insert_staged_file", rows)
    assert opened(lake).vacuum() == []
    found = opened(lake).vacuum(**NOW, dry_run=False)
    assert {"orphan.parquet", "spark/orphan.parquet"} <= set(found)
    assert lake.store.intents_before(now_ms()) == []
    assert len(agree(lake)) == 4


def test_commit_with_a_clock_ahead_does_not_expire_files(lake: Catalog) -> None:
    ahead_ms = 9 * 24 * 3_600_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deltasql.commit.committer.now_ms", lambda: now_ms() + ahead_ms)
        write(lake, 20)
    with lake.begin() as running:
        running.write("t", numbers(30, 32))
        assert opened(lake).vacuum(dry_run=False) == []
        assert opened(lake).vacuum(dry_run=False, full=True) == []
    assert len(agree(lake)) == 6
    assert len(own_rows(lake, version=1)) == 2


def test_full_vacuum_keeps_nested_tables_that_are_in_no_catalog(lake: Catalog) -> None:
    inside = Path(lake.table("t").location) / "inner"
    rows = numbers(0, 2).rename_columns(["ID", "PART", "TEXT"])
    deltalake.write_deltalake(inside, rows, partition_by=["PART"])  # sorted before `_delta_log`
    found = opened(lake).vacuum(**NOW, dry_run=False, full=True)
    assert not any(name.startswith("inner/") for name in found)
    assert deltalake.DeltaTable(inside).to_pyarrow_table().num_rows == 2


def test_vacuum_deletes_change_data_with_its_version(lake: Catalog) -> None:
    opened(lake).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with lake.begin() as tx:
        tx.delete("t", "id = 10")
    with lake.begin() as tx:
        tx.update("t", {"text": "'new'"}, predicate="id = 11")
    changes = {name for name in data_files(lake) if name.startswith("_change_data")}
    assert len(changes) == 2
    gone = set(opened(lake).vacuum(**NOW, dry_run=False))
    assert len(gone & changes) == 1  # the latest version is retained, and with it its change data
    assert len(opened(lake).vacuum(**NOW, dry_run=False)) == 1
    assert not any(name.startswith("_change_data") for name in data_files(lake))


def test_next_vacuum_deletes_files_removed_in_the_millisecond_of_a_vacuum(lake: Catalog) -> None:
    opened(lake).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with lake.begin() as tx:
        tx.update("t", {"text": "'new'"}, predicate="id = 10")
    at_ms = lake.table("t").snapshot().committed_at_ms + 1
    with pytest.MonkeyPatch.context() as patch:  # VACUUM START gets the timestamp of the vacuum
        patch.setattr("deltasql.operations.vacuum.vacuum.now_ms", lambda: at_ms)
        patch.setattr("deltasql.commit.committer.now_ms", lambda: at_ms)
        assert opened(lake).vacuum(**NOW, dry_run=False)
    write(lake, 30, mode="overwrite")
    opened(lake).vacuum(**NOW, dry_run=False)
    assert data_files(lake) == reached(lake, lake.table("t").snapshot().version)


def test_paths_of_other_tables_are_never_deleted(lake: Catalog, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere.parquet"
    other.write_bytes(b"x")
    add = {"path": f"file://{other}", "partitionValues": {"part": "a"}, "size": 1}
    with lake.begin() as tx:
        tx.stage_table("t", [{"add": {**add, "modificationTime": 0, "dataChange": True}}])
    with lake.begin() as tx:
        tx.delete("t", "part = 'a'")
    opened(lake).vacuum(**NOW, dry_run=False)
    assert other.exists()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9)),
        st.tuples(st.just("overwrite"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("optimize"), st.just(0)),
        st.tuples(st.just("restore"), st.integers(1, 9)),
        st.tuples(st.just("vacuum"), st.integers(0, 9)),
        st.tuples(st.just("full"), st.integers(0, 9)),
    ),
    min_size=4,
    max_size=10,
)


@settings(max_examples=examples(25), deadline=None)
@given(STEPS)
def test_retained_versions_keep_all_their_files(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("vacuumed")
    (uri,) = new_catalog_uri("sqlite", folder)
    with open_lake(uri, folder, mirror={"mode": "off"}) as lake:
        lake.create_table("t", numbers(0, 0).schema, partition_by=["part"])
        first_whole = 0
        for kind, number in steps:
            head = lake.table("t").version()
            if kind in ("append", "overwrite"):
                write(lake, number, "ab"[number % 2], kind)
            elif kind == "delete":
                with lake.begin() as tx:
                    tx.delete("t", f"id = {number}")
            elif kind == "optimize":
                lake.optimize("t")
            elif kind == "restore" and head > first_whole:
                with lake.begin() as tx:
                    tx.restore("t", max(first_whole, head - number))
            elif kind in ("vacuum", "full"):
                kept = [] if number % 3 else [max(first_whole, head - number)]
                options = {**NOW, "dry_run": False, "full": kind == "full", "keep_versions": kept}
                gone = lake.vacuum("t", **options)
                left = data_files(lake)
                assert not left & set(gone)
                for version in (*kept, lake.table("t").version()):
                    assert reached(lake, version) <= left
                first_whole = lake.table("t").version()
            left = data_files(lake)
            for version in range(first_whole, lake.table("t").version() + 1):
                assert reached(lake, version) <= left


def test_retention_time_decides_which_versions_are_kept(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_ms = now_ms() + 2 * 3_600_000
    for clock in ("commit.committer", "operations.vacuum.vacuum"):
        monkeypatch.setattr(f"deltasql.{clock}.now_ms", lambda: later_ms)
    write(lake, 20, mode="overwrite")
    hour = {"retention_hours": 1, "enforce_retention_duration": False}
    assert set(opened(lake).vacuum(**hour, dry_run=False)) == reached(lake, 1)
    assert reached(lake, 2) <= data_files(lake)
    assert own_rows(lake, version=2) == stock_rows(lake, version=2)


# Logs that other programs write too


def imported(catalog: Catalog, tmp_path: Path) -> Path:
    """Import a table `t2` with a removed file, without cutover."""
    place = tmp_path / "t2"
    for first, mode in ((0, "append"), (10, "overwrite")):
        deltalake.write_deltalake(place, numbers(first, first + 2), mode=mode)
    catalog.import_table(str(place))
    return place


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("mode", ["sync", "off"])
def test_vacuum_is_rejected_while_the_log_has_unknown_commits(
    lake: Catalog, tmp_path: Path, full: bool, mode: str
) -> None:
    lake.mirror.mode = mode
    place = imported(lake, tmp_path)
    deltalake.DeltaTable(place).restore(0)  # files that are removed in SQL are live again
    deltalake.write_deltalake(place, numbers(20, 22), mode="append")
    before = sorted(place.rglob("*"))
    with pytest.raises(MirrorDivergedError, match="mirror adopt"):
        lake.vacuum("t2", **NOW, full=full, dry_run=False)
    assert sorted(place.rglob("*")) == before
    assert lake.table("t2").snapshot().version == 1
    lake.import_table(str(place))
    lake.vacuum("t2", **NOW, full=full, dry_run=False)
    assert sorted(deltalake.DeltaTable(place).to_pyarrow_table()["id"].to_pylist()) == [
        0,
        1,
        20,
        21,
    ]


def test_vacuum_is_rejected_while_sql_and_log_have_diverged(lake: Catalog, tmp_path: Path) -> None:
    lake.mirror.mode = "off"
    place = imported(lake, tmp_path)
    with lake.begin() as tx:
        tx.write("t2", numbers(30, 32))
    deltalake.write_deltalake(place, numbers(20, 22), mode="append")
    files = sorted(place.rglob("*.parquet"))
    with pytest.raises(MirrorDivergedError):
        lake.vacuum("t2", **NOW, full=True, dry_run=False)
    assert sorted(place.rglob("*.parquet")) == files


def test_vacuum_is_rejected_while_the_published_log_is_unreachable(
    lake: Catalog, tmp_path: Path
) -> None:
    place = imported(lake, tmp_path)
    files = sorted(place.rglob("*.parquet"))
    (place / "_delta_log").rename(tmp_path / "elsewhere")
    with pytest.raises(TxnLogMirrorError, match="lacks version 1: the log may refer to files"):
        lake.vacuum("t2", **NOW, dry_run=False)
    assert sorted(place.rglob("*.parquet")) == files
