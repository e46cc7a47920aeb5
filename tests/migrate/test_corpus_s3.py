"""Imported tables of deltalake on S3 equal their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import deltasql
from deltasql.storage import open_storage
from tests.migrate.corpus import Corpus
from tests.migrate.imported import engine_rows
from tests.migrate.test_corpus import TABLES
from tests.oracles.deltasql_reader import own_log
from tests.oracles.readers import Deltalake, Place, stock_log
from tests.selection import smoke

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

ON_S3 = ["checkpoints", "compacted_after_checkpoint", "odd_values"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The tables on local disk, not created yet."""
    return Corpus(tmp_path_factory.mktemp("corpus"), TABLES)


@pytest.mark.parametrize("name", smoke(ON_S3, ON_S3[:1], "more tables on S3"))
def test_imported_table_on_s3_equals_its_source(
    corpus: Corpus,
    name: str,
    sqlite_uri: DeltaSqlUri,
    s3_location: str,
    s3_options: dict[str, str],
) -> None:
    source = corpus.source(name)
    location = f"{s3_location}/{name}"
    settings = {"mirror": {"mode": "sync"}, "storage": {"options": s3_options}}
    with deltasql.connect(sqlite_uri, **settings) as catalog:
        upload(source.path, location, catalog)
        catalog.import_table(location, name=name)
        table = catalog.table(name)
        assert table.location == location
        place = Place(location, s3_options)
        for version in source.versions[-3:]:
            assert engine_rows(table, version) == Deltalake().rows(place, version), version
            expected = own_log(table, version)
            assert stock_log(place, version, expected.apps) == expected
        (report,) = catalog.mirror.verify(name, versions="all")
        assert report.ok, report.summary()


def upload(folder: Path, location: str, catalog: deltasql.Catalog) -> None:
    """Upload a local table to a bucket, the log last and in order."""
    storage = open_storage(location, catalog.config.storage)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    for file in sorted(files, key=lambda file: "_delta_log" in file.parts):
        storage.put(str(file.relative_to(folder)), file.read_bytes())
