"""`load_cdf` returns what stock deltalake returns, for the same operations and for the mirror."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

import deltasql
from deltasql.exceptions import TxnLogError, TxnLogSchemaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ENABLED = {"delta.enableChangeDataFeed": "true"}
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "part": ["a", "a", "b"],
        "blob": [b"x", None, b"z"],
        "tags": [["p"], [], None],
        "at": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
    }
)
MORE = ROWS.slice(0, 1).set_column(0, "id", pa.array([4], pa.int64()))
FRESH = ROWS.slice(2).set_column(0, "id", pa.array([9], pa.int64()))


def write_six_versions(open_table: Callable[[], Any], write: Callable[..., None]) -> None:
    """Write six versions: two appends, an update, a delete, a compaction and an overwrite."""
    write(ROWS, partition_by=["part"], configuration=ENABLED)
    write(MORE, mode="append")
    open_table().update(updates={"id": "id + 10"}, predicate="id = 2")
    open_table().delete("id = 3")
    open_table().optimize.compact()
    write(FRESH, mode="overwrite")


def multiset(feed: Any) -> Counter[str]:
    table = pa.table(feed)
    shown = [name for name in table.schema.names if name != "_commit_timestamp"]
    return Counter(map(repr, table.select(shown).to_pylist()))


@pytest.fixture
def stock(tmp_path: Path) -> deltalake.DeltaTable:
    path = str(tmp_path / "stock")
    write_six_versions(
        lambda: deltalake.DeltaTable(path),
        lambda data, **options: deltalake.write_deltalake(path, data, **options),
    )
    return deltalake.DeltaTable(path)


@pytest.fixture
def ours(catalog_uri: DeltaSqlUri, tmp_path: Path) -> deltasql.DeltaTable:
    place = str(tmp_path / "ours")
    uri = replace(catalog_uri.with_table("t"), location=place).to_string()
    write_six_versions(
        lambda: deltasql.DeltaTable(uri),
        lambda data, **options: deltasql.write_deltalake(uri, data, **options),
    )
    return deltasql.DeltaTable(uri)


CALLS: list[dict[str, Any]] = [
    {},
    {"starting_version": 2, "ending_version": 3},
    {"starting_version": 5},
    {"ending_version": 99},
    {"starting_version": 99, "allow_out_of_range": True},
    {"columns": ["id", "_change_type"]},
    {"predicate": "id > 3"},
    {"predicate": "part = 'a'", "columns": ["id"]},
    {"predicate": "_change_type = 'insert'"},
    {"starting_timestamp": "2020-01-01T00:00:00Z"},
    {"starting_timestamp": "2220-01-01T00:00:00Z", "allow_out_of_range": True},
    {"ending_timestamp": "2020-01-01T00:00:00Z"},
    {"ending_timestamp": "2220-01-01T00:00:00+02:00"},
]


def test_change_feed_equals_that_of_deltalake(
    stock: deltalake.DeltaTable, ours: deltasql.DeltaTable
) -> None:
    for call in CALLS:
        expected = stock.load_cdf(**call)
        found = ours.load_cdf(**call)
        assert type(found) is type(expected)
        assert pa.schema(found.schema) == pa.schema(expected.schema), call
        assert multiset(found) == multiset(expected), call


def test_deltalake_reads_the_same_change_feed_from_the_mirror(ours: deltasql.DeltaTable) -> None:
    mirrored = deltalake.DeltaTable(ours.table_uri)
    assert multiset(ours.load_cdf()) == multiset(mirrored.load_cdf())
    assert multiset(ours.load_cdf(2, 4)) == multiset(mirrored.load_cdf(2, 4))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"starting_version": 3, "ending_version": 2}, "Start version 3 is greater than end version 2"),
    ({"starting_version": 99}, "Invalid table version: 99"),
    ({"starting_timestamp": "2220-01-01T00:00:00Z"}, "is greater than latest commit timestamp"),
    ({"starting_timestamp": "bad"}, "input contains invalid characters"),
    ({"starting_timestamp": "2020-01-01T00:00:00"}, "premature end of input"),
    ({"starting_version": None}, "No starting version or timestamp provided for CDC"),
    ({"starting_version": -1}, "can't convert negative int to unsigned"),
    ({"columns": ["nope"]}, "No field named nope"),
    ({"predicate": "nope = 1"}, "nope"),
]


def test_invalid_arguments_raise_the_errors_of_deltalake(
    stock: deltalake.DeltaTable, ours: deltasql.DeltaTable
) -> None:
    for call, message in REFUSED:
        with pytest.raises(Exception, match=message) as expected:
            stock.load_cdf(**call)
        with pytest.raises(Exception, match=message) as found:
            ours.load_cdf(**call)
        assert isinstance(found.value, type(expected.value)), call


def test_predicate_that_reads_a_table_is_rejected(ours: deltasql.DeltaTable) -> None:
    with pytest.raises(TxnLogSchemaError, match="reads the table 'sales'"):
        ours.load_cdf(predicate="id > (SELECT max(id) FROM sales)")
    feed = ours.load_cdf(predicate="id IN (WITH few AS (SELECT 2) SELECT * FROM few)")
    assert set(pa.table(feed)["id"].to_pylist()) == {2}


def test_starting_timestamp_selects_versions(ours: deltasql.DeltaTable) -> None:
    time.sleep(0.002)
    deltasql.write_deltalake(ours, MORE, mode="append")
    latest = max(entry["timestamp"] for entry in ours.history())
    at = pa.scalar(latest, pa.timestamp("ms", "UTC")).as_py().isoformat()
    feed = pa.table(ours.load_cdf(starting_timestamp=at))
    assert set(feed["_commit_version"].to_pylist()) == {ours.version()}


def test_changes_reads_a_version_without_change_data(
    sqlite_uri: DeltaSqlUri,
) -> None:
    uri = sqlite_uri.with_table("plain").to_string()
    deltasql.write_deltalake(uri, ROWS)
    table = deltasql.DeltaTable(uri)
    with pytest.raises(DeltaError, match="version: 0 that does not have change data enabled"):
        table.load_cdf()
    assert table.changes(0, columns=["id"]).read_all().num_rows == ROWS.num_rows


def test_changes_of_a_table_without_a_catalog_are_rejected(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "plain"), ROWS)
    with pytest.raises(TxnLogError, match="not a table of a catalog"):
        deltasql.DeltaTable(str(tmp_path / "plain")).changes(0)
