"""Tables with variants that both engines, the Spark catalog and delta-spark change in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal

import deltasql.spark
from tests.migrate.spark_tables import forget
from tests.spark.alternation import Alternation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from deltasql import Catalog

pytestmark = pytest.mark.everything("delta-spark as a second opinion, on variants")
JSON = (
    '{"a": 1, "b": "x", "c": [1.5, null, {"d": true}]}',
    '{"a": 2, "b": "y"}',
    "[1, 2]",
    '"text"',
    "null",
    '{"a": "no number", "e": {}}',
)
CREATE = "CREATE TABLE t (id INT, v VARIANT, s STRUCT<w: VARIANT>)"


def insert(first: int) -> str:
    """Return the statement for rows with the ids `first`, which has no values, and following."""
    rows = "".join(
        f", ({n}, parse_json('{text}'), named_struct('w', parse_json('{text}')))"
        for n, text in enumerate(JSON, first + 1)
    )
    escaped = rows.replace("{", "{{").replace("}", "}}")
    return f"INSERT INTO {{t}} VALUES ({first}, NULL, NULL){escaped}"


@pytest.fixture
def table(spark: SparkSession, lake: Catalog) -> Alternation:
    return Alternation(spark, lake)


def plain(value: Any) -> Any:
    """Return a variant as Python values, or NULL."""
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        value = VariantVal(value["value"], value["metadata"])
    return value.toPython()


def values(table: Alternation) -> dict[int, Any]:
    """Return the variants that all readers must read, by id."""
    forget(table.spark)
    theirs = table.spark.read.format("delta").load(str(table.path)).collect()
    ours: Any = deltasql.spark.read(table.spark, table.lake.table("t").uri)
    with table.lake.begin() as tx:
        embedded = tx.read("t").to_pylist()
    found = [
        {row["id"]: (plain(row["v"]), row["s"] and plain(row["s"]["w"])) for row in rows}
        for rows in (theirs, ours.collect(), embedded)
    ]
    assert found[0] == found[1] == found[2]
    return found[0]


def typed(table: Alternation) -> list[bool]:
    """Return for each file whether it has typed columns."""
    paths = table.lake.table("t").snapshot().scan(None).arrow["path"].to_pylist()
    return ["typed_value" in str(pq.read_schema(table.path / path)) for path in paths]


@pytest.mark.parametrize("shredded", [False, True])
def test_variants_stay_the_same_when_all_writers_change_them_in_turn(
    table: Alternation, sql: Callable[[str], list[Any]], shredded: bool
) -> None:
    table.ours(CREATE)
    if shredded:
        table.ours("ALTER TABLE t SET TBLPROPERTIES ('delta.enableVariantShredding' = 'true')")
    table.theirs(insert(0))
    assert any(typed(table)) == shredded
    expected = values(table)
    assert len(expected) == 7
    assert expected[0] == ("NULL", None)
    assert expected[5] == (None, None)
    name = "lake.default.t"
    for step in (
        lambda: table.on_spark("UPDATE t SET id = id + 10 WHERE id = 1"),
        lambda: table.ours("UPDATE t SET id = id + 10 WHERE id = 2"),
        lambda: sql(f"UPDATE {name} SET id = id + 10 WHERE id = 3"),
        lambda: table.theirs("UPDATE {t} SET id = id + 10 WHERE id = 4"),
    ):
        step()
        moved = min(n for n in expected if n)
        expected[moved + 10] = expected.pop(moved)
        assert values(table) == expected
    table.theirs(insert(20))
    assert len(values(table)) == 14
    merge = (
        "MERGE INTO {t} AS t USING (SELECT {n} AS n) AS s ON t.id = s.n "
        "WHEN MATCHED THEN UPDATE SET v = t.s.w, id = n + 100 WHEN NOT MATCHED THEN INSERT (id) "
        "VALUES (s.n)"
    )
    table.on_spark(merge.format(t="t", n=20))
    table.ours(merge.format(t="t", n=1))
    sql(merge.format(t=name, n=2))
    before = values(table)
    assert before[120] == ("NULL", None)
    table.on_spark("DELETE FROM t WHERE id = 3")
    table.ours("DELETE FROM t WHERE id = 4")
    sql(f"DELETE FROM {name} WHERE id = 5")
    left = {n: each for n, each in before.items() if n not in (3, 4, 5)}
    assert values(table) == left
    table.on_spark("OPTIMIZE t")
    assert values(table) == left
    table.theirs(insert(30))
    left = values(table)
    table.ours("OPTIMIZE t")
    assert values(table) == left
    assert table.lake.mirror.verify("t")[0].ok
