"""Async reads from PostgreSQL, on psycopg's async connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from deltasql.exceptions import TxnLogStoreError
from deltasql.exceptions.releases import check_release
from deltasql.store.dialect import Fault, Row, no_free_connection
from deltasql.store.postgres.connection import SessionSettings, SessionState, server_release
from deltasql.store.postgres.dialect import conninfo
from deltasql.store.statements import numbered

if TYPE_CHECKING:
    from deltasql.config import Config
    from deltasql.store.store import Store
    from deltasql.uri import DeltaSqlUri


class AsyncConnection(psycopg.AsyncConnection[Row]):
    """A connection with its session state, or the error that occurred during its setup."""

    state: SessionState | None = None
    setup_error: TxnLogStoreError | None = None


class AsyncPostgres:
    """Runs reads by name on a pool of async connections; raises the same errors as the store."""

    def __init__(self, store: Store, uri: DeltaSqlUri, config: Config) -> None:
        self._store, self._settings = store, config.pool
        self._conninfo = conninfo(uri, config)
        self._session = SessionSettings.of(uri, config)
        self._max_size = uri.pool_size or config.pool.max_size
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._opening = asyncio.Lock()

    async def query(self, name: str, /, **params: Any) -> list[Row]:
        """Run one read by name; repeat it if the connection was lost."""
        try:
            return await self._query(name, params)
        except psycopg.Error as error:
            if self._store.classify(error) is not Fault.LOST:
                raise self._store.translate(error) from error
        # Other idle connections are probably lost too, so check all of them.
        await (await self._open()).check()
        try:
            return await self._query(name, params)
        except psycopg.Error as error:
            raise self._store.translate(error) from error

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        if self._pool is not None:
            await self._pool.close()
        self._pool = None

    async def _query(self, name: str, params: dict[str, Any]) -> list[Row]:
        pool = await self._open()
        try:
            async with pool.connection() as connection:
                if connection.setup_error is not None:
                    await connection.close()  # the next call opens a new connection
                    raise connection.setup_error
                text, values = numbered(name, params)
                if connection.state is None or not connection.state.is_pooled:
                    cursor = await connection.execute(text, values)
                else:
                    begin: Any = connection.state.begin(is_bulk=False)
                    await connection.execute(begin, prepare=False)
                    cursor = await connection.execute(text, values)
                    await connection.execute("COMMIT")
                return await cursor.fetchall()
        except PoolTimeout as error:
            raise no_free_connection(self._settings.timeout_s) from error

    async def _open(self) -> AsyncConnectionPool[AsyncConnection]:
        async with self._opening:
            if self._pool is None:
                settings = self._settings
                pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
                    self._conninfo,
                    connection_class=AsyncConnection,
                    kwargs={"autocommit": True, "cursor_factory": psycopg.AsyncRawCursor},
                    min_size=min(settings.min_size, self._max_size),
                    max_size=self._max_size,
                    timeout=settings.timeout_s,
                    max_lifetime=settings.max_lifetime_s,
                    max_idle=settings.max_idle_s,
                    configure=self._configure,
                    name="deltasql-aio",
                    num_workers=1,
                    open=False,
                )
                await pool.open()
                self._pool = pool
            return self._pool

    async def _configure(self, connection: AsyncConnection) -> None:
        connection.adapters.register_dumper(int, Int8Dumper)
        session, pid = self._session, connection.info.backend_pid
        rows = await (await connection.execute(*session.first_statement(pid))).fetchall()
        is_pooled = session.pooler == "transaction" or not rows
        if not rows:
            rows = await (await connection.execute(*session.local_statement())).fetchall()
        connection.prepare_threshold = None if is_pooled else 2
        try:
            check_release("PostgreSQL", server_release(connection.info))
            connection.state = session.state(rows[0], is_pooled=is_pooled)
        except TxnLogStoreError as error:
            connection.setup_error = error
