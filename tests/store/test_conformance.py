"""Every field of every action is the same after stage, commit and read, on each database."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import strategies as some
from tests.conftest import BACKENDS, new_catalog_uri
from tests.selection import examples

import deltasql
from deltasql import _core
from deltasql.commit.committer import ENGINE_INFO
from deltasql.exceptions import StoreUnavailableError, TxnLogStoreError
from deltasql.mirror.log.encode import commit_actions, commit_bytes
from deltasql.model.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltasql.model.schema.column_mapping import with_column_mapping
from deltasql.model.schema.schema import StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog

EXAMPLES = settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
_numbers = itertools.count()


@dataclass(frozen=True)
class Lake:
    """A table with every table feature, in one database for all examples."""

    catalog: Catalog
    name: str

    def commit(self, actions: list[Action]) -> int:
        with self.catalog.begin() as tx:
            tx.stage_table(self.name, actions)
        return tx.versions[self.name]

    def read(self, version: int) -> list[Action]:
        table_id = self.catalog.resolve(self.name).table_id
        with self.catalog.store.session() as session:
            actions = commit_actions(session, table_id, version)
            data = commit_bytes(session, table_id, version)
        again = _core.parse_commit(data).actions()
        assert sorted(map(repr, again)) == sorted(map(repr, actions))
        return actions


@pytest.fixture(scope="module", params=BACKENDS)
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    for uri in new_catalog_uri(request.param, folder):
        with deltasql.connect(
            uri, mirror={"mode": "off"}, table={"data_root": str(folder)}
        ) as catalog:
            features = {f"delta.feature.{name}": "supported" for name in some.FEATURES}
            schema, properties = with_column_mapping(some.SCHEMA, features)
            catalog.create_table("t", schema, partition_by=some.PARTITIONS, properties=properties)
            yield Lake(catalog, "t")


def of(kind: type[Action], actions: list[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def unlike(actions: list[Any]) -> list[Any]:
    """Return the same files under unique paths."""
    return [replace(each, path=f"{next(_numbers)}/{each.path}") for each in actions]


def _as_listed(add: AddFile) -> AddFile:
    return replace(
        add, stats=add.stats or None, clustering_provider=add.clustering_provider or None
    )


def by_path(actions: list[Any]) -> list[Any]:
    return sorted(actions, key=lambda action: action.path)


@given(st.lists(some.adds, min_size=1, max_size=4).map(unlike))
@EXAMPLES
def test_added_files_keep_every_field(lake: Lake, adds: list[AddFile]) -> None:
    version = lake.commit([*adds])
    assert by_path(of(AddFile, lake.read(version))) == by_path(adds)
    # A file list does not distinguish an empty string from a missing one.
    listed = [file.to_action() for file in lake.catalog.table(lake.name).scan().files]
    paths = {add.path for add in adds}
    assert by_path([a for a in listed if a.path in paths]) == by_path(
        [_as_listed(add) for add in adds]
    )


@given(
    st.lists(some.removes, min_size=1, max_size=3).map(unlike),
    st.lists(some.maybe(some.deletion_vectors), min_size=3, max_size=3),
)
@EXAMPLES
def test_removed_files_keep_every_field(
    lake: Lake, removes: list[RemoveFile], vectors: list[Any]
) -> None:
    gone = [replace(r, deletion_vector=v) for r, v in zip(removes, vectors, strict=False)]
    partition = dict.fromkeys(some.PARTITIONS, "x")
    lake.commit([AddFile(r.path, partition, 1, 1, deletion_vector=r.deletion_vector) for r in gone])
    version = lake.commit([*gone])
    found = lake.read(version)
    committed_at = of(CommitInfo, found)[0].timestamp
    filled = [
        replace(r, deletion_timestamp=committed_at) if r.deletion_timestamp is None else r
        for r in gone
    ]
    assert of(RemoveFile, found) == filled
    live = set(lake.catalog.table(lake.name).scan().paths())
    assert live.isdisjoint(r.path for r in gone)


@given(
    st.lists(some.cdc_files, max_size=3),
    st.lists(some.transactions, max_size=3, unique_by=lambda txn: txn.app_id),
    st.lists(some.domains, max_size=3, unique_by=lambda domain: domain.domain),
)
@EXAMPLES
def test_cdc_txn_and_domain_actions_keep_every_field(
    lake: Lake,
    cdc: list[AddCdcFile],
    txns: list[SetTransaction],
    domains: list[DomainMetadata],
) -> None:
    found = lake.read(lake.commit([CommitInfo(operation="TEST"), *cdc, *txns, *domains]))
    assert of(AddCdcFile, found) == cdc
    assert {txn.app_id: txn for txn in of(SetTransaction, found)} == {t.app_id: t for t in txns}
    assert {d.domain: d for d in of(DomainMetadata, found)} == {d.domain: d for d in domains}


@given(some.commit_infos)
@EXAMPLES
def test_commit_info_keeps_the_fields_of_the_writer(lake: Lake, info: CommitInfo) -> None:
    version = lake.commit([info, SetTransaction("app", 1)])
    found = of(CommitInfo, lake.read(version))
    wanted = replace(
        info,
        operation=info.operation or "WRITE",
        operation_parameters=info.operation_parameters or {},
        engine_info=info.engine_info or ENGINE_INFO,
        # Fields that the commit sets itself.
        timestamp=found[0].timestamp,
        in_commit_timestamp=found[0].in_commit_timestamp,
        isolation_level="WriteSerializable",
        is_blind_append=False,
        read_version=version - 1,
        txn_id=found[0].txn_id,
    )
    assert found == [wanted]
    assert found[0].timestamp == found[0].in_commit_timestamp is not None


@given(
    name=some.maybe(some.texts),
    description=some.maybe(some.texts),
    configuration=st.dictionaries(some.texts.map(lambda key: f"my.{key}"), some.texts, max_size=3),
    table_format=some.formats,
    created_time=some.maybe(some.ints),
    extra=some.extras,
)
@EXAMPLES
def test_metadata_keeps_every_field(
    lake: Lake, configuration: dict[str, str], table_format: Any, **fields: Any
) -> None:
    before = lake.catalog.table(lake.name).snapshot().metadata
    kept = {k: v for k, v in before.configuration.items() if k.startswith("delta.")}
    metadata = replace(before, configuration=kept | configuration, format=table_format, **fields)
    version = lake.commit([metadata])
    assert of(Metadata, lake.read(version)) == [metadata]
    assert lake.catalog.table(lake.name).snapshot(version).metadata == metadata


@given(
    st.sets(st.sampled_from(["timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"])), some.extras
)
@EXAMPLES
def test_protocol_keeps_every_field(lake: Lake, more: set[str], extra: dict[str, Any]) -> None:
    readers = ("deletionVectors", "columnMapping", *sorted(more))
    writers = (*readers, "domainMetadata", "inCommitTimestamp", "changeDataFeed")
    protocol = Protocol(3, 7, readers, writers, extra=extra)
    version = lake.commit([protocol])
    assert of(Protocol, lake.read(version)) == [protocol]
    assert lake.catalog.table(lake.name).snapshot(version).protocol == protocol


def test_commit_with_an_unsupported_value_fails_as_a_whole(lake: Lake) -> None:
    before = lake.catalog.table(lake.name).version()
    bad = [SetTransaction("ok", 1), SetTransaction("nul \0 in a name", 1)]
    if lake.catalog.store.dialect.name != "postgres":
        assert of(SetTransaction, lake.read(lake.commit([*bad]))) == sorted(
            bad, key=lambda txn: txn.app_id
        )
        return
    with pytest.raises(TxnLogStoreError, match="NUL") as caught:
        lake.commit([*bad])
    assert not isinstance(caught.value, StoreUnavailableError)
    assert lake.catalog.table(lake.name).version() == before


def test_protocol_without_table_features_has_no_feature_lists(lake: Lake) -> None:
    catalog = lake.catalog
    name = f"plain_{next(_numbers)}"
    created = catalog.create_table(
        name, SCHEMA_PLAIN, properties={"delta.enableInCommitTimestamps": "false"}
    )
    assert created.snapshot().protocol == Protocol(1, 2)
    found = replace(lake, name=name).read(0)
    assert of(Protocol, found) == [Protocol(1, 2)]
    assert of(CommitInfo, found)[0].in_commit_timestamp is None


SCHEMA_PLAIN = StructType((StructField("id", "long"),))
