"""A file with a matching row is never pruned: brute force over random data of every type."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.column_data import TYPES, ColumnType, Value, stats_of
from tests.selection import examples

from deltasql import _core

Tree = dict[str, Any]
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@st.composite
def leaves(draw: st.DrawFn, column: ColumnType, literals: list[Value], partition: bool) -> Tree:
    literal = st.sampled_from(literals) | column.values if literals else column.values
    operators = [*COMPARISONS, "in", "between", "is_null", "is_not_null"]
    if column.name == "string":
        operators.append("starts_with")
    node: Tree = {"op": draw(st.sampled_from(operators)), "type": column.name}
    node["column"] = ["p"] if partition else ["s", "c"]
    if partition:
        node["partition"] = True
    match node["op"]:
        case "in":
            node["raw"] = draw(st.lists(literal, min_size=1, max_size=3))
            node["values"] = [column.literal(value) for value in node["raw"]]
        case "between":
            node["raw"] = (draw(literal), draw(literal))
            node["low"], node["high"] = map(column.literal, node["raw"])
        case "starts_with":
            node["raw"] = draw(literal)[: draw(st.integers(0, 6))]
            node["value"] = node["raw"]
        case "is_null" | "is_not_null":
            pass
        case _:
            node["raw"] = draw(literal)
            node["value"] = column.literal(node["raw"])
    return node


@st.composite
def trees(draw: st.DrawFn, leaf: st.SearchStrategy[Tree], depth: int = 2) -> Tree:
    if depth == 0 or draw(st.booleans()):
        constant = st.sampled_from(["true", "false", "unknown"]).map(lambda op: {"op": op})
        return draw(st.one_of(leaf, leaf, leaf, constant))
    args = draw(st.lists(trees(leaf, depth - 1), min_size=1, max_size=3))
    return {"op": draw(st.sampled_from(["and", "or"])), "args": args}


def is_true(tree: Tree, column: ColumnType, value: Value, partition: Value) -> bool:
    """Return whether the row makes the tree TRUE; `unknown` may always be TRUE."""
    match tree["op"]:
        case "and":
            return all(is_true(arg, column, value, partition) for arg in tree["args"])
        case "or":
            return any(is_true(arg, column, value, partition) for arg in tree["args"])
        case "true" | "unknown":
            return True
        case "false":
            return False
    found = partition if tree.get("partition") else value
    if tree["op"] == "is_null":
        return found is None
    if found is None:
        return False
    if tree["op"] == "is_not_null":
        return True
    if tree["op"] == "starts_with":
        return str(found).startswith(tree["raw"])
    order, raw = column.order, tree["raw"]
    here = order(found)
    match tree["op"]:
        case "=":
            return bool(here == order(raw))
        case "<>":
            return bool(here != order(raw))
        case "<":
            return bool(here < order(raw))
        case "<=":
            return bool(here <= order(raw))
        case ">":
            return bool(here > order(raw))
        case ">=":
            return bool(here >= order(raw))
        case "in":
            return any(here == order(item) for item in raw)
        case _:
            return bool(order(raw[0]) <= here <= order(raw[1]))


def without_raw(tree: Tree) -> Tree:
    """Return the tree as the core expects it: text only."""
    out = {name: part for name, part in tree.items() if name != "raw"}
    if "args" in out:
        out["args"] = [without_raw(arg) for arg in out["args"]]
    return out


@st.composite
def cases(draw: st.DrawFn) -> tuple[ColumnType, list[Value], str | None, Value, str | None, Tree]:
    column = draw(st.sampled_from(TYPES))
    rows = draw(st.lists(st.none() | column.values, max_size=5))
    partition = draw(st.none() | column.values)
    if partition == "":
        partition = None  # Delta does not distinguish them.
    text: str | None = None
    if partition is not None:
        text = draw(st.sampled_from(column.partition))(partition)
    elif draw(st.booleans()):
        text = ""
    literals = [value for value in (*rows, partition) if value is not None]
    leaf = leaves(column, literals, False) | leaves(column, literals, True)
    tree = draw(trees(leaf))
    return column, rows, draw(stats_of(column, rows)), partition, json.dumps({"p": text}), tree


@settings(max_examples=examples(1500), deadline=None)
@given(cases())
def test_file_with_a_matching_row_is_never_pruned(
    case: tuple[ColumnType, list[Value], str | None, Value, str | None, Tree],
) -> None:
    column, rows, stats, partition_value, partition, tree = case
    predicate = _core.Predicate(json.dumps(without_raw(tree)))
    if any(is_true(tree, column, value, partition_value) for value in rows):
        assert predicate.may_match(stats, partition)


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_index_bounds_contain_every_value(data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(TYPES))
    files = data.draw(st.lists(st.lists(st.none() | column.values, max_size=4), max_size=4))
    adds = []
    for number, rows in enumerate(files):
        body = {"path": str(number), "partitionValues": {}, "size": 1, "modificationTime": 0}
        stats = data.draw(stats_of(column, rows))
        adds.append(
            _core.parse_commit(json.dumps({"add": body | {"stats": stats}}).encode()).adds[0]
        )
    indexed = _core.index_files(adds, [(1, ("s", "c"), column.name)], [], 0, 2)
    for _, first, last, low, high, *_ in indexed.stats:
        for row in indexed.files[first : last + 1]:
            for value in files[int(row[1])]:
                if value is None or low is None or high is None:
                    continue
                key = _core.encode_key(column.name, column.literal(value))
                assert key is not None
                assert low <= key
                assert key <= high or (isinstance(value, float) and math.isnan(value))


def stats(low: str, high: str, nulls: int = 0, rows: int = 10) -> str:
    return (
        f'{{"numRecords":{rows},"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}},'
        f'"nullCount":{{"c":{nulls}}}}}'
    )


def leaf(op: str, delta_type: str = "long", **literal: Any) -> Tree:
    return {"op": op, "column": ["c"], "type": delta_type, **literal}


PRUNED = [
    (leaf("=", value="5"), stats("6", "9")),
    (leaf("<", value="6"), stats("6", "9")),
    (leaf("<=", value="5"), stats("6", "9")),
    (leaf(">", value="9"), stats("6", "9")),
    (leaf(">=", value="10"), stats("6", "9")),
    (leaf("<>", value="6"), stats("6", "6")),
    (leaf("in", values=["1", "2"]), stats("6", "9")),
    (leaf("between", low="1", high="5"), stats("6", "9")),
    (leaf("is_null"), stats("6", "9")),
    (leaf("is_not_null"), stats("null", "null", nulls=10)),
    (leaf("=", value="5"), stats("null", "null", nulls=10)),
    (leaf("=", value=None), stats("1", "9")),
    (leaf("starts_with", "string", value="ab"), stats('"ac"', '"b"')),
    (leaf("starts_with", "string", value="ab"), stats('"a"', '"aaz"')),
    (leaf("=", "decimal(9,2)", value="1.00"), stats("1.01", "2")),
    (leaf("=", "date", value="2020-01-01"), stats('"2020-01-02"', '"2020-01-03"')),
    (
        leaf(">", "timestamp", value="2020-01-01T00:00:00.001000Z"),
        stats('"2020-01-01T00:00:00.000Z"', '"2020-01-01T00:00:00.000Z"'),
    ),
    (leaf("=", "double", value="5"), stats("6.0", "9.0")),
    (leaf("=", "boolean", value="true"), stats("false", "false")),
    ({"op": "and", "args": [leaf("=", value="7"), leaf("=", value="5")]}, stats("6", "9")),
    ({"op": "or", "args": [leaf("=", value="4"), leaf("=", value="5")]}, stats("6", "9")),
]


@pytest.mark.parametrize(("tree", "text"), PRUNED, ids=lambda part: str(part)[:60])
def test_file_that_cannot_match_is_pruned(tree: Tree, text: str) -> None:
    assert not _core.Predicate(json.dumps(tree)).may_match(text, None)


KEPT = [
    # NaN is the greatest double, and statistics may omit it.
    (leaf(">", "double", value="100"), stats("6.0", "9.0")),
    (leaf("=", "double", value="NaN"), stats("6.0", "9.0")),
    # A maximum is truncated to milliseconds, so rows may have more microseconds than it shows.
    (
        leaf(">", "timestamp", value="2020-01-01T00:00:00.000500Z"),
        stats('"2020-01-01T00:00:00.000Z"', '"2020-01-01T00:00:00.000Z"'),
    ),
    # These two decimals have the same double.
    (
        leaf("=", "decimal(38,0)", value="12345678901234567891"),
        stats("1.2345678901234567e19", "1.2345678901234567e19"),
    ),
    (leaf("=", "binary", value="a"), stats('"b"', '"c"')),
    (leaf("=", value="not a number"), stats("1", "2")),
    (leaf("=", value="5"), '{"numRecords":10,"nullCount":{"c":10,"d":0}'),
]


@pytest.mark.parametrize(("tree", "text"), KEPT, ids=lambda part: str(part)[:60])
def test_file_that_could_match_is_kept(tree: Tree, text: str) -> None:
    assert _core.Predicate(json.dumps(tree)).may_match(text, None)


@pytest.mark.parametrize(
    "text", ["", "{", '{"op":"xor"}', '{"op":"=","value":"1"}', '{"op":"and","args":3}']
)
def test_invalid_predicate_tree_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a predicate"):
        _core.Predicate(text)


def test_file_lists_are_pruned_like_single_files() -> None:
    partitions = [json.dumps({"p": str(i // 1000)}) for i in range(40_000)]
    table = pa.table(
        {
            "path": [f"f{i}" for i in range(40_000)],
            "partition": partitions,
            "stats": [stats(str(i), str(i + 3)) if i % 7 else "" for i in range(40_000)],
        }
    )
    tree = {
        "op": "and",
        "args": [leaf("between", low="30001", high="30005"), leaf("<>", value="1")],
    }
    on_partition = {
        "op": "in",
        "column": ["p"],
        "type": "string",
        "values": ["30"],
        "partition": True,
    }
    tree["args"].append(on_partition)  # type: ignore[attr-defined]
    predicate = _core.Predicate(json.dumps(tree))
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=999))
    for files in (_core.FileList.from_arrow(table), _core.FileList.from_arrow(batches)):
        mask = files.mask(predicate)
        assert mask == [
            predicate.may_match(row["stats"], row["partition"]) for row in table.to_pylist()
        ]
        assert files.prune(predicate).paths() == table.filter(pa.array(mask))["path"].to_pylist()
        assert 0 < sum(mask) < 160


def test_statistics_of_deltalake_never_prune_their_own_rows(tmp_path: Path) -> None:
    noon = datetime(2020, 1, 1, 12, 0, 0, 123456)
    rows: dict[str, tuple[pa.DataType, list[Any]]] = {
        "long": (pa.int64(), [1, 5]),
        "float": (pa.float32(), [0.1, 1e10]),
        "double": (pa.float64(), [0.1, float("nan")]),
        "decimal(20,2)": (pa.decimal128(20, 2), [Decimal("1234567890123456.78"), Decimal("9.99")]),
        "decimal(38,0)": (pa.decimal128(38, 0), [Decimal(10**37 + 1), Decimal(-(10**37)) + 1]),
        "string": (pa.string(), ["a" * 100, "é" * 70]),
        "date": (pa.date32(), [date(2020, 1, 1), date(1, 1, 1)]),
        "timestamp": (pa.timestamp("us", "UTC"), [noon, noon]),
        "timestamp_ntz": (pa.timestamp("us"), [noon, noon]),
        "boolean": (pa.bool_(), [True, True]),
    }
    columns = {f"c{i}": pa.array(v, t) for i, (t, v) in enumerate(rows.values())}
    write_deltalake(tmp_path, pa.table(columns))
    log = (tmp_path / "_delta_log" / f"{0:020}.json").read_bytes()
    (file,) = _core.parse_commit(log).adds
    assert file.num_records == 2
    literals = {column.name: column.literal for column in TYPES}
    for i, (name, (_, values)) in enumerate(rows.items()):
        literal = literals.get(name, lambda value: f"{value:f}")
        for value in values:
            text = literal(float(columns[f"c{i}"][0].as_py()) if name == "float" else value)
            for op in ("=", "<=", ">="):
                tree = {"op": op, "column": [f"c{i}"], "type": name, "value": text}
                assert _core.Predicate(json.dumps(tree)).may_match(file.stats, None), tree
