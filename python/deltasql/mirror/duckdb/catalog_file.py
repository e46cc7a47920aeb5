"""The content of a DuckDB catalog file: views, and their metadata in the schema `deltasql`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from deltasql.engine.duckdb.scan import TableShape, identifier
from deltasql.exceptions import MissingDriverError, TxnLogMirrorError
from deltasql.mirror.duckdb.view_definition import FileMetadata, ViewFiles, view_query
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb
    import pyarrow as pa

    from deltasql.config import Config
    from deltasql.snapshot.snapshot import Snapshot

_METADATA_SCHEMA, _MAIN = "deltasql", "main"
_SCRIPT = """
CREATE SCHEMA deltasql;
CREATE TABLE deltasql.info (format INTEGER NOT NULL);
INSERT INTO deltasql.info VALUES (1);
CREATE TABLE deltasql.tables (
  table_id BIGINT PRIMARY KEY,
  table_uuid VARCHAR NOT NULL,
  namespace VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  location VARCHAR NOT NULL,
  version BIGINT NOT NULL,
  schema_string VARCHAR NOT NULL,
  is_shown BOOLEAN NOT NULL,
  error VARCHAR
);
"""


@dataclass(frozen=True, slots=True)
class ShownTable:
    """The metadata of a table, as a row of the catalog file."""

    table_id: int
    table_uuid: str
    namespace: str
    name: str
    location: str
    version: int
    schema_string: str
    is_shown: bool  # whether the table has a view, even if of an older version
    error: str | None


class CatalogFile:
    """An open DuckDB database with views of Delta tables; the caller closes it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, error: type[Exception]) -> None:
        self._db, self.errors = connection, (error,)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a database, or create a new one."""
        try:
            import duckdb
        except ImportError as error:
            raise MissingDriverError(driver="duckdb", extra="duckdb") from error
        # Do not download extensions, because the download may block without a network.
        try:
            db = duckdb.connect(str(path), config={"autoinstall_known_extensions": False})
            return cls(db, duckdb.Error)
        except duckdb.Error as error:
            raise TxnLogMirrorError(
                f"the DuckDB catalog cannot be opened: {error}",
                help="If deltasql created the file, delete it: it will be created again.",
            ) from error

    def complete(self) -> None:
        """Write all changes from the WAL to the file; raises on failure, unlike `close`."""
        self._db.execute("CHECKPOINT")

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    # Metadata

    def prepare(self) -> bool:
        """Create the metadata tables in an empty database; return False if it has other content."""
        names = {row[0] for row in self._rows("SELECT DISTINCT schema_name FROM duckdb_tables()")}
        if _METADATA_SCHEMA in names:
            return True
        if names or self._rows("SELECT 1 FROM duckdb_views() WHERE NOT internal LIMIT 1"):
            return False
        self._db.execute(_SCRIPT)
        return True

    def tables(self) -> dict[int, ShownTable]:
        """Return the tables of the file by id."""
        rows = self._rows("SELECT * FROM deltasql.tables ORDER BY table_id")
        return {row[0]: ShownTable(*row) for row in rows}

    # Views

    def show(self, snapshot: Snapshot, before: ShownTable | None, config: Config) -> None:
        """Create or replace the view of a table, in one transaction."""
        table, metadata = snapshot.table, snapshot.metadata
        if table.namespace.casefold() == _METADATA_SCHEMA:
            raise TxnLogMirrorError(
                f"tables of the namespace {_METADATA_SCHEMA} cannot be in a DuckDB catalog file, "
                "because deltasql stores its own data in a schema of this name",
                table=table.full_name,
                help="Move the table to another namespace with catalog.rename().",
            )
        same = before is not None and before.schema_string == metadata.schema_string
        files = ViewFiles(snapshot, config, self._file_metadata(table.table_id) if same else {})
        shape = TableShape(
            snapshot.schema,
            snapshot.partition_columns,
            column_mapping_mode(metadata.configuration),
            files_table=_files_table(table.table_id),
            deleted_table=_deleted_table(table.table_id),
        )
        query = view_query(shape, files.groups())
        with self._transaction():
            self._write_files(table.table_id, files)
            if before is not None:
                self.drop_view(before)
            self._create_view(table.namespace, table.name, query)
            self._write_table(snapshot, is_shown=True, error=None)

    def drop_view(self, shown: ShownTable) -> None:
        """Drop the view of a table, if it has one."""
        if not shown.is_shown:
            return
        for schema in _schemas(shown.namespace):
            self._db.execute(f"DROP VIEW IF EXISTS {_name(schema, shown.name)}")

    def hide(self, shown: ShownTable) -> None:
        """Drop the view of a renamed table; keep the metadata for the view with the new name."""
        self.drop_view(shown)
        self._db.execute(
            "UPDATE deltasql.tables SET is_shown = false WHERE table_id = $id",
            {"id": shown.table_id},
        )

    def forget(self, shown: ShownTable) -> None:
        """Drop the view and the metadata of a table."""
        self.drop_view(shown)
        for name in (_files_table(shown.table_id), _deleted_table(shown.table_id)):
            self._db.execute(f"DROP TABLE IF EXISTS {name}")
        self._db.execute("DELETE FROM deltasql.tables WHERE table_id = $id", {"id": shown.table_id})

    def record_error(self, snapshot: Snapshot, before: ShownTable | None, error: str) -> None:
        """Record why the view of a table is missing or out of date."""
        self._write_table(snapshot, is_shown=before is not None and before.is_shown, error=error)

    def drop_empty_schemas(self) -> bool:
        """Drop the schemas of namespaces without a view; return whether there were any."""
        used = {_MAIN, _METADATA_SCHEMA}
        for shown in self.tables().values():
            used.update(_schemas(shown.namespace) if shown.is_shown else ())
        rows = self._rows(
            "SELECT schema_name FROM duckdb_schemas() "
            "WHERE NOT internal AND database_name = current_database()"
        )
        empty = [row[0] for row in rows if row[0] not in used]
        for schema in empty:
            self._db.execute(f"DROP SCHEMA {identifier(schema)}")
        return bool(empty)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.begin()
        done = False
        try:
            yield
            self._db.commit()
            done = True
        finally:
            if not done:
                self._db.rollback()

    def _create_view(self, namespace: str, name: str, query: str) -> None:
        first, *others = _schemas(namespace)
        for schema in (first, *others):
            self._db.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
        self._db.execute(f"CREATE VIEW {_name(first, name)} AS {query}")
        for schema in others:
            self._db.execute(f"CREATE VIEW {_name(schema, name)} AS FROM {_name(first, name)}")

    def _write_files(self, table_id: int, files: ViewFiles) -> None:
        if files.need_table:
            self._replace(_files_table(table_id), files.table())
        name = _deleted_table(table_id)
        if not files.have_deletions:
            self._db.execute(f"DROP TABLE IF EXISTS {name}")
            return
        kept = files.unchanged_vectors()
        new = files.deleted(without=kept)
        if not kept:
            self._replace(name, new)
            return
        self._db.execute(
            f"DELETE FROM {name} WHERE NOT list_contains($kept, filename)",  # noqa: S608
            {"kept": kept},
        )
        self._db.register("dl_rows", new)
        self._db.execute(f"INSERT INTO {name} FROM dl_rows")
        self._db.unregister("dl_rows")

    def _replace(self, name: str, rows: pa.Table) -> None:
        self._db.register("dl_rows", rows)
        try:
            self._db.execute(f"CREATE OR REPLACE TABLE {name} AS FROM dl_rows")
        finally:
            self._db.unregister("dl_rows")

    def _file_metadata(self, table_id: int) -> dict[str, FileMetadata]:
        name = f"files_{table_id}"
        found = self._rows(
            "SELECT 1 FROM duckdb_tables() WHERE schema_name = $schema AND table_name = $name",
            schema=_METADATA_SCHEMA,
            name=name,
        )
        if not found:
            return {}
        rows = self._db.table(_files_table(table_id)).select("filename, naive, vector").fetchall()
        return {row[0]: FileMetadata(row[1], row[2]) for row in rows}

    def _write_table(self, snapshot: Snapshot, *, is_shown: bool, error: str | None) -> None:
        table = snapshot.table
        row = (
            table.table_id,
            table.table_uuid,
            table.namespace,
            table.name,
            table.location,
            snapshot.version,
            snapshot.metadata.schema_string,
            is_shown,
            error,
        )
        self._db.execute(
            "INSERT OR REPLACE INTO deltasql.tables VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row
        )

    def _rows(self, statement: str, **params: object) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, params or None).fetchall()


def _schemas(namespace: str) -> tuple[str, ...]:
    """Return the schemas for the views of a namespace; the default namespace is also in `main`."""
    return (_MAIN, namespace) if namespace == DEFAULT_NAMESPACE else (namespace,)


def _name(schema: str, name: str) -> str:
    return f"{identifier(schema)}.{identifier(name)}"


def _files_table(table_id: int) -> str:
    return f"deltasql.files_{table_id}"


def _deleted_table(table_id: int) -> str:
    return f"deltasql.deleted_{table_id}"
