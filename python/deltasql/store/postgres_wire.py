"""What every small call asks PostgreSQL, spoken to libpq itself.

A cursor costs more than the short statements of an append, and waits where it sends. Here they
are two steps: the server works from `send` on, and `answer` takes what became of it.
"""

from __future__ import annotations

import select
import selectors
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from deltasql.store.statements import PARAMETER, statement

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.pq.abc import PGconn, PGresult

    from deltasql.store.dialect import Row

    Connection = psycopg.Connection[Row]

BRISK = frozenset(
    {
        *("applied_migrations", "table_by_name", "table_and_head", "read_head", "metadata_of"),
        *("protocol_of", "append_one_file", "record_published"),
    }
)
"""Statements whose parameters and rows are of the few types that are known here."""

_OTHER, _NULL, _BOOL, _BYTES, _INT, _TEXT, _TEXTS = -1, 0, 16, 17, 20, 25, 1009
_TYPES: dict[type, int] = {
    type(None): _NULL,  # it is of the type that the statement asks for
    bool: _BOOL,
    bytes: _BYTES,
    int: _INT,
    str: _TEXT,
    list: _TEXTS,
}
_LOADED: dict[int, Callable[[bytes], Any]] = {_INT: int, _TEXT: bytes.decode}
_PREPARED = "_deltasql_prepared"
_MOST_PREPARED = 50  # a statement counts once for each choice of parameters that are null
_numbers = count()
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


def ask(
    connection: Connection,
    name: str,
    params: dict[str, Any],
    meanwhile: Callable[[], None] | None = None,
) -> list[Row]:
    """Run a statement and return its rows; `meanwhile` is called while the server works."""
    try:
        send(connection, name, params)
        if meanwhile is not None:
            meanwhile()
        try:
            return answer(connection)
        except InvalidSqlStatementName:
            return ask_anew(connection, name, params)
    except psycopg.Error:
        raise
    except BaseException:
        connection.close()  # an answer that nobody takes would be taken for the next one
        raise


def ask_anew(connection: Connection, name: str, params: dict[str, Any]) -> list[Row]:
    """Run a statement whose prepared form is gone.

    psycopg lets go of all prepared statements after a ROLLBACK, of ours too. Nothing was done
    yet, and outside of a transaction nothing is spoilt by that.
    """
    connection.__dict__[_PREPARED].clear()
    send(connection, name, params)
    return answer(connection)


def send(
    connection: Connection, name: str, params: dict[str, Any], *, prepares: bool = True
) -> None:
    """Send a statement and return; nothing else may be sent before `answer`."""
    text, names = numbered(name)
    values = [params[each] for each in names]
    types = tuple(
        [_TYPES[type(value)] if type(value) in _TYPES else _type_of(value) for value in values]
    )
    formats = [int(each == _BYTES) for each in types]
    encoded = [_ENCODERS[number](value) for number, value in zip(types, values, strict=True)]
    pgconn = connection.pgconn
    # Prepared when it comes for the second time; who calls once is spared a round trip.
    known: dict[tuple[str, tuple[int, ...]], bytes] = connection.__dict__.setdefault(_PREPARED, {})
    key = (name, types)
    # In a transaction one that is not there any more would spoil the transaction.
    prepares = prepares and pgconn.transaction_status == TransactionStatus.IDLE
    prepared = known.get(key) if prepares else None
    if prepared == b"" and sum(map(bool, known.values())) < _MOST_PREPARED:
        prepared = b"deltasql_%d" % next(_numbers)
        pgconn.send_prepare(prepared, text, types)
        flush(pgconn)
        answer(connection)
        known[key] = prepared
    if prepared:
        pgconn.send_query_prepared(prepared, encoded, formats)
    else:
        pgconn.send_query_params(text, encoded, types, formats)
        if prepares:
            known[key] = b""
    flush(pgconn)


def answer(connection: Connection) -> list[Row]:
    """Wait for what was sent; raises what the server refused, or that it is lost."""
    pgconn = connection.pgconn
    rows: list[Row] = []
    refusal: psycopg.Error | None = None
    while True:
        result = next_result(pgconn)
        if result is None:
            break
        if result.status not in _DONE:
            refusal = error_from_result(result)
        elif result.ntuples:
            columns = [_LOADED[result.ftype(number)] for number in range(result.nfields)]
            rows += [
                tuple(
                    [
                        None if (value := result.get_value(row, number)) is None else load(value)
                        for number, load in enumerate(columns)
                    ]
                )
                for row in range(result.ntuples)
            ]
    if refusal is None:
        return rows
    raise told(pgconn, refusal)


def next_result(pgconn: PGconn) -> PGresult | None:
    """Wait for the next result of what was sent; None after the last."""
    while pgconn.is_busy():
        wait(pgconn)
        pgconn.consume_input()
    return pgconn.get_result()


def told(pgconn: PGconn, refusal: psycopg.Error) -> psycopg.Error:
    """Return what the server refused, or that it is lost."""
    if pgconn.status != ConnStatus.OK and not refusal.sqlstate:
        return psycopg.OperationalError("the connection was lost")
    return refusal


def has_news(pgconn: PGconn) -> bool:
    """Tell whether the server has said something that nobody asked for: a farewell perhaps."""
    return wait(pgconn, timeout_ms=0)


def wait(pgconn: PGconn, *, to_write: bool = False, timeout_ms: int | None = None) -> bool:
    """Wait until the socket is ready; False when it was not in time."""
    if _poll is None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if to_write else 0)
        # Not `select` where there is another: it knows no socket above 1,023.
        with selectors.DefaultSelector() as selector:
            selector.register(pgconn.socket, events)
            return bool(selector.select(None if timeout_ms is None else timeout_ms / 1000))
    poll = _poll()
    poll.register(pgconn.socket, select.POLLIN | (select.POLLOUT if to_write else 0))
    return bool(poll.poll(timeout_ms))


_poll = getattr(select, "poll", None)


def flush(pgconn: PGconn) -> None:
    """Send what is still to be sent."""
    while pgconn.flush():  # more than the socket takes at once
        wait(pgconn, to_write=True)
        pgconn.consume_input()


@cache
def numbered(name: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a block as libpq takes it, and the names of its parameters in order."""
    text = statement(name, "postgres")
    names = tuple(dict.fromkeys(PARAMETER.findall(text)))
    return PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text).encode(), names


# The texts are code: they are made with the module, not when a catalog is first opened.
for _each in BRISK:
    numbered(_each)


def _type_of(value: object) -> int:
    """Return the type of a value of some class of its own."""
    for kind, number in _TYPES.items():
        if isinstance(value, kind):
            return number
    if hasattr(value, "__index__"):
        return _INT
    raise TypeError(f"{type(value).__name__} is no parameter of a statement")


def _text(value: str) -> bytes:
    encoded = value.encode()
    if b"\0" in encoded:  # libpq would send what comes before it
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return encoded


def _texts(values: list[str]) -> bytes:
    r"""Return a list as PostgreSQL reads it.

    >>> print(_texts(['a"b', "c"]).decode())
    {"a\"b","c"}
    """
    quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in values)
    return _text("{" + ",".join(f'"{each}"' for each in quoted) + "}")


# Where there are such, functions that Python need not interpret: an append has thirty parameters.
_ENCODERS: dict[int, Callable[[Any], bytes | None]] = {
    _NULL: {None: None}.get,
    _BOOL: {False: b"f", True: b"t"}.__getitem__,
    _BYTES: bytes,
    _INT: b"%d".__mod__,
    _TEXT: _text,
    _TEXTS: _texts,
}
