"""Open a private in-memory DuckDB: without network access, in UTC, spilling to a folder."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltasql.engine.parquet.file_errors import DAMAGED_HELP, missing_file
from deltasql.exceptions import MissingDriverError, TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from deltasql.config import EngineSettings


def require_duckdb() -> None:
    """Raise `MissingDriverError`, which says how to install DuckDB, if it is not installed."""
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        raise MissingDriverError(driver="duckdb", extra="duckdb") from error


def connect(folder: str, settings: EngineSettings | None = None) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database that spills to a folder."""
    require_duckdb()
    import duckdb

    options: dict[str, Any] = {
        # Never download extensions automatically: without a network, the download may hang.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": folder,
        # Each file is read only once, so a cache of files would waste memory.
        "enable_external_file_cache": False,
    }
    if settings is not None and settings.memory_limit is not None:
        options["memory_limit"] = settings.memory_limit
    if settings is not None and settings.threads is not None:
        options["threads"] = settings.threads
    with duckdb_errors():
        connection = duckdb.connect(":memory:", config=options)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        # A table name in a query must never resolve to a Python variable of the caller.
        connection.execute("SET GLOBAL python_enable_replacements = false")
        configure(connection)
    return connection


def configure(connection: duckdb.DuckDBPyConnection) -> None:
    """Apply the settings that DuckDB has only per connection."""
    connection.execute("SET enable_progress_bar = false")  # it writes to standard output


@contextmanager
def temporary_database(
    settings: EngineSettings | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory database; close it and delete its folder at the end of the block."""
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
    """Raise DuckDB's errors as `TxnLogEngineError`; a missing file as `MissingDataFilesError`."""
    require_duckdb()
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise TxnLogEngineError(
            str(error),
            engine="duckdb",
            help="Raise engine.memory_limit, or free disk space for temporary files.",
        ) from error
    except duckdb.IOException as error:
        message = str(error).partition("\n\nLINE ")[0]
        path = _file_in(message)
        is_temporary = path is not None and os.path.basename(path).startswith("duckdb_temp")
        if path is not None and not is_temporary and not os.path.exists(path):
            raise missing_file(path, None) from error
        raise TxnLogEngineError(
            message,
            engine="duckdb",
            help="Check the permissions of the file and the free disk space.",
        ) from error
    except duckdb.InvalidInputException as error:
        # DuckDB raises this error for damaged files, but also for invalid function arguments.
        help_ = f"If this message names a file, that file is damaged. {DAMAGED_HELP}"
        raise TxnLogEngineError(str(error), engine="duckdb", help=help_) from error
    except duckdb.Error as error:
        raise TxnLogEngineError(str(error), engine="duckdb") from error


def _file_in(message: str) -> str | None:
    """Return the local file that a message names; the message has its path or its glob pattern.

    >>> _file_in('IO Error: No files found that match the pattern "/lake/a[*].parquet"')
    '/lake/a*.parquet'
    """
    found = re.search(r'"(/.+)"', message)
    return None if found is None else re.sub(r"\[([*?\[])\]", r"\1", found.group(1))
