"""Random operations on random tables give the rows that the model gives.

deltalake reads the published table after every step: an oracle that shares no code with us.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.exceptions import MergeAmbiguityError
from tests.conftest import new_catalog_uri
from tests.operations import model
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.api.catalog.catalog import Catalog
    from tests.operations.model import Row

pytestmark = pytest.mark.two_databases

VECTORS = {"delta.enableDeletionVectors": "true"}
SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
ROW = st.tuples(
    st.one_of(st.none(), st.integers(0, 5)),
    st.sampled_from([None, "a", "b"]),
    st.one_of(st.none(), st.integers(0, 4)),
)
ROWS = st.lists(ROW, max_size=6)
CONDITION = st.sampled_from(model.CONDITIONS)
STEP = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("delete"), CONDITION),
    st.tuples(st.just("update"), st.sampled_from(model.SETTINGS), CONDITION),
    st.tuples(
        st.just("merge"),
        ROWS,
        st.lists(st.sampled_from(model.PAIR_CLAUSES), max_size=2),
        st.lists(CONDITION, max_size=2),
        st.lists(st.tuples(st.sampled_from(["delete", "update"]), CONDITION), max_size=1),
    ),
)


@given(
    first=ROWS,
    steps=st.lists(STEP, min_size=1, max_size=5),
    parts=st.sampled_from([[], ["g"]]),
    vectors=st.booleans(),
)
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@pytest.mark.parametrize("backend", ["sqlite", "duckdb", "postgres"])
def test_random_operations_give_the_rows_of_the_model(
    backend: str, first: list[Row], steps: list[Any], parts: list[str], vectors: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for uri in new_catalog_uri(backend, Path(folder)):
            data_root = {"data_root": f"{folder}/lake"}
            with deltasql.connect(uri, mirror={"mode": "sync"}, table=data_root) as catalog:
                properties = VECTORS if vectors else {}
                catalog.create_table("t", SCHEMA, partition_by=parts, properties=properties)
                rows = list(first)
                append(catalog, first)
                for step in steps:
                    rows = take(catalog, rows, step)
                    assert stored(catalog) == sorted(rows, key=repr), step


@given(steps=st.lists(STEP, min_size=2, max_size=4), first=ROWS, vectors=st.booleans())
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_changes_of_one_transaction_are_one_commit(
    steps: list[Any], first: list[Row], vectors: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for uri in new_catalog_uri("sqlite", Path(folder)):
            data_root = {"data_root": f"{folder}/lake"}
            with deltasql.connect(uri, mirror={"mode": "sync"}, table=data_root) as catalog:
                catalog.create_table("t", SCHEMA, properties=VECTORS if vectors else {})
                rows = list(first)
                append(catalog, first)
                version = catalog.table("t").snapshot().version
                tx = catalog.begin()
                for step in steps:
                    rows = stage(tx, rows, step)
                tx.commit()
                assert stored(catalog) == sorted(rows, key=repr)
                assert catalog.table("t").snapshot().version <= version + 1


def append(catalog: Catalog, rows: Sequence[Row]) -> None:
    with catalog.begin() as tx:
        tx.write("t", table_of(rows))


def take(catalog: Catalog, rows: list[Row], step: Any) -> list[Row]:
    with catalog.begin() as tx:
        return stage(tx, rows, step)


def stage(tx: deltasql.MultiTableTransaction, rows: list[Row], step: Any) -> list[Row]:
    """Run a step in the transaction and in the model; return the rows of the model."""
    kind, *facts = step
    if kind == "append":
        tx.write("t", table_of(facts[0]))
        return rows + facts[0]
    if kind == "delete":
        metrics = tx.delete("t", facts[0].sql)
        left = model.delete(rows, facts[0])
        assert metrics["num_deleted_rows"] == len(rows) - len(left)
        return left
    if kind == "update":
        setting, condition = facts
        metrics = tx.update("t", {setting.column: setting.sql}, predicate=condition.sql)
        assert metrics["num_updated_rows"] == sum(condition.holds(row) is True for row in rows)
        return model.update(rows, setting, condition)
    return merge(tx, rows, *facts)


def merge(
    tx: deltasql.MultiTableTransaction,
    rows: list[Row],
    source: list[Row],
    matched: list[model.PairClause],
    inserts: list[model.Condition],
    alone: list[tuple[str, model.Condition]],
) -> list[Row]:
    merger = tx.merge("t", table_of(source), "t.id = s.id", "s", "t")
    for clause in matched:
        if clause.kind == "update_all":
            merger.when_matched_update_all(clause.sql)
        elif clause.kind == "update_v":
            merger.when_matched_update({"v": "s.v"}, clause.sql)
        else:
            merger.when_matched_delete(clause.sql)
    for condition in inserts:
        merger.when_not_matched_insert_all(condition.sql)
    for kind, condition in alone:
        if kind == "delete":
            merger.when_not_matched_by_source_delete(condition.sql)
        else:
            merger.when_not_matched_by_source_update({"v": "0"}, condition.sql)
    try:
        left = model.merge(rows, source, matched, inserts, alone)
    except model.Ambiguous:
        with pytest.raises(MergeAmbiguityError):
            merger.execute()
        return rows
    metrics = merger.execute()
    if metrics["num_target_files_removed"]:
        changed = metrics["num_target_rows_inserted"] - metrics["num_target_rows_deleted"]
        assert len(left) - len(rows) == changed
    return left


def stored(catalog: Catalog) -> list[Row]:
    """Return the rows that deltalake reads from the published table."""
    location = catalog.resolve("t").location
    table = deltalake.DeltaTable(location)
    has_vectors = "deletionVectors" in (table.protocol().reader_features or [])
    found = pa.table(table.scan()) if has_vectors else table.to_pyarrow_table()
    columns = [found[name].to_pylist() for name in SCHEMA.names]
    return sorted(zip(*columns, strict=True), key=repr)


def table_of(rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table(
        [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
