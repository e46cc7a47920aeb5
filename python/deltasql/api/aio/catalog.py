"""AsyncCatalog: a catalog for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from deltasql.api.aio.log import AsyncLog
from deltasql.api.aio.table import AsyncTable
from deltasql.api.aio.transaction import AsyncTransaction
from deltasql.api.aio.work import Worker, to_the_end
from deltasql.api.catalog import connect as sync
from deltasql.exceptions import CatalogNotFoundError, StoreClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType
    from typing import TypeVar

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.config import Config
    from deltasql.uri import DeltaSqlUri

    T = TypeVar("T")

_THREADS = 8


def connect(
    uri: str | DeltaSqlUri,
    config: Config | None = None,
    *,
    threads: int = _THREADS,
    **settings: Any,
) -> AsyncCatalog:
    """Open a catalog by URI: `async with connect(uri) as catalog`, or `await connect(uri)`.

    Blocking work runs in at most `threads` threads. The other keyword arguments are those of
    `deltasql.connect`: `create`, and settings.

    >>> import asyncio, tempfile, pyarrow as pa
    >>> async def tables(uri):
    ...     async with connect(uri) as catalog:
    ...         await catalog.create_table("orders", pa.schema([("id", pa.int64())]))
    ...         return [table.full_name for table in await catalog.tables()]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(tables(f"deltasql://sqlite/{folder}/meta.db"))
    ['orders']
    """
    return AsyncCatalog(lambda: sync.connect(uri, config, **settings), threads)


class AsyncCatalog:
    """The tables whose logs are in one database; use it as an async context manager."""

    def __init__(self, opening: Callable[[], Catalog], threads: int = _THREADS) -> None:
        self.worker = Worker(threads)
        self._opening = opening
        self._sync: Catalog | None = None
        self._log: AsyncLog | None = None

    def __repr__(self) -> str:
        return f"Async{self._sync!r}" if self._sync else "AsyncCatalog(closed)"

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        try:
            await self.worker.run(self._open)
        except asyncio.CancelledError:
            await self.close()  # the thread may have opened it before the task was cancelled
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Publish all commits that are not published yet, and close every connection.

        Closing a closed catalog does nothing.
        """
        opened, self._sync = self._sync, None
        if opened is not None and self._log is not None:
            await to_the_end(self._close(opened, self._log))

    async def _close(self, opened: Catalog, log: AsyncLog) -> None:
        try:
            await log.close()
        finally:
            await self.worker.run(opened.close)
            await self.worker.close()

    @property
    def sync(self) -> Catalog:
        """The synchronous catalog that does the work."""
        if self._sync is None:
            raise StoreClosedError(
                "the catalog is not open", help="Use it inside of `async with`, or await it."
            )
        return self._sync

    @property
    def log(self) -> AsyncLog:
        """The queries on the log."""
        if self._log is None or self._sync is None:
            raise StoreClosedError(
                "the catalog is not open", help="Use it inside of `async with`, or await it."
            )
        return self._log

    async def tables(self, namespace: str | None = None) -> list[AsyncTable]:
        """List all tables, or those of one namespace, sorted by namespace and name."""
        return [AsyncTable(self, row) for row in await self.log.tables(namespace)]

    async def table(self, name: str, version: int | None = None) -> AsyncTable:
        """Return a table by name; with `version`, its reads see that version."""
        found = AsyncTable(self, await self.log.resolve(name), version)
        if version is not None:
            await found.snapshot()  # raises if the version does not exist
        return found

    async def exists(self, name: str) -> bool:
        """Return whether a table has this name; False if the database has no catalog."""
        try:
            return await self.log.find(name) is not None
        except CatalogNotFoundError:
            return False

    async def create_table(self, name: str, schema: object, **options: Any) -> AsyncTable:
        """Create an empty table at version 0, with the options of `Catalog.create_table`."""
        created = await self.run(lambda catalog: catalog.create_table(name, schema, **options))
        return AsyncTable(self, created.row)

    def begin(self) -> AsyncTransaction:
        """Start a transaction over any number of tables, all seen at the same point in time."""
        return AsyncTransaction(self.sync.begin(), self.worker)

    async def run(self, function: Callable[[Catalog], T]) -> T:
        """Call a function with the synchronous catalog in a thread; return its result."""
        return await self.worker.run(function, self.sync)

    def _open(self) -> None:
        if self._sync is None:
            opened = self._opening()
            self._sync, self._log = opened, AsyncLog(opened, self.worker)
