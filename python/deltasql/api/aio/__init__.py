"""Catalogs, tables and transactions for asyncio.

A log in PostgreSQL is read over async connections. All other blocking work runs in a bounded number
of threads. A cancelled task never leaves a partial commit.
"""

from deltasql.api.aio.catalog import AsyncCatalog, AsyncTable, connect
from deltasql.api.aio.transaction import AsyncTransaction

__all__ = ["AsyncCatalog", "AsyncTable", "AsyncTransaction", "connect"]
