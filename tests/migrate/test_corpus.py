"""Imported tables of deltalake, and hand-written logs, equal their source at every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from tests.migrate import corpus_handwritten, corpus_stock
from tests.migrate.corpus import Corpus, named
from tests.migrate.imported import (
    ImportedCorpus,
    assert_nothing_lost,
    assert_same_in,
    engine_rows,
)
from tests.mirror.support import copy_table, open_mirrored
from tests.oracles.deltasql_reader import own_log
from tests.oracles.readers import Deltalake, Place, stock_log, stock_table
from tests.oracles.states import arrow_rows
from tests.selection import smoke

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

TABLES = named(
    corpus_stock.every_operation,
    corpus_stock.vacuumed,
    corpus_stock.checkpoints,
    corpus_stock.cleaned_up,
    corpus_stock.compacted,
    corpus_stock.compacted_after_checkpoint,
    corpus_stock.odd_values,
    corpus_stock.typed_partitions,
    corpus_stock.every_type,
    corpus_stock.change_data,
    corpus_stock.converted,
    corpus_stock.many_files,
    corpus_handwritten.older_writers,
)

NAMES = smoke(TABLES, TABLES.keys() - {"many_files"}, "ten thousand files")

# Older versions have no files any more, or the same ten thousand files.
FIRST_READ = {"vacuumed": 3, "many_files": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The tables, not created yet."""
    return Corpus(tmp_path_factory.mktemp("corpus"), TABLES)


@pytest.mark.parametrize("name", NAMES)
def test_every_version_has_the_rows_of_the_source(imported: ImportedCorpus, name: str) -> None:
    source, table = imported.table(name)
    for version in source.versions:
        if version >= FIRST_READ.get(name, 0):
            assert engine_rows(table, version) == Deltalake().rows(source.place, version), version


@pytest.mark.parametrize("name", NAMES)
def test_every_version_has_the_state_that_deltalake_reads(
    imported: ImportedCorpus, name: str
) -> None:
    source, table = imported.table(name)
    assert [row.version for row in reversed(table.history())] == list(source.versions)
    for version in source.versions:
        expected = own_log(table, version)
        assert stock_log(source.place, version, expected.apps) == expected


@pytest.mark.parametrize("name", NAMES)
def test_import_keeps_every_commit_field_and_the_log_bytes(
    imported: ImportedCorpus, name: str
) -> None:
    assert_nothing_lost(imported, name)


@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"many_files"}))
def test_imported_table_accepts_commits(
    corpus: Corpus, name: str, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    source = corpus.source(name)
    copy = copy_table(source.path, tmp_path / "copy")
    with open_mirrored(sqlite_uri, tmp_path) as catalog:
        catalog.import_table(str(copy), name="t")
        with catalog.begin() as tx:
            rows = tx.read("t")
            tx.write("t", rows.slice(0, 1))
        assert tx.versions["t"] == source.versions[-1] + 1
        found = Deltalake().rows(Place(str(copy)), tx.versions["t"])
        assert len(found.rows) == len(rows) + 1
        assert found == engine_rows(catalog.table("t"), tx.versions["t"])
        with catalog.begin() as tx:
            tx.delete("t")
        assert Deltalake().rows(Place(str(copy)), tx.versions["t"]).rows == ()
        (report,) = catalog.mirror.verify("t", versions="all")
        assert report.ok, report.summary()


def test_change_data_of_imported_table_matches_deltalake(imported: ImportedCorpus) -> None:
    source, table = imported.table("change_data")
    ours, theirs = (
        pa.table(opened.load_cdf(starting_version=0, ending_version=source.versions[-1]))
        for opened in (deltasql.DeltaTable(table.uri), stock_table(source.place))
    )
    assert arrow_rows(ours) == arrow_rows(theirs)
    assert set(ours["_change_type"].to_pylist()) == {
        *("insert", "delete", "update_preimage", "update_postimage")
    }


@pytest.mark.everything("every table of the corpus in every database")
@pytest.mark.parametrize("backend", ["duckdb", "postgres"])
def test_import_stores_the_same_in_every_database(
    imported: ImportedCorpus, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    assert_same_in(catalog_uri, imported, tmp_path)
