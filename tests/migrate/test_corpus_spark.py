"""Tables of delta-spark, with every feature it writes, come in equal at every version."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import deltasql.spark
from tests.conftest import new_catalog_uri
from tests.migrate import corpus_columns, corpus_features, corpus_logs
from tests.migrate.brought_in import BroughtIn, commit_infos, engine_rows, sql_content
from tests.migrate.corpus import Corpus, log_files, named
from tests.migrate.spark_maker import commit_times, configured
from tests.mirror.support import open_mirrored
from tests.oracles.own import own_state
from tests.oracles.readers import Deltalake, DeltaSpark
from tests.oracles.states import arrow_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri
    from tests.migrate.corpus import Source
    from tests.oracles.states import Rows

TABLES = named(
    corpus_logs.plain,
    corpus_logs.classic_checkpoints,
    corpus_logs.many_part_checkpoint,
    corpus_logs.v2_parquet_checkpoint,
    corpus_logs.v2_json_checkpoint,
    corpus_logs.typed_statistics,
    corpus_logs.deletion_vectors,
    corpus_logs.inline_vectors,
    corpus_logs.shallow_clone,
    corpus_columns.mapped_by_name,
    corpus_columns.mapped_by_id,
    corpus_columns.mapped_later,
    corpus_columns.filled_columns,
    corpus_columns.widened,
    corpus_columns.variants,
    corpus_columns.nested,
    corpus_columns.replaced,
    corpus_columns.odd_partitions,
    corpus_features.change_data,
    corpus_features.row_tracking,
    corpus_features.row_tracking_later,
    corpus_features.clustered,
    corpus_features.in_commit_timestamps,
    corpus_features.many_features,
    corpus_features.dropped_feature,
    corpus_features.converted,
    corpus_features.streamed,
)
EVERYTHING = bool(os.environ.get("DELTASQL_EVERYTHING"))
# Compiling code for a query pays off for more rows than these.
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, set up for tables of a few rows."""
    with configured(spark, _SMALL):
        yield spark


@pytest.fixture(scope="module")
def corpus(small: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The tables, none of them made yet."""
    return Corpus(tmp_path_factory.mktemp("corpus"), TABLES, (small,))


@pytest.fixture(scope="module")
def brought(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BroughtIn]:
    """The same tables in a catalog."""
    folder = tmp_path_factory.mktemp("catalog")
    for uri in new_catalog_uri("sqlite", folder):
        with open_mirrored(uri, folder) as catalog:
            yield BroughtIn(catalog, corpus)


@pytest.mark.parametrize("name", TABLES)
def test_every_version_has_the_rows_of_the_source(
    brought: BroughtIn, small: SparkSession, name: str
) -> None:
    source, table = brought.table(name)
    for version in source.versions:
        if name == "variants":  # which the embedded engine does not read
            frame = deltasql.spark.read(small, table.uri, version=version)
            found = arrow_rows(frame.toArrow())
        else:
            found = engine_rows(table, version)
        assert found == source_rows(small, source, version), version


@pytest.mark.parametrize("name", TABLES)
def test_every_version_is_what_delta_spark_knows_of_it(
    brought: BroughtIn, small: SparkSession, name: str
) -> None:
    source, table = brought.table(name)
    versions = source.versions if EVERYTHING else source.versions[-1:]
    for version in versions:
        assert own_state(table, version) == DeltaSpark(small).log(source.place, version), version
    found = {row.version: row.committed_at_ms for row in table.history()}
    assert found == commit_times(small, source.path)


@pytest.mark.parametrize("name", TABLES)
def test_every_commit_keeps_its_fields_and_the_log_its_bytes(brought: BroughtIn, name: str) -> None:
    source, table = brought.table(name)
    (report,) = brought.catalog.mirror.verify(name, versions="all")
    assert report.ok, report.summary()
    assert log_files(source.path) == source.log
    told = commit_infos(source)
    for row in table.history():
        if row.version in told:
            body = {**row.info.body(), "txnId": None}
            assert body == {**told[row.version], "txnId": None}, row.version


@pytest.mark.parametrize("backend", ["duckdb", "postgres"])
def test_every_database_holds_the_same(
    brought: BroughtIn, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path) as catalog:
        there = BroughtIn(catalog, brought.corpus)
        for name in TABLES:
            _, ours = brought.table(name)
            _, theirs = there.table(name)
            assert sql_content(theirs) == sql_content(ours), name


def source_rows(spark: SparkSession, source: Source, version: int) -> Rows:
    """Return the rows of a version as its writer reads them, or deltalake, which is faster."""
    is_last = version == source.versions[-1]
    if EVERYTHING or is_last or not source.reads_with_deltalake:
        return DeltaSpark(spark).rows(source.place, version)
    return Deltalake().rows(source.place, version)
