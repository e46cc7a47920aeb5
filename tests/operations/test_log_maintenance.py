"""Maintenance of the published log: post-commit options, checkpoints, log compaction, manifests."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import PostCommitHookProperties

from deltasql.exceptions import TxnLogError, UnsupportedFeatureError, VersionNotFoundError
from tests.operations.maintenance import agree, numbers, open_lake, opened, own_rows, published

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a table `t`: created, four writes, the third is an overwrite."""
    with open_lake(catalog_uri, tmp_path) as catalog:
        fill(catalog)
        yield catalog


def fill(catalog: Catalog, **options: object) -> None:
    catalog.create_table("t", numbers(0, 0).schema, partition_by=["part"], **options)
    for number in range(4):
        with catalog.begin() as tx:
            rows = pa.concat_tables([numbers(number, number + 2, part) for part in "ab"])
            tx.write("t", rows, mode="overwrite" if number == 2 else "append")


def log_of(catalog: Catalog) -> Path:
    return Path(catalog.table("t").location) / "_delta_log"


def checkpoints(catalog: Catalog) -> list[int]:
    return sorted(int(p.name[:20]) for p in log_of(catalog).glob("*.checkpoint.parquet"))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_commit_can_skip_its_checkpoint(sqlite_uri: DeltaSqlUri, tmp_path: Path, mode: str) -> None:
    with open_lake(sqlite_uri, tmp_path, mirror={"mode": mode}) as catalog:
        fill(catalog, properties={"delta.checkpointInterval": "5"})
        with catalog.begin() as tx:
            tx.write("t", numbers(5, 6))
            tx.set_post_commit(PostCommitHookProperties(create_checkpoint=False))
        assert catalog.mirror.flush()
        assert published(catalog).version() == 5
        assert checkpoints(catalog) == []
        for number in range(5):
            with catalog.begin() as tx:
                tx.write("t", numbers(number, number + 1))
        assert catalog.mirror.flush()
        assert checkpoints(catalog) == [10]


def test_post_commit_option_controls_log_cleanup(lake: Catalog) -> None:
    table = opened(lake)
    table.alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "1000"}
    )
    table.create_checkpoint()
    commits = len(list(log_of(lake).glob("*.json")))
    keep = PostCommitHookProperties(cleanup_expired_logs=False)
    clean = PostCommitHookProperties(cleanup_expired_logs=True)
    table.alter.set_table_name("one", post_commithook_properties=keep)
    assert len(list(log_of(lake).glob("*.json"))) == commits + 1
    table.alter.set_table_name("two", post_commithook_properties=clean)
    left = sorted(int(p.name[:20]) for p in log_of(lake).glob("*.json"))
    assert left == [5, 6, 7]
    agree(lake)


def test_checkpoint_is_written_for_the_version_of_the_handle(lake: Catalog) -> None:
    table = opened(lake)
    table.load_as_version(3)
    table.create_checkpoint()
    opened(lake).create_checkpoint()
    assert checkpoints(lake) == [3, 4]
    hint = json.loads((log_of(lake) / "_last_checkpoint").read_text())
    assert hint["version"] == 4
    agree(lake)


def test_cleanup_keeps_log_files_within_retention(lake: Catalog) -> None:
    table = opened(lake)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert len(list(log_of(lake).glob("*.json"))) == 5
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    table.cleanup_metadata()
    assert [p.name[:20] for p in log_of(lake).glob("*.json")] == [f"{5:020d}"]
    assert len(table.history()) == 6  # SQL keeps the history
    agree(lake)


def test_compacted_log_has_the_net_actions_of_its_commits(lake: Catalog) -> None:
    table = opened(lake)
    before = own_rows(lake)
    table.compact_logs(1, 3)
    table.compact_logs(1, 3)
    name = f"{1:020d}.{3:020d}.compacted.json"
    actions = [json.loads(line) for line in (log_of(lake) / name).read_text().splitlines()]
    kinds = [kind for action in actions for kind in action]
    assert kinds == ["remove"] * 4 + ["add"] * 2
    assert agree(lake) == before
    assert lake.mirror.verify("t")[0].ok


def test_compaction_of_an_invalid_version_range_is_rejected(lake: Catalog) -> None:
    table = opened(lake)
    with pytest.raises(TxnLogError, match="end_version 1 must be greater than start_version 3"):
        table.compact_logs(3, 1)
    with pytest.raises(VersionNotFoundError):
        table.compact_logs(1, 99)
    with pytest.raises(OverflowError):
        table.compact_logs(-1, 3)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_spark_reads_a_compacted_log(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, spark: SparkSession
) -> None:
    with open_lake(sqlite_uri, tmp_path) as lake:
        fill(lake)
        table = opened(lake)
        table.alter.rename_column("text", "words")
        table.compact_logs(0, 5)
        for number in range(6):  # Spark can use only the compacted file
            (log_of(lake) / f"{number:020d}.crc").unlink(missing_ok=True)
        rows = spark.read.format("delta").load(lake.table("t").location).collect()
        found = sorted((row["id"], row["part"], row["words"]) for row in rows)
        assert found == sorted((r["id"], r["part"], r["words"]) for r in own_rows(lake))


def test_manifests_list_the_files_of_each_partition(lake: Catalog) -> None:
    table = opened(lake)
    table.generate()
    folder = Path(lake.table("t").location) / "_symlink_format_manifest"
    listed = {
        path.parent.name: sorted(path.read_text().split()) for path in folder.rglob("manifest")
    }
    assert listed.keys() == {"part=a", "part=b"}
    assert sorted(chain(*listed.values())) == sorted(table.file_uris())
    with lake.begin() as tx:
        tx.delete("t", "part = 'b'")
    opened(lake).generate()
    assert [path.parent.name for path in folder.rglob("manifest")] == ["part=a"]


def test_manifest_of_a_table_with_column_mapping_is_rejected(lake: Catalog) -> None:
    table = opened(lake)
    table.alter.rename_column("text", "words")
    with pytest.raises(UnsupportedFeatureError, match="columnMapping"):
        table.generate()
