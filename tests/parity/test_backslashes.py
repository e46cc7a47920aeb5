"""A backslash in SQL values, patterns and predicates is a literal character, as in DataFusion."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.parity.lakes import Lake, column, rows

_PATHS = pa.table({"id": [1, 2, 3], "s": ["C:\\new", "a\nb", "n7"]})


@pytest.mark.parametrize("part", [None, "s"])
@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        (r"s = 'C:\new'", [2, 3]),
        (r"s <> 'C:\new'", [1]),
        (r"s IN ('C:\new', 'x')", [2, 3]),
        (r"s LIKE 'C:\\%'", [2, 3]),
        (r"s ~ '^n\d$'", [1, 2]),
        (r"regexp_like(s, '^n\d$') AND id > 0", [1, 2]),
        (r"s = 'a\nb'", [1, 2, 3]),
        (r"s = 'C:\' OR id = 3", [1, 2]),
    ],
)
def test_backslash_in_predicates_is_literal(
    lake: Lake, part: str | None, predicate: str, left: list[int]
) -> None:
    table = lake.make("t", _PATHS, partition_by=part)
    table.delete(predicate)
    assert column(table, "id") == left


@pytest.mark.parametrize(
    ("expression", "made"),
    [
        (r"'C:\new'", "C:\\new"),
        (r"'\\'", "\\\\"),
        (r"regexp_replace('a7', '\d', '#')", "a#"),
        (r"'C:\'", "C:\\"),
    ],
)
def test_backslash_in_update_expressions_is_literal(lake: Lake, expression: str, made: str) -> None:
    table = lake.make("t", _PATHS)
    table.update({"s": expression}, predicate=r"s = 'C:\new'")
    assert [row["s"] for row in rows(table)] == [made, "a\nb", "n7"]
    table.update(new_values={"s": "D:\\table"}, predicate="id = 2")
    assert rows(table)[1]["s"] == "D:\\table"


def test_backslash_in_merge_is_literal(lake: Lake) -> None:
    table = lake.make("t", _PATHS)
    source = pa.table({"id": [1, 4], "s": ["x", "y"]})
    merger = table.merge(source, r"s.id = t.id AND t.s = 'C:\new'", "s", "t")
    merger.when_matched_update({"s": r"'\d'"}).when_not_matched_insert_all().execute()
    assert [row["s"] for row in rows(table)] == ["\\d", "a\nb", "n7", "y"]


def test_backslash_in_replace_where_is_literal(lake: Lake) -> None:
    table = lake.make("t", _PATHS)
    new: Any = pa.table({"id": [9], "s": ["C:\\new"]})
    lake.write_deltalake(table, new, mode="overwrite", predicate=r"s = 'C:\new'")
    assert column(table, "id") == [2, 3, 9]
    assert table.history(1)[0]["operationParameters"]["predicate"] == r"s = 'C:\new'"


def test_backslash_in_constraints_is_literal(lake: Lake) -> None:
    table = lake.make("t", pa.table({"s": ["n7"]}))
    table.alter.add_constraint({"digit": r"s ~ '^n\d$'"})
    lake.write_deltalake(table, pa.table({"s": ["n8"]}), mode="append")
    with pytest.raises(Exception, match=r"(?i)invariant|constraint|validation"):
        lake.write_deltalake(table, pa.table({"s": ["nd"]}), mode="append")
    assert column(table, "s") == ["n7", "n8"]
