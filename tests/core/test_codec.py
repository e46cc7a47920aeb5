"""Commit files: our dataclasses, the Rust codec and the JSON text agree."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql import _core
from deltasql.exceptions import InvalidActionError, LogParseError
from deltasql.model.actions import (
    ACTIONS,
    Action,
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
)

text = st.text(st.characters(codec="utf-8"), max_size=12)
integer = st.integers(-(2**63), 2**63 - 1)
string_map = st.dictionaries(text, st.none() | text, max_size=3)
json_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
extra = st.dictionaries(text.map("x_".__add__), json_value, max_size=2)
features = st.none() | st.lists(text, max_size=3).map(tuple)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


deletion_vectors = st.builds(
    DeletionVector, text, text, integer, integer, some(integer), extra=extra
)
adds = st.builds(
    AddFile,
    text,
    string_map,
    integer,
    integer,
    st.booleans(),
    some(text),
    some(string_map),
    some(deletion_vectors),
    some(integer),
    some(integer),
    some(text),
    extra,
)
removes = st.builds(
    RemoveFile,
    text,
    some(integer),
    st.booleans(),
    some(st.booleans()),
    some(string_map),
    some(integer),
    some(text),
    some(string_map),
    some(deletion_vectors),
    some(integer),
    some(integer),
    extra,
)
string_properties = st.dictionaries(text, text, max_size=3)
actions: st.SearchStrategy[Action] = st.one_of(
    adds,
    removes,
    st.builds(AddCdcFile, text, string_map, integer, st.booleans(), some(string_map), extra),
    st.builds(
        Metadata,
        text,
        text,
        st.lists(text, max_size=3).map(tuple),
        string_properties,
        st.builds(Format, text, string_properties, extra),
        some(text),
        some(text),
        some(integer),
        extra,
    ),
    st.builds(Protocol, integer, integer, features, features, extra),
    st.builds(SetTransaction, text, integer, some(integer), extra),
    st.builds(DomainMetadata, text, text, st.booleans(), extra),
    st.builds(
        CommitInfo,
        some(integer),
        some(integer),
        some(text),
        some(st.dictionaries(text, json_value, max_size=2)),
        some(st.dictionaries(text, json_value, max_size=2)),
        some(integer),
        some(text),
        some(st.booleans()),
        some(text),
        some(text),
        some(text),
        extra,
    ),
    st.builds(Sidecar, text, integer, integer, some(string_map), extra),
    st.builds(CheckpointMetadata, integer, some(string_map), extra),
)


def canonical(commit_actions: list[Action]) -> list[Action]:
    first = {"commitInfo": 0, "protocol": 1, "metaData": 2}
    return sorted(commit_actions, key=lambda action: first.get(action.kind, 3))


@given(st.lists(actions, max_size=5))
def test_decoding_an_encoded_commit_gives_the_same_commit(commit_actions: list[Action]) -> None:
    data = _core.encode_commit(commit_actions)
    commit = _core.parse_commit(data)
    assert commit.actions() == canonical(commit_actions)
    assert commit.to_ndjson() == data
    assert _core.encode_commit(commit.actions()) == data


@given(st.lists(actions, max_size=5))
def test_dataclass_dict_and_rust_write_the_same_json(commit_actions: list[Action]) -> None:
    lines = _core.encode_commit(commit_actions).decode().removesuffix("\n").split("\n")
    expected = [action.to_dict() for action in canonical(commit_actions)]
    assert [json.loads(line) for line in lines if line] == expected
    assert _core.encode_commit([a.to_dict() for a in commit_actions]).decode().split("\n")[:-1] == (
        lines if commit_actions else []
    )


@given(adds)
def test_file_has_every_field_of_the_add(add: AddFile) -> None:
    (file,) = _core.parse_commit(_core.encode_commit([add])).adds
    assert file.to_action() == add
    assert file.to_dict() == add.to_dict()
    assert json.loads(file.to_json()) == add.to_dict()
    for name in AddFile.__slots__:
        assert getattr(file, name) == getattr(add, name)
    assert _core.encode_commit([file]) == _core.encode_commit([add])


@pytest.mark.parametrize("kind", [cls.kind for cls in ACTIONS if cls is not CommitInfo])
def test_missing_required_field_is_named_in_the_error(kind: str) -> None:
    with pytest.raises(LogParseError, match="missing field"):
        _core.parse_commit(json.dumps({kind: {}}).encode())


def test_unknown_actions_and_exact_numbers_are_kept() -> None:
    data = (
        b'{"commitInfo":{"operation":"WRITE","ratio":0.1000000000000000000001}}\n'
        b'{"futureAction":{"n":123456789012345678901234567890}}\n'
    )
    commit = _core.parse_commit(data, version=7)
    assert commit.to_ndjson() == data
    assert commit.unknown == [{"futureAction": {"n": 123456789012345678901234567890}}]
    assert (commit.version, len(commit), len(commit.actions())) == (7, 2, 1)
    assert _core.encode_commit([*commit.actions(), *commit.unknown]).endswith(
        b'{"futureAction":{"n":123456789012345678901234567890}}\n'
    )


def test_commit_sorts_its_actions_by_kind() -> None:
    commit = _core.parse_commit(
        b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
        b'{"metaData":{"id":"t","schemaString":"{}","partitionColumns":["day"]}}\n'
        b'{"txn":{"appId":"etl","version":3}}\n\n'
        b'{"domainMetadata":{"domain":"d","configuration":"{}"}}\n'
        b'{"cdc":{"path":"c","partitionValues":{},"size":1,"dataChange":false}}\n'
        b'{"remove":{"path":"r"}}\r\n'
    )
    assert commit.protocol == Protocol(1, 2)
    assert commit.metadata == Metadata("t", "{}", ("day",))
    assert commit.txns == [SetTransaction("etl", 3)]
    assert commit.domain_metadata == [DomainMetadata("d", "{}")]
    assert commit.cdc == [AddCdcFile("c", {}, 1)]
    assert commit.removes == [RemoveFile("r")]
    assert commit.adds == []
    assert commit.commit_info is None


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b'\n{"add":{"path":"a"', 2, "EOF"),
        (b'{"add":{"path":7}}', 1, "expected a string"),
        (b'{"add":{"path":"a"}}', 1, "missing field `partitionValues`"),
        (b'{"txn":{"appId":"a","version":1.5}}', 1, "expected i64"),
        (b"[]", 1, "expected an action"),
        (b"{}", 1, "no action"),
        (b'{"remove":{"path":"a"},"txn":{"appId":"a","version":1}}', 1, "two actions"),
        (b"\xff\xfe", 1, "expected value"),
    ],
)
def test_parse_error_names_the_line(data: bytes, line: int, message: str) -> None:
    with pytest.raises(LogParseError, match=message) as caught:
        _core.parse_commit(data, path="_delta_log/0.json")
    assert (caught.value.line, caught.value.path) == (line, "_delta_log/0.json")
    assert "Help:" in str(caught.value)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (AddFile("a", {}, "1", 0), "field `size`"),  # type: ignore[arg-type]
        (AddFile("a", {"p": 1}, 1, 0), "field `partition_values`"),  # type: ignore[dict-item]
        (AddFile("a", {}, 1, 0, extra={"x": object()}), "no JSON form"),
        (CommitInfo(extra={"x": float("nan")}), "nan is not a JSON number"),
        (Metadata("i", "{}", partition_columns=(1,)), "partition_columns"),  # type: ignore[arg-type]
        ({"add": {"path": "a"}}, "missing field"),
        ({"add": {}, "remove": {}}, "missing field|two actions"),
        ("add", "not a Delta action"),
    ],
)
def test_invalid_action_is_rejected_with_its_cause(action: Any, message: str) -> None:
    with pytest.raises(InvalidActionError, match=message) as caught:
        _core.encode_commit([action])
    assert caught.value.__cause__ is not None


def test_any_mapping_is_accepted_as_an_action() -> None:
    body = MappingProxyType({"appId": "a", "version": 1})
    line = b'{"txn":{"appId":"a","version":1}}\n'
    assert _core.encode_commit([MappingProxyType({"txn": body})]) == line
    assert _core.encode_commit([]) == b""
