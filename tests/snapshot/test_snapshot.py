"""A snapshot: selected by version or timestamp, with the state of that version, and cached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import BACKENDS, add_file, new_catalog_uri
from tests.selection import examples

import deltasql
from deltasql.exceptions import TxnLogTableNotFoundError, VersionNotFoundError
from deltasql.model.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltasql.model.clock import from_ms
from deltasql.model.schema.schema import StructField, StructType
from deltasql.snapshot.files import FileCache
from deltasql.snapshot.snapshot import Snapshot, Totals, open_snapshot

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64())])
WIDER = StructType((StructField("id", "long"), StructField("name", "string")))
TICK = timedelta(milliseconds=1)


def commit(catalog: Catalog, *actions: Any, table: str = "t") -> int:
    with catalog.begin() as tx:
        tx.stage_table(table, list(actions))
    return tx.versions[table]


@pytest.fixture
def table(catalog: Catalog) -> str:
    """A table: version 0 creates it, 1 and 2 add a file each, 3 removes the first."""
    catalog.create_table("t", SCHEMA)
    commit(catalog, add_file("a"))
    commit(catalog, add_file("b"))
    commit(catalog, RemoveFile("a"))
    return "t"


def paths(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.scan().paths())


# Selecting a version


@pytest.mark.every_database
def test_every_version_lists_its_own_files(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    listed = [paths(handle.snapshot(version)) for version in range(4)]
    assert listed == [[], ["a"], ["a", "b"], ["b"]]
    assert paths(handle.snapshot()) == ["b"]


@pytest.mark.parametrize("version", [4, 99, -1])
def test_error_names_unknown_version_and_the_latest(
    catalog: Catalog, table: str, version: int
) -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        catalog.table(table).snapshot(version)
    assert (caught.value.version, caught.value.latest) == (version, 3)


def test_timestamp_selects_the_version_at_that_time(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    for version in range(4):
        at = handle.snapshot(version).committed_at
        assert handle.snapshot(timestamp=at).version == version, "exactly at the commit"
        assert handle.snapshot(timestamp=at + TICK / 2).version == version
        if version:
            assert handle.snapshot(timestamp=at - TICK).version == version - 1
            assert handle.snapshot(timestamp=at - TICK / 2).version == version - 1
    assert handle.snapshot(timestamp=at + timedelta(days=9)).version == 3


def test_timestamp_without_zone_is_utc(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    naive = handle.snapshot(2).committed_at.replace(tzinfo=None)
    assert handle.snapshot(timestamp=naive).version == 2


def test_timestamp_before_the_first_commit_is_rejected(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    first = handle.snapshot(0).committed_at
    with pytest.raises(VersionNotFoundError, match=r"history\(\)"):
        handle.snapshot(timestamp=first - TICK)


def test_commit_timestamps_increase(catalog: Catalog, table: str) -> None:
    times = [row.committed_at_ms for row in catalog.table(table).history()]
    assert times == sorted(set(times), reverse=True)


def test_snapshot_of_a_dropped_table_is_rejected(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    catalog.drop(table)
    with pytest.raises(TxnLogTableNotFoundError):
        handle.snapshot()


# State of the table


def test_snapshot_has_schema_and_protocol_of_its_version(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    before = handle.snapshot()
    wider = replace(before.metadata, schema_string=WIDER.to_json(), description="wider")
    features = ("domainMetadata", "inCommitTimestamp")
    commit(catalog, wider, Protocol(1, 7, None, features))
    commit(catalog, add_file("c"))
    after = handle.snapshot()
    assert [field.name for field in after.schema.fields] == ["id", "name"]
    assert after.metadata.description == "wider"
    assert after.protocol.writer_features == features
    old = handle.snapshot(2)
    assert (old.metadata, old.protocol) == (before.metadata, before.protocol)
    assert [field.name for field in old.schema.fields] == ["id"]
    assert isinstance(old.metadata, Metadata)


def test_snapshot_has_transactions_and_domains_of_its_version(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA, properties={"delta.feature.domainMetadata": "supported"})
    commit(catalog, SetTransaction("etl", 1), DomainMetadata("d", "one"))
    commit(catalog, SetTransaction("etl", 2), SetTransaction("other", 7))
    commit(catalog, DomainMetadata("d", "", removed=True), DomainMetadata("e", "two"))
    handle = catalog.table("t")
    assert handle.snapshot(1).transaction_version("etl") == 1
    assert handle.snapshot(1).transaction_version("other") is None
    assert {k: t.version for k, t in handle.snapshot().transactions().items()} == {
        "etl": 2,
        "other": 7,
    }
    assert handle.snapshot(2).domains()["d"].configuration == "one"
    assert set(handle.snapshot().domains()) == {"e"}


def test_totals_count_live_files_only(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    assert handle.snapshot(0).totals() == Totals(0, 0, 0)
    assert handle.snapshot(2).totals() == Totals(2, 200, 20)
    assert handle.snapshot().totals() == Totals(1, 100, 10)
    commit(catalog, AddFile("no stats", {}, 5, 0))
    assert handle.snapshot().totals() == Totals(2, 105, None)


def test_totals_can_exceed_64_bits(catalog: Catalog, table: str) -> None:
    before = catalog.table(table).snapshot().totals()
    for number in range(4):
        stats = f'{{"numRecords":{2**62}}}'
        commit(catalog, AddFile(f"large {number}", {}, 2**62, 0, stats=stats))
    found = catalog.table(table).snapshot().totals()
    assert found.num_files == before.num_files + 4
    # SQLite returns sums outside its integer range as floats.
    assert found.size_bytes == pytest.approx(before.size_bytes + 4 * 2**62, rel=1e-15)
    assert found.num_records == pytest.approx(4 * 2**62, rel=1e-15)


def test_history_is_paged_latest_first(
    catalog: Catalog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltasql.snapshot.snapshot.HISTORY_PAGE", 3)
    for number in range(5):
        commit(catalog, add_file(str(number)))
    snapshot = catalog.table(table).snapshot()
    versions = [row.version for row in snapshot.history()]
    assert versions == list(range(8, -1, -1))
    assert [row.version for row in snapshot.history(2)] == [8, 7]
    assert [row.version for row in snapshot.history(4, before=5)] == [4, 3, 2, 1]
    assert list(snapshot.history(0)) == []
    assert [row.version for row in catalog.table(table).snapshot(1).history()] == [1, 0]


# The catalog at a timestamp


def test_catalog_as_of_shows_multi_table_commits_atomically(catalog: Catalog) -> None:
    for name in ("x", "y"):
        catalog.create_table(name, SCHEMA)
    timestamps: list[datetime] = []
    for number in range(3):
        with catalog.begin() as tx:
            for name in ("x", "y"):
                tx.stage_table(name, [add_file(str(number))])
        timestamps.append(catalog.table("x").snapshot().committed_at)
    for number, timestamp in enumerate(timestamps):
        at, before = catalog.as_of(timestamp), catalog.as_of(timestamp - TICK)
        assert {name: snapshot.version for name, snapshot in at.items()} == dict.fromkeys(
            "xy", number + 1
        )
        assert {name: snapshot.version for name, snapshot in before.items()} == dict.fromkeys(
            "xy", number
        )
        assert paths(at["x"]) == paths(at["y"]) == [str(n) for n in range(number + 1)]
        assert at["x"].schema == catalog.table("x").snapshot().schema


def test_catalog_as_of_omits_later_and_dropped_tables(catalog: Catalog) -> None:
    catalog.create_table("early", SCHEMA)
    first = catalog.table("early").snapshot().committed_at
    while datetime.now(UTC) <= first + TICK:  # timestamps have millisecond precision
        pass
    catalog.create_table("crm.late", SCHEMA)
    second = catalog.table("crm.late").snapshot().committed_at
    while datetime.now(UTC) <= second + TICK:
        pass
    catalog.drop("early")
    dropped = from_ms(catalog.dropped()[0].dropped_at_ms or 0)
    assert set(catalog.as_of(first)) == {"early"}
    assert set(catalog.as_of(second)) == {"early", "crm.late"}
    assert set(catalog.as_of(dropped)) == {"crm.late"}
    assert catalog.as_of(first - timedelta(days=1)) == {}


# The cache


def fresh(catalog: Catalog, version: int | None = None, name: str = "t") -> Snapshot:
    """Return a snapshot with an empty cache: the content of the database."""
    row = catalog.table(name).row
    return open_snapshot(catalog.store, row, FileCache(2**30, 10), version=version)


def cached_versions(cache: FileCache) -> list[tuple[int, int]]:
    return [(key[0], entry.version) for key, entry in cache._entries.items()]


def test_cached_read_returns_the_same_table(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    assert handle.files() is handle.files()
    assert handle.files().equals(fresh(catalog).files())


def test_new_head_refreshes_the_cache_entry(catalog: Catalog, table: str) -> None:
    handle = catalog.table(table)
    before = handle.files()
    commit(catalog, add_file("c"))
    after = handle.files()
    assert (before["path"].to_pylist(), after["path"].to_pylist()) == (["b"], ["b", "c"])
    assert [version for _, version in cached_versions(catalog.cache)] == [4]


def test_listing_from_the_cached_files_equals_a_listing_from_the_database(
    catalog: Catalog, table: str
) -> None:
    snapshot = catalog.table(table).snapshot()
    cold = fresh(catalog)
    brief, to_read = cold.file_paths(), cold.files_to_read()
    snapshot.files()
    assert snapshot.file_paths().equals(brief)
    assert snapshot.files_to_read().equals(to_read)
    assert len(cached_versions(catalog.cache)) == 1


def test_older_version_does_not_evict_a_newer_version_from_the_cache(
    catalog: Catalog, table: str
) -> None:
    handle = catalog.table(table)
    newest = handle.files()
    assert handle.files(1)["path"].to_pylist() == ["a"]
    assert handle.files() is newest


def test_cache_evicts_the_least_recently_used_table(catalog: Catalog) -> None:
    cache = FileCache(2**30, max_entries=2)
    rows = [catalog.create_table(name, SCHEMA).row for name in ("x", "y", "z")]
    x, y, z = (open_snapshot(catalog.store, row, cache) for row in rows)
    for snapshot in (x, y, x, z):
        snapshot.files()
    assert [table_id for table_id, _ in cached_versions(cache)] == [
        x.table.table_id,
        z.table.table_id,
    ]


def test_cache_stays_within_its_size_limit(catalog: Catalog, table: str) -> None:
    size = fresh(catalog).files().nbytes
    none, enough = FileCache(size - 1, 10), FileCache(size, 10)
    row = catalog.table(table).row
    for cache in (none, enough):
        assert open_snapshot(catalog.store, row, cache).files().num_rows == 1
    assert (len(cached_versions(none)), len(cached_versions(enough))) == (0, 1)


@pytest.fixture(scope="module", params=BACKENDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalog]:
    folder: Path = tmp_path_factory.mktemp("cache")
    for uri in new_catalog_uri(request.param, folder):
        with deltasql.connect(
            uri, create=True, mirror={"mode": "off"}, table={"data_root": str(folder)}
        ) as catalog:
            yield catalog


steps = st.lists(
    st.tuples(
        st.integers(0, 3),  # number of added files
        st.lists(st.integers(0, 20), max_size=3),  # which live files to remove
        st.sampled_from([Snapshot.files, Snapshot.file_paths, Snapshot.files_to_read, None]),
    ),
    min_size=1,
    max_size=8,
)
_numbers = iter(range(10**9))


@given(steps)
@settings(
    max_examples=examples(15),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_incremental_cache_refresh_equals_a_cold_read(shared: Catalog, steps: list[Any]) -> None:
    name = f"t{next(_numbers)}"
    handle = shared.create_table(name, SCHEMA)
    live: list[str] = []
    for added, chosen, read in steps:
        gone = {live[index % len(live)] for index in chosen} if live else set()
        new = [f"f{next(_numbers)}" for _ in range(added)]
        actions = [*map(add_file, new), *map(RemoveFile, gone)]
        if actions:
            commit(shared, *actions, table=name)
        live = [path for path in live if path not in gone] + new
        if read is not None:
            snapshot, cold = handle.snapshot(), fresh(shared, name=name)
            assert read(snapshot).combine_chunks().equals(read(cold).combine_chunks())
            assert sorted(read(snapshot)["path"].to_pylist()) == sorted(live)
