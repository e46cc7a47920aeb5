"""Tables with every table feature are written and read, and the documentation lists them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.protocol import FENCE, READABLE, WRITABLE, reader_features, writer_features
from tests.each import check_each
from tests.features.cases import READ_ONLY, SUPPORTED, UNSUPPORTED
from tests.features.page import PAGE, with_table
from tests.migrate.handwritten import HandwrittenTable, column, metadata
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


def test_import_of_a_table_with_an_unsupported_feature_names_the_feature(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    def refuse(name: str) -> None:
        protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": [], "writerFeatures": [name]}
        if name in UNSUPPORTED:
            protocol["readerFeatures"] = [name]
        source, table = HandwrittenTable(tmp_path / name), name.replace("-", "_")
        source.commit({"protocol": protocol}, metadata(column("id")))
        with pytest.raises(UnsupportedFeatureError, match=name) as error:
            lake.import_table(source.path, name=table)
            assert name in READ_ONLY
            assert lake.sql(f"SELECT * FROM {table}").to_pylist() == []
            lake.cutover(table)
        assert error.value.features == (name,)

    with open_lake(catalog_uri, tmp_path / "lake") as lake:
        check_each({**UNSUPPORTED, **READ_ONLY}, refuse)


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
