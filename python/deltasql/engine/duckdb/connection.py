"""An in-memory DuckDB of our own: it fetches nothing, thinks in UTC, and spills to a folder."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltasql.engine.parquet.file_errors import DAMAGED_HELP
from deltasql.exceptions import MissingDriverError, TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from deltasql.config import EngineSettings


def require_duckdb() -> None:
    """Refuse to go on without DuckDB, and tell how to get it."""
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        raise MissingDriverError(driver="duckdb", extra="duckdb") from error


def connect(folder: str, settings: EngineSettings | None = None) -> duckdb.DuckDBPyConnection:
    """Open a database in memory that puts what is too large into a folder."""
    require_duckdb()
    import duckdb

    options: dict[str, Any] = {
        # Nothing is fetched over the network behind the user's back: that may take forever.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": folder,
        # Files are read once; kept parts of them would take the place of rows.
        "enable_external_file_cache": False,
    }
    if settings is not None and settings.memory_limit is not None:
        options["memory_limit"] = settings.memory_limit
    if settings is not None and settings.threads is not None:
        options["threads"] = settings.threads
    with duckdb_errors():
        connection = duckdb.connect(":memory:", config=options)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        # A table of a query is never a variable of whoever happens to call us.
        connection.execute("SET GLOBAL python_enable_replacements = false")
        prepare(connection)
    return connection


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Set what DuckDB has no global setting for."""
    connection.execute("SET enable_progress_bar = false")  # it would go to standard output


@contextmanager
def connected(settings: EngineSettings | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a database of which nothing is left afterwards."""
    folder = tempfile.mkdtemp(prefix="deltasql-")
    try:
        connection = connect(folder, settings)
        try:
            with duckdb_errors():
                yield connection
        finally:
            connection.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def duckdb_errors() -> Iterator[None]:
    """Raise DuckDB's errors as ours."""
    require_duckdb()
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise TxnLogEngineError(
            str(error),
            engine="duckdb",
            help="Give it more by engine.memory_limit, or room on the disk for temporary files.",
        ) from error
    except duckdb.IOException as error:
        raise TxnLogEngineError(
            str(error).partition("\n\nLINE ")[0],
            engine="duckdb",
            help="Check the rights on the file, and that it is there: VACUUM deletes files that "
            "only versions older than its retention need, so read a newer one. A file that is lost "
            "is taken out of its table by DeltaTable.repair().",
        ) from error
    except duckdb.InvalidInputException as error:
        # Also raised by some functions of a query for a value that they do not take.
        told_help = f"If this names a file, the file is damaged. {DAMAGED_HELP}"
        raise TxnLogEngineError(str(error), engine="duckdb", help=told_help) from error
    except duckdb.Error as error:
        raise TxnLogEngineError(str(error), engine="duckdb") from error
