"""`catalog.query` returns correct results for unusual SQL."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlglot

import deltasql
from deltasql.engine.duckdb import sandbox as duckdb_confined
from deltasql.exceptions import InvalidQueryError, MissingDataFilesError, TxnLogEngineError
from deltasql.model.predicates.query_conditions import named_columns
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def sales(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """Yield a SQLite catalog with `sales` in four files of ten rows."""
    with deltasql.connect(
        sqlite_uri, mirror={"mode": "off"}, table={"data_root": str(tmp_path / "lake")}
    ) as catalog:
        for first in range(0, 40, 10):
            ids = range(first, first + 10)
            tags = [["a", "b"] if each == 39 else [] for each in ids]
            rows = {"id": pa.array(ids, pa.int64()), "tags": pa.array(tags, pa.list_(pa.string()))}
            with catalog.begin() as tx:
                tx.write("sales", pa.table(rows))
        yield catalog


def query_rows(catalog: Catalog, sql: str, **options: Any) -> list[Any]:
    return [tuple(row.values()) for row in catalog.query(sql, **options).read_all().to_pylist()]


@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("(SELECT id FROM sales) ORDER BY id DESC LIMIT 2", [39, 38]),
        ("((SELECT id FROM sales) ORDER BY id DESC LIMIT 3 OFFSET 1)", [38, 37, 36]),
        ("((SELECT id FROM sales ORDER BY id LIMIT 3) ORDER BY id DESC) LIMIT 2", [2, 1]),
        ("WITH a AS (SELECT 7 AS id) (SELECT id FROM a UNION ALL SELECT 3) ORDER BY id", [3, 7]),
        ("(VALUES (2), (1)) ORDER BY 1 LIMIT 1", [1]),
        ("((SELECT id FROM sales WHERE id = 5))", [5]),
    ],
)
def test_order_and_limit_outside_parentheses_apply(
    sales: Catalog, sql: str, ids: list[int]
) -> None:
    assert query_rows(sales, sql) == [(each,) for each in ids]
    assert query_rows(sales, sql, limit=1) == [(ids[0],)]


def test_unnest_with_limit_reads_every_file(sales: Catalog) -> None:
    assert query_rows(sales, "SELECT unnest(tags) AS tag FROM sales LIMIT 10") == [("a",), ("b",)]
    assert query_rows(sales, "SELECT unnest(tags) AS tag FROM sales", limit=10) == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT DISTINCT len(tags) FROM sales LIMIT 2", 2),
        ("SELECT len(tags) FROM sales GROUP BY ALL LIMIT 2", 2),
        ("SELECT id FROM sales QUALIFY row_number() OVER (ORDER BY id) > 35 LIMIT 9", 5),
        ("SELECT id FROM sales USING SAMPLE 30 ROWS LIMIT 20", 20),
        ("SELECT mode(len(tags)) FROM sales LIMIT 2", 1),
    ],
)
def test_limit_applies_to_the_result_not_to_the_table(sales: Catalog, sql: str, count: int) -> None:
    assert len(query_rows(sales, sql)) == count


@pytest.mark.parametrize("share", ["10%", "10 PERCENT"])
def test_percent_limit_applies_to_all_rows(sales: Catalog, share: str) -> None:
    assert len(query_rows(sales, f"SELECT id FROM sales LIMIT {share}")) == 4
    assert len(query_rows(sales, f"SELECT id FROM sales LIMIT {share}", limit=3)) == 3
    assert len(query_rows(sales, f"SELECT id FROM sales LIMIT {share}", limit=20)) == 4


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM sales, LATERAL read_csv('/etc/passwd')",
        "SELECT * FROM sales, LATERAL read_parquet('/etc/passwd') p",
        "SELECT * FROM sales LEFT JOIN LATERAL read_csv('/etc/passwd') ON true",
        "SELECT read_csv('/etc/passwd')",
        "SELECT * FROM ROWS FROM (read_csv('/etc/passwd'))",
        "FROM (DESCRIBE sales)",
        "FROM (SHOW TABLES)",
        "SELECT * FROM sales, (SUMMARIZE sales)",
    ],
)
def test_table_functions_and_nested_statements_are_rejected(sales: Catalog, sql: str) -> None:
    with pytest.raises(InvalidQueryError, match="Write one SELECT"):
        sales.query(sql)


def test_lateral_over_table_columns_is_allowed(sales: Catalog) -> None:
    many = "SELECT id, tag FROM sales, LATERAL unnest(tags) t(tag) ORDER BY tag"
    assert query_rows(sales, many) == [(39, "a"), (39, "b")]
    inner = "SELECT s.id, x FROM sales s, LATERAL (SELECT s.id + 1 AS x) WHERE s.id = 4"
    assert query_rows(sales, inner) == [(4, 5)]


def test_out_of_memory_error_names_the_memory_option() -> None:
    import duckdb

    with (
        pytest.raises(TxnLogEngineError, match=r"engine\.memory_limit"),
        duckdb_confined._short_errors(),
    ):
        raise duckdb.OutOfMemoryException("no room\n\nLINE 1: SELECT")


def test_timeout_excludes_time_between_reads(
    sales: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = sales.query("SELECT i FROM range(1000000) r(i)", timeout=600)
    rows = reader.read_next_batch().num_rows
    later = time.monotonic() + 6000  # time in which no batch was read
    monkeypatch.setattr(duckdb_confined, "time", SimpleNamespace(monotonic=lambda: later))
    rows += sum(batch.num_rows for batch in reader)
    assert rows == 1_000_000


@pytest.mark.parametrize("name", ["asked_0", "ASKED_1", *(f"relation_{n}" for n in range(1, 9))])
def test_query_names_do_not_hide_internal_relations(sales: Catalog, name: str) -> None:
    sql = f"WITH {name} AS (SELECT 7 AS id) SELECT count(*) AS n, max(s.id) AS m FROM sales s"
    assert query_rows(sales, sql) == [(40, 39)]
    assert query_rows(sales, f"{sql}, {name} x, sales b WHERE b.id = 1 AND x.id = 7") == [(40, 39)]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT crm.sales.id FROM crm.sales WHERE crm.sales.id < 2", [(1,)]),
        ("SELECT CRM.Sales.id FROM crm.sales@0 ORDER BY crm.sales.id", [(1,), (2,)]),
        ("SELECT crm.sales.who.name FROM crm.sales WHERE crm.sales.who.name < 'B'", [("Ada",)]),
        ("SELECT crm.sales.* EXCLUDE (who) FROM crm.sales ORDER BY ALL", [(1,), (2,)]),
        ("SELECT crm.sales.id FROM crm.sales JOIN hr.sales ON crm.sales.id = hr.sales.id", [(2,)]),
        ("SELECT sales.id FROM sales JOIN hr.sales ON sales.id = hr.sales.id + 1", [(3,)]),
        (
            "SELECT crm.sales.id FROM crm.sales "
            "WHERE EXISTS (SELECT 1 FROM hr.sales h WHERE h.id = crm.sales.id)",
            [(2,)],
        ),
    ],
)
def test_column_can_be_qualified_with_the_namespace(
    sales: Catalog, sql: str, rows: list[tuple[object]]
) -> None:
    with sales.begin() as tx:
        tx.write("crm.sales", pa.table({"id": [1, 2], "who": [{"name": "Ada"}, {"name": "Bob"}]}))
        tx.write("hr.sales", pa.table({"id": [2]}))
    assert query_rows(sales, sql) == rows


def test_ambiguous_namespace_qualifier_is_rejected(sales: Catalog) -> None:
    with sales.begin() as tx:
        tx.write("crm.sales", pa.table({"id": [1, 2]}))
        tx.write("hr.sales", pa.table({"id": [2]}))
    outer = "SELECT crm.sales.id FROM crm.sales WHERE EXISTS (SELECT 1 FROM {} = crm.sales.id)"
    for inner in ("hr.sales WHERE sales.id", "(SELECT 2 AS id) AS sales WHERE sales.id"):
        with pytest.raises(TxnLogEngineError, match="crm"):
            sales.query(outer.format(inner))


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT a FROM t WHERE T.B > 1 ORDER BY c", {"a", "b", "c"}),
        ("SELECT count(*) AS t FROM t JOIN u USING (id)", {"id"}),
        ("SELECT x.a FROM t x, unnest(x.tags) AS y(tag)", {"a", "tags"}),
        ("SELECT *, a FROM t", None),
        ("SELECT t.* FROM t", None),
        ("SELECT t.a FROM t NATURAL JOIN u", None),
        ("SELECT t.a FROM t NATURAL LEFT JOIN u", None),
        ("SELECT T FROM t", None),
        ("SELECT to_json(s) FROM t s", None),
        ("SELECT count(DISTINCT s) FROM t AS s", None),
        ("SELECT COLUMNS('a.*') FROM t", None),
        ("SELECT COLUMNS(c -> c LIKE 'a%') FROM t", None),
        ("SELECT max(COLUMNS(*)) FROM t", None),
        ("SELECT #1 FROM t", None),
        ("SELECT x FROM t AS s(x, y)", None),
        ("SELECT a FROM (PIVOT t ON b USING sum(c))", None),
    ],
)
def test_named_columns_is_none_if_columns_are_used_implicitly(
    sql: str, wanted: set[str] | None
) -> None:
    found = named_columns(sqlglot.parse_one(sql, read="duckdb"))
    assert (found is None) == (wanted is None)
    assert found is None or wanted is None or found >= wanted


def test_columns_that_a_query_uses_without_naming_them_are_read_from_s3(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> None:
    with deltasql.connect(
        sqlite_uri,
        mirror={"mode": "off"},
        table={"data_root": s3_location},
        storage={"options": s3_options},
    ) as catalog:
        with catalog.begin() as tx:
            tx.write("left", pa.table({"id": [1, 2], "kind": ["a", "b"], "price": [5, 6]}))
            tx.write("right", pa.table({"id": [1, 2], "kind": ["a", "x"], "note": ["y", "z"]}))
        natural = 'SELECT price, note FROM "left" NATURAL JOIN "right"'
        assert query_rows(catalog, natural) == [(5, "y")]
        row = {"id": 2, "kind": "b", "price": 6}
        assert query_rows(catalog, 'SELECT s FROM "left" s WHERE id = 2') == [(row,)]
        assert query_rows(catalog, "SELECT COLUMNS('^k') FROM \"left\" WHERE price = 5") == [("a",)]
        assert query_rows(catalog, 'SELECT sum(price) AS "left" FROM "left"') == [(11,)]


def test_query_error_names_a_data_file_that_is_missing_in_s3(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> None:
    with deltasql.connect(
        sqlite_uri,
        mirror={"mode": "off"},
        table={"data_root": s3_location},
        storage={"options": s3_options},
    ) as catalog:
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1, 2]}))
        [path] = catalog.table("t").scan().paths()
        open_storage(catalog.table("t").location, catalog.config.storage).delete(path)
        with pytest.raises(MissingDataFilesError, match="is missing") as caught:
            query_rows(catalog, "SELECT sum(id) FROM t")
        assert caught.value.files == (path,)
