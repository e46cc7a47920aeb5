"""Imported tables of delta-spark, with every feature, equal their source at every version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import deltasql.spark
from tests.migrate import corpus_columns, corpus_features, corpus_logs
from tests.migrate.corpus import Corpus, named
from tests.migrate.imported import (
    ImportedCorpus,
    assert_nothing_lost,
    assert_same_in,
    engine_rows,
    sql_content,
)
from tests.migrate.spark_tables import commit_times, configured
from tests.mirror.support import open_mirrored
from tests.oracles.deltasql_reader import own_state
from tests.oracles.readers import Deltalake, DeltaSpark
from tests.selection import EVERYTHING, smoke

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri
    from tests.migrate.corpus import Source
    from tests.oracles.states import Rows

TABLES = named(
    corpus_logs.plain,
    corpus_logs.v2_json_checkpoint,
    corpus_logs.typed_statistics,
    corpus_logs.deletion_vectors,
    corpus_columns.mapped_by_id,
    corpus_columns.filled_columns,
    corpus_columns.widened,
    corpus_columns.odd_partitions,
    corpus_features.row_tracking_later,
    corpus_features.in_commit_timestamps,
    corpus_features.many_features,
    corpus_logs.every_operation,
    corpus_logs.classic_checkpoints,
    corpus_logs.many_part_checkpoint,
    corpus_logs.v2_parquet_checkpoint,
    corpus_logs.vectors_of_every_operation,
    corpus_logs.inline_vectors,
    corpus_logs.shallow_clone,
    corpus_columns.mapped_by_name,
    corpus_columns.mapped_later,
    corpus_columns.replaced,
    corpus_columns.variants,
    corpus_columns.nested,
    corpus_features.change_data,
    corpus_features.row_tracking,
    corpus_features.clustered,
    corpus_features.dropped_feature,
    corpus_features.converted,
    corpus_features.streamed,
)
SMOKE = ("deletion_vectors",)
BEYOND = "tables of delta-spark, beyond the smoke set"
# Code generation only pays off for more rows.
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
    """The session, configured for small tables."""
    with configured(spark, _SMALL):
        yield spark


@pytest.fixture(scope="module")
def corpus(small: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The tables, not created yet."""
    return Corpus(tmp_path_factory.mktemp("corpus"), TABLES, (small,))


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("name", [name for name in TABLES if name != "variants"])
def test_every_version_has_the_rows_of_the_source(
    imported: ImportedCorpus, small: SparkSession, name: str
) -> None:
    source, table = imported.table(name)
    versions: Sequence[int] = source.versions
    if not EVERYTHING and not source.reads_with_deltalake:
        versions = [versions[1], versions[-1]]
    for version in versions:
        assert engine_rows(table, version) == source_rows(small, source, version), version


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("name", ["variants"])
def test_both_engines_read_variants(
    imported: ImportedCorpus, small: SparkSession, name: str
) -> None:
    source, table = imported.table(name)
    for version in source.versions:
        embedded = sorted(engine_values(table, version), key=lambda row: row["id"])
        ours = deltasql.spark.read(small, table.uri, version=version)
        theirs = small.read.format("delta").option("versionAsOf", version).load(str(source.path))
        found, expected = (
            frame.selectExpr("id", "to_json(v)", "to_json(s)").orderBy("id").collect()
            for frame in (ours, theirs)
        )
        assert found == expected
        variants = theirs.orderBy("id").select("id", "v", "s.w").collect()
        assert [(row["id"], row["v"], row["s"] and row["s"]["w"]) for row in embedded] == [
            (row[0], stored(row[1]), stored(row[2])) for row in variants
        ]


def stored(variant: Any) -> dict[str, bytes] | None:
    """Return a variant of Spark as files have it."""
    return variant and {"metadata": variant.metadata, "value": variant.value}


def engine_values(table: Any, version: int) -> list[dict[str, Any]]:
    with table.catalog.begin() as tx:
        tx.pin(table.full_name, table.snapshot(version))
        return [*tx.read(table.full_name, engine="duckdb").to_pylist()]


@pytest.mark.parametrize("name", smoke(TABLES, SMOKE, BEYOND))
def test_every_version_has_the_state_that_delta_spark_reads(
    imported: ImportedCorpus, small: SparkSession, name: str
) -> None:
    source, table = imported.table(name)
    versions = source.versions if EVERYTHING else source.versions[-1:]
    for version in versions:
        found, expected = own_state(table, version), DeltaSpark(small).log(source.place, version)
        if name == "typed_statistics":  # these are converted back to different JSON
            found, expected = with_few_statistics(found), with_few_statistics(expected)
        assert found == expected, version


@pytest.mark.parametrize("name", smoke(TABLES, SMOKE, BEYOND))
def test_import_keeps_every_commit_field_and_the_log_bytes(
    imported: ImportedCorpus, name: str
) -> None:
    source, table = imported.table(name)
    assert [row.version for row in reversed(table.history())] == list(source.versions)
    assert_nothing_lost(imported, name)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_commit_timestamps_match_delta_spark(imported: ImportedCorpus, small: SparkSession) -> None:
    source, table = imported.table("in_commit_timestamps")
    found = {row.version: row.committed_at_ms for row in table.history()}
    theirs = commit_times(small, source.path)
    assert {version: theirs[version] for version in (2, 3)} == {2: found[2], 3: found[3]}
    # Before version 2, delta-spark uses the modification times, which are after the commit.
    assert 0 <= theirs[1] - found[1] < 60_000


@pytest.mark.everything(BEYOND)
def test_import_on_spark_stores_the_same(
    imported: ImportedCorpus, small: SparkSession, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(sqlite_uri, tmp_path) as catalog:
        for name in ("v2_json_checkpoint", "typed_statistics"):
            source, ours = imported.table(name)
            catalog.import_table(str(source.path), name=name, engine=small)
            assert sql_content(catalog.table(name)) == sql_content(ours), name


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("backend", ["duckdb", "postgres"])
def test_import_stores_the_same_in_every_database(
    imported: ImportedCorpus, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    assert_same_in(catalog_uri, imported, tmp_path)


def with_few_statistics(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with only those statistics that have one JSON form."""
    adds = []
    for add in state["add"]:
        stats = json.loads(add["stats"])
        bounds = {name: stats["maxValues"].get(name) for name in ("id", "at", "day", "name")}
        adds.append({**add, "stats": (stats["numRecords"], bounds)})
    return {**state, "add": adds}


def source_rows(spark: SparkSession, source: Source, version: int) -> Rows:
    """Return the rows of a version from deltalake, which is faster, or else from delta-spark."""
    if EVERYTHING or not source.reads_with_deltalake:
        return DeltaSpark(spark).rows(source.place, version)
    return Deltalake().rows(source.place, version)
