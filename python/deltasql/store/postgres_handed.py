"""A statement that is handed to PostgreSQL while the process goes on.

Once it is in the socket the server runs it, also when the process dies. What became of it is
looked at before the connection is used again.
"""

from __future__ import annotations

import logging
import selectors
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import ExecStatus

from deltasql import telemetry
from deltasql.store.statements import PARAMETER, statement

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_log = logging.getLogger(__name__)
_TYPES: dict[type, int] = {str: 25, int: 20, list: 1009}  # text, bigint, text[]
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
# Not `select` where there is another: it knows no socket above 1,023. Epoll needs one of its own.
_Selector: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)


def hand_over(pgconn: PGconn, name: str, params: dict[str, Any]) -> bool:
    """Send a statement and return; nothing else may be sent before `collect`.

    False, and nothing was sent, when the server has something to say first: a farewell perhaps.
    """
    if _wait(pgconn, selectors.EVENT_READ, 0):
        return False
    text, names = _numbered(name)
    values = [params[each] for each in names]
    pgconn.send_query_params(text, [_text(v) for v in values], [_TYPES[type(v)] for v in values])
    while pgconn.flush():  # more than the socket takes at once
        _wait(pgconn, selectors.EVENT_READ | selectors.EVENT_WRITE)
        pgconn.consume_input()
    return True


def collect(pgconn: PGconn) -> None:
    """Wait for the answer; a refusal is only logged, a lost connection is an OperationalError."""
    while pgconn.is_busy():
        _wait(pgconn, selectors.EVENT_READ)
        pgconn.consume_input()
    while (result := pgconn.get_result()) is not None:
        if result.status not in _DONE:
            if pgconn.status != psycopg.pq.ConnStatus.OK:
                raise psycopg.OperationalError("the connection was lost")
            refusal = result.get_error_message()
            telemetry.log(_log, logging.WARNING, "a note was refused", error=refusal)


def _wait(pgconn: PGconn, events: int, timeout_s: float | None = None) -> bool:
    """Wait until the socket is ready; False when it was not in time."""
    with _Selector() as selector:
        selector.register(pgconn.socket, events)
        return bool(selector.select(timeout_s))


@cache
def _numbered(name: str) -> tuple[bytes, tuple[str, ...]]:
    text = statement(name, "postgres")
    names = tuple(dict.fromkeys(PARAMETER.findall(text)))
    return PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text).encode(), names


def _text(value: str | int | list[str]) -> bytes:
    """Return a parameter as PostgreSQL reads it.

    >>> _text(['a"b', "c"])
    b'{"a\\\\"b","c"}'
    """
    if isinstance(value, list):
        quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in value)
        return ("{" + ",".join(f'"{each}"' for each in quoted) + "}").encode()
    return str(value).encode()
