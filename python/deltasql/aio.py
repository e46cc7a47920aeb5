"""`deltasql.aio`: catalogs, tables and transactions for code with an event loop."""

from deltasql.api.aio import AsyncCatalog, AsyncTable, AsyncTransaction, connect

__all__ = ["AsyncCatalog", "AsyncTable", "AsyncTransaction", "connect"]
