"""SQL over tables with `QueryBuilder` and with DataFusion sessions."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake.exceptions import DeltaError

from deltasql import DeltaTable, QueryBuilder, write_deltalake
from deltasql.api.deltalake_compat.query_builder import _run_in_duckdb
from deltasql.engine.duckdb import connection as duckdb_shared
from deltasql.exceptions import TxnLogMirrorError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Address


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def test_query_reads_the_version_of_the_registered_table(address: Address) -> None:
    uri = address("t")
    write_deltalake(uri, numbers(1, 2))
    write_deltalake(uri, numbers(3), mode="append")
    builder = (
        QueryBuilder()
        .register("now", DeltaTable(uri))
        .register("before", DeltaTable(uri, version=0))
    )
    found = pa.table(
        builder.execute("SELECT n.id FROM now n LEFT ANTI JOIN before b ON n.id = b.id")
    )
    assert found["id"].to_pylist() == [3]


def test_query_joins_with_plain_deltalake_tables(sqlite_address: Address, tmp_path: Path) -> None:
    write_deltalake(sqlite_address("t"), numbers(1, 2))
    deltalake.write_deltalake(tmp_path / "plain", numbers(2, 3))
    query = "SELECT count(*) AS n FROM a JOIN b ON a.id = b.id"
    for mirror in ("sync", "off"):
        own = DeltaTable(f"{sqlite_address('t')}&mirror={mirror}")
        if mirror == "off":
            with own._table.catalog.begin() as tx:
                tx.write("t", numbers(3))
            own.update_incremental()
        builder = QueryBuilder().register("a", own).register("b", DeltaTable(tmp_path / "plain"))
        assert pa.table(builder.execute(query))["n"].to_pylist() == [1 if mirror == "sync" else 2]


def test_unpublished_table_can_be_queried(address: Address) -> None:
    uri = address("t")
    uri += f"{'&' if '?' in uri else '?'}mirror=off"
    write_deltalake(uri, numbers(1, 2))
    table = DeltaTable(uri)
    builder = QueryBuilder().register("t", table)
    assert pa.table(builder.execute("SELECT sum(id) AS n FROM t"))["n"].to_pylist() == [3]
    with pytest.raises(DeltaError):
        builder.execute("SELECT FROM WHERE")
    with pytest.raises(TxnLogMirrorError, match="mirror is off"):
        table._table.published()


def test_unread_result_leaves_no_engine_open(sqlite_address: Address) -> None:
    uri = sqlite_address("t")
    write_deltalake(uri, numbers(1, 2))
    tables = {"t": DeltaTable(uri)._table}
    gc.collect()
    before = sum(each.users for each in duckdb_shared._instances.values())
    result = _run_in_duckdb("SELECT id FROM t ORDER BY id", tables)
    del result
    gc.collect()
    assert sum(each.users for each in duckdb_shared._instances.values()) == before
    read = _run_in_duckdb("SELECT id FROM t ORDER BY id", tables).read_all()
    assert read["id"].to_pylist() == [1, 2]


def test_pending_version_is_published_before_the_query(address: Address) -> None:
    uri = address("t")
    off = f"{uri}{'&' if '?' in uri else '?'}mirror=off"
    write_deltalake(off, numbers(1))
    table = DeltaTable(uri)
    assert table._table.is_published() is False
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT id FROM t"))
    assert found["id"].to_pylist() == [1]
    assert table._table.is_published() is True


ROWS = pa.table(
    {
        "day": ["a", "a", "b c/%", None],
        "id": pa.array([0, 1, 2, None], pa.int64()),
        "Name": ["x", None, "y'z", "\\"],
        "part": [1.5, float("nan"), None, -0.0],
        "price": pa.array([1, 2, 3, None], pa.decimal128(10, 2)),
        "due": pa.array([19_000, 19_001, None, 0], pa.date32()),
        "single": pa.array([0.1, None, 2.5, 3.0], pa.float32()),
    }
)
QUERIES = (
    "SELECT * FROM t WHERE id >= 12 AND id < 22",
    "SELECT x.id / 3 AS third, count(*) AS n FROM t AS x WHERE x.id BETWEEN 1 AND 11 GROUP BY 1",
    "SELECT * FROM t WHERE id IN (1, 31, 999)",
    "SELECT * FROM t WHERE id NOT IN (1, 31, 999)",
    "SELECT * FROM t WHERE NOT (id > 5 OR id IS NULL)",
    "SELECT * FROM t WHERE id = '20' OR id > '3'",
    "SELECT * FROM t WHERE id > 20.5",
    "SELECT * FROM t WHERE id > 1000",
    "SELECT count(*) AS n, sum(id) AS s, avg(part) AS a FROM t WHERE id > 1000",
    "SELECT * FROM t WHERE day = 'b c/%'",
    "SELECT * FROM t WHERE day IS NULL AND id IS NULL",
    "SELECT * FROM t WHERE day <> '' AND day IS NOT NULL AND NOT day = 'a'",
    """SELECT * FROM t WHERE "Name" = 'y''z' OR Name = '\\'""",
    "SELECT * FROM t WHERE part > 1 AND id + 1 > 10",
    "SELECT * FROM t WHERE part <= 0 OR part = 0",
    "SELECT * FROM t WHERE price = 2.0 AND price < 3",
    "SELECT * FROM t WHERE single = 0.1 OR single >= 3",
    "SELECT * FROM t WHERE due >= '2022-01-08' AND due <> DATE '2022-01-09'",
    "WITH few AS (SELECT * FROM t WHERE id < 12) SELECT f.id FROM few f WHERE f.id > 0",
    "SELECT a.id, b.id AS other FROM t a LEFT JOIN t b ON a.id = b.id - 10 WHERE b.id IS NULL",
    "SELECT * FROM (SELECT id FROM t WHERE id > 20) s WHERE s.id < 31",
    "SELECT id FROM t WHERE id > (SELECT avg(id) FROM t)",
    "SELECT id FROM t WHERE id < 12 UNION ALL SELECT id FROM t WHERE id > 30",
    "SELECT id FROM t WHERE id > 5 ORDER BY id DESC LIMIT 3",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeltaTable, deltalake.DeltaTable]:
    """Return one table, opened with deltasql and, from its published log, with deltalake."""
    folder = tmp_path_factory.mktemp("sp ace")
    uri = f"deltasql://sqlite/{folder}/meta.db?table=t"
    for number in range(4):
        moved = pc.add(ROWS["id"], 10 * number)
        rows = ROWS.set_column(1, "id", moved)
        write_deltalake(uri, rows, mode="append", partition_by=["day"])
    own = DeltaTable(uri)
    return own, deltalake.DeltaTable(own.table_uri)


@pytest.mark.parametrize("query", QUERIES)
def test_query_results_equal_those_of_deltalake(
    pair: tuple[DeltaTable, deltalake.DeltaTable], query: str
) -> None:
    own, stock = pair
    found = pa.table(QueryBuilder().register("t", own).execute(query))
    wanted = pa.table(deltalake.QueryBuilder().register("t", stock).execute(query))
    assert found.schema == wanted.schema
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


def test_query_that_skips_files_does_not_publish(address: Address) -> None:
    uri = address("t")
    off = f"{uri}{'&' if '?' in uri else '?'}mirror=off"
    for start in (1, 10, 20):
        write_deltalake(off, numbers(start, start + 1), mode="append")
    table = DeltaTable(uri)
    builder = QueryBuilder().register("t", table)
    found = pa.table(builder.execute("SELECT id FROM t WHERE id >= 20 ORDER BY id"))
    assert found["id"].to_pylist() == [20, 21]
    assert table._table.is_published() is False


def test_registered_table_stays_at_its_version(sqlite_address: Address) -> None:
    write_deltalake(sqlite_address("t"), numbers(1))
    table = DeltaTable(sqlite_address("t"))
    builder = QueryBuilder().register("t", table)
    write_deltalake(table, numbers(2), mode="append")
    assert table.version() == 1
    for query in ("SELECT id FROM t WHERE id > 0", "SELECT id FROM t"):
        assert pa.table(builder.execute(query))["id"].to_pylist() == [1]


def test_session_keeps_registered_tables_and_views(sqlite_address: Address) -> None:
    write_deltalake(sqlite_address("t"), numbers(1, 2))
    table = DeltaTable(sqlite_address("t"))
    builder = QueryBuilder().register("t", table)
    with pytest.raises(DeltaError, match="already exists"):
        builder.register("t", table)
    builder.execute("CREATE VIEW v AS SELECT id + 1 AS next FROM t WHERE id > 1")
    assert pa.table(builder.execute("SELECT next FROM v"))["next"].to_pylist() == [3]
    builder.execute("DROP TABLE t")
    with pytest.raises(DeltaError, match="not found"):
        builder.execute("SELECT * FROM t WHERE id = 1")


def test_session_options_apply_to_queries(sqlite_address: Address) -> None:
    write_deltalake(sqlite_address("t"), numbers(1, 2))
    table = DeltaTable(sqlite_address("t"))
    folding = {"datafusion.sql_parser.enable_ident_normalization": "true"}
    found = pa.table(
        QueryBuilder(folding).register("t", table).execute("SELECT ID FROM T WHERE ID = 2")
    )
    assert found["id"].to_pylist() == [2]


def test_datafusion_table_provider_equals_that_of_deltalake(sqlite_address: Address) -> None:
    write_deltalake(sqlite_address("t"), numbers(1, 2))
    own = DeltaTable(sqlite_address("t"))

    def outcome(table: deltalake.DeltaTable) -> str:
        try:
            return type(table.__datafusion_table_provider__()).__name__
        except RuntimeError as error:  # DataFusion is not installed
            return str(error)

    assert outcome(own) == outcome(deltalake.DeltaTable(own.table_uri))
