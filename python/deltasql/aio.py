"""`deltasql.aio`: catalogs, tables and transactions for asyncio."""

from deltasql.api.aio import AsyncCatalog, AsyncTable, AsyncTransaction, connect

__all__ = ["AsyncCatalog", "AsyncTable", "AsyncTransaction", "connect"]
