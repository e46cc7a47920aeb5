"""The same changes on DuckDB and on Spark give the same tables.

The engines may divide the same rows into other files: Spark writes one file per task. So the number
of rows that a change only copies may differ, and an optimize may find work on one table only.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import deltasql
import deltasql.spark
from deltasql.exceptions import TxnLogError
from tests.oracles.states import Rows, arrow_rows
from tests.selection import examples
from tests.spark.changes import (
    CONDITION,
    MERGE,
    ROWS,
    SCHEMA,
    SETTING,
    WIDER,
    add_clauses,
    arrow,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog

pytestmark = pytest.mark.everything(
    "random changes on both engines; tests/engine/protocol.py has the contract"
)

ENGINES = ("duckdb", "spark")
STEPS: tuple[st.SearchStrategy[Any], ...] = (
    st.tuples(st.just("append"), ROWS, st.booleans()),
    st.tuples(st.just("update"), SETTING, CONDITION),
    st.tuples(st.just("merge"), MERGE, st.just(False)),
    st.tuples(st.just("delete"), CONDITION),
    st.tuples(st.just("optimize")),
    st.tuples(st.just("replace"), ROWS, CONDITION),
    st.tuples(st.just("merge"), MERGE, st.just(True)),
    st.tuples(st.just("z_order")),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.just("rename")),
    st.tuples(st.just("update"), SETTING, CONDITION),
    st.tuples(st.just("overwrite"), ROWS, st.sampled_from([None, "overwrite"])),
)
"""Every kind of change, in any order: even the simplest example has all of them."""
REARRANGES = ("optimize", "z_order")
BY_FILE = ("num_target_rows_copied", "num_output_rows", "num_copied_rows")
"""Row counts that depend on how the rows are divided into files."""


@given(
    first=ROWS,
    steps=st.permutations(STEPS).flatmap(lambda steps: st.tuples(*steps)),
    parts=st.sampled_from([["g"], [], ["day", "g"]]),
)
# No shrinking: each run takes Spark seconds, and the failure names the step.
@settings(
    max_examples=examples(20),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_same_changes_on_both_engines_give_the_same_table(
    spark: SparkSession, first: list[Any], steps: tuple[Any, ...], parts: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        uri = f"deltasql://sqlite/{folder}/meta.db"
        with deltasql.connect(
            uri, mirror={"mode": "off"}, table={"data_root": f"{folder}/lake"}
        ) as catalog:
            for engine in ENGINES:
                catalog.create_table(engine, SCHEMA, partition_by=parts)
                with catalog.begin() as tx:
                    tx.write(engine, arrow(first), engine="duckdb")
            versions = [[head(catalog, engine)] for engine in ENGINES]
            for number, step in enumerate(steps):
                results = [
                    take(catalog, spark, engine, step, known)
                    for engine, known in zip(ENGINES, versions, strict=True)
                ]
                assert results[0] == results[1], (number, step)
                states = [rows(catalog, engine) for engine in ENGINES]
                assert states[0] == states[1], (number, step)
                for engine, known in zip(ENGINES, versions, strict=True):
                    known.append(head(catalog, engine))
                commits = [known[-1] - known[-2] for known in versions]
                assert commits[0] == commits[1] or step[0] in REARRANGES, (number, step)
            read = deltasql.spark.read(spark, catalog.table("duckdb").uri).toArrow()
            assert arrow_rows(read) == rows(catalog, "spark")


def head(catalog: Catalog, table: str) -> int:
    return catalog.table(table).snapshot().version


def take(
    catalog: Catalog, spark: SparkSession, engine: str, step: Any, versions: list[int]
) -> dict[str, Any] | str:
    """Apply one change to a table; return its row counts or the name of its error."""
    try:
        with catalog.begin() as tx:
            metrics = stage(spark, tx, engine, step, versions)
    except TxnLogError as error:
        return type(error).__name__
    if "num_output_rows" in metrics:
        written = ("inserted", "updated", "copied")
        parts = [metrics[f"num_target_rows_{kind}"] for kind in written]
        assert metrics["num_output_rows"] == sum(parts), (engine, step, metrics)
    return {n: value for n, value in metrics.items() if "rows" in n and n not in BY_FILE}


def stage(
    spark: SparkSession,
    tx: deltasql.MultiTableTransaction,
    engine: str,
    step: Any,
    versions: list[int],
) -> dict[str, Any]:
    def rows_for(rows: list[Any], wider: bool) -> object:
        table = arrow(rows, WIDER if wider else SCHEMA)
        return spark.createDataFrame(table) if engine == "spark" else table

    match step:
        case ("append", rows, wider):
            mode = "merge" if wider else None
            tx.write(engine, rows_for(rows, wider), schema_mode=mode)
        case ("replace", rows, condition):
            tx.write(engine, rows_for(rows, False), mode="overwrite", predicate=condition)
        case ("overwrite", rows, schema_mode):
            tx.write(engine, rows_for(rows, False), mode="overwrite", schema_mode=schema_mode)
        case ("delete", condition):
            return tx.delete(engine, condition, engine=engine)
        case ("update", (column, value), condition):
            return tx.update(engine, {column: value}, predicate=condition, engine=engine)
        case ("merge", (source, matched, inserts, alone), wider):
            source_rows = rows_for(source, wider)
            merger = tx.merge(engine, source_rows, "t.id = s.id", "s", "t", merge_schema=wider)
            return dict(add_clauses(merger, matched, inserts, alone).execute())
        case ("optimize",):
            tx.optimize(engine, engine=engine)
        case ("z_order",):
            tx.z_order(engine, ["id", "v"], engine=engine)
        case ("restore", number):
            tx.restore(engine, versions[number % len(versions)])
        case ("rename",):
            tx.rename_column(engine, "x", "y")
    return {}


def rows(catalog: Catalog, table: str) -> Rows:
    with catalog.begin() as tx:
        found = tx.read(table, engine="duckdb")
    return arrow_rows(found)
