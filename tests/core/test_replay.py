"""Replay of any sequence of commits gives what deltalake reads from the same `_delta_log`."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.selection import examples

from deltasql import _core
from deltasql.exceptions import LogParseError
from deltasql.model.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)

LOGICAL = [
    (f"day={day}/part-{number}.parquet", day)
    for day in ("2024-01-01", "a%20b")
    for number in (0, 1, 2)
]
PROTOCOL = Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "domainMetadata"))
FEATURES = ("appendOnly", "changeDataFeed", "invariants")
APPS = ("etl", "stream", "näh")


def schema(columns: int) -> str:
    names = ["day", *(f"c{i}" for i in range(columns))]
    fields = [{"name": n, "type": "string", "nullable": True, "metadata": {}} for n in names]
    return json.dumps({"type": "struct", "fields": fields})


def metadata(draw: st.DrawFn) -> Metadata:
    return Metadata(
        "11111111-2222-3333-4444-555555555555",
        schema(draw(st.integers(0, 3))),
        ("day",),
        draw(st.dictionaries(st.sampled_from(["a", "b.c"]), st.text("xyz", max_size=2))),
        name=draw(st.none() | st.just("sales")),
        description=draw(st.none() | st.text(st.characters(codec="utf-8"), max_size=5)),
        created_time=draw(st.none() | st.integers(0, 2**41)),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[list[Action]]:
    """Return valid commits over few files, which are added, changed, removed and added again."""
    live: dict[str, DeletionVector | None] = {}
    commits: list[list[Action]] = []
    for version in range(draw(st.integers(1, 8))):
        actions: list[Action] = [CommitInfo(timestamp=version, operation="WRITE")]
        if version == 0:
            actions += [PROTOCOL, metadata(draw)]
        elif not draw(st.integers(0, 5)):
            actions.append(metadata(draw))
        elif not draw(st.integers(0, 5)):
            added = draw(st.sampled_from(FEATURES))
            writer = (*(PROTOCOL.writer_features or ()), added)
            actions.append(Protocol(3, 7, PROTOCOL.reader_features, writer))
        for path, day in draw(st.lists(st.sampled_from(LOGICAL), unique=True, max_size=4)):
            actions += file_actions(draw, live, path, day, version)
        if draw(st.booleans()):
            app = draw(st.sampled_from(APPS))
            actions.append(SetTransaction(app, draw(st.integers(0, 2**40))))
        if draw(st.booleans()):
            domain = draw(st.sampled_from(["d1", "d2"]))
            actions.append(DomainMetadata(domain, str(version), draw(st.booleans())))
        commits.append(draw(st.permutations(actions)))
    return commits


def file_actions(
    draw: st.DrawFn, live: dict[str, DeletionVector | None], path: str, day: str, version: int
) -> list[Action]:
    partition: dict[str, str | None] = {"day": draw(st.sampled_from([day, None]))}
    stats = json.dumps({"numRecords": draw(st.integers(1, 99))})
    fresh = AddFile(path, partition, draw(st.integers(0, 9)), version, draw(st.booleans()), stats)
    if path not in live:
        live[path] = None
        return [fresh]
    old = RemoveFile(path, version, deletion_vector=live[path])
    choice = draw(st.sampled_from(["remove", "delete rows", "restate"]))
    if choice == "remove":
        del live[path]
        return [old]
    if choice == "restate":
        dv = live[path]
        return [AddFile(path, partition, fresh.size, version, False, stats, deletion_vector=dv)]
    live[path] = DeletionVector("u", f"ab^-aqEH.-t@S}}K{{vb[*{version:02}", 40, 1, version)
    return [old, AddFile(path, partition, 5, version, True, stats, deletion_vector=live[path])]


@pytest.fixture(scope="module")
def root() -> Any:
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


def stock_view(table: DeltaTable) -> list[tuple[Any, ...]]:
    rows = pa.table(table.get_add_actions()).to_pylist()
    view = [
        (
            r["path"],
            r["partition"]["day"],
            r["size_bytes"],
            r["modification_time"],
            r["num_records"],
        )
        for r in rows
    ]
    return sorted(view, key=repr)


def our_view(files: _core.FileList) -> list[tuple[Any, ...]]:
    view = [
        (f.path, f.partition_values["day"], f.size, f.modification_time, f.num_records)
        for f in files
    ]
    return sorted(view, key=repr)


@settings(max_examples=examples(150), deadline=None)
@given(commits=histories())
def test_replay_gives_the_state_that_deltalake_reads(
    root: Path, commits: list[list[Action]]
) -> None:
    log = Path(tempfile.mkdtemp(dir=root)) / "_delta_log"
    log.mkdir()
    table = _core.Table()
    for version, actions in enumerate(commits):
        data = _core.encode_commit(actions)
        (log / f"{version:020}.json").write_bytes(data)
        table.apply(data, version)

    stock = DeltaTable(log.parent)
    assert table.version == stock.version()
    assert our_view(table.files) == stock_view(stock)
    assert table.num_files == len(table.files) == len(stock.file_uris())

    ours, theirs = table.metadata, stock.metadata()
    assert ours is not None
    assert (ours.id, ours.name, ours.description) == (theirs.id, theirs.name, theirs.description)
    assert ours.created_time == theirs.created_time
    assert list(ours.partition_columns) == theirs.partition_columns
    assert ours.configuration == theirs.configuration
    assert json.loads(ours.schema_string) == json.loads(stock.schema().to_json())

    protocol, stock_protocol = table.protocol, stock.protocol()
    assert protocol is not None
    assert protocol.min_reader_version == stock_protocol.min_reader_version
    assert protocol.min_writer_version == stock_protocol.min_writer_version
    assert set(protocol.reader_features or ()) == set(stock_protocol.reader_features or ())
    assert set(protocol.writer_features or ()) == set(stock_protocol.writer_features or ())

    versions = {app: stock.transaction_version(app) for app in APPS}
    assert table.txn_versions == {a: v for a, v in versions.items() if v is not None}
    assert {a.app_id: a.version for a in table.txns} == table.txn_versions


@given(histories())
@settings(max_examples=examples(100), deadline=None)
def test_order_of_actions_in_a_commit_does_not_matter(commits: list[list[Action]]) -> None:
    forward = _core.Table.from_commits([_core.encode_commit(c) for c in commits])
    backward = _core.Table.from_commits([_core.encode_commit(c[::-1]) for c in commits])
    assert our_view(forward.files) == our_view(backward.files)
    assert len(forward.tombstones) == len(backward.tombstones)


def test_files_are_available_as_arrow_and_as_objects() -> None:
    add = AddFile("a", {"day": None, "x": "1"}, 1, 2, stats='{"numRecords":3}', extra={"k": [1]})
    dv = DeletionVector("i", "abc", 1, 1)
    other = AddFile("b", {"day": "2"}, 1, 2, False, None, {"t": None}, dv, 5, 6, "liquid")
    commit = [Metadata("i", "{}", ("day",)), add, other]
    files = _core.Table.from_commits([_core.encode_commit(commit)]).files
    assert [file.to_action() for file in files] == [add, other]
    table = pa.table(files)
    assert table["partition"].to_pylist() == ['{"day":null,"x":"1"}', '{"day":"2"}']
    assert table["num_records"].to_pylist() == [3, None]
    again = _core.FileList.from_arrow(table)
    assert [file.to_action() for file in again] == [add, other]
    assert again[-1] == files[1]
    assert hash(again[0]) == hash(files[0])


def test_tombstones_and_domains_are_reconciled() -> None:
    table = _core.Table()
    first = [AddFile("a", {}, 1, 2), DomainMetadata("d", "1"), DomainMetadata("e", "1")]
    table.apply(_core.parse_commit(_core.encode_commit(first)), 5)
    second = [RemoveFile("a", 9), DomainMetadata("d", "2"), DomainMetadata("e", "1", True)]
    table.apply(_core.encode_commit(second), 6)
    assert table.tombstones == [RemoveFile("a", 9)]
    assert table.domain_metadata == {"d": DomainMetadata("d", "2")}
    assert (table.version, table.num_files, table.commit_info) == (6, 0, None)


def test_gap_in_the_log_is_rejected() -> None:
    table = _core.Table()
    assert (table.version, table.protocol, table.metadata) == (None, None, None)
    table.apply(b"", 0)
    with pytest.raises(LogParseError, match="expected version 1, got version 2") as caught:
        table.apply(b"", 2, "2.json")
    assert caught.value.path == "2.json"
    with pytest.raises(LogParseError, match="line 1"):
        table.apply(b"x", 1)
    assert table.version == 0
