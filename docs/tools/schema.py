"""Generate the page of the database schema: all tables of a catalog with their columns."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from deltasql.store import duckdb
from deltasql.store.migrations import _CREATE_LEDGER
from deltasql.store.postgres import dialect as postgres
from deltasql.store.sqlite import dialect as sqlite
from deltasql.store.statements import migration_files
from docs.tools.text import table

COLUMNS = Path(__file__).with_name("schema.toml")
INTRO = """\
A catalog consists of these tables in one database. You may read them with your own queries and
tools. Only deltasql may write to them: after a manual change, `deltasql verify` reports
differences. Times are milliseconds since 1970 in UTC. JSON has the format of the Delta log.

This query returns the files of a table at version `v`, without replaying a log:

```sql
SELECT path FROM dl_add_files
WHERE table_id = :id AND added_version <= :v
  AND (removed_version IS NULL OR removed_version > :v);
```
"""
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(dl_\w+) \(\n(.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(r"^  ([a-z_]+) \{(\w+)\}(.*?),?$", re.MULTILINE)
_ADDED = re.compile(r"ALTER TABLE (dl_\w+) ADD COLUMN ([a-z_]+) \{(\w+)\}([^;]*)")
_KEY = re.compile(r"^  PRIMARY KEY \((.*?)\)$", re.MULTILINE)


def tables() -> dict[str, list[tuple[str, str, str]]]:
    """Return (name, type, constraint) of every column by table, parsed from the migrations."""
    out: dict[str, list[tuple[str, str, str]]] = {}
    for text in (_CREATE_LEDGER, *(each for _, _, each in migration_files())):
        for name, body in _TABLE.findall(text):
            keys = {key for found in _KEY.findall(body) for key in found.split(", ")}
            out[name] = [
                (column, kind, "key" if column in keys or "PRIMARY" in rest else rest.strip())
                for column, kind, rest in _COLUMN.findall(body)
            ]
        for name, column, kind, rest in _ADDED.findall(text):
            out[name].append((column, kind, rest.strip()))
    return out


def meanings() -> dict[str, dict[str, str]]:
    """Return the descriptions of columns by table; the empty name describes the table itself."""
    return tomllib.loads(COLUMNS.read_text(encoding="utf-8"))


def schema_page() -> str:
    """Return the page of all tables and columns with their descriptions."""
    descriptions = meanings()
    kinds = ("text", "bigint", "blob", "bool")
    names = {"text": "text", "bigint": "integer", "blob": "bytes", "bool": "boolean"}
    types = [
        (names[kind], *(f"`{dialect.TYPES[kind]}`" for dialect in (sqlite, duckdb, postgres)))
        for kind in kinds
    ]
    parts = ["# The tables of a catalog", INTRO.strip()]
    parts.append(table(("type", "SQLite", "DuckDB", "PostgreSQL"), types))
    for name, columns in sorted(tables().items()):
        rows = []
        for column, kind, rest in columns:
            is_key = rest == "key" or kind == "table_id_key"
            more = ", key" if is_key else "" if "NOT NULL" in rest else ", or NULL"
            type_name = names.get(kind, "integer") + more
            rows.append((f"`{column}`", type_name, descriptions[name][column]))
        heads = ("column", "type", "meaning")
        parts.append(f"## {name}\n\n{descriptions[name]['']}\n\n{table(heads, rows)}")
    return "\n\n".join(parts)
