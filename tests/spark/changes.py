"""Random rows and changes, in SQL that means the same in every engine and in delta-spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("g", pa.string()),
        ("v", pa.int64()),
        ("x", pa.float64()),
        ("m", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
WIDER = SCHEMA.append(pa.field("extra", pa.string()))
_AT = dt.datetime(2024, 5, 1, 23, 30, 0, 125_000, tzinfo=dt.UTC)
_VALUES: tuple[st.SearchStrategy[Any], ...] = (
    st.one_of(st.integers(0, 8), st.none()),
    st.sampled_from(["a", "b", "it's", "ä%_", None]),
    st.one_of(st.integers(-3, 4), st.none()),
    st.sampled_from([0.0, -1.5, 2.25, float("nan"), float("inf"), None]),
    st.sampled_from([Decimal("0.50"), Decimal("-2.25"), Decimal("1234567.89"), None]),
    st.sampled_from([dt.date(2024, 5, 1), dt.date(1969, 12, 31), None]),
    st.sampled_from(
        [_AT, _AT + dt.timedelta(hours=2), dt.datetime(1950, 1, 1, tzinfo=dt.UTC), None]
    ),
)
ROWS = st.lists(st.tuples(*_VALUES), min_size=2, max_size=8)
# Unique ids, so that no two source rows match the same target row.
SOURCE = st.lists(st.tuples(*_VALUES), min_size=1, max_size=6, unique_by=lambda row: row[0])
CONDITION = st.sampled_from(
    [
        "id = 2",
        "id IN (1, 3)",
        "ID IS NULL",
        "NOT v > 2",
        "g = 'a' AND v >= 0",
        "g IS NULL OR g <> 'a'",
        "g LIKE '%t''s'",
        "x > 1.0",
        "m < 1.00",
        "m = 0.5",
        "day = '2024-05-01'",
        "at >= '2024-05-01T23:00:00Z'",
        "coalesce(v, 0) % 2 = 0",
        "id BETWEEN 3 AND 5 OR v IS NULL",
        "true",
    ]
)
SETTING = st.sampled_from(
    [
        ("v", "v + 1"),
        ("V", "id"),
        ("v", "NULL"),
        ("v", "CASE WHEN v > 2 THEN -v ELSE length(g) END"),
        ("g", "upper(g)"),
        ("g", "coalesce(g, 'none')"),
        ("x", "x * 2 + v"),
        ("x", "CAST(v AS DOUBLE)"),
        ("m", "CAST(v AS DECIMAL(9,2))"),
        ("m", "abs(m)"),
        ("day", "CAST(at AS DATE)"),
        ("at", "NULL"),
        ("id", "id + 1"),
    ]
)
MATCHED = st.lists(
    st.sampled_from(
        [
            ("update_all", None),
            ("update_all", "s.v > t.v"),
            ("delete", None),
            ("delete", "s.v = 1 OR t.g = 'a'"),
            ("update", "t.g = 'a'"),
            ("update", None),
        ]
    ),
    min_size=1,
    max_size=3,
)
INSERTS = st.lists(
    st.sampled_from([("insert_all", None), ("insert_all", "s.v > 0"), ("insert", "s.g = 'b'")]),
    min_size=1,
    max_size=2,
)
ALONE = st.lists(
    st.sampled_from([("delete", "t.v > 2"), ("update", "t.g = 'b'"), ("update", None)]), max_size=2
)
MERGE = st.tuples(SOURCE, MATCHED, INSERTS, ALONE).filter(
    # Only the last clause of a kind may have no condition, and one clause must exist.
    lambda merge: (
        any(merge[1:]) and all(condition for clauses in merge[1:] for _, condition in clauses[:-1])
    )
)


def arrow(rows: Sequence[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows as Arrow; columns that the rows lack hold 'new'."""
    wide = [(*row, *["new"] * (len(schema) - len(row))) for row in rows]
    columns = list(zip(*wide, strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def add_clauses(
    merger: Any,
    matched: Sequence[tuple[str, str | None]],
    inserts: Sequence[tuple[str, str | None]],
    alone: Sequence[tuple[str, str | None]],
) -> Any:
    """Add clauses to a merge of deltasql."""
    for kind, condition in matched:
        if kind == "update_all":
            merger.when_matched_update_all(condition)
        elif kind == "update":
            merger.when_matched_update({"v": "s.v + coalesce(t.v, 0)", "g": "t.g"}, condition)
        else:
            merger.when_matched_delete(condition)
    for kind, condition in inserts:
        if kind == "insert_all":
            merger.when_not_matched_insert_all(condition)
        else:
            merger.when_not_matched_insert({"id": "s.id", "v": "s.v * 2"}, condition)
    for kind, condition in alone:
        if kind == "delete":
            merger.when_not_matched_by_source_delete(condition)
        else:
            merger.when_not_matched_by_source_update({"v": "0", "x": "t.x + 1"}, condition)
    return merger


def merge_sql(
    target: str,
    matched: Sequence[tuple[str, str | None]],
    inserts: Sequence[tuple[str, str | None]],
    alone: Sequence[tuple[str, str | None]],
) -> str:
    """Return the same merge as Spark SQL, with the placeholder {source}."""
    actions = {
        "update_all": "UPDATE SET *",
        "insert_all": "INSERT *",
        "delete": "DELETE",
        "insert": "INSERT (id, v) VALUES (s.id, s.v * 2)",
    }
    parts = [f"MERGE INTO {target} AS t USING {{source}} AS s ON t.id = s.id"]
    for when, clauses, update in (
        ("MATCHED", matched, "UPDATE SET v = s.v + coalesce(t.v, 0), g = t.g"),
        ("NOT MATCHED", inserts, ""),
        ("NOT MATCHED BY SOURCE", alone, "UPDATE SET v = 0, x = t.x + 1"),
    ):
        for kind, condition in clauses:
            also = f" AND ({condition})" if condition else ""
            parts.append(f"WHEN {when}{also} THEN {actions.get(kind, update)}")
    return " ".join(parts)
