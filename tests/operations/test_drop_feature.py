"""NOT NULL is added to tables with rows, and features that a table does not use can be dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from deltasql.exceptions import InvalidDataError, TxnLogSchemaError, UnsupportedFeatureError
from deltasql.model.protocol import writer_features
from tests.mirror.support import log_names
from tests.operations.maintenance import open_lake, opened, own_rows, published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_lake(catalog_uri, tmp_path) as catalog:
        yield catalog


def features(lake: Catalog) -> frozenset[str]:
    return writer_features(lake.table("t").snapshot().protocol)


def test_not_null_is_added_if_no_row_has_a_null(lake: Catalog) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, s STRUCT<x: INT, y: INT>)")
    lake.sql("INSERT INTO t VALUES (1, named_struct('x', 1, 'y', NULL)), (2, NULL)")
    with pytest.raises(InvalidDataError, match="1 rows failed"):
        lake.sql("ALTER TABLE t ALTER COLUMN s SET NOT NULL")
    with pytest.raises(TxnLogSchemaError, match=r"field 's\.x' of a struct"):
        lake.sql("ALTER TABLE t ALTER COLUMN s.x SET NOT NULL")
    opened(lake).alter.set_column_not_null("id")
    assert not published(lake).schema().fields[0].nullable
    assert "invariants" in features(lake)
    with pytest.raises(InvalidDataError):
        lake.sql("INSERT INTO t VALUES (NULL, NULL)")
    lake.sql("ALTER TABLE t ALTER COLUMN id DROP NOT NULL")
    lake.sql("INSERT INTO t VALUES (NULL, NULL)")
    lake.sql("DELETE FROM t WHERE id IS NULL")
    lake.sql("ALTER TABLE t ALTER COLUMN id SET NOT NULL")
    assert len(own_rows(lake)) == 2


def test_check_is_added_in_sql_if_no_row_breaks_it(lake: Catalog) -> None:
    lake.sql("CREATE TABLE t AS SELECT 1 AS id")
    with pytest.raises(InvalidDataError, match="1 rows failed"):
        lake.sql("ALTER TABLE t ADD CONSTRAINT large CHECK (id > 1)")
    lake.sql("ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0)")
    with pytest.raises(InvalidDataError):
        lake.sql("INSERT INTO t VALUES (0)")


def test_unused_features_are_dropped_with_their_properties(lake: Catalog) -> None:
    lake.sql(
        "CREATE TABLE t (id BIGINT, c BIGINT) CLUSTER BY (c) TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.appendOnly' = 'true')"
    )
    for name, problem in (
        ("clustering", "the table uses it"),
        ("domainMetadata", "clustering needs it"),
        ("rowTracking", "does not have it"),
        ("nonsense", "not a known table feature"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=f"{name} cannot be dropped: .*{problem}"):
            lake.sql(f"ALTER TABLE t DROP FEATURE {name}")
    with pytest.raises(UnsupportedFeatureError, match="history cannot be truncated"):
        lake.sql("ALTER TABLE t DROP FEATURE changeDataFeed TRUNCATE HISTORY")
    lake.sql("ALTER TABLE t CLUSTER BY NONE")
    for name in ("clustering", "domainMetadata", "changeDataFeed", "appendOnly"):
        lake.sql(f"ALTER TABLE t DROP FEATURE {name}")
    lake.sql("INSERT INTO t VALUES (1, 2)")
    lake.sql("DELETE FROM t WHERE id = 1")
    opened(lake).alter.drop_feature("inCommitTimestamp")
    protocol = published(lake).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 1)
    assert lake.mirror.verify("t")[0].ok


def test_dropping_a_reader_feature_protects_the_older_history(lake: Catalog) -> None:
    lake.create_table(
        "t", pa.schema([("id", pa.int64())]), properties={"delta.enableDeletionVectors": "true"}
    )
    lake.sql("INSERT INTO t VALUES (1)")
    lake.sql("ALTER TABLE t DROP FEATURE deletionVectors")
    table = lake.table("t")
    assert f"{table.version():020d}.checkpoint.parquet" in log_names(table.location)
    stock = deltalake.DeltaTable(table.location)
    assert stock.protocol().min_reader_version == 1
    assert stock.to_pyarrow_table().num_rows == 1
    assert "checkpointProtection" in features(lake)
    with pytest.raises(UnsupportedFeatureError, match="history before a dropped feature"):
        lake.sql("ALTER TABLE t DROP FEATURE checkpointProtection")


def test_preview_feature_is_dropped_unless_the_table_uses_it(lake: Catalog) -> None:
    lake.sql(
        "CREATE TABLE t (id INT) TBLPROPERTIES ('delta.feature.typeWidening-preview' = 'supported',"
        " 'delta.feature.variantType-preview' = 'supported', 'delta.enableTypeWidening' = 'true')"
    )
    lake.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    lake.sql("ALTER TABLE t DROP FEATURE `typeWidening-preview`")
    lake.sql("ALTER TABLE t DROP FEATURE `variantType-preview`")
    with pytest.raises(UnsupportedFeatureError, match="the table uses it"):
        lake.sql("ALTER TABLE t DROP FEATURE typeWidening")
    assert features(lake) == {"inCommitTimestamp", "typeWidening", "checkpointProtection"}


def test_clean_up_keeps_the_protected_log(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_table(
        "t",
        pa.schema([("id", pa.int64())]),
        properties={
            "delta.enableDeletionVectors": "true",
            "delta.checkpointInterval": "1",
            "delta.logRetentionDuration": "interval 0 seconds",
        },
    )
    table = opened(lake)
    for number in range(3):
        lake.sql(f"INSERT INTO t VALUES ({number})")
    lake.sql(
        "ALTER TABLE t SET TBLPROPERTIES ('delta.requireCheckpointProtectionBeforeVersion' = '9')"
    )
    before = log_names(lake.table("t").location)
    table.update_incremental()
    table.cleanup_metadata()
    assert log_names(lake.table("t").location) == before
    lake.sql(
        "ALTER TABLE t SET TBLPROPERTIES ('delta.requireCheckpointProtectionBeforeVersion' = '3')"
    )
    table.update_incremental()
    table.cleanup_metadata()
    assert len(log_names(lake.table("t").location)) < len(before)
