"""delta-spark reads tables of deltasql, and deltasql loads tables of delta-spark unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake.exceptions import DeltaProtocolError

from tests.conftest import new_catalog_uri
from tests.mirror.support import open_mirrored
from tests.oracles.deltasql_reader import own_log, own_rows, own_state
from tests.oracles.fixed_set import READERS, TABLES, Lake, checked_versions
from tests.oracles.foreign import stage_all_commits, write_foreign
from tests.oracles.readers import DeltaSpark, Place, stock_log
from tests.oracles.test_fixed_tables import checkpoint_alone
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.oracles.writing import Written

BEYOND = "delta-spark as a second opinion, beyond the smoke set"
SMOKE = ("deletion_vectors",)
# Tables whose versions differ by more than added rows. Only these are read at every version,
# because a read takes a second.
CHANGED = {
    *("rewritten", "evolved", "several_tables", "column_mapping", "rules"),
    *("deletion_vectors", "change_data", "applications"),
}
_FEATURES = "refuses the table feature by name"
_LOGICAL = "DuckDB looks for a partition value under the column's logical name and finds null"
_EXCUSES = {
    "pyarrow": (DeltaProtocolError, _FEATURES),
    "polars": (DeltaProtocolError, _FEATURES),
    "duckdb": (AssertionError, _LOGICAL),
}
# Code generation only pays off for more rows.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="module")
def delta_spark(spark: SparkSession) -> Iterator[DeltaSpark]:
    """delta-spark, configured for small tables."""
    before = {name: spark.conf.get(name, None) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield DeltaSpark(spark)
    for name, known in before.items():
        if known is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, known)


@pytest.mark.parametrize(
    "name", smoke([name for name in TABLES if name != "many_files"], SMOKE, BEYOND)
)
def test_delta_spark_reads_the_rows_of_every_version(
    lake: Lake, delta_spark: DeltaSpark, name: str
) -> None:
    for table in lake.tables(name):
        versions = checked_versions(table)
        for version in versions if name in CHANGED else versions[-2:]:
            found = delta_spark.rows(lake.place(table), version)
            assert found == table.states[version], f"{table.name} at version {version}"


@pytest.mark.everything(BEYOND)
def test_delta_spark_reads_the_rows_of_many_files(lake: Lake, delta_spark: DeltaSpark) -> None:
    """The table has a tenth of the files: delta-spark takes half a minute to open all of them."""
    (table,) = lake.tables("many_files")
    for version in (1, 2):
        where = f"part = {version - 1}"
        expected = [row for row in table.states[version].rows if row.endswith(f"={version - 1}")]
        found = delta_spark.rows(lake.place(table), version, where)
        assert list(found.rows) == expected


@pytest.mark.parametrize("name", smoke(TABLES, SMOKE, BEYOND))
def test_delta_spark_reads_the_whole_state_from_a_checkpoint(
    lake: Lake, delta_spark: DeltaSpark, name: str, tmp_path: Path
) -> None:
    for number, table in enumerate(lake.tables(name)):
        last = len(table.states) - 1
        alone = Place(str(checkpoint_alone(table, tmp_path / str(number))))
        assert delta_spark.log(alone, last) == own_state(table.table, last)


@pytest.fixture(scope="module")
def foreign(
    delta_spark: DeltaSpark, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Written]:
    """A table of delta-spark in a catalog."""
    folder = tmp_path_factory.mktemp("foreign")
    write_foreign(spark, folder / "source")
    for uri in new_catalog_uri("sqlite", folder):
        with open_mirrored(uri, folder / "lake") as catalog:
            yield stage_all_commits(catalog, spark, folder / "source", folder / "lake" / "foreign")


@pytest.mark.everything(BEYOND)
def test_delta_spark_reads_its_own_table_unchanged(
    foreign: Written, delta_spark: DeltaSpark
) -> None:
    place = Place(foreign.table.location)
    for version, expected in enumerate(foreign.states):
        assert own_rows(foreign.table, version) == expected
        assert delta_spark.rows(place, version) == expected
    assert delta_spark.log(place, version) == own_state(foreign.table, version)


def _readers() -> list[Any]:
    marks = {
        n: pytest.mark.xfail(raises=e, reason=r, strict=True) for n, (e, r) in _EXCUSES.items()
    }
    return [pytest.param(n, marks=[marks[n]] if n in marks else []) for n in READERS]


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("reader", _readers())
def test_every_reader_reads_a_delta_spark_table_unchanged(foreign: Written, reader: str) -> None:
    for version, expected in enumerate(foreign.states):
        found = READERS[reader]().rows(Place(foreign.table.location), version)
        assert found == expected, version


@pytest.mark.everything(BEYOND)
def test_deltalake_reads_the_state_of_a_delta_spark_table(foreign: Written) -> None:
    for version in range(len(foreign.states)):
        expected = own_log(foreign.table, version)
        assert stock_log(Place(foreign.table.location), version) == expected
