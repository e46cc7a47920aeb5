"""The SQL rows for the files of a commit."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql import _core
from deltasql.exceptions import InvalidActionError
from deltasql.model.actions import AddFile, DeletionVector

COLUMNS = [(7, ("id",), "long"), (8, ("s", "x"), "string")]


def add(path: str, low: int, high: int, **kwargs: Any) -> AddFile:
    stats = {"numRecords": 10, "minValues": {"id": low}, "maxValues": {"id": high}}
    defaults = {"partition_values": {}, "size": 1, "modification_time": 2}
    return AddFile(path=path, stats=json.dumps(stats), **(defaults | kwargs))


def test_row_contains_every_field_of_the_add() -> None:
    dv = DeletionVector("u", "abc", 40, 6, 4)
    stats = '{"numRecords":3,"minValues":{"id":1,"s":{"x":"a"}},"maxValues":{"id":2,"s":{"x":"b"}}}'
    file = AddFile(
        "a",
        {"q": None, "p": "é"},
        11,
        12,
        False,
        stats,
        {"t": "1"},
        dv,
        13,
        14,
        "liquid",
        {"new": [1.5]},
    )
    indexed = _core.index_files([file], COLUMNS, ["p", "q"], 100)
    partition = '{"p":"é","q":null}'
    assert indexed.files == [
        (
            100,
            "a",
            hashlib.sha256(b"").digest()[:4] + hashlib.sha256(b"a\0uabc@4").digest()[:12],
            partition,
            11,
            12,
            False,
            stats,
            3,
            '{"t":"1"}',
            json.dumps(dv.body(), separators=(",", ":")),
            13,
            14,
            "liquid",
            '{"new":[1.5]}',
        )
    ]
    assert indexed.partitions == [partition]
    low, high = _core.encode_key("long", "1"), _core.encode_key("long", "2")
    assert indexed.stats[0] == (7, 100, 100, low, high, None, 3, None)
    assert indexed.stats[1][3:5] == (b"\x01a", b"\x01b")


def test_file_of_a_parsed_commit_is_indexed_like_its_action() -> None:
    adds = [add("b", 5, 9, tags={"a": None}, extra={"k": 1}), add("a", 1, 4)]
    parsed = _core.parse_commit(_core.encode_commit(adds)).adds
    expected = _core.index_files(adds, COLUMNS, ["p"], 1)
    indexed = _core.index_files(parsed, COLUMNS, ["p"], 1)
    assert (indexed.files, indexed.stats) == (expected.files, expected.stats)


def test_files_are_ordered_by_clustered_column_then_partition() -> None:
    adds = [
        add(f"{p}{i}", i * 10, i * 10 + 9, partition_values={"p": p})
        for i in (2, 0, 1)
        for p in "ba"
    ]
    indexed = _core.index_files(adds, COLUMNS, ["p"], 1)
    assert [row[1] for row in indexed.files] == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert indexed.partitions == ['{"p":"b"}', '{"p":"a"}']


def test_ranges_are_at_most_range_size_long() -> None:
    adds = [add(str(i), i, i) for i in range(10)]
    rows = [r for r in _core.index_files(adds, COLUMNS[:1], [], 1, 4).stats if r[0] == 7]
    assert [(r[1], r[2], r[6]) for r in rows] == [(1, 4, 40), (5, 8, 40), (9, 10, 20)]
    assert rows[0][3:5] == (_core.encode_key("long", "0"), _core.encode_key("long", "3"))


def test_files_in_a_range_are_found_by_the_bounds_of_each_file() -> None:
    adds = [add(str(i), i * 617 % 1000, i * 617 % 1000 + 20) for i in range(0, 1000, 10)]
    indexed = _core.index_files([*adds, AddFile("b", {}, 1, 2)], COLUMNS[:1], [], 1, 64)
    rows = [(first, last, packed) for _, first, last, *_, packed in indexed.stats]
    names = {row[0]: row[1] for row in indexed.files}
    keys = [_core.encode_key("long", str(value)) or b"" for value in (300, 400)]
    for low, high in [(keys[0], keys[1]), (keys[0], keys[0]), (b"", keys[0]), (keys[1], b"\xff")]:
        ranges = _core.files_between(rows, low, high)
        found = {names[id] for first, last in ranges for id in range(first, last + 1)}
        wanted = {"b"}  # its bounds are unknown
        for file in adds:
            least = int(file.path) * 617 % 1000
            ends = [_core.encode_key("long", str(value)) or b"" for value in (least, least + 20)]
            if ends[0] <= high and ends[1] >= low:
                wanted.add(file.path)
        assert found == wanted
        assert _core.files_between([(1, 5, None), *rows[1:]], low, high)[0][0] == 1


def test_partition_value_of_an_unknown_column_is_kept() -> None:
    file = add("a", 0, 0, partition_values={"old": "1", "p": "2"})
    assert _core.index_files([file], [], ["p"], 1).partitions == ['{"p":"2","old":"1"}']
    assert _core.index_files([], COLUMNS, ["p"], 1).files == []


def test_only_absolute_local_paths_are_normalized() -> None:
    one = {
        *("/p/a", "file:/p/a", "file:///p/a", "FILE:/p/a", "file://localhost/p/a"),
        *("//p/a", "/p/./a", "/p/b/../a"),
    }
    assert {_core.canonical_path(path) for path in one} == {"file:///p/a"}
    for path in ("p/a", "p//a", "./a", "file:a", "file://host/p/a", "s3://b/a", "s3a://b/a", ""):
        assert _core.canonical_path(path) == path
        assert _core.older_path_keys(path) == []


@pytest.mark.parametrize(
    "stats", [None, "", "nonsense", "[]", '{"minValues":null}', '{"numRecords":']
)
def test_invalid_statistics_leave_the_bounds_unknown(stats: str | None) -> None:
    file = AddFile("a", {}, 1, 2, stats=stats)
    rows = _core.index_files([file], COLUMNS, [], 1).stats
    assert [row[3:] for row in rows] == [(None, None, None, None, None)] * 2


def test_all_null_column_has_an_empty_range() -> None:
    file = AddFile("a", {}, 1, 2, stats='{"numRecords":4,"nullCount":{"id":4}}')
    assert _core.index_files([file], COLUMNS, [], 1).stats[0][3:] == (b"\xff", b"", 4, 4, None)


def test_invalid_add_is_rejected() -> None:
    with pytest.raises(InvalidActionError) as caught:
        _core.index_files([AddFile("a", {}, None, 0)], [], [], 1)  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, TypeError)


@given(st.text(st.characters(codec="utf-8")), st.none() | st.text(st.characters(codec="utf-8")))
def test_path_key_hashes_folder_then_path_and_deletion_vector(path: str, dv: str | None) -> None:
    spelled = _core.canonical_path(path)
    whole = spelled if dv is None else f"{spelled}\0{dv}"
    folder = spelled.rpartition("/")[0]
    expected = [hashlib.sha256(text.encode()).digest() for text in (folder, whole)]
    assert _core.path_key(path, dv) == expected[0][:4] + expected[1][:12]


@pytest.mark.parametrize(
    ("delta_type", "text"),
    [
        ("long", "x"),
        ("long", "1.5"),
        ("decimal(5,2)", "1.005"),
        ("date", "2020-02-30"),
        ("timestamp", "noon"),
        ("boolean", "1"),
        ("binary", "a"),
        ("array<long>", "1"),
    ],
)
def test_text_that_is_not_a_value_of_the_type_has_no_key(delta_type: str, text: str) -> None:
    assert _core.encode_key(delta_type, text) is None


def test_literal_between_two_values_is_bounded_by_the_keys_of_both() -> None:
    assert _core.key_bounds("long", "1.5") == (
        _core.encode_key("long", "1"),
        _core.encode_key("long", "2"),
    )
    assert _core.key_bounds("long", str(2**80)) == (
        _core.encode_key("long", str(2**63 - 1)),
        b"\xff",
    )
    assert _core.key_bounds("long", str(-(2**80))) == (b"", _core.encode_key("long", str(-(2**63))))
    assert _core.key_bounds("binary", "a") is None
