"""Catalogs, tables and transactions for code with an event loop.

The log in PostgreSQL is read over async connections; everything else that blocks runs in a
bounded number of threads. A task that is cancelled leaves nothing half-done.
"""

from deltasql.api.aio.catalog import AsyncCatalog, connect
from deltasql.api.aio.table import AsyncTable
from deltasql.api.aio.transaction import AsyncTransaction

__all__ = ["AsyncCatalog", "AsyncTable", "AsyncTransaction", "connect"]
