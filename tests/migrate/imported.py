"""Corpus tables imported into a catalog, and comparisons with their sources."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltasql.mirror.log.encode import commits_between
from deltasql.verify.sql_state import SqlState
from tests.migrate.corpus import log_files
from tests.mirror.support import open_mirrored
from tests.oracles.states import arrow_rows

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.api.catalog.base import CatalogTable
    from deltasql.uri import DeltaSqlUri
    from tests.migrate.corpus import Corpus, Source
    from tests.oracles.states import Rows


@dataclass
class ImportedCorpus:
    """A catalog, and the corpus tables that were imported into it, each on first use."""

    catalog: Catalog
    corpus: Corpus
    reports: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> tuple[Source, CatalogTable]:
        """Return a corpus table and the imported table."""
        source = self.corpus.source(name)
        if name not in self.reports:
            self.reports[name] = self.catalog.import_table(str(source.path), name=name)
        return source, self.catalog.table(name)


def engine_rows(table: CatalogTable, version: int) -> Rows:
    """Return the rows of a version that the embedded engine reads."""
    with table.catalog.begin() as tx:
        tx.pin(table.full_name, table.snapshot(version))
        return arrow_rows(tx.read(table.full_name, engine="duckdb"))


def sql_content(table: CatalogTable) -> list[tuple[Any, ...]]:
    """Return everything that SQL stores about a table, at every version."""
    history = sorted(table.history(), key=lambda row: row.version)
    store, table_id = table.catalog.store, table.row.table_id
    with store.session() as session:
        first, last = history[0].version, history[-1].version
        encoded = dict(commits_between(session, table_id, first, last))
    out = []
    for row in history:
        state = SqlState(store, table.row, row.version)
        out.append(
            (
                (row.version, row.committed_at_ms, row.group_size, row.info),
                (state.metadata, state.protocol, state.txns, state.domains),
                state.files.sort_by("path").to_pylist(),
                state.tombstones.sort_by("path").to_pylist(),
                encoded[row.version],
            )
        )
    return out


def assert_nothing_lost(imported: ImportedCorpus, name: str) -> None:
    """Assert that SQL has every field of every commit, and that the log is byte-identical."""
    source, table = imported.table(name)
    assert_verified(imported, name)
    assert log_files(source.path) == source.log
    assert_same_infos(source, table)


def assert_same_in(uri: DeltaSqlUri, imported: ImportedCorpus, folder: Path) -> None:
    """Assert that another database stores the same about every corpus table."""
    with open_mirrored(uri, folder) as catalog:
        there = ImportedCorpus(catalog, imported.corpus)
        for name in imported.corpus.makers:
            _, ours = imported.table(name)
            _, theirs = there.table(name)
            assert sql_content(theirs) == sql_content(ours), name


def assert_verified(imported: ImportedCorpus, name: str) -> None:
    """Verify every commit, state, checkpoint and checksum of a log against SQL."""
    (report,) = imported.catalog.mirror.verify(name, versions="all")
    assert report.ok, report.summary()


def assert_same_infos(source: Source, table: CatalogTable) -> None:
    """Compare the commit info of every commit, field by field, and its timestamp."""
    infos = _commit_infos(source)
    for row in table.history():
        if row.version in infos:
            info = infos[row.version]
            assert {**row.info.body(), "txnId": None} == {**info, "txnId": None}, row.version
            known = info.get("inCommitTimestamp")
            # Otherwise the commit has the modification time of its file, but is at least one
            # millisecond later than the previous commit.
            path = source.path / "_delta_log" / f"{row.version:020}.json"
            modified_ms = path.stat().st_mtime_ns // 1_000_000
            if known is None:
                assert modified_ms <= row.committed_at_ms, row.version
            else:
                assert known == row.committed_at_ms, row.version


def _commit_infos(source: Source) -> dict[int, dict[str, Any]]:
    found = {}
    for name, data in source.log.items():
        stem, _, suffix = name.partition(".")
        if suffix == "json" and stem.isdigit():
            actions = [json.loads(line) for line in data.splitlines() if line.strip()]
            infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
            found[int(stem)] = infos[0] if infos else {}
    return found
