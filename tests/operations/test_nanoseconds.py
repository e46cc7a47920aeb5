"""Nanosecond timestamps are enabled as in deltalake, and are never silently truncated."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import deltalake
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError
from tests.operations.deltalake_comparison import Twins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

FIRST = 1_700_000_000_123_456_789
"""2023-11-14T22:13:20.123456789 in UTC."""
ZONES = {"in UTC": "UTC", "without a zone": None}
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def nanoseconds() -> Iterator[None]:
    """Enable nanoseconds for one test with deltasql's function."""
    deltasql.enable_nanosecond_timestamps()
    yield
    deltalake._disable_nanosecond_timestamps()


@pytest.fixture
def twins(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Twins]:
    place = str(tmp_path / "ours")
    uri = replace(sqlite_uri.with_table("sales"), location=place).to_string()
    yield Twins(str(tmp_path / "stock"), uri, place)
    close_all()


def timestamp_rows(zone: str | None, *values: int, unit: str = "ns", first_id: int = 1) -> pa.Table:
    """Return rows with these timestamps, counted in the unit since 1970."""
    return pa.table(
        {
            "id": pa.array(range(first_id, first_id + len(values)), pa.int64()),
            "at": pa.array(values, pa.timestamp(unit, zone)),
        }
    )


def counted(table: Any) -> list[int]:
    """Return the timestamps of a table, a handle or a reader as sorted integers."""
    rows = table.to_pyarrow_table() if hasattr(table, "to_pyarrow_table") else pa.table(table)
    return sorted(rows["at"].cast(pa.int64()).to_pylist())


def actions(twins: Twins, version: int = 0) -> dict[str, Any]:
    """Return the actions of a published commit by name."""
    with open(f"{twins.location}/_delta_log/{version:020d}.json", encoding="utf-8") as log:
        return {name: body for line in log for name, body in json.loads(line).items()}


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_new_nanosecond_tables_match_deltalake(twins: Twins, zone: str | None) -> None:
    assert twins.write(timestamp_rows(zone, FIRST, FIRST + 1)) is None
    twins.assert_alike()
    assert counted(deltasql.DeltaTable(twins.uri)) == [FIRST, FIRST + 1]
    theirs = deltalake.DeltaTable(twins.path).protocol()
    ours = deltasql.DeltaTable(twins.uri).protocol()
    for protocol in (ours, deltalake.DeltaTable(twins.location).protocol()):
        assert set(protocol.reader_features or ()) == set(theirs.reader_features or ())
        assert set(protocol.writer_features or ()) >= set(theirs.writer_features or ())
    assert (ours.min_reader_version, ours.min_writer_version) == (3, 7)


@pytest.mark.usefixtures("nanoseconds")
def test_nested_nanosecond_types_are_kept(twins: Twins) -> None:
    zoned, plain = pa.timestamp("ns", "UTC"), pa.timestamp("ns")
    rows = pa.table(
        {
            "s": pa.array([{"x": FIRST}], pa.struct([("x", zoned)])),
            "l": pa.array([[FIRST, None]], pa.list_(plain)),
            "m": pa.array([[("k", FIRST)]], pa.map_(pa.string(), zoned)),
            "paris": pa.array([FIRST], pa.timestamp("ns", "Europe/Paris")),
        }
    )
    assert twins.write(rows) is None
    twins.assert_alike()
    scanned = pa.table(deltasql.DeltaTable(twins.uri)._table.scan())
    stock = pa.table(deltalake.DeltaTable(twins.location)._table.scan())
    assert scanned.to_pylist() == stock.to_pylist()


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize(
    "rows",
    [
        pandas.DataFrame({"at": pandas.to_datetime(["2023-11-14T22:13:20.123456789"])}),
        polars.DataFrame({"at": [FIRST]}).with_columns(
            polars.col("at").cast(polars.Datetime("ns"))
        ),
    ],
    ids=["pandas", "polars"],
)
def test_pandas_and_polars_frames_keep_nanoseconds(twins: Twins, rows: object) -> None:
    assert twins.write(lambda: rows) is None
    twins.assert_alike()
    ours = deltasql.DeltaTable(twins.uri)
    assert counted(ours) == [FIRST]
    assert counted(ours.to_pyarrow_dataset().to_table()) == [FIRST]
    assert ours.to_pandas()["at"][0].value == FIRST
    assert polars.DataFrame(ours.to_pyarrow_table())["at"].cast(polars.Int64).to_list() == [FIRST]
    result = deltasql.QueryBuilder().register("t", ours).execute("SELECT at FROM t").read_all()
    assert counted(result) == [FIRST]


def test_enable_nanosecond_timestamps_of_deltalake_applies(twins: Twins) -> None:
    deltalake.enable_nanosecond_timestamps()
    try:
        deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST))
    finally:
        deltalake._disable_nanosecond_timestamps()
    assert deltasql.DeltaTable(twins.uri).schema().fields[1].type.type == "timestamp_nanos"


@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_new_tables_have_microseconds_by_default(twins: Twins, zone: str | None) -> None:
    assert twins.write(timestamp_rows(zone, FIRST)) is None
    twins.assert_alike()
    assert counted(deltasql.DeltaTable(twins.uri)) == [FIRST // 1000]


@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_existing_nanoseconds_are_read_when_not_enabled(
    twins: Twins, zone: str | None, nanoseconds: None
) -> None:
    deltasql.write_deltalake(twins.uri, timestamp_rows(zone, FIRST), configuration=FEED)
    deltalake._disable_nanosecond_timestamps()
    deltasql.write_deltalake(twins.uri, timestamp_rows(zone, FIRST + 1), mode="append")
    table = deltasql.DeltaTable(twins.uri)
    with pytest.raises(DeltaProtocolError, match="timestampNanos"):
        table.to_pyarrow_dataset()
    table.delete(f"at > '2023-11-14T22:13:20.123456789{'Z' if zone else ''}'")
    assert counted(table) == counted(table._table.scan()) == [FIRST]
    assert counted(table.load_cdf(0)) == [FIRST, FIRST + 1, FIRST + 1]
    with pytest.raises(UnsupportedFeatureError, match="enable_nanosecond_timestamps"):
        merge(twins.uri, timestamp_rows(zone, FIRST + 2))
    assert counted(deltalake.DeltaTable(twins.location)._table.scan()) == [FIRST]


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_dml_and_the_change_data_feed_keep_nanoseconds(twins: Twins, zone: str | None) -> None:
    mark = "Z" if zone else ""
    rows = timestamp_rows(zone, FIRST, FIRST + 1, FIRST + 2)
    for write, place in ((deltalake.write_deltalake, twins.path), (deltasql.write_deltalake, None)):
        write(place or twins.uri, rows, configuration=FEED)
    for opened in (deltalake.DeltaTable(twins.path), deltasql.DeltaTable(twins.uri)):
        first = f"'2023-11-14T22:13:20.123456789{mark}'"
        assert opened.update({"id": "10"}, predicate=f"at = {first}")["num_updated_rows"] == 1
        opened.update({"at": "at + interval '1' day"}, predicate="id = 2")
        opened.update({"at": f"'2024-01-01T00:00:00.000000001{mark}'"}, predicate="id = 3")
        merged = opened.merge(
            timestamp_rows(zone, FIRST, FIRST + 7, first_id=20),
            "t.at = s.at",
            source_alias="s",
            target_alias="t",
        )
        done = merged.when_matched_update_all().when_not_matched_insert_all().execute()
        assert (done["num_target_rows_updated"], done["num_target_rows_inserted"]) == (1, 1)
        later = f"'2023-11-14T22:13:20.123456795{mark}'"
        assert opened.delete(f"at >= {later} AND id = 21")["num_deleted_rows"] == 1
    theirs, ours = deltalake.DeltaTable(twins.path), deltasql.DeltaTable(twins.uri)
    mirror = deltalake.DeltaTable(twins.location)
    expected = [FIRST, FIRST + 1 + 86_400 * 10**9, 1_704_067_200_000_000_001]
    assert counted(ours) == counted(theirs) == counted(mirror) == expected
    assert counted(ours._table.scan()) == expected
    feeds = [counted(each.load_cdf(0)) for each in (theirs, ours, mirror)]
    assert feeds[0] == feeds[1] == feeds[2]
    changes = ours.load_cdf(0).schema
    assert pa.schema(changes).field("at").type == pa.timestamp("ns", zone)


@pytest.mark.usefixtures("nanoseconds")
def test_new_values_keep_the_nanoseconds_of_pandas(twins: Twins) -> None:
    deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST, FIRST))
    table = deltasql.DeltaTable(twins.uri)
    table.update(new_values={"at": pandas.Timestamp(FIRST + 5, tz="UTC")}, predicate="id = 1")
    table.update(new_values={"at": datetime(1970, 1, 1, tzinfo=UTC)}, predicate="id = 2")
    assert counted(deltalake.DeltaTable(twins.location)) == [0, FIRST + 5]


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_casts_and_string_literals_keep_nanoseconds(twins: Twins, zone: str | None) -> None:
    """deltalake cannot compare a cast with a column in UTC, so only our result is checked."""
    deltasql.write_deltalake(twins.uri, timestamp_rows(zone, FIRST, FIRST + 1))
    table = deltasql.DeltaTable(twins.uri)
    second = "CAST('2023-11-14T22:13:20.123456790Z' AS TIMESTAMP)"
    assert table.delete(f"at >= {second}")["num_deleted_rows"] == 1
    for other in ("at > now()", "at IN ('2023-11-14T22:13:20.123456Z')", "at < DATE '1971-01-01'"):
        assert table.delete(other)["num_deleted_rows"] == 0, other
    text = f"2023-11-14T22:13:20.123456789{'Z' if zone else ''}"
    assert (
        table.update({"id": "7"}, predicate=f"CAST(at AS VARCHAR) = '{text}'")["num_updated_rows"]
        == 1
    )
    table.update({"at": "CAST('2024-01-01T00:00:00.000000001Z' AS TIMESTAMP) - interval '1' day"})
    assert counted(deltalake.DeltaTable(twins.location)) == [1_703_980_800_000_000_001]


@pytest.mark.usefixtures("nanoseconds")
def test_difference_of_nanosecond_timestamps_is_rejected(twins: Twins) -> None:
    deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST))
    with pytest.raises(UnsupportedFeatureError, match="difference"):
        deltasql.DeltaTable(twins.uri).delete("at - at < interval '1' second")


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_partition_values_have_nine_digits(twins: Twins, zone: str | None) -> None:
    rows = timestamp_rows(zone, FIRST, FIRST + 1, FIRST + 1, 0)
    deltalake.write_deltalake(twins.path, rows, partition_by=["at"])
    deltasql.write_deltalake(twins.uri, rows, partition_by=["at"])
    theirs, ours = deltalake.DeltaTable(twins.path), deltasql.DeltaTable(twins.uri)
    mirror = deltalake.DeltaTable(twins.location)
    known = sorted(each["at"] for each in theirs.partitions())
    for table in (ours, mirror):
        assert sorted(each["at"] for each in table.partitions()) == known
    assert counted(ours) == counted(ours._table.scan()) == [0, FIRST, FIRST + 1, FIRST + 1]
    assert counted(mirror._table.scan()) == counted(ours)
    mark = "Z" if zone else ""
    done = ours.delete(f"at = '2023-11-14T22:13:20.123456790{mark}'")
    assert (done["num_removed_files"], done["num_added_files"]) == (1, 0)
    assert counted(mirror._table.scan()) != counted(ours) == [0, FIRST]


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
def test_data_skipping_on_nanoseconds_skips_no_matching_file(
    twins: Twins, zone: str | None
) -> None:
    """Three files: one before 1970, one with two adjacent values, one up to the end of the type."""
    millisecond = 1_000_000
    files = [[-1, -1_000_001], [FIRST, FIRST + 1], [FIRST + 2 * millisecond, 2**63 - 3]]
    for values in files:
        deltasql.write_deltalake(twins.uri, timestamp_rows(zone, *values), mode="append")
    table = deltasql.DeltaTable(twins.uri)
    every = sorted(value for values in files for value in values)
    for value in {near for each in every for near in (each - 1, each, each + 1)}:
        timestamp = pa.scalar(value, pa.timestamp("ns")).cast(pa.string()).as_py()
        text = timestamp.replace(" ", "T") + ("Z" if zone else "")
        for sign, kept in (
            ("<", [each for each in every if each < value]),
            ("<=", [each for each in every if each <= value]),
            ("=", [each for each in every if each == value]),
            (">=", [each for each in every if each >= value]),
            (">", [each for each in every if each > value]),
        ):
            found = counted(table._table.scan(predicate=f"at {sign} '{text}'"))
            assert found == kept, (sign, text)
            bound = pandas.Timestamp(value, tz=zone)
            assert counted(table.to_pyarrow_table(filters=[("at", sign, bound)])) == kept, text
            result = deltasql.QueryBuilder().register("t", table)
            where = f"SELECT at FROM t WHERE at {sign} '{text}'"
            assert counted(result.execute(where).read_all()) == kept, where
    pruned = table.file_uris(file_pruning_predicate="at > '2023-11-14T22:13:20.125456788Z'")
    assert len(pruned) == 1
    pruned = table.file_uris(file_pruning_predicate="at < '1970-01-01T00:00:00Z'")
    assert len(pruned) == 1


@pytest.mark.usefixtures("nanoseconds")
def test_statistics_match_deltalake_and_bound_all_values(twins: Twins) -> None:
    deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST, FIRST + 1))
    stats = json.loads(actions(twins)["add"]["stats"])
    assert stats["minValues"]["at"] == "2023-11-14T22:13:20.123Z"
    assert stats["maxValues"]["at"] == "2023-11-14T22:13:20.124Z"
    deltasql.write_deltalake(
        twins.uri, timestamp_rows("UTC", FIRST // 10**6 * 10**6), mode="append"
    )
    stats = json.loads(actions(twins, 1)["add"]["stats"])
    assert stats["maxValues"]["at"] == "2023-11-14T22:13:20.123Z"
    table = deltasql.DeltaTable(twins.uri)
    flat = pa.table(table.get_add_actions(flatten=True))
    stock = pa.table(deltalake.DeltaTable(twins.location).get_add_actions(flatten=True))
    assert flat.schema.field("min.at").type == stock.schema.field("min.at").type
    assert sorted(flat["max.at"].cast(pa.int64()).to_pylist()) == sorted(
        stock["max.at"].cast(pa.int64()).to_pylist()
    )


@pytest.mark.usefixtures("nanoseconds")
def test_deltalake_reads_checkpoint_with_nanosecond_struct_statistics(twins: Twins) -> None:
    wanted = {"delta.checkpoint.writeStatsAsStruct": "true"}
    deltasql.write_deltalake(twins.uri, timestamp_rows(None, FIRST), configuration=wanted)
    deltasql.DeltaTable(twins.uri).create_checkpoint()
    (checkpoint,) = [
        each
        for each in pq.read_table(f"{twins.location}/_delta_log/{0:020d}.checkpoint.parquet")["add"]
        if each.is_valid
    ]
    assert checkpoint["stats_parsed"]["minValues"]["at"].type == pa.timestamp("ns")
    assert counted(deltalake.DeltaTable(twins.location)) == [FIRST]


@pytest.mark.usefixtures("nanoseconds")
def test_microseconds_can_be_appended_to_nanoseconds(twins: Twins) -> None:
    assert twins.write(timestamp_rows("UTC", FIRST)) is None
    assert twins.write(timestamp_rows("UTC", FIRST // 1000, unit="us"), mode="append") is None
    twins.assert_alike()
    late = timestamp_rows("UTC", 253_370_764_800_000_000, unit="us")  # the year 9999
    assert isinstance(twins.write(late, mode="append"), DeltaError)
    assert counted(deltasql.DeltaTable(twins.uri)) == [FIRST // 1000 * 1000, FIRST]


def test_nanoseconds_that_lose_digits_in_microseconds_are_rejected(
    twins: Twins, nanoseconds: None
) -> None:
    deltalake._disable_nanosecond_timestamps()
    assert twins.write(timestamp_rows("UTC", FIRST)) is None
    deltasql.enable_nanosecond_timestamps()
    refused = twins.write(timestamp_rows("UTC", FIRST), mode="append")
    assert isinstance(refused, CommitFailedError)
    assert "please specify: TimestampNanos" in str(refused)
    with pytest.raises(TxnLogSchemaError, match=r"column: at"):
        deltasql.write_deltalake(
            twins.uri, timestamp_rows("UTC", FIRST), mode="append", schema_mode="merge"
        )
    with pytest.raises(TxnLogSchemaError, match="nanoseconds"):
        merge(twins.uri, timestamp_rows("UTC", FIRST))
    whole = FIRST // 1000 * 1000  # no digits are lost
    deltasql.write_deltalake(
        twins.uri, timestamp_rows("UTC", whole), mode="append", schema_mode="merge"
    )
    assert counted(deltasql.DeltaTable(twins.uri)) == [FIRST // 1000, FIRST // 1000]


@pytest.mark.usefixtures("nanoseconds")
def test_merge_schema_adds_nanosecond_columns(twins: Twins) -> None:
    assert twins.write(pa.table({"id": [1]})) is None
    assert twins.write(timestamp_rows("UTC", FIRST), mode="append", schema_mode="merge") is None
    twins.assert_alike()
    deltasql.DeltaTable(twins.uri).alter.add_columns([deltasql.Field("b", "timestamp_nanos_ntz")])
    more = timestamp_rows("UTC", FIRST).append_column("c", pa.array([FIRST], pa.timestamp("ns")))
    merge(twins.uri, more, merge_schema=True)
    mirror = deltalake.DeltaTable(twins.location)
    assert "timestampNanos" in (mirror.protocol().reader_features or ())
    assert mirror.to_pyarrow_table()["c"].cast(pa.int64()).to_pylist() == [FIRST, FIRST]
    deltasql.write_deltalake(
        twins.uri, timestamp_rows(None, FIRST), mode="overwrite", schema_mode="overwrite"
    )
    assert counted(deltalake.DeltaTable(twins.location)) == [FIRST]


def test_schema_with_nanoseconds_creates_nanosecond_table(twins: Twins) -> None:
    schema = deltasql.Schema([deltasql.Field("at", "timestamp_nanos")])
    deltalake.DeltaTable.create(twins.path, schema)
    deltasql.DeltaTable.create(twins.uri, schema)
    theirs, mirror = deltalake.DeltaTable(twins.path), deltalake.DeltaTable(twins.location)
    assert mirror.schema() == theirs.schema()
    assert set(mirror.protocol().reader_features or ()) == {"timestampNanos", "timestampNtz"}


@pytest.mark.usefixtures("nanoseconds")
def test_constraints_compare_nanoseconds(twins: Twins) -> None:
    deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST))
    table = deltasql.DeltaTable(twins.uri)
    table.alter.add_constraint({"early": "at < '2023-11-14T22:13:20.123456790Z'"})
    with pytest.raises(DeltaError):
        deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST + 1), mode="append")
    deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST), mode="append")
    assert counted(deltalake.DeltaTable(twins.location)) == [FIRST, FIRST]


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ZONES.values(), ids=ZONES)
@pytest.mark.parametrize("partition_by", [None, ["at"]], ids=["plain", "partitioned"])
def test_merge_skips_files_by_nanosecond_keys(
    twins: Twins, zone: str | None, partition_by: list[str] | None
) -> None:
    second = 10**9
    for value in (FIRST, FIRST + second):
        rows = timestamp_rows(zone, value)
        deltasql.write_deltalake(twins.uri, rows, mode="append", partition_by=partition_by)
    merger = deltasql.DeltaTable(twins.uri).merge(
        timestamp_rows(zone, FIRST, FIRST + 1), "t.at = s.at", source_alias="s", target_alias="t"
    )
    done = merger.when_matched_update({"id": "7"}).when_not_matched_insert_all().execute()
    assert done["num_target_files_skipped_during_scan"] == 1
    assert (done["num_target_rows_updated"], done["num_target_rows_inserted"]) == (1, 1)
    mirror = deltalake.DeltaTable(twins.location)._table.scan()
    assert counted(mirror) == [FIRST, FIRST + 1, FIRST + second]


WITHOUT_PANDAS = """
import sys
sys.modules["pandas"] = None
import deltasql, pyarrow as pa
deltasql.enable_nanosecond_timestamps()
table = deltasql.DeltaTable(sys.argv[1])
table.alter.add_constraint({"early": "at < '2023-11-14T22:13:20.123456790Z'"})
rows = pa.table({"id": [1], "at": pa.array([1_700_000_000_123_456_790], pa.timestamp("ns", "UTC"))})
try:
    deltasql.write_deltalake(sys.argv[1], rows, mode="append")
except deltasql.exceptions.TxnLogError as error:
    print(error)
table.delete("at = '2023-11-14T22:13:20.123456789Z'")
"""


@pytest.mark.usefixtures("nanoseconds")
def test_nanoseconds_work_without_pandas(twins: Twins) -> None:
    deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS, twins.uri],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "2023-11-14 22:13:20.123456790" in done.stdout
    assert counted(deltasql.DeltaTable(twins.uri)) == []


@pytest.mark.usefixtures("nanoseconds")
def test_optimize_and_queries_keep_nanoseconds(twins: Twins, sqlite_uri: DeltaSqlUri) -> None:
    for value in (FIRST + 1, FIRST):
        deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", value), mode="append")
    table = deltasql.DeltaTable(twins.uri)
    table.optimize.compact()
    table.optimize.z_order(["at"])
    assert counted(deltalake.DeltaTable(twins.location)) == [FIRST, FIRST + 1]
    with deltasql.connect(sqlite_uri) as catalog:
        result = catalog.query("SELECT max(at) AS at FROM sales").read_all()
    assert result.schema.field("at").type == pa.timestamp("ns")
    assert counted(result) == [FIRST + 1]


@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("int96", [False, True], ids=["INT64", "INT96"])
def test_converted_files_keep_nanoseconds(twins: Twins, tmp_path: Path, int96: bool) -> None:
    for place in ("ours", "stock"):
        (tmp_path / place).mkdir()
        pq.write_table(
            timestamp_rows(None, FIRST),
            tmp_path / place / "a.parquet",
            use_deprecated_int96_timestamps=int96,
        )
    deltalake.convert_to_deltalake(twins.path)
    deltasql.convert_to_deltalake(twins.uri)
    ours, mirror = deltasql.DeltaTable(twins.uri), deltalake.DeltaTable(twins.location)
    assert ours.schema() == mirror.schema() == deltalake.DeltaTable(twins.path).schema()
    assert counted(ours) == counted(ours._table.scan()) == counted(mirror) == [FIRST]


@pytest.mark.usefixtures("nanoseconds")
def test_duckdb_target_of_nanosecond_table_is_rejected(twins: Twins, tmp_path: Path) -> None:
    deltasql.write_deltalake(twins.uri, timestamp_rows("UTC", FIRST))
    catalog = twins.uri.partition("?")[0]
    with pytest.raises(deltasql.exceptions.TxnLogError, match="nanoseconds"):
        deltasql.mirror_duckdb(catalog, str(tmp_path / "views.duckdb"))


def merge(uri: str, rows: pa.Table, **options: Any) -> dict[str, Any]:
    """Merge rows by id."""
    merger = deltasql.DeltaTable(uri).merge(
        rows, "t.id = s.id", source_alias="s", target_alias="t", **options
    )
    return merger.when_matched_update_all().when_not_matched_insert_all().execute()
