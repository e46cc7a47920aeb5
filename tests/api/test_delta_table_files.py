"""File listings return the same files, order and columns as deltalake."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake.exceptions import DeltaError

import deltasql
from deltasql import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Address

pytestmark = pytest.mark.two_databases

DAYS = ["2024-05-01", "2024-05-02", None]


def both(uri: str) -> tuple[DeltaTable, deltalake.DeltaTable]:
    own = DeltaTable(uri)
    return own, deltalake.DeltaTable(own.table_uri)


def write_visits(uri: str) -> None:
    """Write nine files in three commits; partition values need encoding, are dates or null."""
    for commit in range(3):
        rows = pa.table(
            {
                "id": pa.array([10 * commit + n for n in range(3)], pa.int64()),
                "where": ["Köln", "a b/c%20", None],
                "day": pa.array([date.fromisoformat(d) if d else None for d in DAYS], pa.date32()),
                "deep": [{"x": commit, "y": {"z": f"v{commit}"}}] * 3,
            }
        )
        write_deltalake(uri, rows, mode="append", partition_by=["where", "day"])


@pytest.fixture
def partitioned(address: Address) -> str:
    """Return the table of `write_visits` on every backend."""
    write_visits(address("visits"))
    return address("visits")


@pytest.fixture(scope="module")
def table_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the same table in SQLite, for tests that only read it."""
    uri = f"deltasql://sqlite/{tmp_path_factory.mktemp('table_uri')}/meta.db?table=visits"
    write_visits(uri)
    return uri


def test_files_are_in_the_order_of_deltalake(partitioned: str) -> None:
    own, stock = both(partitioned)
    assert len(own.file_uris()) == 9
    assert own.file_uris() == stock.file_uris()
    assert own._table.files() == stock._table.files()
    assert own._table.get_add_file_sizes() == stock._table.get_add_file_sizes()
    paths = own.get_add_actions()["path"].to_pylist()
    assert paths == stock.get_add_actions()["path"].to_pylist()


def test_long_and_short_file_lists_have_the_same_order(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = DeltaTable(table_uri).file_uris()
    monkeypatch.setattr("deltasql.api.deltalake_compat.handle.files._FEW_FILES", 0)
    assert DeltaTable(table_uri).file_uris() == few


def test_partitions_equal_those_of_deltalake(partitioned: str) -> None:
    own, stock = both(partitioned)
    assert own._table.get_active_partitions() == stock._table.get_active_partitions()
    assert {"where": "Köln", "day": "2024-05-01"} in own.partitions()
    with pytest.warns(DeprecationWarning, match="partition_filters"):
        assert own.partitions([("where", "=", "Köln")]) == [{"where": "Köln", "day": "2024-05-01"}]


def test_unpartitioned_table_has_no_partition_values(address: Address) -> None:
    write_deltalake(address("t"), pa.table({"id": [1]}))
    own, stock = both(address("t"))
    assert own.partitions() == [] == stock.partitions()
    assert own._table.get_active_partitions() == stock._table.get_active_partitions()


PREDICATES: list[Any] = [
    "id = 10",
    "id > 11 OR `where` = 'Köln'",
    "day = '2024-05-01'",
    "day IS NULL",
    "`where` IS NOT NULL AND id < 10",
    "`where` IN ('Köln', 'x')",
    "NOT (`where` = 'Köln')",
    "id BETWEEN 10 AND 19",
    "deep.x = 1",
    [("where", "=", "Köln")],
    [("where", "!=", "Köln")],
    [("where", "in", ["Köln", "a b/c%20"])],
    [("where", "not in", ["Köln"])],
    [("where", "=", "")],
    [("day", ">=", date(2024, 5, 2))],
    [("day", "=", "2024-05-01"), ("id", "<", 5)],
    [[("day", "=", "2024-05-01")], [("where", "=", ""), ("id", ">=", 20)]],
    [],
]


@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
def test_predicate_prunes_the_same_files_as_deltalake(table_uri: str, predicate: Any) -> None:
    own, stock = both(table_uri)
    expected = stock.file_uris(file_pruning_predicate=predicate)
    assert own.file_uris(file_pruning_predicate=predicate) == expected
    dataset = own.to_pyarrow_dataset(file_pruning_predicate=predicate)
    assert dataset.files == stock.to_pyarrow_dataset(file_pruning_predicate=predicate).files


def test_invalid_pruning_predicate_raises(table_uri: str) -> None:
    table = DeltaTable(table_uri)
    wrong: list[Any] = ["nope = 1", "id +", "", [("id", "like", "1")], [("nope", "=", 1)]]
    for predicate in wrong:
        with pytest.raises(DeltaError):
            table.file_uris(file_pruning_predicate=predicate)
    with pytest.raises(ValueError, match="not a mix"):
        table.file_uris(file_pruning_predicate=[("id", "=", 1), [("id", "=", 2)]])
    with pytest.raises(ValueError, match="partitions"):
        table.to_pyarrow_dataset(partitions=[("id", "=", 1)], file_pruning_predicate="id = 1")


def test_add_actions_have_the_columns_and_types_of_deltalake(address: Address) -> None:
    uri = address("typed")
    timestamp = datetime(2024, 5, 1, 10, 30, 15, 123456, UTC)
    rows = pa.table(
        {
            "long": pa.array([1, 5], pa.int64()),
            "byte": pa.array([1, None], pa.int8()),
            "float": pa.array([1.5, -2.0], pa.float32()),
            "text": ["a", "b" * 50],
            "flag": [True, False],
            "raw": [b"x", b"y"],
            "day": [date(2024, 5, 1), date(1969, 12, 31)],
            "at": pa.array([timestamp, timestamp], pa.timestamp("us", "UTC")),
            "local": pa.array([timestamp.replace(tzinfo=None)] * 2, pa.timestamp("us")),
            "nothing": pa.array([None, None], pa.string()),
            "list": [[1], [2, 3]],
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "deep": [{"x": 1, "y": {"z": "a"}}, {"x": None, "y": None}],
            "part": pa.array([1, 1], pa.int32()),
        }
    )
    write_deltalake(uri, rows, partition_by=["part"])
    write_deltalake(uri, rows.slice(0, 1), mode="append")
    own, stock = both(uri)
    for flatten in (False, True):
        expected = pa.table(stock.get_add_actions(flatten))
        found = pa.table(own.get_add_actions(flatten))
        assert found.schema == expected.schema
        assert found.to_pylist() == expected.to_pylist()
        assert found.equals(expected)


@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.dataSkippingNumIndexedCols": "1"},
        {"delta.dataSkippingNumIndexedCols": "0"},
        {"delta.dataSkippingStatsColumns": "b,deep.x"},
    ],
    ids=str,
)
def test_statistics_properties_select_the_same_columns_as_deltalake(
    sqlite_address: Address, configuration: dict[str, str]
) -> None:
    uri = sqlite_address("t")
    rows = pa.table({"a": [1], "b": ["x"], "deep": [{"x": 1, "y": 2}]})
    write_deltalake(uri, rows, configuration=configuration)
    own, stock = both(uri)
    assert pa.table(own.get_add_actions()).equals(pa.table(stock.get_add_actions()))
    assert own._table.get_num_index_cols() == stock._table.get_num_index_cols()
    assert own._table.get_stats_columns() == stock._table.get_stats_columns()


def test_empty_table_listing_has_the_columns_of_deltalake(sqlite_address: Address) -> None:
    uri = sqlite_address("t")
    schema = pa.schema([("a", pa.int64()), ("p", pa.string())])
    DeltaTable.create(uri, schema, partition_by=["p"])
    own, stock = both(uri)
    assert pa.table(own.get_add_actions()).equals(pa.table(stock.get_add_actions()))
    assert own.file_uris() == own.partitions() == []
    assert own.count() == 0
    assert own.to_pyarrow_table().equals(stock.to_pyarrow_table())
    assert pa.table(own.scan()).equals(pa.table(stock.scan()))


def test_count_ignores_files_without_statistics(address: Address, tmp_path: Any) -> None:
    uri = address("t")
    write_deltalake(uri, pa.table({"id": [1, 2]}))
    without = {
        "add": {
            "path": "other.parquet",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
        }
    }
    table = DeltaTable(uri)
    with table._table.catalog.begin() as tx:
        tx.stage_table("t", [without])
    own, stock = both(uri)
    assert own.count() == stock.count() == 2
    assert pa.table(own.get_add_actions()).equals(pa.table(stock.get_add_actions()))


def test_dataset_filters_find_rows_with_null_and_nan(address: Address) -> None:
    """Minimum and maximum do not cover null and NaN, so they must not exclude such rows."""
    uri = address("t")
    rows = pa.table(
        {
            "n": pa.array([1, None, 5], pa.int64()),
            "x": pa.array([1.0, float("nan"), 5.0], pa.float64()),
            "s": ["a", None, "e"],
        }
    )
    write_deltalake(uri, rows)
    write_deltalake(uri, pa.table({"n": [10], "x": [10.0], "s": ["z"]}), mode="append")
    dataset = DeltaTable(uri).to_pyarrow_dataset()
    everything = dataset.to_table()
    n, x, s = pc.field("n"), pc.field("x"), pc.field("s")
    conditions = [n.is_null(), n.is_valid(), ~(n <= 5), n >= 1, x.is_nan(), x > 7]
    conditions += [s.is_null(), s > "q", ~(s < "q"), (n == 99) | s.is_null(), n == 10]
    for condition in conditions:
        expected = everything.filter(condition)
        # Compared as text because NaN is not equal to NaN.
        found = dataset.to_table(filter=condition)
        assert str(found.to_pylist()) == str(expected.to_pylist()), condition
    assert len(list(dataset.get_fragments(n > 7))) == 1
    assert len(list(dataset.get_fragments(s == "z"))) == 1
    assert len(list(dataset.get_fragments(n.is_null()))) == 1


def test_statistics_of_many_files_equal_those_of_deltalake(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/meta.db"
    with deltasql.connect(uri) as catalog:
        schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
        catalog.create_table("many", schema, partition_by=["day"])
        with catalog.begin() as tx:
            tx.stage_table("many", [_file(number) for number in range(40_000)])
    own, stock = both(f"{uri}?table=many")
    for flatten in (False, True):
        expected = pa.table(stock.get_add_actions(flatten)).sort_by("path")
        assert pa.table(own.get_add_actions(flatten)).sort_by("path").equals(expected)


def _file(number: int) -> deltasql.AddFile:
    """Return an add action; every seventh has no statistics, every third no day."""
    stats = f'{{"numRecords":1,"minValues":{{"id":{number}}},"maxValues":{{"id":{number}}}}}'
    return deltasql.AddFile(
        path=f"{number}.parquet",
        partition_values={"day": DAYS[number % 3]},
        size=number,
        modification_time=number,
        stats=None if number % 7 == 0 else stats,
    )
