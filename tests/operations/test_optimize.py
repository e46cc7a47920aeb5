"""OPTIMIZE only changes files: rows, history and concurrent writers are unaffected."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.exceptions import CommitConflictError, ConcurrentDeleteDeleteError, TxnLogError
from tests.conftest import new_catalog_uri
from tests.operations.maintenance import (
    agree,
    numbers,
    open_lake,
    opened,
    own_rows,
    published,
    stock_rows,
)
from tests.oracles.deletion_vectors import inline_vector
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a table `t` of two partitions, four files each."""
    with open_lake(catalog_uri, tmp_path) as catalog:
        catalog.create_table("t", numbers(0, 0).schema, partition_by=["part"])
        for number in range(4):
            append(catalog, number * 10, "a")
            append(catalog, number * 10, "b")
        yield catalog


def append(catalog: Catalog, first: int, part: str, rows: int = 3) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(first, first + rows, part))


def test_optimize_metrics_and_history_match_deltalake(lake: Catalog, tmp_path: Path) -> None:
    for number in range(4):
        for part in "ab":
            rows = numbers(number * 10, number * 10 + 3, part)
            deltalake.write_deltalake(tmp_path / "s", rows, mode="append", partition_by=["part"])
    stock, ours = deltalake.DeltaTable(tmp_path / "s"), opened(lake)
    for run in (
        lambda table: table.optimize.compact(),
        lambda table: table.optimize.compact(),
        lambda table: table.optimize.z_order(["id", "text"], [("part", "=", "a")]),
    ):
        expected, metrics = run(stock), run(ours)
        assert plain(metrics) == plain(expected)
        assert type(metrics["filesAdded"]) is type(expected["filesAdded"])
    theirs, mine = stock.history(1)[0], ours.history(1)[0]
    assert mine["operation"] == theirs["operation"]
    assert mine["operationParameters"] == theirs["operationParameters"]
    assert mine["operationMetrics"].keys() == theirs["operationMetrics"].keys()
    assert agree(lake)


def plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return metrics without file sizes, which depend on the writer."""
    return {
        key: value for key, value in metrics.items() if key not in ("filesAdded", "filesRemoved")
    }


def test_optimize_keeps_rows_of_every_version(lake: Catalog) -> None:
    table = opened(lake)
    before = [own_rows(lake, version=version) for version in range(table.version() + 1)]
    table.optimize.compact()
    table.optimize.z_order(["text"])
    assert agree(lake) == before[-1]
    for version, rows in enumerate(before):
        assert own_rows(lake, version=version) == stock_rows(lake, version=version) == rows


def test_compaction_does_not_conflict_with_concurrent_append(lake: Catalog) -> None:
    table = opened(lake)
    append(lake, 100, "a")
    assert table.optimize.compact()["numFilesRemoved"] == 8
    assert len(agree(lake)) == 27


def test_compaction_conflicts_with_concurrent_delete_of_its_files(lake: Catalog) -> None:
    table = opened(lake)
    with lake.begin() as tx:
        tx.delete("t", "part = 'a' AND id = 1")
    with pytest.raises(ConcurrentDeleteDeleteError):
        table.optimize.compact()
    assert len(agree(lake)) == 23


def test_interval_commits_all_check_against_the_planned_version(lake: Catalog) -> None:
    table = opened(lake)
    version = table.version()
    metrics = table.optimize.compact(min_commit_interval=0)
    assert table.version() == version + 2
    assert metrics["numFilesAdded"] == 2
    assert [row["operation"] for row in table.history(3)] == ["OPTIMIZE", "OPTIMIZE", "WRITE"]
    stale = opened(lake)
    append(lake, 200, "b")
    append(lake, 210, "a")
    stale.update_incremental()
    with lake.begin() as tx:
        tx.delete("t", "part = 'b'")
    with pytest.raises(CommitConflictError):
        stale.optimize.compact(min_commit_interval=0)
    assert {row["part"] for row in agree(lake)} == {"a"}


def test_compaction_purges_rows_deleted_by_vectors(lake: Catalog) -> None:
    lake.create_table("v", numbers(0, 0).schema, properties={"delta.enableDeletionVectors": "true"})
    with lake.begin() as tx:
        tx.write("v", numbers(0, 10))
    with lake.begin() as tx:
        target = tx.target("v")
        files = target.files()
        add = lake.table("v").scan().files[0].to_action()
        target.remove(files)
        target.add([replace(add, deletion_vector=inline_vector([0, 7]))])
    table = opened(lake, "v")
    kept = agree(lake, "v")
    assert len(kept) == 8
    assert table.optimize.compact()["numFilesRemoved"] == 1
    assert table.version() == 3
    assert agree(lake, "v") == kept
    assert not any(lake.table("v").files()["deletion_vector"].to_pylist())
    assert table.optimize.compact()["numFilesRemoved"] == 0


def test_emptied_table_has_nothing_to_optimize(lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.delete("t")
    table = opened(lake)
    version = table.version()
    assert table.optimize.compact()["totalConsideredFiles"] == 0
    assert table.optimize.z_order(["id"])["numFilesAdded"] == 0
    assert table.version() == version
    assert agree(lake) == []


def test_large_files_and_single_files_are_not_compacted(lake: Catalog) -> None:
    table = opened(lake)
    sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
    assert table.optimize.compact(target_size=min(sizes))["totalFilesSkipped"] == 8
    assert table.optimize.compact(target_size=max(sizes) * 2)["numFilesAdded"] == 4
    table.alter.set_table_properties({"delta.targetFileSize": "1b"})
    assert table.optimize.compact()["totalFilesSkipped"] == 4


def test_optimize_keeps_data_change_of_rows_of_its_transaction(lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", numbers(50, 53, "a"))
        assert tx.optimize("t")["numFilesRemoved"] == 8
    actions = lake.table("t").files().to_pylist()
    assert sorted(each["data_change"] for each in actions) == [False, False, True]
    assert len(agree(lake)) == 27


def test_failed_optimize_leaves_no_files(lake: Catalog, tmp_path: Path) -> None:
    table = opened(lake)
    with lake.begin() as tx:
        tx.delete("t", "id = 0")
    before = sorted((tmp_path / "lake").rglob("*.parquet"))
    with pytest.raises(CommitConflictError):
        table.optimize.compact()
    assert sorted((tmp_path / "lake").rglob("*.parquet")) == before


def test_writer_properties_reach_the_files(lake: Catalog) -> None:
    table = opened(lake)
    table.optimize.compact(writer_properties=deltalake.WriterProperties(compression="GZIP"))
    (path, *_) = table.file_uris()
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "at least one column"),
        (["part"], "cannot be partition columns"),
        (["nope"], 'field "nope" not found in schema'),
    ],
)
def test_error_names_invalid_z_order_column(
    lake: Catalog, columns: list[str], message: str
) -> None:
    with pytest.raises(TxnLogError, match=message):
        opened(lake).optimize.z_order(columns)


def test_z_order_lets_each_of_its_columns_skip_files(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    side = 128
    grid = [(x, y) for x in range(side) for y in range(side)]
    shuffled = sorted(grid, key=lambda point: hash((point, 7)))
    rows = pa.table({"x": [x for x, _ in shuffled], "y": [f"{y:03d}" for _, y in shuffled]})
    with open_lake(sqlite_uri, tmp_path) as lake:
        lake.create_table("t", rows.schema)
        with lake.begin() as tx:
            tx.write("t", rows)
        lake.optimize("t", z_order=["x", "y"], target_size=500)
        table = lake.table("t")
        files = len(table.scan())
        assert files >= 6
        assert len(table.scan("x = 3")) <= files / 2 + 1
        assert len(table.scan("y = '003'")) <= files / 2 + 1
        assert Counter(map(str, own_rows(lake))) == Counter(
            str({"x": x, "y": f"{y:03d}"}) for x, y in grid
        )


def test_nulls_and_any_ordered_type_can_be_z_ordered(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    rows = pa.table(
        {
            "flag": pa.array([True, None, False] * 4),
            "day": pa.array([None, 19000, 3] * 4, pa.int32()).cast(pa.date32()),
            "number": pa.array([float("nan"), None, 1.5] * 4),
            "box": pa.array([{"a": i} for i in range(12)], pa.struct([("a", pa.int64())])),
        }
    )
    with open_lake(sqlite_uri, tmp_path) as lake:
        lake.create_table("t", rows.schema)
        with lake.begin() as tx:
            tx.write("t", rows)
        opened(lake).optimize.z_order(["flag", "day", "number", "box.a"])
        assert Counter(map(str, rows_in_deltalake(lake))) == Counter(map(str, rows.to_pylist()))


def rows_in_deltalake(lake: Catalog) -> list[Any]:
    """Return the rows that deltalake reads."""
    return list(pa.table(published(lake).scan()).to_pylist())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9), st.sampled_from("ab")),
        st.tuples(st.just("delete"), st.integers(0, 9), st.sampled_from("ab")),
        st.tuples(st.just("compact"), st.integers(1, 3000), st.just("a")),
        st.tuples(st.just("z_order"), st.integers(1, 3000), st.just("b")),
    ),
    min_size=3,
    max_size=8,
)


@settings(max_examples=examples(15), deadline=None)
@given(STEPS)
def test_random_writes_and_optimizes_keep_the_written_rows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("optimized")
    (uri,) = new_catalog_uri("sqlite", folder)
    expected: Counter[tuple[int, str]] = Counter()
    with open_lake(uri, folder) as lake:
        lake.create_table("t", numbers(0, 0).schema, partition_by=["part"])
        for kind, number, part in steps:
            if kind == "append":
                append(lake, number, part)
                expected.update((number + i, part) for i in range(3))
            elif kind == "delete":
                with lake.begin() as tx:
                    tx.delete("t", f"id = {number} AND part = '{part}'")
                del expected[number, part]
            elif kind == "compact":
                lake.optimize("t", target_size=number)
            else:
                lake.optimize("t", z_order=["id"], target_size=number)
            rows = stock_rows(lake)
            assert Counter((row["id"], row["part"]) for row in rows) == expected
            assert own_rows(lake) == rows
