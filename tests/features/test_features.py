"""Tables with every table feature are written and read, and the documentation lists them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deltasql.model.protocol import FENCE, READABLE, WRITABLE, reader_features, writer_features
from tests.each import check_each
from tests.features.cases import READ_ONLY, SUPPORTED, UNSUPPORTED
from tests.features.page import PAGE, with_table
from tests.operations.maintenance import open_lake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri


def test_tables_with_each_feature_are_written_and_read(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    def use(name: str) -> None:
        case, table = SUPPORTED[name], name.replace("-", "_")
        properties = f" TBLPROPERTIES ({case.properties})" if case.properties else ""
        lake.sql(f"CREATE TABLE {table} ({case.columns}){properties}")
        for statement in case.after:
            lake.sql(statement.format(t=table))
        protocol = lake.table(table).snapshot().protocol
        assert name in writer_features(protocol) | reader_features(protocol)
        lake.sql(f"INSERT INTO {table} (id, v) VALUES (1, 'a'), (2, 'b')")
        if name != "appendOnly":
            lake.sql(f"UPDATE {table} SET v = 'c' WHERE id = 1")
            lake.sql(f"DELETE FROM {table} WHERE id = 2")
            lake.sql(f"OPTIMIZE {table}")
            rows = lake.sql(f"SELECT id, v FROM {table}").to_pylist()
            assert rows == [{"id": 1, "v": "c"}]
        assert lake.mirror.verify(table)[0].ok

    with open_lake(catalog_uri, tmp_path) as lake:
        check_each(SUPPORTED, use)


def test_page_lists_what_the_code_supports() -> None:
    writable = {*SUPPORTED, "timestampNanos", FENCE}
    assert writable == WRITABLE
    assert {*READ_ONLY}.isdisjoint(WRITABLE)
    assert {*UNSUPPORTED}.isdisjoint(READABLE | WRITABLE)
    text = PAGE.read_text()
    assert with_table(text) == text, "run python -m tests.features.page"


@pytest.mark.everything("delta-spark names its features")
def test_page_lists_every_feature_of_delta_spark(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    known = jvm.org.apache.spark.sql.delta.TableFeature.allSupportedFeaturesMap()
    found = jvm.scala.jdk.javaapi.CollectionConverters.asJava(known.values().toSeq())
    names = {feature.name() for feature in found}
    listed = {*SUPPORTED, *READ_ONLY, *UNSUPPORTED}
    assert {name for name in names if not name.startswith("test")} <= listed
