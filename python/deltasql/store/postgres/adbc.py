"""Bulk reads through ADBC's own classes: its DB-API layer would import pandas and polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from types import ModuleType


class AdbcReader:
    """One ADBC connection that runs queries and returns Arrow."""

    def __init__(self, driver: ModuleType, uri: str) -> None:
        import adbc_driver_manager as adbc  # the shared libraries load slowly; bulk reads only
        from adbc_driver_manager._reader import AdbcRecordBatchReader

        self._adbc, self._reader = adbc, AdbcRecordBatchReader
        self._database: Any = driver.connect(uri)
        try:
            self._connection: Any = adbc.AdbcConnection(self._database)
        except BaseException:
            self._database.close()
            raise

    def read(self, text: str) -> pa.Table:
        """Run one query outside of any transaction: it sees all that was committed before."""
        statement = self._adbc.AdbcStatement(self._connection)
        try:
            statement.set_sql_query(text)
            handle, _ = statement.execute_query()
            # Unlike Arrow's own reader, it keeps the SQLSTATE of what fails between two batches.
            with self._reader._import_from_c(handle.address) as reader:
                table: pa.Table = reader.read_all()
                return table
        finally:
            statement.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._database.close()


def errors() -> tuple[type[Exception], ...]:
    """The exception classes of a read."""
    import adbc_driver_manager as adbc

    return (adbc.Error, pa.ArrowException, OSError)
