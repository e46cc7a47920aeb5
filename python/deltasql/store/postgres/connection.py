"""A connection to PostgreSQL with its settings: search path, timeouts and a limit for every wait.

The settings are not sent as startup options, because PgBouncer rejects or silently drops these. On
a direct connection, one statement sets them for the session. A pooler in transaction mode shares a
session among clients. Behind one, no statement is prepared, and every transaction sets the settings
for itself (`use_settings`).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.numeric import Int8Dumper

from deltasql.exceptions import StoreUnavailableError, TxnLogStoreError
from deltasql.exceptions.releases import check_release
from deltasql.store.dialect import Fault, Row
from deltasql.store.statements import PARAMETER, numbered, statement

if TYPE_CHECKING:
    from collections.abc import Generator

    from deltasql.config import Config
    from deltasql.uri import DeltaSqlUri, Pooler

# After this share of the lock timeout, the sessions that hold the lock are looked up.
_LOOK_UP_AT = 0.5
# If a statement has not ended this long after its timeout, the server does not respond at all.
_GRACE_S = 10.0
_LOOK_UP_TIMEOUT_S = 2
_LIMITS = {
    "lock_timeout": "lock_timeout_ms",
    "statement_timeout": "statement_timeout_ms",
    "idle_timeout": "idle_transaction_timeout_ms",
}
_RETRY = {"40001", "40P01"}
_BUSY = {"55P03", "57014"}  # lock timeout, statement timeout
_READ_ONLY = "25006"
_LOST = {"25P03", "25P04", "57P01", "57P02", "57P03", "57P05"}
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings that the connections of a catalog should have."""

    search_path: str | None
    values: dict[str, Any]
    bulk_timeout_ms: int
    pooler: Pooler

    @classmethod
    def of(cls, uri: DeltaSqlUri, config: Config) -> SessionSettings:
        store = config.store
        values: dict[str, Any] = {"search_path": uri.search_path}
        for name, key in _LIMITS.items():
            values[name] = str(getattr(store, key))
            values[f"has_{name}"] = key in store.model_fields_set
        pooler = uri.pooler or store.pooler
        return cls(uri.search_path, values, store.bulk_timeout_ms, pooler)

    def first_statement(self, backend_pid: int) -> tuple[Any, list[Any]]:
        """Return the first statement of a new connection; it returns no row behind a pooler.

        Behind a pooler, the server process that runs the statement is not the one to which the
        client connected. In this case the statement sets nothing, because other clients share the
        session.
        """
        guard = backend_pid if self.pooler == "auto" else 0
        return self._statement(is_local=self.pooler == "transaction", backend_pid=guard)

    def local_statement(self) -> tuple[Any, list[Any]]:
        """Return the statement for a connection behind a pooler; it does not change the session."""
        return self._statement(is_local=True, backend_pid=0)

    def _statement(self, *, is_local: bool, backend_pid: int) -> tuple[Any, list[Any]]:
        options = {"is_local": is_local, "backend_pid": backend_pid}
        return numbered("apply_settings", {**self.values, **options})

    def state(self, row: Row, *, is_pooled: bool) -> SessionState:
        """Return the effective settings of a connection, from the row its statement returned."""
        schema, search_path, lock_timeout, statement_timeout, idle_timeout = row
        wanted = self.search_path
        if wanted is not None and (schema or "").lower() != wanted.lower():
            raise StoreUnavailableError(
                f"the schema {wanted!r} of the URI does not exist, or this user may not use it",
                backend="postgres",
                help=f"As its owner: CREATE SCHEMA {wanted}; GRANT USAGE ON SCHEMA {wanted} TO "
                "the user (`deltasql docs production`). Or correct ?search_path=.",
            )
        return SessionState(
            is_pooled=is_pooled,
            search_path=search_path,
            lock_timeout=lock_timeout,
            statement_timeout=statement_timeout,
            idle_timeout=idle_timeout,
            bulk_timeout=str(self.bulk_timeout_ms),
        )


def server_release(info: psycopg.ConnectionInfo) -> str:
    """Return the release of a server, such as 18.1."""
    return f"{info.server_version // 10_000}.{info.server_version % 10_000}"


@dataclass(frozen=True, slots=True)
class SessionState:
    """The effective settings of one connection, as PostgreSQL shows them."""

    is_pooled: bool
    search_path: str
    lock_timeout: str
    statement_timeout: str
    idle_timeout: str
    bulk_timeout: str

    def begin(self, *, is_bulk: bool) -> str:
        """Return the SQL that begins a transaction and, if needed, applies settings to it."""
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        if not (is_bulk or self.is_pooled):
            return begin
        return f"{begin}; {self.use_settings(is_bulk=is_bulk)}"

    def use_settings(self, *, is_bulk: bool) -> str:
        """Return the statement that applies the settings to one transaction.

        The statement has no parameters, so that it can be sent together with BEGIN in one string. A
        pipeline of psycopg ends with a message for which PgBouncer reserves a server connection and
        never releases it, so it is not used.
        """
        values = {
            "search_path": self.search_path,
            "lock_timeout": self.lock_timeout,
            "statement_timeout": self.bulk_timeout if is_bulk else self.statement_timeout,
            "idle_timeout": self.idle_timeout,
        }
        text = statement("use_settings", "postgres")
        return PARAMETER.sub(lambda match: _literal(values[match[1]]), text)

    def limit_s(self, *, is_bulk: bool) -> float:
        """Return the statement timeout in seconds; 0 means none."""
        return _seconds(self.bulk_timeout if is_bulk else self.statement_timeout)

    @property
    def look_up_holders_after_s(self) -> float:
        """Seconds of waiting after which the holders of the lock are looked up; 0 means never.

        The lookup must happen during the wait, because PostgreSQL does not show afterwards which
        session blocked the statement.
        """
        return _LOOK_UP_AT * _seconds(self.lock_timeout)


class Connection(psycopg.Connection[Row]):
    """A connection with limited waits, its settings and the time of its last use."""

    used_at = 0.0
    state: SessionState
    setup_error: TxnLogStoreError | None = None
    limit_s = 30.0
    """The statement timeout that the server enforces; 0 means none."""
    lock_holders: str | None = None
    """The sessions that held the lock for which the last slow statement waited."""
    address = ""
    _look_up_after_s = 0.0

    def set_up(self, settings: SessionSettings, address: str) -> None:
        """Apply the settings to a new connection, and read the effective settings."""
        self.address = address
        # Send all integers as one type, so that each statement is prepared only once.
        self.adapters.register_dumper(int, Int8Dumper)
        pid = self.info.backend_pid
        rows = self.execute(*settings.first_statement(pid)).fetchall()
        is_pooled = settings.pooler == "transaction" or not rows
        if not rows:
            rows = self.execute(*settings.local_statement()).fetchall()
        # Behind a pooler, nothing is prepared, because clients that share a session would see each
        # other's prepared statements.
        self.prepare_threshold = None if is_pooled else 2
        try:
            check_release("PostgreSQL", server_release(self.info))
            self.state = settings.state(rows[0], is_pooled=is_pooled)
        except TxnLogStoreError as error:
            self.setup_error = error
            return
        self.reset_limit()
        self._look_up_after_s = self.state.look_up_holders_after_s

    def reset_limit(self) -> None:
        """Restore the statement timeout for statements outside bulk transactions."""
        self.limit_s = self.state.limit_s(is_bulk=False)

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server as psycopg does, but with a limit.

        psycopg waits forever if the server stops responding. So this closes the connection some
        time after the statement timeout. During a wait for a lock, it also looks up the sessions
        that hold the lock, for the error message.
        """
        return super().wait(self._with_limit(gen), *args, **options)

    def _with_limit(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        began = time.monotonic()
        has_looked_up = False
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready:  # nothing came within psycopg's interval of 0.1 s
                    waited = time.monotonic() - began
                    if not has_looked_up and 0 < self._look_up_after_s <= waited:
                        has_looked_up = True
                        # Behind a pooler the server process is unknown. With 0, all waiting
                        # sessions with our application name are looked up.
                        pid = 0 if self.state.is_pooled else self.info.backend_pid
                        self.lock_holders = find_lock_holders(self.address, pid)
                    if 0 < self.limit_s < waited - _GRACE_S:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(
                            f"the server did not answer for {waited:.0f} s"
                        )
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value


def classify(error: BaseException) -> Fault:
    """Return the kind of failure of a driver error, by its SQLSTATE."""
    state = getattr(error, "sqlstate", None) or ""
    if state in _RETRY:
        return Fault.RETRY
    if state in _BUSY:
        return Fault.BUSY
    if state == _READ_ONLY:
        return Fault.READ_ONLY
    if state == "23505":
        return Fault.DUPLICATE
    if state in _LOST or state.startswith("08"):
        return Fault.LOST
    if isinstance(error, psycopg.OperationalError) and not state:
        return Fault.LOST
    return Fault.OTHER


def find_lock_holders(address: str, pid: int) -> str | None:
    """Describe the sessions that block a server process; the query uses a second connection.

    Returns None if there are no such sessions, or if the query fails.
    """
    try:
        with Connection.connect(
            address,
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            connect_timeout=_LOOK_UP_TIMEOUT_S,
        ) as other:
            other.limit_s = _LOOK_UP_TIMEOUT_S
            name = other.info.parameter_status("application_name")
            query = numbered("lock_holders", {"pid": pid, "application_name": name})
            rows = other.execute(*query).fetchall()
    except psycopg.Error:
        return None
    return "; ".join(_describe_session(*row) for row in rows) or None


def _describe_session(
    pid: int,
    user: str | None,
    application: str | None,
    address: str | None,
    state: str | None,
    seconds: float | None,
) -> str:
    # Most roles cannot see the details of other users' sessions.
    facts = {
        "user": user,
        "application": application,
        "from": address,
        "state": f"{state} for {seconds:.0f} s" if state and seconds is not None else None,
    }
    known = ", ".join(f"{name} {fact}" for name, fact in facts.items() if fact)
    return f"session {pid} ({known}) holds the lock"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@cache
def _seconds(text: str) -> float:
    """Parse a duration as PostgreSQL shows it (0, 500ms, 30s, 5min) into seconds."""
    found = re.fullmatch(r"(\d+) ?(\w*)", text)
    return 0.0 if found is None else int(found[1]) * _UNITS_MS[found[2]] / 1000
