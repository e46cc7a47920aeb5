"""Every statement of the reference on the embedded engine, and its effect on each database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql.exceptions import (
    InvalidDataError,
    InvalidQueryError,
    TableExistsError,
    TxnLogSchemaError,
    TxnLogTableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from tests.each import check_each
from tests.sql.cases import ALL, CASES, TWO, Case, T, run_case

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog


def rows(catalog: Catalog, text: str, parameters: Any = None) -> list[dict[str, Any]]:
    return catalog.sql(text, parameters).to_pylist()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.shown)
def test_statement_gives_the_documented_rows(case: Case, catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "files" / "a.parquet")
    with deltasql.SqlSession(catalog) as session:
        found = run_case(case, lambda text: session.sql(text).to_pylist(), str(tmp_path / "files"))
    assert found == case.rows


@pytest.mark.every_database
def test_statements_change_the_same_table_on_every_database(catalog: Catalog) -> None:
    for text in (T, TWO, "UPDATE t SET name = upper(name)", "DELETE FROM t WHERE id = 2"):
        catalog.sql(text)
    assert rows(catalog, ALL) == [{"id": 1, "name": "A"}]
    assert catalog.table("t").version() == 3


def test_same_statements_give_the_same_rows_as_duckdb(catalog: Catalog) -> None:
    """DuckDB runs the same text on its own tables."""
    script = (
        "CREATE TABLE t (id BIGINT, n INT, s STRING)",
        "INSERT INTO t SELECT i, i % 7, concat('s', i % 3) FROM (VALUES "
        + ", ".join(f"({number})" for number in range(200))
        + ") AS v(i)",
        "UPDATE t SET n = n + 10, s = upper(s) WHERE n BETWEEN 2 AND 4 OR s = 's1'",
        "DELETE FROM t WHERE id % 5 = 0 AND s <> 'S2'",
        "CREATE TABLE u AS SELECT id + 100 AS id, n * 2 AS n, 'new' AS s FROM t WHERE n > 3",
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED AND u.n > 20 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET n = u.n, s = concat(t.s, u.s) "
        "WHEN NOT MATCHED THEN INSERT (id, n, s) VALUES (u.id, u.n, u.s) "
        "WHEN NOT MATCHED BY SOURCE AND t.id < 20 THEN UPDATE SET s = 'old'",
        "INSERT INTO u SELECT * FROM t WHERE n IS NOT NULL",
    )
    with duckdb.connect() as oracle:
        for text in script:
            catalog.sql(text)
            oracle.execute(text)
        for query in (
            "SELECT * FROM t ORDER BY id, n, s",
            "SELECT s, count(*) AS c, sum(n) AS n FROM u GROUP BY s ORDER BY s",
            "SELECT t.id, u.n FROM t JOIN u ON t.id = u.id ORDER BY t.id, u.n",
        ):
            expected = [tuple(row) for row in oracle.execute(query).fetchall()]
            assert [tuple(row.values()) for row in rows(catalog, query)] == expected


def test_insert_converts_values_to_the_types_of_the_table(catalog: Catalog) -> None:
    catalog.sql(
        "CREATE TABLE t (i INT, d DOUBLE, p DECIMAL(10, 2), day DATE, at TIMESTAMP, s STRING)"
    )
    catalog.sql("INSERT INTO t VALUES (1.7, 2, 1, '2024-05-01', '2024-05-01 10:00:00', 5)")
    found = catalog.sql("SELECT * FROM t")
    assert str(found["at"][0]) == "2024-05-01 10:00:00+00:00"
    assert [*map(str, found.drop_columns("at").to_pylist()[0].values())] == [
        "1",
        "2.0",
        "1.00",
        "2024-05-01",
        "5",
    ]
    with pytest.raises(deltasql.exceptions.TxnLogEngineError, match=r"convert.*column i\b"):
        catalog.sql("INSERT INTO t (i) VALUES ('x')")


def test_expressions_are_those_of_spark(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (d DOUBLE, s STRING, a ARRAY<INT>)")
    catalog.sql("INSERT INTO t VALUES (7 / 2, concat('x', NULL), array(1, 2))")
    assert rows(catalog, "SELECT d, s, a[0] AS first FROM t") == [{"d": 3.5, "s": None, "first": 1}]
    catalog.sql("UPDATE t SET d = 1 / 2, s = 'it\\'s', a = array(a[1])")
    assert rows(catalog, 'SELECT d, s, a FROM t WHERE s = "it\'s"') == [
        {"d": 0.5, "s": "it's", "a": [2]}
    ]
    assert [*rows(catalog, "SELECT count(*), 1 + 2 FROM t")[0]] == ["count(*)", "1 + 2"]


def test_merge_source_can_be_values_with_column_names(catalog: Catalog) -> None:
    catalog.sql(T)
    catalog.sql(TWO)
    catalog.sql(
        "MERGE INTO t USING (VALUES (2L, 'B'), (3L, 'c')) AS s(id, `the name`) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.`the name` "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.`the name`)"
    )
    assert [row["name"] for row in rows(catalog, ALL)] == ["a", "B", "c"]


def test_subqueries_in_update_and_delete_are_replaced_by_their_values(catalog: Catalog) -> None:
    catalog.sql(T)
    catalog.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'it\\'s'), (4, NULL)")
    catalog.sql("CREATE TABLE u AS SELECT id, name FROM t WHERE id > 1")
    for text, left in (
        ("DELETE FROM t WHERE id IN (SELECT id FROM u WHERE id < :p) AND 1 = 1", [1, 3, 4]),
        ("DELETE FROM t WHERE id NOT IN (SELECT id FROM u WHERE id > 100) AND id = 4", [1, 3]),
        ("DELETE FROM t WHERE name NOT IN (SELECT name FROM u)", [1, 3]),  # a name is null
        ("DELETE FROM t AS x WHERE x.id < (SELECT max(t.id) FROM t VERSION AS OF 1)", []),
        ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE id = 3)", []),
    ):
        with catalog.begin() as tx:
            tx.sql(text, {"p": 3})
            found = tx.sql("SELECT id FROM t ORDER BY id")["id"].to_pylist()
        assert found == left, text
    catalog.sql("INSERT INTO t SELECT * FROM u")
    catalog.sql(
        "UPDATE t SET name = (SELECT max(name) FROM u), id = (SELECT id FROM u WHERE id = 9) "
        "WHERE name IN (SELECT name FROM u)"
    )
    assert [*rows(catalog, ALL)[0].values()] == [None, "it's"]


def test_restore_to_a_time_before_the_first_commit_is_refused(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (id BIGINT)")
    catalog.sql("INSERT INTO t VALUES (1)")
    with pytest.raises(VersionNotFoundError, match="t had no version at 2000-01-01"):
        catalog.sql("RESTORE t TO TIMESTAMP AS OF '2000-01-01'")


def test_fields_of_structs_are_added_and_updated(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (id BIGINT, place STRUCT<city: STRING>)")
    catalog.sql("INSERT INTO t VALUES (1, named_struct('city', 'Rome'))")
    catalog.sql("ALTER TABLE t ADD COLUMN place.zip INT")
    with pytest.raises(TxnLogSchemaError, match="the table has no column plaec"):
        catalog.sql("ALTER TABLE t ADD COLUMN plaec.zip INT")
    catalog.sql("UPDATE t SET t.place.zip = 5 WHERE t.place.city = 'Rome'")
    assert rows(catalog, "SELECT place FROM t") == [{"place": {"city": "Rome", "zip": 5}}]


HOSTILE = ("'; DROP TABLE t; --", "it's", "back\\slash", "`", '"', ":x ?", "%", "\n", "")


def test_parameters_are_bound_and_never_part_of_the_text(catalog: Catalog) -> None:
    catalog.sql(T)
    for number, value in enumerate(HOSTILE):
        catalog.sql("INSERT INTO t VALUES (?, ?)", [number, value])
        catalog.sql("UPDATE t SET name = concat(name, :v) WHERE name = :v", {"v": value})
    expected = [{"id": n, "name": value * 2} for n, value in enumerate(HOSTILE)]
    assert rows(catalog, ALL) == expected
    for number, value in enumerate(HOSTILE):
        found = rows(catalog, "SELECT id FROM t WHERE name = :v", {"v": value * 2})
        assert found == [{"id": number}]
        assert rows(catalog, "DELETE FROM t WHERE name = ?", [value * 2]) == [
            {"num_affected_rows": 1}
        ]
    with pytest.raises(InvalidQueryError, match=":v has no value"):
        catalog.sql("DELETE FROM t WHERE id = :v")
    with pytest.raises(InvalidQueryError, match="at least 2 parameters"):
        catalog.sql("SELECT ? AS a, ? AS b", [1])
    with pytest.raises(TypeError, match="dict or a list"):
        catalog.sql("SELECT ?", "text")


def test_insert_reads_the_version_before_the_statement(catalog: Catalog) -> None:
    catalog.sql(T)
    catalog.sql(TWO)
    catalog.sql("INSERT INTO t SELECT id + 10, name FROM T")
    assert [row["id"] for row in rows(catalog, ALL)] == [1, 2, 11, 12]


def test_insert_conflicts_with_a_commit_that_changes_what_it_read(catalog: Catalog) -> None:
    catalog.sql(T)
    catalog.sql(TWO)
    tx = catalog.begin()
    tx.sql("INSERT INTO t SELECT id + 10, name FROM t WHERE id = 2")
    catalog.sql("DELETE FROM t WHERE id = 2")
    with pytest.raises(deltasql.exceptions.CommitConflictError):
        tx.commit()
    assert rows(catalog, ALL) == [{"id": 1, "name": "a"}]


def test_constraints_and_missing_columns_are_rejected(catalog: Catalog) -> None:
    catalog.sql("CREATE TABLE t (id BIGINT NOT NULL, n INT, CONSTRAINT few CHECK (n < 10))")
    for text in ("INSERT INTO t VALUES (1, 10)", "INSERT INTO t (n) VALUES (1)"):
        with pytest.raises(InvalidDataError):
            catalog.sql(text)
    with pytest.raises(TxnLogSchemaError, match="1 column instead of 2: id, n"):
        catalog.sql("INSERT INTO t VALUES (1)")
    with pytest.raises(TxnLogSchemaError, match="no column m") as caught:
        catalog.sql("INSERT INTO t (id, m) VALUES (1, 2)")
    assert "id, n" in str(caught.value)
    with pytest.raises(TxnLogSchemaError, match="two values for column n"):
        catalog.sql("INSERT INTO t BY NAME SELECT 1 AS id, 2 AS n, 3 AS N")
    with pytest.raises(TxnLogSchemaError, match="no column n, which UPDATE"):
        catalog.sql(
            "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        )
    assert catalog.table("t").version() == 0


REFUSED = {
    "": (InvalidQueryError, "empty"),
    "SELEC 1": (InvalidQueryError, "Did you mean SELECT"),
    "USE crm": (InvalidQueryError, "namespace before the name"),
    "GRANT ALL ON t": (InvalidQueryError, "permissions of the database"),
    "CREATE VIEW v AS SELECT 1": (InvalidQueryError, "CREATE VIEW is not supported"),
    "CREATE TABLE v LIKE t": (InvalidQueryError, "AS SELECT"),
    "CREATE TABLE v (id INT GENERATED ALWAYS AS IDENTITY)": (TxnLogSchemaError, "BIGINT"),
    "CREATE TABLE v (id BIGINT GENERATED BY DEFAULT AS (id + 1))": (InvalidQueryError, "IDENTITY"),
    "CREATE TABLE v (n INT, m INT DEFAULT n)": (TxnLogSchemaError, "not a constant"),
    "CREATE TABLE v (n DOUBLE DEFAULT rand())": (TxnLogSchemaError, "not a constant"),
    "ALTER TABLE t ADD COLUMN n INT DEFAULT 3": (TxnLogSchemaError, "SET DEFAULT"),
    "ALTER TABLE t ALTER COLUMN id SET DEFAULT (SELECT 1)": (TxnLogSchemaError, "query"),
    "CREATE TABLE v (n INT) USING parquet": (InvalidQueryError, "USING delta"),
    "CREATE TABLE v (n NUMBER)": (InvalidQueryError, "expected a type"),
    "CREATE TABLE v AS SELECT": (deltasql.exceptions.TxnLogError, ""),
    "CREATE TABLE t (id INT)": (TableExistsError, "OR REPLACE"),
    "REPLACE TABLE v (id INT)": (TxnLogTableNotFoundError, "CREATE OR REPLACE"),
    "ALTER TABLE t ALTER COLUMN id FIRST": (InvalidQueryError, "SET NOT NULL"),
    "ALTER TABLE t ALTER COLUMN id TYPE INT": (TxnLogSchemaError, "add a column"),
    "ALTER TABLE t DROP FEATURE deletionVectors": (UnsupportedFeatureError, "does not have it"),
    "DROP TABLE v": (TxnLogTableNotFoundError, ""),
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.id = t.id + 1)": (
        InvalidQueryError,
        "MERGE INTO",
    ),
    "DELETE FROM t WHERE id IN (SELECT id, name FROM t)": (InvalidQueryError, "2 columns"),
    "UPDATE t SET id = (SELECT id FROM t)": (InvalidQueryError, "several rows"),
    "DELETE FROM t WHERE id = ANY (SELECT id FROM t)": (InvalidQueryError, "MERGE INTO"),
    "UPDATE t SET nope = 1": (TxnLogSchemaError, "nope"),
    "INSERT INTO v VALUES (1)": (TxnLogTableNotFoundError, ""),
    "INSERT INTO t PARTITION (id) SELECT 1": (InvalidQueryError, "REPLACE WHERE"),
    "MERGE INTO t USING t ON t.id = t.id WHEN MATCHED THEN DELETE": (InvalidQueryError, "aliases"),
    "MERGE INTO t USING v AS s ON true": (InvalidQueryError, "WHEN clause"),
    "OPTIMIZE t WHERE id = 1": (InvalidQueryError, "partition columns"),
    "RESTORE TABLE t TO VERSION AS OF 7": (deltasql.exceptions.VersionNotFoundError, ""),
    "SELECT * FROM t VERSION AS OF 7": (deltasql.exceptions.VersionNotFoundError, ""),
    "SELECT * FROM read_csv('/etc/passwd')": (InvalidQueryError, "not available"),
    "SELECT * FROM a.b.c": (InvalidQueryError, "too many parts"),
    "SELECT 'x": (InvalidQueryError, "not closed"),
    "SELECT 1; SELECT 2": (InvalidQueryError, "several statements"),
    "SHOW PARTITIONS t": (InvalidQueryError, "SHOW TABLES"),
    "BEGIN": (InvalidQueryError, "SqlSession"),
    "VACUUM t RETAIN 0 HOURS": (deltasql.exceptions.TxnLogError, "168 hours"),
}


def test_unsupported_statements_say_what_to_do_and_change_nothing(catalog: Catalog) -> None:
    catalog.sql(T)
    catalog.sql(TWO)

    def check(text: str) -> None:
        kind, part = REFUSED[text]
        with pytest.raises(kind) as caught:
            catalog.sql(text)
        assert part in str(caught.value), str(caught.value)

    check_each(REFUSED, check)
    assert catalog.table("t").version() == 1
    assert [each.name for each in catalog.tables()] == ["t"]


def test_function_takes_a_uri_and_creates_the_catalog(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/new.db"
    deltasql.sql(uri, T)
    deltasql.sql(uri, "INSERT INTO t VALUES (:id, :name)", {"id": 5, "name": "five"})
    assert deltasql.sql(uri, ALL).to_pylist() == [{"id": 5, "name": "five"}]
    assert deltasql.DeltaTable(f"{uri}?table=t").version() == 1
    import deltalake

    assert deltalake.DeltaTable(f"{tmp_path}/new_data/default/t").to_pyarrow_table().num_rows == 1
