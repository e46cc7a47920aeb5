"""Other readers accept our checkpoints, in all statistics formats, and our checksums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from deltasql import DomainMetadata, SetTransaction
from deltasql.mirror.checkpoint.checksum import checksum_file
from tests.conftest import new_catalog_uri
from tests.mirror.checkpoint_support import checkpoint, table_row
from tests.mirror.random_commits import FEATURES
from tests.mirror.support import forget_commits_below, open_mirrored
from tests.oracles.fixed_set import EXCUSES, READERS, TABLES
from tests.oracles.readers import DeltaSpark, Place
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from tests.oracles.writing import Written

BOTH = {"delta.checkpoint.writeStatsAsStruct": "true"}
STRUCT_ONLY = {**BOTH, "delta.checkpoint.writeStatsAsJson": "false"}
FORMS = {"both": BOTH, "struct": STRUCT_ONLY}
VARIED = (
    *("typed_partitions", "string_partitions", "nested", "decimals", "primitives", "zoneless"),
    *("rewritten", "column_mapping", "deletion_vectors", "applications"),
)
# Leave out each reader that cannot read the table from its commits either.
PAIRS = sorted({(name, reader) for name in VARIED for reader in READERS} - EXCUSES.keys())


@pytest.fixture(
    scope="module", params=smoke(sorted(FORMS), ("struct",), "statistics as text and as columns")
)
def form(request: pytest.FixtureRequest) -> str:
    """How statistics are written."""
    return str(request.param)


@pytest.fixture(scope="module")
def tables(form: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Written]]:
    """Tables whose log starts with a checkpoint with typed statistics."""
    folder = tmp_path_factory.mktemp(form)
    for uri in new_catalog_uri("sqlite", folder):
        with open_mirrored(uri, folder / "lake") as catalog:
            made = {}
            for name in VARIED:
                (table,) = TABLES[name](catalog)
                known = table.table.snapshot().metadata.configuration
                table.alter(configuration={**known, **FORMS[form]})
                info = checkpoint(catalog, table.name)
                forget_commits_below(Path(table.table.location), info.version)
                made[name] = table
            yield made


@pytest.mark.parametrize(("name", "reader"), PAIRS)
def test_readers_read_rows_from_our_checkpoint(
    tables: dict[str, Written], name: str, reader: str
) -> None:
    assert rows(READERS[reader](), tables[name]) == tables[name].states[-1]


@pytest.mark.everything("delta-spark as a second opinion, beyond the smoke set")
@pytest.mark.parametrize("form", ["struct"], indirect=True)
@pytest.mark.parametrize("name", ["typed_partitions", "nested", "deletion_vectors"])
def test_spark_reads_rows_from_our_checkpoint(
    tables: dict[str, Written], name: str, spark: SparkSession
) -> None:
    assert rows(DeltaSpark(spark), tables[name]) == tables[name].states[-1]


def rows(reader: Any, table: Written) -> Any:
    """Read the latest version."""
    return reader.rows(Place(table.table.location), len(table.states) - 1)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that publishes to the test's folder."""
    for uri in new_catalog_uri("sqlite", tmp_path):
        with open_mirrored(uri, tmp_path / "lake") as catalog:
            yield catalog


CONDITION = "id BETWEEN 21 AND 22 AND price > 20"


@pytest.fixture
def typed_statistics(lake: Catalog) -> str:
    """The location of a table with five files, read from a checkpoint with typed statistics."""
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    lake.create_table("t", schema, properties=STRUCT_ONLY)
    for low in range(0, 50, 10):
        with lake.begin() as tx:
            ids = list(range(low, low + 10))
            tx.write("t", pa.table({"id": ids, "price": ids}, schema))
    location = table_row(lake).location
    forget_commits_below(Path(location), checkpoint(lake).version)
    return location


def test_readers_skip_files_by_typed_statistics(typed_statistics: str) -> None:
    table = deltalake.DeltaTable(typed_statistics)
    assert len(table.file_uris(file_pruning_predicate="id > 20 AND id < 23")) == 1
    assert (
        deltalake.QueryBuilder()
        .register("t", table)
        .execute(f"SELECT id FROM t WHERE {CONDITION}")
        .read_all()
        .num_rows
        == 2
    )
    duckdb_extensions.import_extension("delta")
    with duckdb.connect() as connection:
        found = connection.execute(
            f"LOAD delta; SELECT id FROM delta_scan('{typed_statistics}') WHERE {CONDITION}"
        ).fetchall()
    assert sorted(found) == [(21,), (22,)]


@pytest.mark.everything("delta-spark as a second opinion, beyond the smoke set")
def test_spark_skips_files_by_typed_statistics(typed_statistics: str, spark: SparkSession) -> None:
    frame = spark.read.format("delta").load(typed_statistics).where(CONDITION)
    assert sorted(row["id"] for row in frame.collect()) == [21, 22]
    assert len({row[0] for row in frame.selectExpr("_metadata.file_path").collect()}) == 1


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_spark_accepts_our_checksums_and_rejects_wrong_ones(
    lake: Catalog, spark: SparkSession
) -> None:
    lake.create_table("t", pa.schema([("id", pa.int64())]), properties=FEATURES)
    for number in range(4):
        with lake.begin() as tx:
            tx.write("t", pa.table({"id": [number]}), mode="overwrite" if number == 2 else "append")
            tx.stage_table("t", [SetTransaction("etl", number), DomainMetadata("d", str(number))])
    location = table_row(lake).location
    path = Path(location) / checksum_file(4)
    body = json.loads(path.read_text())
    assert is_valid(spark, location, 4)
    path.write_text(json.dumps({**body, "numFiles": 9}))
    with pytest.raises(Py4JJavaError, match="DELTA_TXN_LOG_FAILED_INTEGRITY"):
        is_valid(spark, location, 4)


def is_valid(spark: SparkSession, location: str, version: int) -> bool:
    """Return whether delta-spark's replayed state matches the checksum."""
    jvm: Any = spark._jvm
    logs = jvm.org.apache.spark.sql.delta.DeltaLog
    logs.clearCache()
    none = jvm.scala.Option.empty()
    log = logs.forTable(spark._jsparkSession, location)
    snapshot = log.getSnapshotAt(version, none, none, False)
    assert snapshot.checksumOpt().isDefined()
    return bool(snapshot.validateChecksum(jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())))


@pytest.mark.everything("delta-spark as a second opinion, beyond the smoke set")
def test_spark_reads_tombstones_and_application_transactions(
    lake: Catalog, spark: SparkSession
) -> None:
    lake.create_table("t", pa.schema([("id", pa.int64())]), properties=FEATURES)
    for number in range(3):
        with lake.begin() as tx:
            tx.write("t", pa.table({"id": [number]}), mode="overwrite")
            tx.stage_table("t", [SetTransaction("etl", number, 5), DomainMetadata("d", "{}")])
    location = table_row(lake).location
    forget_commits_below(Path(location), checkpoint(lake).version)
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    none = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)
    snapshot = log.getSnapshotAt(3, none, none, False)
    removed = [json.loads(line) for line in snapshot.tombstones().toJSON().collectAsList()]
    history = [lake.table("t").snapshot(version).files()["path"].to_pylist() for version in (1, 2)]
    assert sorted(each["path"] for each in removed) == sorted(history[0] + history[1])
    assert snapshot.setTransactions().toString() == "List(SetTransaction(etl,2,Some(5)))"
    assert snapshot.domainMetadata().toString() == "List(DomainMetadata(d,{},false))"
