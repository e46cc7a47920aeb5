"""The statements of docs/reference/sql.md: a script for each, and the rows that it must give.

Every case runs on the embedded engine, on classic Spark and on Spark Connect, and with the Spark
catalog in a session without SQL extensions, each time in an empty catalog.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

T = "CREATE TABLE t (id BIGINT, name STRING)"
VECTORS = f"{T} TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
TWO = "INSERT INTO t VALUES (1, 'a'), (2, 'b')"
ALL = "SELECT id, name FROM t ORDER BY id"
CREATE = (
    "CREATE TABLE IF NOT EXISTS crm.t (id BIGINT NOT NULL COMMENT 'key', day DATE, "
    "s STRUCT<a: INT, b: ARRAY<STRING>>, month INT GENERATED ALWAYS AS (month(day)), "
    "CONSTRAINT positive CHECK (id > 0)) USING delta PARTITIONED BY (day) COMMENT 'c' "
    "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
)
SOURCE = "(SELECT 2L AS id, 'B' AS name UNION ALL SELECT 3L, 'c') AS s"


@dataclass(frozen=True)
class Case:
    """A statement: `shown` is its row in the documentation."""

    group: str
    shown: str
    script: tuple[str, ...]
    """The statements to run; the result of the last one is compared."""
    rows: list[tuple[Any, ...]]
    columns: tuple[str, ...] | None = None
    """The columns to compare; None for all."""
    smoke: bool = field(default=False, kw_only=True)
    """Whether `make test` runs the case on Spark."""
    catalog: str = field(default="yes", kw_only=True)
    """What the documentation says about the Spark catalog."""
    in_catalog: tuple[str, ...] | None = field(default=None, kw_only=True)
    """The script for the Spark catalog, if Spark itself does not have a statement of `script`."""
    rows_in_catalog: list[tuple[Any, ...]] | None = field(default=None, kw_only=True)
    """The rows with the Spark catalog, if they differ."""

    def with_catalog(self) -> Case:
        """Return the case with the script and the rows for the Spark catalog."""
        rows = self.rows if self.rows_in_catalog is None else self.rows_in_catalog
        return replace(self, script=self.in_catalog or self.script, rows=rows)


CASES = [
    Case(
        "Rows",
        "SELECT, WITH, VALUES",
        (T, TWO, "WITH q AS (SELECT * FROM t) SELECT count(*) AS n, max(name) AS m FROM q"),
        [(2, "b")],
    ),
    Case(
        "Rows",
        "SELECT … FROM t VERSION AS OF 1 (or t@1)",
        (T, TWO, "DELETE FROM t", "SELECT count(*) AS n FROM t VERSION AS OF 1 JOIN t@v1 ON true"),
        [(4,)],
        smoke=True,
        catalog="yes, without `t@1`",
        in_catalog=(
            T,
            TWO,
            "DELETE FROM t",
            "SELECT count(*) AS n FROM t VERSION AS OF 1 JOIN t VERSION AS OF 1 ON true",
        ),
    ),
    Case(
        "Rows",
        "SELECT … FROM t TIMESTAMP AS OF '…'",
        (T, TWO, "SELECT count(*) AS n FROM t TIMESTAMP AS OF '2999-01-01' x"),
        [(2,)],
    ),
    Case("Rows", "INSERT INTO t VALUES …", (T, TWO, ALL), [(1, "a"), (2, "b")]),
    Case(
        "Rows",
        "INSERT INTO t (columns) SELECT …",
        (T, TWO, "INSERT INTO t (name) SELECT name FROM t WHERE id = 2", ALL),
        [(None, "b"), (1, "a"), (2, "b")],
        catalog="yes; on Spark 4.0 with all columns",
    ),
    Case(
        "Rows",
        "INSERT INTO t BY NAME SELECT …",
        (T, "INSERT INTO t BY NAME SELECT 'x' AS name, 7 AS id", ALL),
        [(7, "x")],
    ),
    Case(
        "Rows",
        "INSERT WITH SCHEMA EVOLUTION INTO t …",
        (
            T,
            "INSERT WITH SCHEMA EVOLUTION INTO t BY NAME SELECT 1 AS id, true AS new",
            "SELECT * FROM t",
        ),
        [(1, None, True)],
        catalog="from Spark 4.2",
    ),
    Case(
        "Rows",
        "INSERT OVERWRITE t …",
        (T, TWO, "INSERT OVERWRITE t VALUES (9, 'z')", ALL),
        [(9, "z")],
    ),
    Case(
        "Rows",
        "INSERT OVERWRITE t PARTITION (day = …) …",
        (
            "CREATE TABLE t (id BIGINT, day STRING) PARTITIONED BY (day)",
            "INSERT INTO t VALUES (1, 'mo'), (2, 'tu')",
            "INSERT OVERWRITE t PARTITION (day = 'mo') SELECT 5",
            "SELECT id, day FROM t ORDER BY id",
        ),
        [(2, "tu"), (5, "mo")],
    ),
    Case(
        "Rows",
        "INSERT INTO t REPLACE WHERE … SELECT …",
        (T, TWO, "INSERT INTO t REPLACE WHERE id > 1 SELECT 8, 'h'", ALL),
        [(1, "a"), (8, "h")],
    ),
    Case(
        "Rows",
        "UPDATE t SET … WHERE …",
        (T, TWO, "UPDATE t AS x SET x.name = concat(x.name, '!') WHERE x.id = 2", ALL),
        [(1, "a"), (2, "b!")],
    ),
    Case("Rows", "DELETE FROM t WHERE …", (T, TWO, "DELETE FROM t WHERE id = 1", ALL), [(2, "b")]),
    Case(
        "Rows",
        "UPDATE, DELETE … WHERE … IN (SELECT …)",
        (
            T,
            TWO,
            "UPDATE t SET name = 'last' WHERE id = (SELECT max(id) FROM t)",
            "DELETE FROM t WHERE id IN (SELECT id - 1 FROM t)",
            ALL,
        ),
        [(2, "last")],
    ),
    Case(
        "Rows",
        "MERGE INTO t USING … ON … WHEN …",
        (
            T,
            TWO,
            f"MERGE INTO t USING {SOURCE} ON t.id = s.id "
            "WHEN MATCHED AND s.name = 'never' THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET name = s.name "
            "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name) "
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'gone'",
            ALL,
        ),
        [(1, "gone"), (2, "B"), (3, "c")],
        smoke=True,
    ),
    Case(
        "Rows",
        "MERGE … UPDATE SET *, INSERT *",
        (
            T,
            TWO,
            f"MERGE INTO t USING {SOURCE} ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE",
        ),
        [(3, 1, 1, 1)],
        in_catalog=(
            T,
            TWO,
            f"MERGE INTO t USING {SOURCE} ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE",
            ALL,
        ),
        rows_in_catalog=[(2, "B"), (3, "c")],
    ),
    Case(
        "Rows",
        "MERGE WITH SCHEMA EVOLUTION INTO t …",
        (
            T,
            TWO,
            "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 2L AS id, 'B' AS name, 5 AS n) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
            "SELECT * FROM t ORDER BY id",
        ),
        [(1, "a", None), (2, "B", 5)],
        catalog="from Spark 4.2",
    ),
    Case("Rows", "TRUNCATE TABLE t", (T, TWO, "TRUNCATE TABLE t", ALL), []),
    Case(
        "Tables",
        "CREATE TABLE t (columns) PARTITIONED BY …",
        (
            CREATE,
            "INSERT INTO crm.t (id, day) VALUES (1, '2024-05-01')",
            "SELECT id, day, month FROM crm.t",
        ),
        [(1, "2024-05-01", 5)],
        smoke=True,
        catalog="yes, constraints from Spark 4.1",
        in_catalog=(
            CREATE,
            "INSERT INTO crm.t (id, day) VALUES (1, DATE'2024-05-01')",
            "SELECT id, day, month FROM crm.t",
        ),
    ),
    Case(
        "Tables",
        "CREATE TABLE t … CLUSTER BY (…)",
        ("CREATE TABLE t (id BIGINT) CLUSTER BY (id)", "DESCRIBE DETAIL t"),
        [(["id"],)],
        ("clusteringColumns",),
        catalog="yes",
        in_catalog=(
            "CREATE TABLE t (id BIGINT) CLUSTER BY (id)",
            "CALL system.detail('t')",
        ),
    ),
    Case(
        "Tables",
        "CREATE TABLE t (… DEFAULT …)",
        (
            "CREATE TABLE t (id BIGINT, name STRING DEFAULT 'new')",
            "INSERT INTO t VALUES (1, DEFAULT), (2, 'b')",
            "INSERT INTO t (id) VALUES (3)",
            ALL,
        ),
        [(1, "new"), (2, "b"), (3, "new")],
        smoke=True,
    ),
    Case(
        "Tables",
        "CREATE TABLE t (… GENERATED … AS IDENTITY)",
        (
            "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5), name STRING)",
            "INSERT INTO t (name) SELECT * FROM VALUES ('a'), ('b')",
            "INSERT INTO t VALUES (DEFAULT, 'c')",
            "SELECT count(DISTINCT id) AS n, min(id) AS low, count(name) AS m FROM t",
        ),
        [(3, 5, 3)],
        smoke=True,
    ),
    Case(
        "Tables",
        "CREATE TABLE t AS SELECT …",
        ("CREATE TABLE u AS SELECT 1L AS id, 'x' AS name", "CREATE TABLE t AS TABLE u", ALL),
        [(1, "x")],
    ),
    Case(
        "Tables",
        "CREATE TABLE t SHALLOW CLONE u, DEEP CLONE u",
        (
            T,
            TWO,
            "DELETE FROM t WHERE id = 2",
            "CREATE TABLE u SHALLOW CLONE t VERSION AS OF 1",
            "CREATE OR REPLACE TABLE v DEEP CLONE t TBLPROPERTIES ('k' = 'v')",
            "SELECT u.id, v.name FROM u LEFT JOIN v ON u.id = v.id ORDER BY u.id",
        ),
        [(1, "a"), (2, None)],
        smoke=True,
        catalog="`CALL system.clone`",
        in_catalog=(
            T,
            TWO,
            "DELETE FROM t WHERE id = 2",
            "CALL system.clone('u', 't', shallow => true, version => 1)",
            "CALL system.clone('v', source => 't', replace => true, properties => map('k', 'v'))",
            "SELECT u.id, v.name FROM u LEFT JOIN v ON u.id = v.id ORDER BY u.id",
        ),
    ),
    Case(
        "Tables",
        "CREATE OR REPLACE TABLE t …, REPLACE TABLE t …",
        (
            T,
            TWO,
            "CREATE OR REPLACE TABLE t (id BIGINT, name STRING, more INT)",
            "REPLACE TABLE t AS SELECT 4L AS id, 'd' AS name",
            "DESCRIBE HISTORY t",
        ),
        [
            (3, "REPLACE TABLE AS SELECT"),
            (2, "CREATE OR REPLACE TABLE"),
            (1, "WRITE"),
            (0, "CREATE TABLE"),
        ],
        ("version", "operation"),
        in_catalog=(
            T,
            TWO,
            "CREATE OR REPLACE TABLE t (id BIGINT, name STRING, more INT)",
            "REPLACE TABLE t AS SELECT 4L AS id, 'd' AS name",
            "CALL system.history('t')",
        ),
        rows_in_catalog=[
            (3, "CREATE OR REPLACE TABLE AS SELECT"),
            (2, "CREATE OR REPLACE TABLE"),
            (1, "WRITE"),
            (0, "CREATE TABLE"),
        ],
    ),
    Case(
        "Tables",
        "ALTER TABLE t ADD COLUMNS (…)",
        (T, TWO, "ALTER TABLE t ADD COLUMNS (n INT COMMENT 'new')", "DESCRIBE t"),
        [("id", "bigint"), ("name", "string"), ("n", "int")],
        ("col_name", "data_type"),
    ),
    Case(
        "Tables",
        "ALTER TABLE t RENAME COLUMN, DROP COLUMN",
        (
            T,
            TWO,
            "ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE t RENAME COLUMN name TO title",
            "ALTER TABLE t DROP COLUMN id",
            "SELECT * FROM t ORDER BY title",
        ),
        [("a",), ("b",)],
    ),
    Case(
        "Tables",
        "ALTER TABLE t ALTER COLUMN … COMMENT, DROP NOT NULL",
        (
            "CREATE TABLE t (id BIGINT NOT NULL)",
            "ALTER TABLE t ALTER COLUMN id COMMENT 'key'",
            "ALTER TABLE t ALTER COLUMN id DROP NOT NULL",
            "INSERT INTO t VALUES (NULL)",
            "DESCRIBE t",
        ),
        [("id", "key")],
        ("col_name", "comment"),
    ),
    Case(
        "Tables",
        "ALTER TABLE t ALTER COLUMN … SET, DROP DEFAULT",
        (
            "CREATE TABLE t (id BIGINT, name STRING)",
            "ALTER TABLE t ALTER COLUMN name SET DEFAULT concat('n', 1)",
            "INSERT INTO t (id) VALUES (1)",
            "ALTER TABLE t ALTER COLUMN name DROP DEFAULT",
            "INSERT INTO t (id) VALUES (2)",
            ALL,
        ),
        [(1, "n1"), (2, None)],
    ),
    Case(
        "Tables",
        "ALTER TABLE t ALTER COLUMN … SYNC IDENTITY",
        (
            "CREATE TABLE t (id BIGINT GENERATED BY DEFAULT AS IDENTITY, name STRING)",
            "INSERT INTO t VALUES (70, 'a')",
            "ALTER TABLE t ALTER COLUMN id SYNC IDENTITY",
            "INSERT INTO t (name) VALUES ('b')",
            ALL,
        ),
        [(70, "a"), (71, "b")],
        catalog="`CALL system.execute`",
        in_catalog=(
            "CREATE TABLE t (id BIGINT GENERATED BY DEFAULT AS IDENTITY, name STRING)",
            "INSERT INTO t VALUES (70, 'a')",
            "CALL system.execute('ALTER TABLE t ALTER COLUMN id SYNC IDENTITY')",
            "INSERT INTO t (name) VALUES ('b')",
            ALL,
        ),
    ),
    Case(
        "Tables",
        "ALTER TABLE t ALTER COLUMN … TYPE …",
        (
            "CREATE TABLE t (id INT) TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t ALTER COLUMN id TYPE BIGINT",
            "INSERT INTO t VALUES (3000000000)",
            "SELECT * FROM t ORDER BY id",
        ),
        [(1,), (3_000_000_000,)],
    ),
    Case(
        "Tables",
        "ALTER TABLE t ALTER COLUMN … SET NOT NULL",
        (
            T,
            TWO,
            "ALTER TABLE t ALTER COLUMN id SET NOT NULL",
            "INSERT INTO t VALUES (3, NULL)",
            "SELECT count(*) AS n FROM t",
        ),
        [(3,)],
        catalog="`CALL system.execute`",
        in_catalog=(
            T,
            TWO,
            "CALL system.execute('ALTER TABLE t ALTER COLUMN id SET NOT NULL')",
            "INSERT INTO t VALUES (3, NULL)",
            "SELECT count(*) AS n FROM t",
        ),
    ),
    Case(
        "Tables",
        "ALTER TABLE t DROP FEATURE …",
        (
            "CREATE TABLE t (id BIGINT) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
            "ALTER TABLE t DROP FEATURE changeDataFeed",
            "SELECT count(*) AS n FROM t",
        ),
        [(0,)],
        catalog="`CALL system.execute`",
        in_catalog=(
            "CREATE TABLE t (id BIGINT) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
            "CALL system.execute('ALTER TABLE t DROP FEATURE changeDataFeed')",
            "SELECT count(*) AS n FROM t",
        ),
    ),
    Case(
        "Tables",
        "ALTER TABLE t SET, UNSET TBLPROPERTIES",
        (
            T,
            "ALTER TABLE t SET TBLPROPERTIES ('a' = '1', 'b' = '2')",
            "ALTER TABLE t UNSET TBLPROPERTIES ('a')",
            "SHOW TBLPROPERTIES t ('b')",
        ),
        [("b", "2")],
    ),
    Case(
        "Tables",
        "ALTER TABLE t ADD, DROP CONSTRAINT",
        (
            T,
            TWO,
            "ALTER TABLE t ADD CONSTRAINT small CHECK (id < 10)",
            "ALTER TABLE t DROP CONSTRAINT IF EXISTS small",
            "INSERT INTO t VALUES (10, 'x')",
            ALL,
        ),
        [(1, "a"), (2, "b"), (10, "x")],
        catalog="from Spark 4.1; `CALL system.add_constraint`, `drop_constraint`",
    ),
    Case(
        "Tables",
        "ALTER TABLE t CLUSTER BY …",
        (T, "ALTER TABLE t CLUSTER BY (id, name)", "DESCRIBE DETAIL t"),
        [(["id", "name"],)],
        ("clusteringColumns",),
        catalog="yes",
        in_catalog=(
            T,
            "ALTER TABLE t CLUSTER BY (id, name)",
            "CALL system.detail('t')",
        ),
    ),
    Case(
        "Tables",
        "ALTER TABLE t RENAME TO u",
        (T, "ALTER TABLE t RENAME TO u", "SHOW TABLES"),
        [("default", "u", False)],
    ),
    Case(
        "Tables",
        "COMMENT ON TABLE t IS '…'",
        (T, "COMMENT ON TABLE t IS 'about'", "DESCRIBE DETAIL t"),
        [("about",)],
        ("description",),
        catalog="yes",
        in_catalog=(
            T,
            "COMMENT ON TABLE t IS 'about'",
            "CALL system.detail('t')",
        ),
    ),
    Case(
        "Tables",
        "DROP TABLE t, UNDROP TABLE t",
        (
            T,
            TWO,
            "DROP TABLE t",
            "DROP TABLE IF EXISTS t",
            "UNDROP TABLE t",
            "SELECT count(*) AS n FROM t",
        ),
        [(2,)],
        catalog="`DROP TABLE`, `CALL system.undrop`",
        in_catalog=(
            T,
            TWO,
            "DROP TABLE t",
            "DROP TABLE IF EXISTS t",
            "CALL system.undrop('t')",
            "SELECT count(*) AS n FROM t",
        ),
    ),
    Case(
        "Tables",
        "CREATE, DROP NAMESPACE n",
        (
            "CREATE NAMESPACE crm",
            "CREATE SCHEMA IF NOT EXISTS erp",
            "DROP NAMESPACE crm",
            "SHOW NAMESPACES",
        ),
        [("erp",)],
        rows_in_catalog=[("default",), ("erp",)],
    ),
    Case(
        "Reports",
        "DESCRIBE t",
        (T, "DESCRIBE TABLE t"),
        [("id", "bigint", None), ("name", "string", None)],
    ),
    Case(
        "Reports",
        "DESCRIBE DETAIL t",
        (T, TWO, "DESCRIBE DETAIL t"),
        [("delta", [])],
        ("format", "partitionColumns"),
        catalog="`CALL system.detail`",
        in_catalog=(
            T,
            TWO,
            "CALL system.detail('t')",
        ),
    ),
    Case(
        "Reports",
        "DESCRIBE HISTORY t",
        (T, TWO, "DESCRIBE HISTORY t LIMIT 1"),
        [(1, "WRITE")],
        ("version", "operation"),
        catalog="`CALL system.history`",
        in_catalog=(
            T,
            TWO,
            "CALL system.history('t', 1)",
        ),
    ),
    Case(
        "Reports", "SHOW TABLES", (T, "SHOW TABLES IN default LIKE 't*'"), [("default", "t", False)]
    ),
    Case(
        "Reports",
        "SHOW NAMESPACES",
        ("CREATE TABLE crm.t (id INT)", "SHOW NAMESPACES"),
        [("crm",)],
        rows_in_catalog=[("crm",), ("default",)],
    ),
    Case("Reports", "SHOW COLUMNS IN t", (T, "SHOW COLUMNS IN t"), [("id",), ("name",)]),
    Case(
        "Reports",
        "SHOW TBLPROPERTIES t",
        ("CREATE TABLE t (id INT) TBLPROPERTIES ('k' = 'v')", "SHOW TBLPROPERTIES t ('k')"),
        [("k", "v")],
    ),
    Case(
        "Maintenance",
        "OPTIMIZE t, OPTIMIZE t ZORDER BY (…)",
        (T, TWO, TWO, "OPTIMIZE t ZORDER BY (id)", "OPTIMIZE t", "DESCRIBE DETAIL t"),
        [(1,)],
        ("numFiles",),
        smoke=True,
        catalog="`CALL system.optimize`",
        in_catalog=(
            T,
            TWO,
            TWO,
            "CALL system.optimize('t', zorder_by => array('id'))",
            "CALL system.optimize('t')",
            "CALL system.detail('t')",
        ),
    ),
    Case(
        "Maintenance",
        "REORG TABLE t APPLY (PURGE)",
        (VECTORS, TWO, "DELETE FROM t WHERE id = 1", "REORG TABLE t APPLY (PURGE)", ALL),
        [(2, "b")],
        catalog="`CALL system.purge`",
        in_catalog=(VECTORS, TWO, "DELETE FROM t WHERE id = 1", "CALL system.purge('t')", ALL),
    ),
    Case(
        "Maintenance",
        "VACUUM t RETAIN n HOURS DRY RUN",
        (T, TWO, "VACUUM t RETAIN 200 HOURS DRY RUN"),
        [],
        catalog="`CALL system.vacuum`",
        in_catalog=(
            T,
            TWO,
            "CALL system.vacuum('t', 200, true)",
        ),
    ),
    Case(
        "Maintenance",
        "RESTORE TABLE t TO VERSION AS OF n",
        (T, TWO, "DELETE FROM t", "RESTORE TABLE t TO VERSION AS OF 1", ALL),
        [(1, "a"), (2, "b")],
        catalog="`CALL system.restore`",
        in_catalog=(
            T,
            TWO,
            "DELETE FROM t",
            "CALL system.restore('t', 1)",
            ALL,
        ),
    ),
    Case(
        "Maintenance",
        "CONVERT TO DELTA parquet.`path`",
        ("CONVERT TO DELTA parquet.`{parquet}`", "SELECT * FROM delta.`{parquet}`"),
        [(1,)],
        catalog="`CALL system.convert`",
        in_catalog=(
            "CALL system.convert('files', '{parquet}')",
            "SELECT * FROM files",
        ),
    ),
    Case(
        "Transactions",
        "BEGIN … COMMIT",
        (
            T,
            "CREATE TABLE u (id BIGINT)",
            "BEGIN",
            TWO,
            "INSERT INTO u SELECT id FROM t",
            "DELETE FROM t WHERE id = 1",
            "COMMIT",
            "SELECT (SELECT count(*) FROM t) AS t, (SELECT count(*) FROM u) AS u",
        ),
        [(1, 2)],
        smoke=True,
        catalog="`CALL system.begin`, `commit`",
        in_catalog=(
            T,
            "CREATE TABLE u (id BIGINT)",
            "CALL system.begin()",
            TWO,
            "INSERT INTO u SELECT id FROM t",
            "DELETE FROM t WHERE id = 1",
            "CALL system.commit()",
            "SELECT (SELECT count(*) FROM t) AS t, (SELECT count(*) FROM u) AS u",
        ),
    ),
    Case(
        "Transactions",
        "BEGIN … ROLLBACK",
        (T, TWO, "BEGIN", "DELETE FROM t", "ROLLBACK", ALL),
        [(1, "a"), (2, "b")],
        catalog="`CALL system.begin`, `rollback`",
        in_catalog=(
            T,
            TWO,
            "CALL system.begin()",
            "DELETE FROM t",
            "CALL system.rollback()",
            ALL,
        ),
    ),
]


def run_case(case: Case, sql: Callable[[str], Any], parquet: str) -> list[tuple[Any, ...]]:
    """Run the script of a case; `sql` runs a statement and returns its rows as dicts."""
    found: list[dict[str, Any]] = []
    for text in case.script:
        found = sql(text.replace("{parquet}", parquet))
    names = case.columns or (tuple(found[0]) if found else ())
    return [tuple(_plain(row[name]) for name in names) for row in found]


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
