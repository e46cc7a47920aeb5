"""What a connection to PostgreSQL is given: its schema, its limits, and an end to every wait.

None of it is sent as startup options, which PgBouncer refuses or silently drops. A connection to
the server itself gets it as settings of its session, in one statement when it is made. Behind a
pooler in transaction mode a session is shared with other clients: there nothing is prepared, and
every transaction sets the same for itself (`use_settings`).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.numeric import Int8Dumper

from deltasql.exceptions import StoreUnavailableError
from deltasql.store.dialect import Row
from deltasql.store.statements import PARAMETER, numbered, statement

if TYPE_CHECKING:
    from collections.abc import Generator

    from deltasql.config import Config
    from deltasql.uri import DeltaSqlUri, Pooler

_ASK_AFTER = 0.5
# A server that has not ended a statement so long after its limit does not answer at all.
_GRACE_S = 10.0
_ASKING_S = 2
_LIMITS = {
    "lock_timeout": "lock_timeout_ms",
    "statement_timeout": "statement_timeout_ms",
    "idle_timeout": "idle_transaction_timeout_ms",
}
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What the connections of a catalog are to be given."""

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
        """Return the statement for a new connection; without a row, a pooler is in between.

        The server sets nothing when its process is not the one that the client knows: then the
        session belongs to others too.
        """
        guard = backend_pid if self.pooler == "auto" else 0
        return self._statement(is_local=self.pooler == "transaction", backend_pid=guard)

    def local_statement(self) -> tuple[Any, list[Any]]:
        """Return the statement for a connection behind a pooler: nothing is left set."""
        return self._statement(is_local=True, backend_pid=0)

    def _statement(self, *, is_local: bool, backend_pid: int) -> tuple[Any, list[Any]]:
        also = {"is_local": is_local, "backend_pid": backend_pid}
        return numbered("apply_settings", {**self.values, **also})

    def state(self, row: Row, *, is_pooled: bool) -> SessionState:
        """Return what holds on a connection, by the row of the last statement."""
        schema, search_path, lock_timeout, statement_timeout, idle_timeout = row
        wanted = self.search_path
        if wanted is not None and (schema or "").lower() != wanted.lower():
            raise StoreUnavailableError(
                f"the schema {wanted!r} of the URI is not in use: it does not exist, or this user "
                "may not use it",
                backend="postgres",
                help=f"As its owner: CREATE SCHEMA {wanted}; GRANT USAGE ON SCHEMA {wanted} TO "
                "the user (docs/guides/production.md#roles). Or correct ?search_path=.",
            )
        return SessionState(
            is_pooled=is_pooled,
            search_path=search_path,
            lock_timeout=lock_timeout,
            statement_timeout=statement_timeout,
            idle_timeout=idle_timeout,
            bulk_timeout=str(self.bulk_timeout_ms),
        )


@dataclass(frozen=True, slots=True)
class SessionState:
    """What holds on one connection, in PostgreSQL's own spelling."""

    is_pooled: bool
    search_path: str
    lock_timeout: str
    statement_timeout: str
    idle_timeout: str
    bulk_timeout: str

    def begin(self, *, is_bulk: bool) -> str:
        """Return what begins a transaction, with settings of its own where it needs them."""
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        if not (is_bulk or self.is_pooled):
            return begin
        return f"{begin}; {self.use_settings(is_bulk=is_bulk)}"

    def use_settings(self, *, is_bulk: bool) -> str:
        """Return the statement that sets all of it for one transaction, without parameters.

        So it travels with others in one round trip: psycopg's pipelines end with a message that
        PgBouncer gives a server of its own, which it never gets back.
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
        """How long a statement may take; 0 is without a limit."""
        return _seconds(self.bulk_timeout if is_bulk else self.statement_timeout)

    @property
    def asks_after_s(self) -> float:
        """After how long a wait it is asked who holds the lock; 0 is never.

        In the middle of the wait: after its end nobody waits any more, and asking takes time.
        """
        return _ASK_AFTER * _seconds(self.lock_timeout)


class Connection(psycopg.Connection[Row]):
    """A connection that remembers when it was last used, and ends a wait without an answer."""

    used_at = 0.0
    state: SessionState
    problem: StoreUnavailableError | None = None
    limit_s = 30.0
    """How long the server may take for a statement; 0 is for ever."""
    holders: str | None = None
    """Who held the lock that the last slow statement waited for."""
    address = ""
    _asks_after_s = 0.0

    def set_up(self, settings: SessionSettings, address: str) -> None:
        """Give the connection its schema and limits, and see which of them hold."""
        self.address = address
        # One width for every integer keeps one prepared statement per text.
        self.adapters.register_dumper(int, Int8Dumper)
        pid = self.info.backend_pid
        rows = self.execute(*settings.first_statement(pid)).fetchall()
        is_pooled = settings.pooler == "transaction" or not rows
        if not rows:
            rows = self.execute(*settings.local_statement()).fetchall()
        # Behind a pooler a prepared statement could be met by another client, or another's by us.
        self.prepare_threshold = None if is_pooled else 2
        try:
            self.state = settings.state(rows[0], is_pooled=is_pooled)
        except StoreUnavailableError as error:
            self.problem = error
            return
        self.reset_limit()
        self._asks_after_s = self.state.asks_after_s

    def reset_limit(self) -> None:
        """Go back to the limit of a statement that is not part of bulk work."""
        self.limit_s = self.state.limit_s(is_bulk=False)

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server, as psycopg does, but not without an end."""
        return super().wait(self._watched(gen), *args, **options)

    def _watched(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        began = time.monotonic()
        has_asked = False
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready:  # nothing came within psycopg's interval of 0.1 s
                    waited = time.monotonic() - began
                    if not has_asked and 0 < self._asks_after_s <= waited:
                        has_asked = True
                        self.holders = self._ask_for_holders()
                    if 0 < self.limit_s < waited - _GRACE_S:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(
                            f"the server did not answer for {waited:.0f} s"
                        )
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value

    def _ask_for_holders(self) -> str | None:
        """Ask on a second connection who holds what this one waits for."""
        # The process that serves us is known to the pooler alone: who waits by our name is asked.
        pid = 0 if self.state.is_pooled else self.info.backend_pid
        return lock_holders(self.address, pid)


def lock_holders(address: str, pid: int) -> str | None:
    """Say who holds what a session waits for, None when nobody does or it cannot be asked."""
    try:
        with Connection.connect(
            address, autocommit=True, cursor_factory=psycopg.RawCursor, connect_timeout=_ASKING_S
        ) as other:
            other.limit_s = _ASKING_S
            name = other.info.parameter_status("application_name")
            asked = numbered("lock_holders", {"pid": pid, "application_name": name})
            rows = other.execute(*asked).fetchall()
    except psycopg.Error:
        return None
    return "; ".join(_holder(*row) for row in rows) or None


def _holder(
    pid: int,
    user: str | None,
    application: str | None,
    address: str | None,
    state: str | None,
    seconds: float | None,
) -> str:
    # What another user does is told to few roles.
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
    """Read a time as PostgreSQL shows it: 0, 500ms, 30s, 5min."""
    found = re.fullmatch(r"(\d+) ?(\w*)", text)
    return 0.0 if found is None else int(found[1]) * _UNITS_MS[found[2]] / 1000
