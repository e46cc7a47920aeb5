"""BaseCatalog: the database of a catalog, and its tables by name.

Transactions, the mirror and reports use this class. `Catalog` extends it with methods for them.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltasql.commit.committer import Committer
from deltasql.commit.log_ahead import LogAheadCheck
from deltasql.commit.stale import follows_another_log
from deltasql.config import Config
from deltasql.exceptions import TxnLogTableNotFoundError
from deltasql.snapshot.files import FileCache
from deltasql.snapshot.snapshot import Scan, Snapshot, open_snapshot
from deltasql.store.open import open_store
from deltasql.store.records import TableRow
from deltasql.uri import join_table_name, parse_uri, split_table_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa

    from deltasql.store.records import VersionRow
    from deltasql.uri import DeltaSqlUri


def absolute(uri: DeltaSqlUri) -> DeltaSqlUri:
    """Return the URI with an absolute path, which does not depend on the working directory."""
    return replace(uri, database=str(Path(uri.database).absolute())) if uri.is_file else uri


def table_not_found(
    uri: DeltaSqlUri,
    name: str,
    known: Sequence[str],
    help: str = TxnLogTableNotFoundError.default_help,
) -> TxnLogTableNotFoundError:
    """Return the error for an unknown table; its help suggests a similar known name."""
    near = get_close_matches(name, known, n=1)
    return TxnLogTableNotFoundError(
        f"table {name} does not exist in {uri}",
        table=name,
        help=f"Did you mean {near[0]}?" if near else help,
    )


class BaseCatalog:
    """The database, settings and file cache of a catalog, and the lookup of its tables."""

    def __init__(
        self, uri: str | DeltaSqlUri, config: Config | None = None, *, migrate: bool = True
    ) -> None:
        parsed = parse_uri(uri) if isinstance(uri, str) else uri
        self.uri = absolute(parsed.catalog())
        self.config = config if config is not None else Config.load()
        self.store = open_store(parsed, self.config, migrate=migrate)
        self.cache = FileCache(self.config.cache.max_bytes, self.config.cache.max_entries)
        self.committer = Committer(self.store, self.config)
        self.log_ahead = LogAheadCheck(self.store, self.config)
        self.has_log_store = False
        """Whether delta-spark jobs with the LogStore of deltasql commit through this process."""

    def tables(self, namespace: str | None = None) -> list[CatalogTable]:
        """List all tables, or those of one namespace, sorted by namespace and name."""
        rows = self.store.query("list_tables", namespace=namespace)
        return [CatalogTable(self, TableRow.from_row(row)) for row in rows]

    def table(self, name: str) -> CatalogTable:
        """Return a table by name: `sales`, or `crm.sales` in another namespace."""
        return CatalogTable(self, self.resolve(name, fresh=True))

    def exists(self, name: str) -> bool:
        """Return whether a table has this name; False if the database has no catalog."""
        key = split_table_name(name)
        return self.store.exists() and self.store.find_table(*key, fresh=True) is not None

    def dropped(self) -> list[TableRow]:
        """List dropped tables, the most recently dropped first."""
        rows = (TableRow.from_row(row) for row in self.store.query("list_dropped"))
        return [row for row in rows if not row.is_loading]

    def resolve(self, name: str, *, fresh: bool = False) -> TableRow:
        """Return a table's row; the error for an unknown name suggests a similar one.

        A read must set `fresh`, because another process may have renamed or replaced the table. A
        commit detects such a change while it holds the lock, so it may use the cached row.
        """
        found = self.store.find_table(*split_table_name(name), fresh=fresh)
        if found is None:
            raise table_not_found(self.uri, name, [each.full_name for each in self.tables()])
        return found

    def writable(self, name: str) -> TableRow:
        """Return a table's row; raise TableFollowsError if the table is followed (read-only)."""
        found = self.resolve(name, fresh=True)
        if found.is_following:
            raise follows_another_log(found)
        return found


def spelling_of(catalog: BaseCatalog, name: str) -> str:
    """Return a table name in the catalog's spelling, if only the case of letters differs.

    If no table or several tables have such a name, the name is returned unchanged.
    """
    if catalog.exists(name) or not catalog.store.exists():
        return name
    namespace, short = wanted = tuple(part.casefold() for part in split_table_name(name))
    # All databases convert the case of ASCII letters in the same way, but not of other letters.
    known = (
        catalog.store.query("names_alike", namespace=namespace, name=short)
        if "".join(wanted).isascii()
        else [(each.row.namespace, each.row.name) for each in catalog.tables()]
    )
    alike = [each for each in known if tuple(part.casefold() for part in each) == wanted]
    return join_table_name(*alike[0]) if len(alike) == 1 else name


class CatalogTable:
    """A table of a catalog. Each method reads from the database when it is called."""

    def __init__(self, catalog: BaseCatalog, row: TableRow) -> None:
        self.catalog, self.row = catalog, row

    def __repr__(self) -> str:
        return f"CatalogTable({self.full_name!r}, location={self.location!r})"

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def namespace(self) -> str:
        return self.row.namespace

    @property
    def full_name(self) -> str:
        """The name for `catalog.table`: `sales`, or `crm.sales` in another namespace."""
        return join_table_name(self.row.namespace, self.row.name)

    @property
    def location(self) -> str:
        """The folder or bucket prefix of the data files and of the published `_delta_log`."""
        return self.row.location

    @property
    def is_following(self) -> bool:
        """Whether the authority of the table is its log; the table is then read-only here."""
        return self.row.is_following

    @property
    def uri(self) -> str:
        """The `deltasql://` URI of this table; it includes the password of the catalog's URI."""
        return self.catalog.uri.with_table(self.name, self.namespace).to_string()

    def snapshot(
        self, version: int | None = None, *, timestamp: datetime | None = None
    ) -> Snapshot:
        """Return a snapshot at a version or timestamp, by default at the latest version."""
        catalog = self.catalog
        return open_snapshot(
            catalog.store, self.row, catalog.cache, version=version, timestamp=timestamp
        )

    def version(self) -> int:
        """Return the latest version."""
        return self.snapshot().version

    def files(self, version: int | None = None) -> pa.Table:
        """Return the live files as an Arrow table."""
        return self.snapshot(version).files()

    def scan(self, predicate: object = None, *, version: int | None = None) -> Scan:
        """Return the files that can contain rows that match a predicate."""
        return self.snapshot(version).scan(predicate)

    def history(self, limit: int | None = None) -> list[VersionRow]:
        """Return the latest `limit` commits, or all commits; newest first."""
        return list(self.snapshot().history(limit))

    def describe(self) -> dict[str, Any]:
        """Return location, version, schema, protocol and totals of the table."""
        snapshot = self.snapshot()
        totals = snapshot.totals()
        stored = totals.num_records
        rows = None if stored is None else stored - snapshot.deleted_rows()
        return {
            "name": self.full_name,
            "location": self.location,
            "version": snapshot.version,
            "committed_at": snapshot.committed_at,
            "schema": snapshot.schema.to_json(),
            "partition_columns": list(snapshot.partition_columns),
            "properties": dict(snapshot.metadata.configuration),
            "protocol": snapshot.protocol.body(),
            "description": snapshot.metadata.description,
            "num_files": totals.num_files,
            "size_bytes": totals.size_bytes,
            "num_records": rows,
        }
