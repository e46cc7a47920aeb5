"""A commit is encoded to the same bytes from memory and from SQL, alone and with other commits."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.mirror.log.encode import commit_bytes, commits_between, encode_commit
from deltasql.model.actions import Action, AddFile, CommitInfo, Protocol, RemoveFile
from deltasql.model.schema.column_mapping import with_column_mapping
from tests import strategies as some
from tests.conftest import BACKENDS, new_catalog_uri
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.commit.ratified import Ratified

pytestmark = pytest.mark.two_databases

EXAMPLES = settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
_numbers = itertools.count()


@dataclass(frozen=True)
class Lake:
    """A catalog that records ratified commits instead of publishing them."""

    catalog: Catalog
    ratified: list[Ratified]

    def commit(self, *actions: Action, table: str = "t") -> Ratified:
        with self.catalog.begin() as tx:
            tx.stage_table(table, list(actions))
        return self.ratified[-1]

    def read_back(self, done: Ratified) -> bytes:
        with self.catalog.store.session() as session:
            return commit_bytes(session, done.table.table_id, done.version)

    def check(self, *actions: Action, table: str = "t") -> bytes:
        done = self.commit(*actions, table=table)
        assert done.commit is not None
        data = encode_commit(done.commit)
        assert data == self.read_back(done)
        return data


@pytest.fixture(scope="module", params=BACKENDS)
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    for uri in new_catalog_uri(request.param, folder):
        with deltasql.connect(
            uri, mirror={"mode": "off"}, table={"data_root": str(folder)}
        ) as catalog:
            ratified: list[Ratified] = []

            def record(done: Any, _: object, into: list[Ratified] = ratified) -> None:
                into.extend(done)

            catalog.mirror.after_commit = record  # type: ignore[method-assign]
            features = {f"delta.feature.{name}": "supported" for name in some.FEATURES}
            schema, properties = with_column_mapping(some.SCHEMA, features)
            for name in ("t", "u"):
                catalog.create_table(
                    name, schema, partition_by=some.PARTITIONS, properties=properties
                )
            yield Lake(catalog, ratified)


def unlike(actions: list[Any]) -> list[Any]:
    """Return the same files under unique paths."""
    return [replace(each, path=f"{next(_numbers)}/{each.path}") for each in actions]


def shuffled(add: AddFile) -> AddFile:
    """Return the same file with its partition values in reverse order."""
    return replace(add, partition_values=dict(reversed(add.partition_values.items())))


@given(some.adds)
@EXAMPLES
def test_commit_with_one_add_has_the_same_encoding_in_memory_and_from_sql(
    lake: Lake, add: AddFile
) -> None:
    lake.check(*unlike([add]))
    lake.check(*unlike([shuffled(add)]))


@given(st.lists(some.adds, min_size=2, max_size=5).map(unlike))
@EXAMPLES
def test_commit_with_many_adds_has_the_same_encoding_in_memory_and_from_sql(
    lake: Lake, adds: list[AddFile]
) -> None:
    lake.check(*adds)


@given(
    st.lists(some.removes, min_size=1, max_size=3).map(unlike),
    st.lists(some.cdc_files, max_size=2),
    st.lists(some.transactions, max_size=3, unique_by=lambda txn: txn.app_id),
    st.lists(some.domains, max_size=3, unique_by=lambda domain: domain.domain),
    some.commit_infos,
)
@EXAMPLES
def test_other_actions_have_the_same_encoding_in_memory_and_from_sql(
    lake: Lake,
    removes: list[RemoveFile],
    cdc: list[Action],
    txns: list[Action],
    domains: list[Action],
    info: CommitInfo,
) -> None:
    partition = dict.fromkeys(some.PARTITIONS, "x")
    lake.check(*(AddFile(r.path, partition, 1, 1) for r in removes))
    lake.check(info, *cdc, *txns, *removes, *domains)


@given(some.extras, some.formats, st.dictionaries(some.texts, some.texts, max_size=3))
@EXAMPLES
def test_metadata_and_protocol_have_the_same_encoding_in_memory_and_from_sql(
    lake: Lake, extra: dict[str, Any], table_format: Any, own: dict[str, str]
) -> None:
    snapshot = lake.catalog.table("t").snapshot()
    kept = {k: v for k, v in snapshot.metadata.configuration.items() if k.startswith("delta.")}
    configuration = kept | {f"my.{key}": value for key, value in own.items()}
    readers = ("deletionVectors", "columnMapping")
    writers = (*readers, "domainMetadata", "inCommitTimestamp", "changeDataFeed")
    lake.check(
        replace(snapshot.metadata, configuration=configuration, format=table_format, extra=extra),
        Protocol(3, 7, readers, writers, extra=extra),
    )


def test_file_added_again_has_the_same_encoding_in_memory_and_from_sql(lake: Lake) -> None:
    add = AddFile(f"{next(_numbers)}.parquet", dict.fromkeys(some.PARTITIONS, "x"), 1, 1)
    lake.check(add)
    lake.check(replace(add, size=2))


def test_value_that_sql_changes_is_not_encoded_from_memory(lake: Lake) -> None:
    """SQL converts keys that are not strings, so the publisher must read the values from SQL."""
    odd = CommitInfo(operation="ODD", operation_parameters={1: (2, 3)})  # type: ignore[dict-item]
    done = lake.commit(odd)
    assert done.commit is not None
    info = json.loads(lake.read_back(done).splitlines()[0])["commitInfo"]
    assert info["operationParameters"] == {"1": [2, 3]}
    encoded = lake.catalog.mirror.publisher._encoded(done.commit)
    assert encoded in (None, lake.read_back(done))


def test_group_names_every_participant_with_its_version(lake: Lake) -> None:
    before = {name: lake.catalog.table(name).version() for name in ("t", "u")}
    add = AddFile("x", dict.fromkeys(some.PARTITIONS, "x"), 1, 1)
    with lake.catalog.begin() as tx:
        tx.stage_table("t", unlike([add]))
        tx.stage_table("u", unlike([add]))
    for done in lake.ratified[-2:]:
        assert done.commit is not None
        data = encode_commit(done.commit)
        assert data == lake.read_back(done)
        info = json.loads(data.splitlines()[0])["commitInfo"]
        assert info["txnId"] == info["group"]["id"] == tx.txn_id
        assert {p["table"]: p["version"] for p in info["group"]["participants"]} == {
            f"default.{name}": version + 1 for name, version in before.items()
        }


def test_group_of_many_tables_lists_only_its_own_table(lake: Lake) -> None:
    names = [f"many{next(_numbers)}" for _ in range(101)]
    with lake.catalog.begin() as tx:
        for name in names:
            tx.create_table(name, pa.schema([("id", pa.int64())]))
    for name, done in zip(names, lake.ratified[-101:], strict=True):
        data = lake.read_back(done)
        group = json.loads(data.splitlines()[0])["commitInfo"]["group"]
        assert (group["id"], group["size"]) == (tx.txn_id, 101)
        [own] = group["participants"]
        assert (own["table"], own["version"]) == (f"default.{name}", 0)


def test_commit_info_comes_first_with_the_in_commit_timestamp(lake: Lake) -> None:
    data = lake.check(*unlike([AddFile("x", dict.fromkeys(some.PARTITIONS, "x"), 1, 1)]))
    first = json.loads(data.splitlines()[0])["commitInfo"]
    assert first["inCommitTimestamp"] == first["timestamp"] == lake.ratified[-1].committed_at_ms
    assert {"operation", "operationParameters", "engineInfo", "txnId"} <= first.keys()


@pytest.mark.parametrize("max_files", [1, 3, 1000])
def test_commits_encoded_together_equal_commits_encoded_alone(lake: Lake, max_files: int) -> None:
    partition = dict.fromkeys(some.PARTITIONS, "x")
    added = unlike([AddFile("x", partition, 1, 1) for _ in range(12)])
    first = lake.commit(*added[:5]).version
    lake.commit(*(RemoveFile(add.path) for add in added[:4]))
    lake.commit(CommitInfo(operation="NOTHING"))
    last = lake.commit(*added[5:])
    table_id = last.table.table_id
    found: list[tuple[int, bytes]] = []
    with lake.catalog.store.session() as session:
        while len(found) < 4:
            start = first + len(found)
            part = commits_between(session, table_id, start, last.version, max_files=max_files)
            assert part, "at least one, however large"
            found += part
        alone = [(v, commit_bytes(session, table_id, v)) for v in range(first, first + 4)]
    assert found == alone
