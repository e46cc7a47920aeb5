"""A version checksum equals the state in SQL, however it was computed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import deltasql
import deltasql.mirror.checkpoint.checksum as checksum_module
from deltasql import DomainMetadata, RemoveFile, SetTransaction
from deltasql.mirror.checkpoint.checksum import LONGEST_LIST, checksum_file, write_checksum
from deltasql.mirror.log.encode import commit_file
from deltasql.store.store import Store
from tests.conftest import add_file
from tests.mirror.checkpoint_support import Replay, table_row, table_storage
from tests.mirror.random_commits import FEATURES, PARTITIONS, SCHEMA, actions_of, steps
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

EXAMPLES = {"sqlite": 20, "postgres": 8, "duckdb": 4}


@pytest.fixture
def mirrored(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that publishes every commit with its checksum."""
    with deltasql.connect(catalog_uri, table={"data_root": str(tmp_path / "lake")}) as catalog:
        yield catalog


def commit(catalog: Catalog, *actions: Any, table: str = "t") -> int:
    """Commit actions to one table."""
    with catalog.begin() as tx:
        tx.stage_table(table, list(actions))
    return tx.versions[table]


def create(catalog: Catalog, **properties: str) -> None:
    """Create a table with one column."""
    catalog.create_table("t", pa.schema([("id", pa.int64())]), properties=properties or None)


def checksum(catalog: Catalog, version: int, table: str = "t") -> dict[str, Any]:
    """Return the published checksum."""
    body: dict[str, Any] = json.loads(table_storage(catalog, table).read(checksum_file(version)))
    return body


def checksum_from_sql(catalog: Catalog, version: int, table: str = "t") -> dict[str, Any]:
    """Compute the checksum from the snapshot in SQL."""
    snapshot = catalog.table(table).snapshot(version)
    sizes = snapshot.files()["size"].to_pylist()
    info = next(snapshot.history(1)).info
    body: dict[str, Any] = {
        "txnId": info.txn_id,
        "tableSizeBytes": sum(sizes),
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "inCommitTimestampOpt": info.in_commit_timestamp,
        "setTransactions": sorted((t.body() for t in snapshot.transactions().values()), key=repr),
        "domainMetadata": sorted((d.body() for d in snapshot.domains().values()), key=repr),
        "metadata": snapshot.metadata.body(),
        "protocol": snapshot.protocol.body(),
    }
    return json.loads(json.dumps(body))  # type: ignore[no-any-return]


def in_order(body: dict[str, Any]) -> dict[str, Any]:
    """Sort the lists, whose order does not matter."""
    lists = ("setTransactions", "domainMetadata")
    return body | {name: sorted(body[name], key=repr) for name in lists}


def test_checksum_of_every_version_equals_sql(mirrored: Catalog, backend: str) -> None:
    number = 0

    @settings(
        max_examples=examples(EXAMPLES[backend]),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(steps=steps)
    def check(steps: list[dict[str, Any]]) -> None:
        nonlocal number
        number += 1
        name = f"t{number}"
        mirrored.create_table(name, SCHEMA, partition_by=list(PARTITIONS), properties=FEATURES)
        replay, versions = Replay(), [0]
        for step in steps:
            if actions := actions_of(step, replay):
                versions.append(commit(mirrored, *actions, table=name))
                replay.commit(actions)
        for version in versions:
            found = checksum(mirrored, version, name)
            assert in_order(found) == in_order(checksum_from_sql(mirrored, version, name))
        assert found["numFiles"] == len(replay.adds)
        assert found["tableSizeBytes"] == sum(add.size for add in replay.adds.values())

    check()


def test_every_way_to_compute_a_checksum_agrees(
    mirrored: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(mirrored, **FEATURES)
    commit(mirrored, add_file("a", size=7), SetTransaction("etl", 1))
    commit(mirrored, add_file("b", size=5), DomainMetadata("d", "{}"))
    commit(mirrored, RemoveFile("a"), SetTransaction("etl", 2), SetTransaction("job", 1))
    last = commit(mirrored, add_file("c", size=3), RemoveFile("b"), SetTransaction("job", 2))
    table, storage = table_row(mirrored), table_storage(mirrored)
    remembered = storage.read(checksum_file(last))

    def written_by_a_new_process(data: bytes | None = None) -> bytes:
        storage.delete(checksum_file(last))
        write_checksum(Store(mirrored.store.dialect, mirrored.uri), table, storage, last, data)
        return storage.read(checksum_file(last))

    assert written_by_a_new_process() == remembered  # from the previous checksum
    for version in range(last):
        storage.delete(checksum_file(version))
    assert written_by_a_new_process() == remembered  # from SQL
    monkeypatch.setattr(checksum_module, "LONGEST_PARSE", 0)
    assert written_by_a_new_process() == remembered  # with the files counted by SQL
    lines = storage.read(commit_file(last)).splitlines()
    assert written_by_a_new_process(b"\n".join(reversed(lines))) == remembered
    assert in_order(json.loads(remembered)) == in_order(checksum_from_sql(mirrored, last))


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"txnId":"other","numFiles":99}'])
def test_checksum_ignores_a_wrong_previous_checksum(mirrored: Catalog, damage: bytes) -> None:
    create(mirrored)
    commit(mirrored, add_file("a"))
    last = commit(mirrored, add_file("b"))
    storage = table_storage(mirrored)
    for version in (last - 1, last):
        storage.put(checksum_file(version), damage)
    write_checksum(Store(mirrored.store.dialect, mirrored.uri), table_row(mirrored), storage, last)
    assert in_order(checksum(mirrored, last)) == in_order(checksum_from_sql(mirrored, last))


def test_file_added_while_live_counts_once(mirrored: Catalog) -> None:
    create(mirrored)
    commit(mirrored, add_file("a", size=7))
    last = commit(mirrored, add_file("a", size=9))
    assert checksum(mirrored, last)["numFiles"] == 1
    assert checksum(mirrored, last)["tableSizeBytes"] == 9


def test_removal_without_size_subtracts_the_size_of_the_file(mirrored: Catalog) -> None:
    create(mirrored)
    commit(mirrored, add_file("a", size=7), add_file("b", size=5))
    last = commit(mirrored, RemoveFile("a"))
    assert checksum(mirrored, last)["tableSizeBytes"] == 5


def test_checksum_has_metadata_of_its_version(mirrored: Catalog) -> None:
    create(mirrored)
    before = mirrored.table("t").snapshot().metadata
    first = commit(mirrored, add_file("a"))
    second = commit(mirrored, replace(before, description="later"))
    third = commit(mirrored, add_file("b"))
    descriptions = [
        checksum(mirrored, v)["metadata"].get("description") for v in (first, second, third)
    ]
    assert descriptions == [None, "later", "later"]


def test_checksum_omits_a_long_list_of_transactions(mirrored: Catalog) -> None:
    create(mirrored)
    for number in range(3):
        step = (LONGEST_LIST + 1) // 2
        ids = range(number * step, (number + 1) * step)
        last = commit(mirrored, *(SetTransaction(f"app{each}", 1) for each in ids))
    assert len(checksum(mirrored, 2)["setTransactions"]) == LONGEST_LIST
    assert "setTransactions" not in checksum(mirrored, last)
    assert checksum(mirrored, last)["domainMetadata"] == []


def test_checksum_omits_transactions_that_can_expire(mirrored: Catalog) -> None:
    create(mirrored, **{"delta.setTransactionRetentionDuration": "interval 1 day"})
    last = commit(mirrored, SetTransaction("etl", 1))
    assert "setTransactions" not in checksum(mirrored, last)


def test_checksum_without_in_commit_timestamps_has_none(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    settings = {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}
    with deltasql.connect(catalog_uri, table=settings) as plain:
        create(plain)
        last = commit(plain, add_file("a"))
        assert "inCommitTimestampOpt" not in checksum(plain, last)


def test_checksum_reads_the_commit_file_if_it_is_not_passed(mirrored: Catalog) -> None:
    create(mirrored)
    last = commit(mirrored, add_file("a"))
    storage, table = table_storage(mirrored), table_row(mirrored)
    kept = storage.read(checksum_file(last))
    storage.delete(checksum_file(last))
    other = Store(mirrored.store.dialect, mirrored.uri)
    write_checksum(other, table, storage, last, storage.read(commit_file(last)))
    assert storage.read(checksum_file(last)) == kept
    write_checksum(other, table, storage, last)
    assert storage.read(checksum_file(last)) == kept
