"""The examples run, and their tables have the rows that follow from the raw data."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all
from tests.conftest import new_catalog_uri
from tests.pages import without_varying_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri

EXAMPLES = Path(__file__).parent.parent / "examples"
PIPELINE = EXAMPLES / "pipeline"
TABLES = ("dim_customers", "fact_orders", "quarantine", "daily_sales")

# The expected rows, computed from the raw files.
EXPECTED = {
    "dim_customers": """
        SELECT customer_id, name, lower(trim(email)) AS email, city, updated_at::TIMESTAMPTZ
        FROM customers WHERE customer_id IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY updated_at DESC, batch) = 1
    """,
    "good": """
        SELECT * FROM orders
        WHERE customer_id IN (SELECT customer_id FROM customers)
          AND try_cast(ordered_at AS TIMESTAMPTZ) IS NOT NULL
          AND try_cast(quantity AS INT) > 0 AND unit_price::DECIMAL(10,2) >= 0
    """,
    "fact_orders": """
        SELECT order_id, customer_id, ordered_at::TIMESTAMPTZ, updated_at::TIMESTAMPTZ, status, sku,
          quantity::INT AS quantity, quantity::INT * unit_price::DECIMAL(10,2) AS amount,
          ordered_at[:10]::DATE AS order_day
        FROM good
        QUALIFY row_number() OVER (PARTITION BY order_id ORDER BY updated_at DESC, batch) = 1
    """,
    "quarantine": """
        SELECT batch::INT AS batch, 'orders' AS source, order_id AS id
        FROM (SELECT * FROM orders EXCEPT ALL SELECT * FROM good)
        UNION ALL
        SELECT batch::INT, 'customers', NULL FROM customers WHERE customer_id IS NULL
    """,
    "daily_sales": """
        SELECT order_day, count(*) AS orders, count(*) FILTER (status = 'returned') AS returned,
          coalesce(sum(amount) FILTER (status IN ('placed', 'shipped')), 0) AS revenue
        FROM fact_orders GROUP BY order_day
    """,
}
QUARANTINE = "SELECT batch, source, raw->>'order_id' AS id FROM found"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import the modules of the pipeline as its script does."""
    monkeypatch.syspath_prepend(str(PIPELINE))
    import run

    yield run
    for name in ("data", "pipeline", "pipeline_sql", "readers", "report", "run"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("backend", "batches"),
    [
        ("sqlite", 2),
        pytest.param("postgres", 1, marks=pytest.mark.everything("the pipeline once more")),
    ],
)
def test_pipeline_tables_match_the_raw_data(
    spark: SparkSession,
    modules: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    backend: str,
    batches: int,
) -> None:
    for uri in new_catalog_uri(backend, tmp_path):
        size = ["--batches", str(batches), "--rows", "60", "--out", str(tmp_path)]
        place = ["--uri", uri.to_string(), "--root", str(tmp_path / "lake")]
        assert modules.main([*size, *place], spark) == 0
        printed = capsys.readouterr().out
        assert "rolled back in all tables, nothing changed" in printed
        assert (tmp_path / "sales.png").stat().st_size > 5_000
        with deltasql.connect(uri) as catalog:
            check_rows(catalog, tmp_path / "raw")
            check_rolled_back_batch(catalog, batches)
            check_repeated_batch_is_skipped(spark, catalog, tmp_path / "raw")


@pytest.mark.everything("the pipeline once more, with a JVM of its own")
@pytest.mark.timeout(900)
def test_pipeline_runs_with_spark_submit(tmp_path: Path, postgres_uri: DeltaSqlUri) -> None:
    from pyspark.find_spark_home import _find_spark_home

    home: str = _find_spark_home()  # type: ignore[no-untyped-call]
    size = ["--batches", "1", "--rows", "60", "--out", str(tmp_path)]
    place = ["--uri", postgres_uri.to_string(), "--root", str(tmp_path / "lake")]
    submit = [f"{home}/bin/spark-submit", "--master", "local[2]", str(PIPELINE / "run.py")]
    done = subprocess.run(
        [*submit, *size, *place],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "locally checkpointed" not in done.stderr  # cached rows are released without a warning
    with deltasql.connect(postgres_uri) as catalog:
        check_rows(catalog, tmp_path / "raw")
        check_rolled_back_batch(catalog, 1)


def check_rows(catalog: deltasql.Catalog, raw: Path) -> None:
    """Compare every table, read with stock deltalake, with the raw files."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name in ("customers", "orders"):
        files = [str(path) for path in raw.glob(f"[0-9][0-9]/{name}.csv")]
        database.read_csv(files, all_varchar=True, filename=True).create_view(f"{name}_files")
        database.execute(
            f"CREATE TABLE {name} AS SELECT * EXCLUDE filename, "
            f"split(filename, '/')[-2] AS batch FROM {name}_files"
        )
    for name, query in EXPECTED.items():
        database.execute(f"CREATE TABLE {name} AS {query}")
        if name == "good":
            continue
        stock = deltalake.DeltaTable(catalog.table(name).location).to_pyarrow_table()
        database.register("found", stock)
        found = QUARANTINE if name == "quarantine" else "SELECT * FROM found"
        assert database.sql(f"SELECT count(*) FROM {name}").fetchone() == (stock.num_rows,)
        for one, other in ((f"FROM {name}", found), (found, f"FROM {name}")):
            assert database.sql(f"({one}) EXCEPT ALL ({other})").fetchall() == [], name


def check_rolled_back_batch(catalog: deltasql.Catalog, batches: int) -> None:
    """Check that the batch that was rolled back left no version, file or intent."""
    for name in TABLES:
        table = catalog.table(name)
        versions = range(table.version() + 1)
        assert sum("batch" in each.info.extra for each in table.history()) == batches
        known = {path for v in versions for path in table.files(v)["path"].to_pylist()}
        root = Path(table.location)
        assert {str(path.relative_to(root)) for path in root.rglob("*.parquet")} - known == set()
    assert catalog.store.intents_before(2**60) == []


def check_repeated_batch_is_skipped(
    spark: SparkSession, catalog: deltasql.Catalog, raw: Path
) -> None:
    import data
    import pipeline
    import pipeline_sql

    before = [catalog.table(name).version() for name in TABLES]
    for way in (pipeline, pipeline_sql):
        assert way.load_batch(spark, catalog, data.Batch(0, raw / "00")) is None
    assert [catalog.table(name).version() for name in TABLES] == before


def test_pipeline_without_java_is_a_one_line_error(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, str(PIPELINE / "run.py"), "--out", str(tmp_path)],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Java 17 is needed for Spark: ")
    assert done.stderr.endswith("(docs/troubleshooting.md#spark).\n")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def readme_outputs() -> dict[str, str]:
    """Return the output of each script in examples/README.md."""
    page = (EXAMPLES / "README.md").read_text("utf-8")
    return dict(re.findall(r"^## (\w+\.py)\n\n[^#]*?```text\n(.*?)```", page, re.M | re.S))


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    yield
    close_all()


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("name", [name for name in readme_outputs() if name != "streaming.py"])
def test_script_prints_the_output_in_the_readme(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert (
        without_varying_values(capsys.readouterr().out).strip()
        == without_varying_values(readme_outputs()[name]).strip()
    )


@pytest.mark.usefixtures("empty_folder")
def test_streaming_example_prints_the_output_in_the_readme(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "streaming.py"))["main"](spark)
    assert capsys.readouterr().out == readme_outputs()["streaming.py"]


def test_every_script_is_in_the_readme() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == {*readme_outputs()}
