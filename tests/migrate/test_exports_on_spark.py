"""delta-spark reads exports, and data verification works on Spark as on DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mirror.published import HEAD, change_commit, forget_derived, publish_history
from tests.mirror.support import open_mirrored
from tests.oracles import tables, tables_staged
from tests.oracles.readers import DeltaSpark, Place
from tests.oracles.test_delta_spark import BEYOND, SMALL
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri

MAKERS = (tables_staged.deletion_vectors, tables_staged.mapped_partition)


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


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_delta_spark_reads_every_kind_of_copy(
    delta_spark: DeltaSpark, sqlite_uri: DeltaSqlUri, tmp_path: Path, make: Any
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        (written,) = make(catalog)
        last = len(written.states) - 1
        for number, options in enumerate(
            (
                {},
                {"from_version": last},
                {"with_data": True},
                {"with_data": True, "from_version": last - 1},
            )
        ):
            copy = tmp_path / str(number)
            report = catalog.export_table(written.name, str(copy), **options)
            version = max(report.first_version, last - number)
            found = delta_spark.rows(Place(str(copy)), version)
            assert found == written.states[version], options


@pytest.mark.everything("delta-spark as a reader, beyond the smoke set")
@pytest.mark.parametrize(
    "make",
    smoke([tables.nested, tables.typed_partitions, *MAKERS], ("nested",), BEYOND, named=True),
    ids=lambda make: make.__name__,
)
def test_data_verification_compares_with_delta_spark(
    delta_spark: DeltaSpark, sqlite_uri: DeltaSqlUri, tmp_path: Path, make: Any
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        (written,) = make(catalog)
        (report,) = catalog.mirror.verify(written.name, data="rows", engine="spark")
        assert report.ok, report.summary()
        (found,) = report.data
        values = found.to_dict()
        assert (values["engine"], values["compared_with"]) == ("spark", "delta-spark")
        assert values["rows"] == len(written.states[-1].rows)


@pytest.mark.everything(BEYOND)
def test_data_verification_on_spark_skips_unreadable_files(
    delta_spark: DeltaSpark, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        location = Path(catalog.table("t").location)
        paths = sorted(catalog.table("t").snapshot().files()["path"].to_pylist())
        broken = location / paths[0].replace("%25", "%")
        assert broken.exists()
        broken.write_bytes(b"\0" * broken.stat().st_size)
        (report,) = catalog.mirror.verify("t", data="rows", engine="spark")
        found = report.data[0].to_dict()
        assert found["counts"] == {"unreadable": 1}
        assert found["differences"][0]["path"] == paths[0]
        assert found["rows"] == len(paths) - 1


@pytest.mark.everything(BEYOND)
def test_data_verification_on_spark_shows_different_rows(
    delta_spark: DeltaSpark, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        location = catalog.table("t").location

        def move(action: dict[str, Any]) -> None:
            if action.get("add", {}).get("partitionValues", {}).get("p") == "a b":
                action["add"]["partitionValues"]["p"] = "b a"

        change_commit(location, HEAD, move)
        forget_derived(location)
        (report,) = catalog.mirror.verify("t", data="rows", engine="spark", with_deltalake=False)
        (found,) = report.data
        assert found.to_dict()["counts"] == {"row": 2}
        shown = {each["field"] for each in json.loads(json.dumps(found.to_dict()))["differences"]}
        assert shown == {"id=8, p='a b'", "id=8, p='b a'"}
