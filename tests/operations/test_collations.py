"""Collations of columns are kept, and no engine compares their strings by bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError
from deltasql.model.schema.schema import StructType
from tests.each import check_each
from tests.operations.maintenance import open_lake, opened, published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

KEY = "__COLLATIONS"


def field(name: str, data_type: object, /, **collations: str) -> dict[str, object]:
    metadata = {KEY: collations} if collations else {}
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}


# The schema of a table with collated columns, as Spark writes it.
STRUCT = {"type": "struct", "fields": [field("inner", "string", inner="spark.UTF8_LCASE")]}
ARRAY = {"type": "array", "elementType": "string", "containsNull": True}
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            field("id", "long"),
            field("name", "string", name="icu.de_CI"),
            field("s", STRUCT),
            field("l", ARRAY, **{"l.element": "spark.UTF8_LCASE"}),
            field("plain", "string"),
        ],
    }
)
ROWS = [
    {"id": n, "name": name, "s": {"inner": name}, "l": [name], "plain": name}
    for n, name in enumerate(("a", "A", "b"))
]


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_lake(catalog_uri, tmp_path) as catalog:
        catalog.create_table("t", StructType.from_json(SCHEMA), partition_by=["name"])
        with catalog.begin() as tx:
            tx.write("t", pa.Table.from_pylist(ROWS), mode="append")
        yield catalog


def rows(lake: Catalog) -> list[dict[str, object]]:
    return lake.sql("SELECT * FROM t ORDER BY id").to_pylist()


def test_collations_are_kept_in_every_operation(lake: Catalog) -> None:
    lake.sql("UPDATE t SET plain = name, id = id + 10 WHERE id = 1 AND name IS NOT NULL")
    lake.sql("DELETE FROM t WHERE plain = 'b'")
    lake.sql(
        "MERGE INTO t USING (SELECT 0 AS k UNION ALL SELECT 5) AS x ON t.id = x.k "
        "WHEN MATCHED THEN UPDATE SET name = 'z' WHEN NOT MATCHED THEN INSERT (id) VALUES (x.k)"
    )
    lake.sql("ALTER TABLE t ADD COLUMN more INT")
    lake.sql("OPTIMIZE t")
    found = [(row["id"], row["name"], row["plain"]) for row in rows(lake)]
    assert found == [(0, "z", "a"), (5, None, None), (11, "A", "A")]
    wanted = StructType.from_json(SCHEMA).fields
    assert lake.table("t").snapshot().schema.fields[: len(wanted)] == wanted
    stored = json.loads(published(lake).schema().to_json())["fields"]
    assert stored[1]["metadata"][KEY] == {"name": "icu.de_CI"}
    assert stored[3]["metadata"][KEY] == {"l.element": "spark.UTF8_LCASE"}
    assert lake.mirror.verify("t")[0].ok


def test_comparisons_of_collated_columns_are_refused(lake: Catalog) -> None:
    before, version = rows(lake), lake.table("t").version()
    statements = (
        "DELETE FROM t WHERE name = 'a'",
        "UPDATE t SET id = 7 WHERE upper(name) = 'A'",
        "UPDATE t SET id = CASE WHEN s.inner < 'b' THEN 1 ELSE 2 END",
        "DELETE FROM t WHERE array_contains(l, 'a')",
        "MERGE INTO t USING (SELECT 'a' AS k) AS x ON t.name = x.k WHEN MATCHED THEN DELETE",
        "SELECT * FROM t WHERE name = 'a'",
        "SELECT id FROM t WHERE s.inner IN ('a')",
        "SELECT name, count(*) FROM t GROUP BY name",
        "SELECT count(DISTINCT name) FROM t",
        "SELECT DISTINCT plain FROM t",
        "SELECT name FROM t ORDER BY 1",
        "SELECT * FROM t ORDER BY name",
        "SELECT x FROM (SELECT name AS x FROM t) ORDER BY x",
        "SELECT min(name) FROM t",
        "SELECT t.id FROM t JOIN t AS u USING (name)",
        "SELECT name FROM t UNION SELECT plain FROM t",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (name <> 'x')",
        "SELECT id FROM t WHERE 'a' IN (SELECT name FROM t)",
        "SELECT (SELECT name FROM t LIMIT 1) = 'a' AS x FROM t",
        "WITH c(x) AS (SELECT name FROM t) SELECT * FROM c WHERE x = 'a'",
        "SELECT * FROM (SELECT name FROM t) AS q(x) WHERE x = 'a'",
        "SELECT * FROM (SELECT * FROM t) AS q WHERE id = 1",
        "SELECT name, count(*) FROM t GROUP BY ALL",
        "SELECT name FROM t ORDER BY ALL",
        "SELECT t.id FROM t NATURAL JOIN t AS u",
        "SELECT id FROM t WHERE s = named_struct('inner', 'a')",
        "DELETE FROM t WHERE s = named_struct('inner', 'a')",
        "DELETE FROM t WHERE s IN (s)",
        "DELETE FROM t WHERE name IS NOT DISTINCT FROM 'a'",
    )

    def refuse(statement: str) -> None:
        with pytest.raises(UnsupportedFeatureError, match=r"collation.*features: collations"):
            lake.sql(statement)

    check_each(statements, refuse)
    with pytest.raises(UnsupportedFeatureError, match="collation"), lake.begin() as tx:
        tx.read("t", predicate="name = 'a'")
    with pytest.raises(UnsupportedFeatureError, match="collation"):
        opened(lake).delete("name = 'a'")
    assert (rows(lake), lake.table("t").version()) == (before, version)


def test_overwrite_of_a_collated_partition_is_refused(lake: Catalog) -> None:
    before, table = rows(lake), opened(lake)
    with pytest.raises(UnsupportedFeatureError, match="collation"):
        table.create_write_transaction(
            [], "overwrite", table.schema(), partition_filters=[("name", "=", "a")]
        )
    with pytest.raises(TxnLogSchemaError, match="not a partition column"):
        table.create_write_transaction(
            [], "overwrite", table.schema(), partition_filters=[("plain", "=", "a")]
        )
    assert rows(lake) == before


def test_queries_that_do_not_compare_collated_columns_run(lake: Catalog) -> None:
    queries = {
        "SELECT name AS x, s.inner FROM t WHERE plain = 'a'": 1,
        "SELECT id FROM t WHERE name IS NULL": 0,
        "SELECT plain, count(*) FROM t GROUP BY plain ORDER BY plain": 3,
        "SELECT t.name FROM t JOIN t AS u ON t.id = u.id": 3,
        "SELECT name FROM t WHERE id IN (SELECT id FROM t WHERE plain = 'a')": 1,
        "SELECT id, name FROM t ORDER BY id": 3,
    }

    def count(query: str) -> None:
        assert len(lake.sql(query)) == queries[query]

    check_each(queries, count)
