"""`catalog.query` runs read-only SQL over tables by name, at any version."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from deltasql.engine.duckdb import connection as duckdb_shared
from deltasql.exceptions import (
    InvalidQueryError,
    MissingDataFilesError,
    TxnLogEngineError,
    TxnLogTableNotFoundError,
    VersionNotFoundError,
)
from tests.each import check_each

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def write(catalog: Catalog, name: str, data: pa.Table, **options: Any) -> None:
    with catalog.begin() as tx:
        tx.write(name, data, **options)


def query_rows(catalog: Catalog, sql: str, **options: Any) -> list[dict[str, Any]]:
    return catalog.query(sql, **options).read_all().to_pylist()


@pytest.fixture
def sales(catalog: Catalog) -> Catalog:
    """Return a catalog with three versions of `sales`, and with `crm.people`."""
    write(catalog, "sales", numbers(1, 2))
    write(catalog, "sales", numbers(3))
    with catalog.begin() as tx:
        tx.delete("sales", "id = 1")
    write(catalog, "crm.people", pa.table({"id": [2, 3], "name": ["Ada", "Bob"]}))
    return catalog


def test_tables_of_all_namespaces_are_joined_by_name(sales: Catalog) -> None:
    sql = "SELECT p.name FROM sales s JOIN crm.people p USING (id) ORDER BY 1"
    assert query_rows(sales, sql) == [{"name": "Ada"}, {"name": "Bob"}]


@pytest.mark.parametrize(
    "table", ["sales@{v}", "sales AT (VERSION => {v})", "sales VERSION AS OF {v}"]
)
def test_every_version_syntax_reads_that_version(sales: Catalog, table: str) -> None:
    counts = [
        query_rows(sales, f"SELECT count(*) AS n FROM {table.format(v=v)}")[0]["n"]
        for v in range(3)
    ]
    assert counts == [2, 3, 2]


def test_versions_of_one_table_can_be_joined(
    sales: Catalog,
) -> None:
    assert query_rows(sales, "SELECT sales.id FROM sales@0 WHERE sales.id > 1") == [{"id": 2}]
    gone = "SELECT old.id FROM sales@1 old ANTI JOIN sales now ON old.id = now.id"
    assert query_rows(sales, gone) == [{"id": 1}]


def test_timestamp_reads_the_version_of_that_time(sales: Catalog) -> None:
    at = sales.table("sales").snapshot(0).committed_at
    assert query_rows(sales, f"SELECT count(*) AS n FROM sales@'{at.isoformat()}'") == [{"n": 2}]
    before = (at - timedelta(days=1)).isoformat()
    with pytest.raises(VersionNotFoundError):
        sales.query(f"SELECT * FROM sales@'{before}'")
    with pytest.raises(InvalidQueryError, match="not a version or a timestamp"):
        sales.query("SELECT * FROM sales@'soon'")


def test_missing_version_error_names_the_available_versions(sales: Catalog) -> None:
    with pytest.raises(VersionNotFoundError, match="0 to 2"):
        sales.query("SELECT * FROM sales@9")


def test_unknown_table_error_suggests_a_similar_name(sales: Catalog) -> None:
    with pytest.raises(TxnLogTableNotFoundError, match="Did you mean sales"):
        sales.query("SELECT * FROM salse")
    with pytest.raises(TxnLogTableNotFoundError, match=r"Did you mean crm\.people"):
        sales.query("SELECT * FROM crm.peopel")


def test_only_quoted_table_names_are_case_sensitive(sales: Catalog) -> None:
    assert query_rows(sales, "SELECT count(*) AS n FROM Sales") == [{"n": 2}]
    with pytest.raises(TxnLogTableNotFoundError):
        sales.query('SELECT * FROM "Sales"')


def test_common_table_expressions_hide_tables(sales: Catalog) -> None:
    sql = "WITH sales AS (SELECT * FROM sales WHERE id = 3), b AS (FROM sales) SELECT * FROM b"
    assert query_rows(sales, sql) == [{"id": 3}]
    counting = "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 4) "
    assert query_rows(sales, f"{counting} SELECT max(n) AS n FROM t") == [{"n": 4}]


def test_table_name_with_special_characters_can_be_queried(catalog: Catalog) -> None:
    name = "<script>*?[a]alert('x')" + '"; drop table x'
    write(catalog, name, numbers(1))
    quoted = '"' + name.replace('"', '""') + '"'
    assert query_rows(catalog, f"SELECT id FROM {quoted}") == [{"id": 1}]


def test_describe_show_explain_and_summarize_work(sales: Catalog) -> None:
    described = query_rows(sales, "DESCRIBE crm.people")
    assert [(row["column_name"], row["column_type"]) for row in described] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
    ]
    assert [row["name"] for row in query_rows(sales, "SHOW TABLES")] == ["people", "sales"]
    assert "explain_value" in query_rows(sales, "EXPLAIN SELECT * FROM sales")[0]
    assert query_rows(sales, "SUMMARIZE sales")[0]["count"] == 2
    assert query_rows(sales, "VALUES (1), (2)", limit=1) == [{"col0": 1}]


MORE_THAN_READS = [
    "INSERT INTO sales VALUES (1)",
    "DELETE FROM sales",
    "CREATE TABLE x AS SELECT 1",
    "SELECT * INTO y FROM sales",
    "WITH x AS (DELETE FROM sales RETURNING *) SELECT * FROM x",
    "COPY sales TO '/tmp/x.csv'",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "EXPLAIN COPY sales TO '/tmp/x.csv'",
    "ATTACH '/tmp/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 1",
    "PRAGMA database_list",
    "CALL duckdb_tables()",
    "EXPORT DATABASE '/tmp/x'",
    "SELECT 1; SELECT 2",
    "",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT * FROM parquet_scan('/etc/passwd')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM sales, LATERAL read_text('/etc/passwd')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT getvariable('list_1')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT * FROM sales WHERE id = ?",
    "SELECT FROM WHERE",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
]


def test_statements_that_do_more_than_read_are_rejected(sales: Catalog) -> None:
    def check(sql: str) -> None:
        with pytest.raises(InvalidQueryError):
            sales.query(sql)

    check_each(MORE_THAN_READS, check)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM '{other}'",
        'SELECT * FROM "{other}"',
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM relation_1",
        "SELECT * FROM sqlite_master",
    ],
)
def test_files_and_system_tables_cannot_be_queried(
    sales: Catalog, sql: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    with pytest.raises(TxnLogTableNotFoundError):
        sales.query(sql.format(other=other))


def test_query_sandbox_opens_no_other_file(sales: Catalog, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.csv").write_text("a\n1\n")
    database = duckdb_shared.open_sandbox(sales.config.engine, [f"{inside}/"])
    try:
        with pytest.raises(Exception, match="disabled by configuration"):
            database.cursor().execute(f"FROM read_csv('{other}')")
        with pytest.raises(Exception, match="disabled by configuration"):
            database.cursor().execute(f"FROM read_csv('{inside}/../other.csv')")
        with pytest.raises(Exception, match="Cannot enable external access"):
            database.cursor().execute("SET enable_external_access = true")
        assert database.cursor().execute(f"FROM read_csv('{inside}/a.csv')").fetchall() == [(1,)]
    finally:
        database.release()


def test_limit_keeps_the_order_of_the_query(catalog: Catalog) -> None:
    write(catalog, "t", numbers(*range(100)))
    for sql in ("SELECT id FROM t ORDER BY id DESC", "SELECT id FROM t ORDER BY id DESC LIMIT 50"):
        assert query_rows(catalog, sql, limit=2) == [{"id": 99}, {"id": 98}]
    assert query_rows(catalog, "SELECT id FROM t ORDER BY id LIMIT 1", limit=5) == [{"id": 0}]
    both = "SELECT id FROM t UNION ALL SELECT id FROM t ORDER BY id"
    assert query_rows(catalog, both, limit=3) == [{"id": 0}, {"id": 0}, {"id": 1}]


def test_limit_returns_enough_rows_from_any_files(catalog: Catalog) -> None:
    for first in range(0, 30, 10):
        write(catalog, "t", numbers(*range(first, first + 10)))
    with catalog.begin() as tx:
        tx.delete("t", "id < 5")
    for rows in (1, 5, 6, 25, 99):
        assert len(query_rows(catalog, "SELECT * FROM t", limit=rows)) == min(rows, 25)
    assert len(query_rows(catalog, "SELECT * FROM t LIMIT 4 OFFSET 23")) == 2
    assert len(query_rows(catalog, "SELECT * FROM t LIMIT 40%")) == 10
    assert len(query_rows(catalog, "SELECT unnest(range(id % 2)) FROM t LIMIT 12")) == 12
    assert query_rows(catalog, "SELECT max(id) AS m FROM t LIMIT 1") == [{"m": 29}]


def test_query_opens_only_files_that_can_match(catalog: Catalog) -> None:
    for first in (0, 100):
        write(catalog, "t", numbers(*range(first, first + 10)))
    for path in catalog.table("t").scan("id < 50").paths():
        (pa.fs.LocalFileSystem()).delete_file(f"{catalog.table('t').location}/{path}")
    assert query_rows(catalog, "SELECT count(*) AS n FROM t WHERE id >= 100") == [{"n": 10}]
    with pytest.raises(MissingDataFilesError, match=r"DeltaTable\.repair"):
        query_rows(catalog, "SELECT count(*) AS n FROM t WHERE id >= 0 AND id % 2 = 0")


def test_query_error_hides_internal_names(sales: Catalog) -> None:
    with pytest.raises(InvalidQueryError, match="nosuch") as caught:
        sales.query("SELECT nosuch FROM sales")
    assert "deltasql schema" in str(caught.value.help)
    assert "relation_" not in str(caught.value)
    assert "LINE 1" not in str(caught.value)


def test_query_is_stopped_at_its_timeout(sales: Catalog) -> None:
    endless = "SELECT sum(a.n * b.n) FROM range(1000000) a(n), range(1000000) b(n)"
    with pytest.raises(TxnLogEngineError, match=r"longer than 0\.2 s"):
        sales.query(endless, timeout=0.2).read_all()


def test_unread_result_leaves_no_timer(sales: Catalog) -> None:
    reader = sales.query("SELECT id FROM sales ORDER BY id", timeout=600)
    del reader  # an unread result must release its database and its timer
    assert query_rows(sales, "SELECT id FROM sales ORDER BY id") == [{"id": 2}, {"id": 3}]
    assert not [each for each in threading.enumerate() if isinstance(each, threading.Timer)]


def test_tables_of_one_query_are_read_at_one_snapshot(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("a", numbers(0))
        tx.write("b", numbers(0))
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            with catalog.begin() as tx:
                tx.write("a", numbers(1))
                tx.write("b", numbers(1))

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(5):
            sql = "SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b"
            (row,) = query_rows(catalog, sql)
            assert row["a"] == row["b"]
    finally:
        stop.set()
        writer.join()


def test_timestamps_without_a_zone_are_utc(sales: Catalog) -> None:
    later = (datetime.now(UTC) + timedelta(days=1)).replace(tzinfo=None)
    found = query_rows(sales, f"SELECT count(*) AS n FROM sales@'{later.isoformat()}'")
    assert found == [{"n": 2}]


def test_query_returns_columns_of_every_type(catalog: Catalog) -> None:
    rows = pa.table(
        {
            "day": pa.array([datetime(2024, 5, 1).date()]),
            "at": pa.array([datetime(2024, 5, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
            "tags": pa.array([["a", "b"]], pa.list_(pa.string())),
            "price": pa.array([1], pa.decimal128(10, 2)),
        }
    )
    write(catalog, "t", rows, partition_by=["day"])
    found = catalog.query("SELECT * FROM t").read_all()
    assert found.to_pylist() == rows.select(found.column_names).to_pylist()
    assert deltasql.__version__
