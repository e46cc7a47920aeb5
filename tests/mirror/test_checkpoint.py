"""A checkpoint has the state that SQL has at its version, on every database."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import deltasql
from deltasql import DomainMetadata, SetTransaction
from deltasql.config import Config
from deltasql.exceptions import TxnLogMirrorError, VersionNotFoundError
from deltasql.mirror.checkpoint import source as checkpoint_source
from deltasql.mirror.log.last_checkpoint import checkpoint_file, json_checksum
from deltasql.mirror.log.listing import LAST_CHECKPOINT
from deltasql.mirror.publish.write_commit import is_due
from deltasql.model.clock import now_ms
from deltasql.phases import hooked
from tests.conftest import add_file
from tests.mirror.checkpoint_support import (
    Replay,
    actions_in,
    checkpoint,
    compact,
    table_row,
    table_storage,
)
from tests.mirror.random_commits import (
    DAY_MS,
    FEATURES,
    PARTITIONS,
    SCHEMA,
    actions_of,
    removal,
    steps,
)
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql import Catalog
    from deltasql.mirror.log.last_checkpoint import CheckpointInfo

pytestmark = pytest.mark.two_databases

EXAMPLES = {"sqlite": 25, "postgres": 10, "duckdb": 5}


def create(catalog: Catalog, name: str = "t", **properties: str) -> None:
    """Create a table with one column; each keyword is a table property."""
    named = {f"delta.{key.replace('_', '.')}": value for key, value in properties.items()}
    catalog.create_table(name, pa.schema([("id", pa.int64())]), properties=named or None)


def commit(catalog: Catalog, *actions: Any, table: str = "t") -> int:
    """Commit actions to one table."""
    with catalog.begin() as tx:
        tx.stage_table(table, list(actions))
    return tx.versions[table]


@pytest.mark.every_database
def test_checkpoint_equals_a_replay_of_all_commits(catalog: Catalog, backend: str) -> None:
    number = 0

    @settings(
        max_examples=examples(EXAMPLES[backend]),
        deadline=None,
        phases=[Phase.generate],  # shrinking a failure takes minutes on a real database
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(steps=steps)
    def check(steps: list[dict[str, Any]]) -> None:
        nonlocal number
        number += 1
        name = f"t{number}"
        catalog.create_table(name, SCHEMA, partition_by=list(PARTITIONS), properties=FEATURES)
        replay = Replay()
        for step in steps:
            actions = actions_of(step, replay)
            if actions:
                commit(catalog, *actions, table=name)
                replay.commit(actions)
        info = checkpoint(catalog, name)
        found = actions_in(table_row(catalog, name).location, info.version)
        expected = replay.expected(deleted_after_ms=now_ms() - 7 * DAY_MS)
        for kind, bodies in expected.items():
            assert in_order(map(compact, found[kind])) == in_order(bodies)
        assert info.size == 2 + sum(map(len, expected.values()))
        assert info.num_of_add_files == len(expected["add"])

    check()


def in_order(bodies: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort action bodies by their JSON."""
    return sorted(bodies, key=lambda body: json.dumps(body, sort_keys=True))


def test_checkpoint_has_protocol_and_metadata_of_its_version(catalog: Catalog) -> None:
    create(catalog)
    commit(catalog, add_file("a"))
    before = catalog.table("t").snapshot().metadata
    later = {**before.configuration, "owner": 'é "it\'s"'}
    commit(catalog, replace(before, description="later", configuration=later))
    location = table_row(catalog).location
    checkpoint(catalog, version=1)
    checkpoint(catalog, version=2)
    (old,) = actions_in(location, 1)["metaData"]
    (new,) = actions_in(location, 2)["metaData"]
    assert compact(old) == before.body()
    assert (new["description"], new["configuration"]) == ("later", later)
    (protocol,) = actions_in(location, 2)["protocol"]
    assert compact(protocol) == catalog.table("t").snapshot().protocol.body()


def test_checkpoint_of_an_older_version_has_its_state(catalog: Catalog) -> None:
    create(catalog)
    first, second = add_file("a"), add_file("b")
    commit(catalog, first, SetTransaction("etl", 1))
    commit(catalog, second, removal(first), SetTransaction("etl", 2))
    commit(catalog, removal(second), first)
    location = table_row(catalog).location
    for version, live, dead, number in (
        (1, ["a"], [], 1),
        (2, ["b"], ["a"], 2),
        (3, ["a"], ["b"], 2),
    ):
        info = checkpoint(catalog, version=version)
        found = actions_in(location, version)
        assert [add["path"] for add in found["add"]] == live
        assert [remove["path"] for remove in found["remove"]] == dead
        assert [txn["version"] for txn in found["txn"]] == [number]
        assert (info.num_of_add_files, info.size) == (len(live), 3 + len(live) + len(dead))


def test_checkpoint_omits_expired_tombstones(catalog: Catalog) -> None:
    create(catalog, deletedFileRetentionDuration="interval 2 days")
    old, young = add_file("old"), add_file("young")
    commit(catalog, old, young)
    commit(catalog, removal(old, 3), removal(young, 1))
    found = actions_in(table_row(catalog).location, checkpoint(catalog).version)
    assert [remove["path"] for remove in found["remove"]] == ["young"]


def test_checkpoint_omits_expired_application_transactions(
    catalog: Catalog,
) -> None:
    create(catalog, setTransactionRetentionDuration="interval 1 day")
    now = now_ms()
    commit(
        catalog,
        SetTransaction("old", 1, now - 2 * DAY_MS),
        SetTransaction("young", 1, now),
        SetTransaction("timeless", 1),
    )
    found = actions_in(table_row(catalog).location, checkpoint(catalog).version)
    assert sorted(txn["appId"] for txn in found["txn"]) == ["timeless", "young"]


def test_checkpoint_omits_removed_domains(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA, properties=FEATURES)
    commit(catalog, DomainMetadata("kept", "{}"), DomainMetadata("gone", "{}"))
    commit(catalog, DomainMetadata("gone", "", removed=True))
    found = actions_in(table_row(catalog).location, checkpoint(catalog).version)
    assert found["domainMetadata"] == [{"domain": "kept", "configuration": "{}", "removed": False}]


def test_many_files_are_written_in_several_row_groups(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_source, "FILES_PER_READ", 1000)
    monkeypatch.setattr("deltasql.mirror.checkpoint.write.FILES_PER_READ", 1000)
    create(catalog)
    adds = [add_file(f"{number:05}") for number in range(10_000)]
    commit(catalog, *adds)
    commit(catalog, *(removal(add) for add in adds[:5_500]))
    info = checkpoint(catalog)
    path = Path(table_row(catalog).location) / checkpoint_file(info.version)
    found = actions_in(table_row(catalog).location, info.version)
    assert [add["path"] for add in found["add"]] == [add.path for add in adds[5_500:]]
    assert [remove["path"] for remove in found["remove"]] == [add.path for add in adds[:5_500]]
    assert 8 <= pq.read_metadata(path).num_row_groups <= 11
    assert info == replace(info, size=10_002, size_in_bytes=path.stat().st_size)


def test_last_checkpoint_hint_never_moves_back(catalog: Catalog) -> None:
    create(catalog)
    for number in range(3):
        commit(catalog, add_file(str(number)))
    storage = table_storage(catalog)
    info = checkpoint(catalog, version=2)
    hint = json.loads(storage.read(LAST_CHECKPOINT))
    assert hint == {
        "version": 2,
        "size": 4,
        "sizeInBytes": info.size_in_bytes,
        "numOfAddFiles": 2,
        "checksum": json_checksum(hint),
    }
    checkpoint(catalog, version=1)
    assert json.loads(storage.read(LAST_CHECKPOINT)) == hint
    checkpoint(catalog, version=3)
    assert json.loads(storage.read(LAST_CHECKPOINT))["version"] == 3


def test_concurrent_writers_of_one_checkpoint_agree(catalog: Catalog) -> None:
    create(catalog)
    commit(catalog, *(add_file(f"{number:03}") for number in range(300)))
    barrier = threading.Barrier(3)

    def write(_: int) -> CheckpointInfo:
        barrier.wait()
        return checkpoint(catalog)

    with ThreadPoolExecutor(3) as pool:
        infos = set(pool.map(write, range(3)))
    assert len(infos) == 1
    location = table_row(catalog).location
    assert len(actions_in(location, 1)["add"]) == 300
    names = [file.name for file in table_storage(catalog).list("_delta_log/")]
    assert names == [checkpoint_file(1), LAST_CHECKPOINT]


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"version":"x"}'])
def test_checkpoint_replaces_a_damaged_hint(catalog: Catalog, damage: bytes) -> None:
    create(catalog)
    commit(catalog, add_file("a"))
    storage = table_storage(catalog)
    storage.put(LAST_CHECKPOINT, damage)
    checkpoint(catalog)
    assert json.loads(storage.read(LAST_CHECKPOINT))["version"] == 1


def test_hint_is_not_written_when_the_process_fails_before_it(catalog: Catalog) -> None:
    create(catalog)
    commit(catalog, add_file("a"))

    def fail(phase: str) -> None:
        if phase == "checkpointed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hooked(fail):
        checkpoint(catalog)
    storage = table_storage(catalog)
    assert storage.exists(checkpoint_file(1))
    assert not storage.exists(LAST_CHECKPOINT)
    checkpoint(catalog)
    assert storage.exists(LAST_CHECKPOINT)


def test_number_too_large_for_a_checkpoint_is_rejected(
    catalog: Catalog,
) -> None:
    catalog.create_table("t", pa.schema([("id", pa.int64())]), properties=FEATURES)
    vector = deltasql.DeletionVector("i", "x", size_in_bytes=2**40, cardinality=1)
    commit(catalog, add_file("a", deletion_vector=vector))
    with pytest.raises(TxnLogMirrorError, match=r"checkpoint of version \d+ cannot be written"):
        checkpoint(catalog)
    assert list(table_storage(catalog).list("_delta_log/")) == []


def test_checkpoint_of_unknown_version_is_rejected(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(VersionNotFoundError):
        checkpoint(catalog, version=7)


def test_checkpoint_interval_of_the_table_overrides_the_configuration(catalog: Catalog) -> None:
    config = catalog.config
    assert [v for v in range(1001) if is_due({}, v, config)][:2] == [
        config.mirror.checkpoint_interval,
        2 * config.mirror.checkpoint_interval,
    ]
    own = {"delta.checkpointInterval": "3"}
    assert [v for v in range(10) if is_due(own, v, config)] == [3, 6, 9]


def test_checkpoint_interval_counts_commits_as_deltalake_does(catalog: Catalog) -> None:
    def due(configuration: dict[str, str], config: Config) -> list[int]:
        versions = range(300)
        return [v for v in versions if is_due(configuration, v, config, counts_commits=True)][:2]

    chosen = Config(mirror={"checkpoint_interval": 7})
    assert due({}, catalog.config) == [99, 199]
    assert due({}, chosen) == [7, 14]
    assert due({"delta.checkpointInterval": "3"}, chosen) == [2, 5]
